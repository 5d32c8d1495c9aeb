"""The pocket model in plain NumPy: slow, short, and written apart from the C kernels, to hold them against.

Numbers: weights are dequantised to float32; activations run in `dtype` (float32, or float64 for a sharper yardstick);
norms, softmax and decays always run in float64. Shapes: T tokens, D hidden, H heads, K head width, E experts, V words.

The exact form of each step:

- RMS norm: x / sqrt(mean(x^2) + 1e-6) * weight.
- KDA (gated delta rule with one decay per channel): q, k, v pass a causal depthwise convolution over the last four
  projected values (tap 3 is the current token) and SiLU; q and k are divided by sqrt(sum(x^2) + 1e-6) per head and q is
  scaled by K^-0.5; the log decay is g = -5 sigmoid(exp(A_log) (f + dt_bias)), beta = sigmoid(b_proj h). Per head and
  token S = diag(exp g) S;  S += beta k (v - k^T S)^T;  o = S^T q.
- MLA: one latent (RMS-normed) and one rotary key per token are cached; kv_b_proj expands the latent to keys and values.
- Router: scores sigmoid(W h); the bias only takes part in the choice; ties go to the lower index.
- W4A8 (the engine's expert arithmetic): activations in groups of 32 become integers round(x / s), s = max|x| / 127,
  rounded to nearest even, for both the gate/up and the down product. A last-bit difference can flip such a rounding,
  and later the choice of an expert, so two right implementations agree closely on `feed_forward` of the same input
  and on the first token, and on later logits only to about a tenth (float32 against float64 of this file does no
  better).
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import ml_dtypes
import numpy as np

# E2M1: sign bit, two exponent bits, one mantissa bit (OCP Microscaling Formats v1.0, table 5).
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
E4M3_MAX = 448.0
E4M3_LEAST = 2.0**-6  # the smallest normal e4m3 number; smaller ones count as zero in a head made here
EPS = 1e-6
GROUP = 32
DTYPES = {"F32": np.float32, "BF16": ml_dtypes.bfloat16, "F8_E4M3": ml_dtypes.float8_e4m3fn, "U8": np.uint8}

Taps = dict[str, np.ndarray]


# ---------------------------------------------------------------- number formats


def dequantise_blocks(codes: np.ndarray, scale_inv: np.ndarray, block: int = 128) -> np.ndarray:
    """FP8 [N, K] times the scale of its 128 x 128 block [ceil(N/128), ceil(K/128)] -> float32 [N, K]."""
    n, k = codes.shape
    scale = np.repeat(np.repeat(scale_inv, block, 0)[:n], block, 1)[:, :k]
    return codes.astype(np.float32) * scale


def dequantise_mxfp4(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """E2M1 pairs U8 [..., N, K/2] (low nibble first) and E8M0 scales U8 [..., N, K/32] -> float32 [..., N, K]."""
    pairs = np.stack([codes & 15, codes >> 4], -1)
    values = E2M1[pairs].reshape(*codes.shape[:-1], -1, GROUP)
    scale = np.ldexp(np.float32(1), scales.astype(np.int32) - 127)
    return (values * scale[..., None]).reshape(*codes.shape[:-1], -1).astype(np.float32)


def quantise_head(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The FP8 head made at load: [V, D] -> e4m3 codes [V, D] and a float32 scale per row [V], weight = code * scale."""
    scale = (np.abs(weight).max(1) / E4M3_MAX).astype(np.float32)
    scale[scale == 0] = 1.0
    codes = (weight / scale[:, None]).astype(ml_dtypes.float8_e4m3fn)
    codes[np.abs(codes.astype(np.float32)) < E4M3_LEAST] = 0
    return codes, scale


