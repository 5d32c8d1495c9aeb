"""Attention layers of the pocket model for training: KDA and gated MLA, with every formula the engines must match.

Shapes: B batch, T time, D hidden, H heads, P = H*64. Weights are [out, in] as on disk; masters are FP32, compute
follows x's type (BF16 in training, FP32 in export checks). sigma is the logistic function, silu(z) = z*sigma(z),
rms(x; w) = x / sqrt(mean(x^2) + 1e-6) * w, computed in FP32.

KDA, per head, from h = rms(x; input_layernorm):
  q', k', v' = W_q h, W_k h, W_v h; each channel then z_t = silu(sum_{i=0..3} conv[c, i] * z'_{t-3+i}) (tap 3 = token
  t; zeros before the text). Only then, per head, q = q / sqrt(sum(q^2) + 1e-6) * 64^-0.5 and
  k = k / sqrt(sum(k^2) + 1e-6): convolution, then silu, then the L2 norm with its epsilon under the root (fla's
  l2norm), then q's scale.
  f = W_f h (raw), log decay per key channel g = -5 * sigma(exp(A_log[head]) * (f + dt_bias)),
  beta = sigma(W_b h) per head.
  S <- diag(exp g) S;  S <- S + beta * k (v - k^T S)^T  (the decayed S on both sides);  o = S^T q  (after the update).
  o = rms over the head's 64 values with o_norm[64], times sigma(W_g h) element-wise;  x <- x + W_o o.

MLA, from h = rms(x; input_layernorm):
  q = W_q h, per head 64 nope then 32 rope values; [latent 128 | k_rope 32] = W_kva h; per head [k_nope 64 | v 64] =
  W_kvb rms(latent; kv_a_layernorm). k_rope is shared by the heads and not normalised. Rope is interleaved:
  pairs (x[2i], x[2i+1]) rotate by angle position * 600000^(-2i/32): (a cos - b sin, a sin + b cos).
  softmax(q . k * 96^-0.5) over positions <= t; o = sum p v, times sigma(W_g h) element-wise;  x <- x + W_o o.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from .config import Shape

# How to compute; the trainer sets these. `eager` names functions that are left uncompiled.
OPTIONS = {"kda": "fla", "moe": "grouped", "compile": True, "eager": (), "dtype": torch.bfloat16, "int8": False}
_compiled: dict = {}


def jit(fn):
    """torch.compile on first use, with static shapes, while OPTIONS["compile"] holds; parameters are arguments, so that
    layers share one compilation."""

    def call(*args):
        if not OPTIONS["compile"] or fn.__name__ in OPTIONS["eager"]:
            return fn(*args)
        if fn not in _compiled:
            _compiled[fn] = torch.compile(fn, dynamic=False)
        return _compiled[fn](*args)

    return call


def matrix(*shape: int, scale: float = 1.0) -> nn.Parameter:
    """Random [.., out, in] with standard deviation scale / (2 sqrt(in))."""
    return nn.Parameter(torch.randn(shape) * (0.5 * scale * shape[-1] ** -0.5))


def linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.linear(x, w.to(x.dtype))


def rms(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight).to(x.dtype)


# ------------------------------------------------------------------------------------------------ KDA


@jit
def kda_inputs(x, norm, w_in, w_beta, conv, heads: int):
    """x [B,T,D], w_in [5,P,D] (q k v f g), conv [3,P,4] -> q, k, v, f [B,T,H,K], beta logits [B,T,H], gate
    logits [B,T,P].
    """
    B, T, _ = x.shape
    P, taps = conv.shape[1], conv.shape[2]
    h = rms(x, norm)
    projected = linear(h, w_in.flatten(0, 1))
    qkv, f, g = projected.split([3 * P, P, P], -1)
    padded = F.pad(qkv, (0, 0, taps - 1, 0))
    tap = conv.flatten(0, 1)
    mixed = sum(padded[:, i : i + T].float() * tap[:, i] for i in range(taps))
    q, k, v = F.silu(mixed).to(x.dtype).chunk(3, -1)
    # The kernels want contiguous tensors; asking for them here lets the compiler write them that way.
    q, k, v, f = (t.reshape(B, T, heads, -1).contiguous() for t in (q, k, v, f))
    return q, k, v, f, linear(h, w_beta).contiguous(), g.contiguous()


@jit
def kda_output(x, o, g, o_norm, w_out):
    o = rms(o, o_norm).flatten(-2) * torch.sigmoid(g.float()).to(x.dtype)
    return x + linear(o, w_out)


def _gates(q, k, f, beta, A_log, dt_bias, floor):
    """FP32 q and k normalised, log decay and beta, by the formulas above."""
    H, K = q.shape[-2:]
    q, k = (t / (t.square().sum(-1, keepdim=True) + 1e-6).sqrt() for t in (q.float(), k.float()))
    g = floor * torch.sigmoid(A_log.exp().view(H, 1) * (f.float() + dt_bias.view(H, K)))
    return q * K**-0.5, k, g, torch.sigmoid(beta.float())


def kda_recurrent(q, k, v, f, beta, A_log, dt_bias, floor):
    """The definition, token by token; slow, for checks."""
    q, k, g, b = _gates(q, k, f, beta, A_log, dt_bias, floor)
    S, outs = q.new_zeros(*q.shape[:1], *q.shape[2:], v.shape[-1]), []
    for t in range(q.shape[1]):
        S = g[:, t].exp()[..., None] * S
        fresh = v[:, t].float() - torch.einsum("bhk,bhkv->bhv", k[:, t], S)
        S = S + b[:, t, :, None, None] * k[:, t, ..., None] * fresh[..., None, :]
        outs.append(torch.einsum("bhk,bhkv->bhv", q[:, t], S))
    return torch.stack(outs, 1).to(v.dtype)


def kda_chunked(q, k, v, f, beta, A_log, dt_bias, floor, size: int = 16):
    """The same in chunks of 16 tokens, FP32 in plain PyTorch: for CPU training tests and as a fallback.

    16 keeps exp of the cumulative decay finite in FP32, since one token's log decay is above -5.
    """
    B, T, H, K = q.shape
    q, k, g, b = _gates(q, k, f, beta, A_log, dt_bias, floor)
    out_type, v, n = v.dtype, v.float(), -(-T // size)
    pad = n * size - T
    q, k, v, g = (F.pad(t, (0, 0, 0, 0, 0, pad)).view(B, n, size, H, K).transpose(2, 3) for t in (q, k, v, g))
    b = F.pad(b, (0, 0, 0, pad)).view(B, n, size, H).transpose(2, 3)[..., None]  # all [B,n,H,size,.]
    total = g.cumsum(-2)
    grow, shrink = total.exp(), (-total).exp()
    mix = (b * (k * grow) @ (k * shrink).mT).tril(-1) + torch.eye(size, device=q.device)
    u, w = torch.linalg.solve_triangular(
        mix, torch.cat([b * v, b * k * grow], -1), upper=False, unitriangular=True
    ).chunk(2, -1)
    inside = ((q * grow) @ (k * shrink).mT).tril()
    tail = (total[..., -1:, :] - total).exp() * k
    S, outs = q.new_zeros(B, H, K, K), []
    for c in range(n):
        fresh = u[:, c] - w[:, c] @ S
        outs.append((q[:, c] * grow[:, c]) @ S + inside[:, c] @ fresh)
        S = grow[:, c, :, -1, :, None] * S + tail[:, c].mT @ fresh
    return torch.stack(outs, 1).transpose(2, 3).reshape(B, n * size, H, K)[:, :T].to(out_type)


def kda_fused(q, k, v, f, beta, A_log, dt_bias, floor):
    """fla's Triton kernels: raw gate and beta logits go in; gate, sigmoid and L2 norm are theirs."""
    from fla.ops.kda import chunk_kda

    return chunk_kda(
        q,
        k,
        v,
        f,
        beta,
        A_log=A_log,
        dt_bias=dt_bias,
        use_qk_l2norm_in_kernel=True,
        use_gate_in_kernel=True,
        use_beta_sigmoid_in_kernel=True,
        safe_gate=True,
        lower_bound=floor,
        disable_recompute=True,
    )[0]