def quantise_activations(x: np.ndarray) -> np.ndarray:
    """What the W4A8 expert product sees of x [..., K]: in groups of 32, integers of -127..127 times a scale."""
    groups = x.astype(np.float32).reshape(*x.shape[:-1], -1, GROUP)
    scale = np.abs(groups).max(-1, keepdims=True) / np.float32(127)
    with np.errstate(divide="ignore", invalid="ignore"):
        codes = np.where(scale > 0, np.rint(groups / scale), 0)
    return (codes * scale).reshape(x.shape).astype(x.dtype)


# ---------------------------------------------------------------- small functions


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * x.astype(np.float64)))


def silu(x: np.ndarray) -> np.ndarray:
    return (x * sigmoid(x)).astype(x.dtype)


def rms(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    return (wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + EPS) * weight).astype(x.dtype)


def rotate(x: np.ndarray, positions: np.ndarray, theta: float) -> np.ndarray:
    """Interleaved rotary embedding: pairs (2i, 2i+1) of x [T, h, R] turn by position * theta^(-2i/R)."""
    width = x.shape[-1]
    angle = positions[:, None].astype(np.float64) * theta ** (-np.arange(0, width, 2) / width)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    even, odd = x[..., 0::2].astype(np.float64), x[..., 1::2].astype(np.float64)
    return np.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(x.shape).astype(x.dtype)


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """q [T, H, R], k [S, H, R], v [S, H, W], allowed [T, S] -> [T, H * W]."""
    score = np.einsum("thr,shr->hts", q, k).astype(np.float64) * q.shape[-1] ** -0.5
    score = np.where(allowed, score, -np.inf)
    weight = np.exp(score - score.max(-1, keepdims=True))
    weight /= weight.sum(-1, keepdims=True)
    return np.einsum("hts,shw->thw", weight, v).reshape(len(q), -1).astype(q.dtype)


# ---------------------------------------------------------------- weights and state


def read_safetensors(file: Path) -> Taps:
    """Every tensor of a safetensors file, mapped, not copied (the package's own NumPy reader has no FP8)."""
    body = np.memmap(file, np.uint8, "r")
    start = 8 + int(body[:8].view("<u8")[0])
    header = json.loads(bytes(body[8:start]))
    header.pop("__metadata__", None)
    return {
        name: body[start + t["data_offsets"][0] : start + t["data_offsets"][1]]
        .view(DTYPES[t["dtype"]])
        .reshape(t["shape"])
        for name, t in header.items()
    }


class Weights:
    """A model folder, read tensor by tensor: `weights["model.norm.weight"]`, dequantised to float32 and kept."""

    def __init__(self, folder: str | Path):
        folder = Path(folder)
        self.config = json.loads((folder / "config.json").read_text())
        index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
        self._files = {name: folder / file for name, file in index.items()}
        self._tensors = {f: read_safetensors(f) for f in set(self._files.values())}
        self._kept: dict[str, np.ndarray] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def raw(self, name: str) -> np.ndarray:
        """The tensor as stored."""
        return self._tensors[self._files[name]][name]

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._kept:
            self._kept[name] = self._load(name)
        return self._kept[name]

    def _load(self, name: str) -> np.ndarray:
        if name + "_codes" in self:
            return dequantise_mxfp4(self.raw(name + "_codes"), self.raw(name + "_scales"))
        if name + "_scale_inv" in self:
            return dequantise_blocks(self.raw(name), self.raw(name + "_scale_inv"))
        return self.raw(name).astype(np.float32)


@dataclass
class LayerState:
    """One layer's memory. KDA: the last three projected values and S [H, K, K]. MLA: latents and rotary keys."""

    conv: np.ndarray | None = None
    memory: np.ndarray | None = None
    latent: np.ndarray | None = None
    rope: np.ndarray | None = None


@dataclass
class State:
    """A sequence in progress: `length` tokens seen, one LayerState per layer."""

    layers: list[LayerState]
    length: int = 0


@dataclass
class DraftState:
    """Step-1 entries of the NEXTN layer, one per position."""

    layer: LayerState = field(default_factory=LayerState)
    length: int = 0


# ---------------------------------------------------------------- the model