KDA_KINDS = {"fla": kda_fused, "chunked": kda_chunked, "recurrent": kda_recurrent}


class KDA(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.s, P = s, s.width
        self.norm = nn.Parameter(torch.ones(s.hidden))
        self.w_in = matrix(5, P, s.hidden)
        self.w_beta = matrix(s.heads, s.hidden)
        taps = 0.02 * torch.randn(3, P, s.conv)
        taps[..., -1] += 1.0  # starts as the identity
        self.conv = nn.Parameter(taps)
        # Initial log decays spread log-uniformly over [-0.5, -1e-3]: memories of 2 to 1000 tokens.
        rate = torch.empty(P).uniform_(math.log(1e-3), math.log(0.5)).exp()
        self.dt_bias = nn.Parameter(torch.logit(rate / -s.gate_floor))
        self.A_log = nn.Parameter(torch.zeros(s.heads))
        self.o_norm = nn.Parameter(torch.ones(s.head_dim))
        self.w_out = matrix(s.hidden, P, scale=(2 * s.layers) ** -0.5)

    def forward(self, x):
        *inputs, g = kda_inputs(x, self.norm, self.w_in, self.w_beta, self.conv, self.s.heads)
        o = KDA_KINDS[OPTIONS["kda"]](*inputs, self.A_log, self.dt_bias, self.s.gate_floor)
        return kda_output(x, o, g, self.o_norm, self.w_out)


# ------------------------------------------------------------------------------------------------ MLA


def rope_table(s: Shape, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """positions [T] -> cos, sin [T, rope_dim/2]."""
    pair = torch.arange(0, s.rope_dim, 2, device=positions.device, dtype=torch.float64)
    angle = positions.double()[:, None] * s.rope_theta ** (-pair / s.rope_dim)
    return angle.cos().float(), angle.sin().float()


def rotate(x, cos, sin):
    """Interleaved rope of x [B,T,h,R]."""
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2).to(x.dtype)


@jit
def mla_inputs(x, norm, w_q, w_kva, kv_norm, w_kvb, w_gate, cos, sin, heads: int, rope: int):
    """-> q, k, v [B,H,T,nope+rope] (v padded with zeros, which flash attention asks for), gate [B,T,P]."""
    B, T, _ = x.shape
    h = rms(x, norm)
    q = linear(h, w_q).view(B, T, heads, -1)
    nope = q.shape[-1] - rope
    latent, shared = linear(h, w_kva).split([kv_norm.shape[0], rope], -1)
    key, value = linear(rms(latent, kv_norm), w_kvb).view(B, T, heads, 2 * nope).chunk(2, -1)
    q = torch.cat([q[..., :nope], rotate(q[..., nope:], cos, sin)], -1)
    k = torch.cat([key, rotate(shared[:, :, None], cos, sin).expand(B, T, heads, rope)], -1)
    gate = torch.sigmoid(linear(h, w_gate).float()).to(x.dtype)
    return q.transpose(1, 2), k.transpose(1, 2), F.pad(value, (0, rope)).transpose(1, 2), gate


@jit
def mla_output(x, o, gate, w_out, rope: int):
    return x + linear(o[..., :-rope].transpose(1, 2).flatten(-2) * gate, w_out)


class MLA(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.s, P = s, s.width
        self.norm = nn.Parameter(torch.ones(s.hidden))
        self.w_q = matrix(s.heads * (s.head_dim + s.rope_dim), s.hidden)
        self.w_kva = matrix(s.kv_lora + s.rope_dim, s.hidden)
        self.kv_norm = nn.Parameter(torch.ones(s.kv_lora))
        self.w_kvb = matrix(2 * P, s.kv_lora)
        self.w_gate = matrix(P, s.hidden)
        self.w_out = matrix(s.hidden, P, scale=(2 * s.layers) ** -0.5)

    def forward(self, x, cos, sin, past: list | None = None, mask: torch.Tensor | None = None):
        """`past`: (k, v) of the earlier draft steps; this step's are appended. `mask` [T, steps*T] then says
        who sees whom.
        """
        s = self.s
        q, k, v, gate = mla_inputs(
            x, self.norm, self.w_q, self.w_kva, self.kv_norm, self.w_kvb, self.w_gate, cos, sin, s.heads, s.rope_dim
        )
        if past is not None:
            past.append((k, v))
        if mask is None:
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            keys, values = (torch.cat(t, 2) for t in zip(*past, strict=True))
            o = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        return mla_output(x, o, gate, self.w_out, s.rope_dim)