class Reference:
    """The model of one folder.

    weights: folder (path) or Weights. w4a8: quantise expert activations as the engine does. fp8_head: use the FP8 head
    made at load. dtype: of activations and products.
    """

    def __init__(self, weights: str | Path | Weights, *, w4a8: bool = False, fp8_head: bool = False, dtype=np.float32):
        self.w = weights if isinstance(weights, Weights) else Weights(weights)
        self.config, self.w4a8, self.fp8_head, self.dtype = self.w.config, w4a8, fp8_head, dtype
        self._head: np.ndarray | None = None

    # -- whole sequences

    def new_state(self) -> State:
        return State([LayerState() for _ in range(self.config["num_hidden_layers"])])

    def hidden(self, ids: Iterable[int], state: State | None = None, taps: Taps | None = None) -> np.ndarray:
        """Hidden after the final norm [T, D] of `ids`, continuing `state` when given (it is advanced).

        taps: filled with "embedding", "layer.<i>.attention", "layer.<i>" (residual stream after each half layer),
        "layer.<i>.experts" (chosen [T, k]) and "final".
        """
        state = state or self.new_state()
        ids = np.asarray(list(ids), np.int64)
        positions = state.length + np.arange(len(ids))
        x = self._tap(taps, "embedding", self.w["model.word_embeddings.weight"][ids].astype(self.dtype))
        for i, layer in enumerate(state.layers):
            prefix = f"model.layers.{i}."
            h = rms(x, self.w[prefix + "input_layernorm.weight"])
            if (i + 1) % self.config["layer_group_size"] == 0:
                x = x + self._mla(prefix + "attention.", h, positions, layer)
            else:
                x = x + self._kda(prefix + "attention.", h, layer)
            self._tap(taps, f"layer.{i}.attention", x)
            x = self._tap(taps, f"layer.{i}", x + self.feed_forward(i, x, taps))
        state.length += len(ids)
        return self._tap(taps, "final", rms(x, self.w["model.norm.weight"]))

    def logits(self, ids: Iterable[int], state: State | None = None, taps: Taps | None = None) -> np.ndarray:
        """[T, V]: row t scores the token after ids[t]."""
        return self.head(self.hidden(ids, state, taps))

    def head(self, hidden: np.ndarray) -> np.ndarray:
        """LM head, [T, D] -> [T, V]."""
        if self._head is None:
            self._head = self.w["lm_head.weight"]
            if self.fp8_head:
                codes, scale = quantise_head(self._head)
                self._head = codes.astype(np.float32) * scale[:, None]
        return self._product(hidden, self._head)

    # -- drafting

    def draft_hidden(
        self,
        tokens: np.ndarray,
        hidden: np.ndarray,
        draft: DraftState,
        *,
        step: int = 1,
        own: list[list[np.ndarray]] | None = None,
    ) -> np.ndarray:
        """One NEXTN step for T consecutive positions: tokens [T] (token t+step), hidden [T, D] of the step before.

        Step 1 appends its entries to `draft`. Later steps (of the last T positions that step 1 appended) see the step-1
        entries up to their position and `own`, the entries of steps 2..step at that position, to which they append.
        -> hidden after final_layernorm [T, D], read by the head and by the next step.
        """
        p = f"model.layers.{self.config['num_hidden_layers']}."
        embedded = self.w["model.word_embeddings.weight"][np.asarray(tokens)].astype(self.dtype)
        mixed = np.concatenate([rms(embedded, self.w[p + "enorm.weight"]), rms(hidden, self.w[p + "hnorm.weight"])], -1)
        x = self._product(mixed, self.w[p + "eh_proj.weight"])
        h = rms(x, self.w[p + "input_layernorm.weight"])
        first = draft.length if step == 1 else draft.length - len(x)
        positions = first + np.arange(len(x))
        if step == 1:
            draft.length += len(x)
        x = x + self._mla(p + "attention.", h, positions, draft.layer, shift=step - 1, own=own)
        h = rms(x, self.w[p + "post_attention_layernorm.weight"])
        return rms(x + self._moe(p + "mlp.", h), self.w[p + "final_layernorm.weight"])

    def draft_logits(self, ids: Iterable[int], steps: int) -> list[np.ndarray]:
        """Teacher-forced recursive drafts: entry s-1 is [T-s, V], row t scores token t+s+1 from position t."""
        ids = np.asarray(list(ids), np.int64)
        hidden, out = self.hidden(ids), []
        draft, own = DraftState(), []
        padded = np.concatenate([ids, np.zeros(steps, np.int64)])
        for s in range(1, steps + 1):
            hidden = self.draft_hidden(padded[s : s + len(ids)], hidden, draft, step=s, own=own if s > 1 else None)
            out.append(self.head(hidden[: len(ids) - s]))
        return out

    # -- layers

    def _kda(self, p: str, h: np.ndarray, state: LayerState) -> np.ndarray:
        c = self.config
        heads, width, T = c["num_attention_heads"], c["head_dim"], len(h)
        project = {n: self._product(h, self.w[f"{p}{n}_proj.weight"]) for n in "qkvfgb"}
        taps = np.concatenate([self.w[f"{p}{n}_conv1d.weight"] for n in "qkv"])  # [3P, 4]
        reach = taps.shape[1] - 1
        raw = np.concatenate([project[n] for n in "qkv"], -1)  # [T, 3P]
        before = state.conv if state.conv is not None else np.zeros((reach, raw.shape[1]), self.dtype)
        window = np.concatenate([before, raw])
        state.conv = window[-reach:]
        mixed = silu(sum(window[i : i + T] * taps[:, i] for i in range(reach + 1)).astype(self.dtype))
        q, k, v = (t.reshape(T, heads, width).astype(np.float64) for t in np.split(mixed, 3, -1))
        q, k = (t / np.sqrt((t * t).sum(-1, keepdims=True) + EPS) for t in (q, k))
        q = q * width**-0.5
        rate = np.exp(self.w[p + "A_log"].astype(np.float64))[:, None]
        f = (project["f"] + self.w[p + "dt_bias"]).reshape(T, heads, width)
        decay = np.exp(c["kda_lower_bound"] * sigmoid(rate * f))  # [T, H, K]
        beta = sigmoid(project["b"])  # [T, H]
        S = state.memory if state.memory is not None else np.zeros((heads, width, width))
        out = np.empty((T, heads, width))
        for t in range(T):
            S = decay[t, :, :, None] * S
            fresh = beta[t, :, None] * (v[t] - np.einsum("hk,hkv->hv", k[t], S))
            S = S + k[t, :, :, None] * fresh[:, None, :]
            out[t] = np.einsum("hk,hkv->hv", q[t], S)
        state.memory = S
        gated = rms(out, self.w[p + "o_norm.weight"]).reshape(T, -1) * sigmoid(project["g"])
        return self._product(gated.astype(self.dtype), self.w[p + "o_proj.weight"])

    def _mla(
        self,
        p: str,
        h: np.ndarray,
        positions: np.ndarray,
        state: LayerState,
        *,
        shift: int = 0,
        own: list[list[np.ndarray]] | None = None,
    ) -> np.ndarray:
        """positions [T]; rotary angles use position + shift. own: a draft's later entries, kept out of `state`."""
        c = self.config
        heads, nope, rope, rank = (
            c[n] for n in ("num_attention_heads", "qk_nope_head_dim", "qk_rope_head_dim", "kv_lora_rank")
        )
        T = len(h)
        q = self._product(h, self.w[p + "q_proj.weight"]).reshape(T, heads, nope + rope)
        q = np.concatenate([q[..., :nope], rotate(q[..., nope:], positions + shift, c["rope_theta"])], -1)
        joint = self._product(h, self.w[p + "kv_a_proj_with_mqa.weight"])
        latent = rms(joint[:, :rank], self.w[p + "kv_a_layernorm.weight"])
        key = rotate(joint[:, None, rank:], positions + shift, c["rope_theta"])[:, 0]
        if own is None:
            fresh = state.latent is None
            state.latent = latent if fresh else np.concatenate([state.latent, latent])
            state.rope = key if fresh else np.concatenate([state.rope, key])
        else:
            own.append([latent, key])
        k, v = self._expand(p, state.latent, state.rope)
        allowed = np.arange(len(k))[None, :] <= positions[:, None]
        for entry in own or ():
            k_own, v_own = self._expand(p, *entry)
            k, v = np.concatenate([k, k_own]), np.concatenate([v, v_own])
            allowed = np.concatenate([allowed, np.eye(T, dtype=bool)], 1)
        gate = sigmoid(self._product(h, self.w[p + "g_proj.weight"]))
        out = (attend(q, k, v, allowed) * gate).astype(self.dtype)
        return self._product(out, self.w[p + "o_proj.weight"])

    def _expand(self, p: str, latent: np.ndarray, rope: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Cached latent [S, R] and rotary key [S, r] -> keys [S, H, nope + r], values [S, H, v]."""
        c = self.config
        heads, nope = c["num_attention_heads"], c["qk_nope_head_dim"]
        both = self._product(latent, self.w[p + "kv_b_proj.weight"]).reshape(len(latent), heads, -1)
        shared = np.broadcast_to(rope[:, None], (len(rope), heads, rope.shape[1]))
        return np.concatenate([both[..., :nope], shared], -1), both[..., nope:]

    def feed_forward(self, i: int, x: np.ndarray, taps: Taps | None = None) -> np.ndarray:
        """What the second half of layer i adds to the residual stream x [T, D]."""
        p = f"model.layers.{i}."
        h = rms(x, self.w[p + "post_attention_layernorm.weight"])
        if i < self.config["first_k_dense_replace"]:
            return self._swiglu(p + "mlp.", h)
        return self._moe(p + "mlp.", h, taps, f"layer.{i}.experts")

    def _swiglu(self, p: str, h: np.ndarray) -> np.ndarray:
        inner = silu(self._product(h, self.w[p + "gate_proj.weight"])) * self._product(h, self.w[p + "up_proj.weight"])
        return self._product(inner, self.w[p + "down_proj.weight"])

    def route(self, p: str, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """h [T, D] -> chosen experts [T, k], best first, and their weights [T, k]."""
        c = self.config
        score = sigmoid(self._product(h.astype(np.float32), self.w[p + "gate.weight"]))
        order = np.argsort(-(score + self.w[p + "gate.expert_bias"]), axis=-1, kind="stable")
        chosen = order[:, : c["num_experts_per_tok"]]
        weight = np.take_along_axis(score, chosen, -1)
        return chosen, weight / weight.sum(-1, keepdims=True) * c["routed_scaling_factor"]

    def _moe(self, p: str, h: np.ndarray, taps: Taps | None = None, name: str = "") -> np.ndarray:
        chosen, weight = self.route(p, h)
        self._tap(taps, name, chosen)
        gate_up, down = self.w[p + "experts.gate_up"], self.w[p + "experts.down"]
        see = quantise_activations if self.w4a8 else (lambda x: x)
        seen = see(h)
        out = self._swiglu(p + "shared_experts.", h).astype(np.float64)
        for expert in np.unique(chosen):
            rows, slot = np.nonzero(chosen == expert)
            gate, up = np.split(self._product(seen[rows], gate_up[expert]), 2, -1)
            out[rows] += self._product(see(silu(gate) * up), down[expert]) * weight[rows, slot][:, None]
        return out.astype(self.dtype)

    # -- plumbing

    def _product(self, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """x [T, K] times weight [N, K] transposed -> [T, N] in self.dtype."""
        return x.astype(self.dtype) @ weight.T.astype(self.dtype, copy=False)

    @staticmethod
    def _tap(taps: Taps | None, name: str, value: np.ndarray) -> np.ndarray:
        if taps is not None:
            taps[name] = value
        return value
