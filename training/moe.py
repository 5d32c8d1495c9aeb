"""MLPs of the pocket model for training: dense SwiGLU, and the routed mixture with grouped matrix products.

Router, from h = rms(x; post_attention_layernorm), in FP32: score = sigma(W h); the 8 experts with the largest
score + expert_bias are chosen (the bias only chooses); weight = score / sum of the chosen scores * 2.5.
Expert: down(silu(gate h) * (up h)). Output: x + sum weight * expert + shared expert (no gate on it).
"""

import torch
import torch.nn.functional as F
from torch import nn

from .config import Shape
from .layers import OPTIONS, jit, linear, matrix, rms


def swiglu(both):
    gate, up = both.float().chunk(2, -1)
    return (F.silu(gate) * up).to(both.dtype)


@jit
def dense_mlp(x, norm, w_in, w_out):
    return x + linear(swiglu(linear(rms(x, norm), w_in)), w_out)


class DenseMLP(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.norm = nn.Parameter(torch.ones(s.hidden))
        self.w_in = matrix(2 * s.dense_inter, s.hidden)  # gate rows, then up rows
        self.w_out = matrix(s.hidden, s.dense_inter, scale=(2 * s.layers) ** -0.5)

    def forward(self, x):
        return dense_mlp(x, self.norm, self.w_in, self.w_out)


# ------------------------------------------------------------------------------------------------ routing


@jit
def route(x, norm, w_router, bias, top_k: int, scaling: float):
    """-> h [N,D], chosen [N,k], weight [N,k] FP32."""
    h = rms(x, norm).flatten(0, 1)
    score = torch.sigmoid(h.float() @ w_router.t())
    chosen = (score.detach() + bias).topk(top_k, -1).indices
    weight = score.gather(1, chosen)
    return h, chosen, weight / weight.sum(-1, keepdim=True) * scaling


@torch.no_grad()
def plan(chosen, experts: int, align: int = 16):
    """Sorts the slots (token, choice) by expert into a buffer of static size N*k + experts*align.

    Every expert's rows begin at a multiple of `align`; rows that only fill up carry weight 0. The last group runs to
    the
    buffer's end: a row left uncomputed would bring NaN into the gradients.
    -> slot of each row [M] (N*k for filling), row of each slot [N,k], group ends [experts] int32, counts [experts].
    """
    flat, n = chosen.flatten(), chosen.numel()
    ranked, order = flat.to(torch.uint8).sort(stable=True)
    # Counting in sorted keys: a scatter-add would hammer a few addresses with atomics.
    edge = torch.searchsorted(ranked.int(), torch.arange(experts, device=flat.device, dtype=torch.int32), right=True)
    counts = edge.diff(prepend=edge.new_zeros(1))
    room = (counts + align - 1) // align * align
    ends = room.cumsum(0)
    row = torch.arange(n, device=flat.device) + ((ends - room) - (edge - counts))[flat[order]]
    slot_of_row = flat.new_full((n + experts * align,), n)
    slot_of_row[row] = order
    row_of_slot = torch.empty_like(flat)
    row_of_slot[order] = row
    ends[-1] = len(slot_of_row)
    return slot_of_row, row_of_slot.view_as(chosen), ends.int(), counts


# ------------------------------------------------------------------------------------------------ grouped experts


@jit
def take_rows(x, slot_of_row, top_k: int):
    return x[slot_of_row.clamp(max=x.shape[0] * top_k - 1) // top_k]


@jit
def act_rows(both):
    return swiglu(both)


@jit
def gather_sum(y, weight, row_of_slot):
    return (y[row_of_slot].float() * weight[..., None]).sum(1).to(y.dtype)


@jit
def gather_sum_back(dout, y, weight, row_of_slot, slot_of_row):
    """-> gradient of every row (0 for filling) and of the weights."""
    last = weight.numel() - 1
    slot = slot_of_row.clamp(max=last)
    w = torch.where(slot_of_row <= last, weight.flatten()[slot], 0.0)
    dy = (dout[slot // weight.shape[1]].float() * w[:, None]).to(dout.dtype)
    return dy, (dout.float()[:, None] * y[row_of_slot].float()).sum(-1)


@jit
def act_back(both, dact):
    """-> the activation again and the gradient of its input."""
    gate, up = both.float().chunk(2, -1)
    s, d = torch.sigmoid(gate), dact.float()
    silu = gate * s
    return (silu * up).to(both.dtype), torch.cat([d * up * (s + silu * (1 - s)), d * silu], -1).to(both.dtype)


@jit
def sum_slots(dx_rows, row_of_slot):
    return dx_rows[row_of_slot].float().sum(1).to(dx_rows.dtype)


class GroupedExperts(torch.autograd.Function):
    """h [N,D], weight [N,k], w_in [E,2I,D], w_out [E,D,I] of h's type -> [N,D]. Only gathers: no atomics either way."""

    @staticmethod
    def forward(ctx, h, weight, w_in, w_out, slot_of_row, row_of_slot, ends):
        both = torch._grouped_mm(take_rows(h, slot_of_row, row_of_slot.shape[1]), w_in.mT, offs=ends)
        y = torch._grouped_mm(act_rows(both), w_out.mT, offs=ends)
        ctx.save_for_backward(h, weight, w_in, w_out, both, y, slot_of_row, row_of_slot, ends)
        return gather_sum(y, weight, row_of_slot)

    @staticmethod
    def backward(ctx, dout):
        h, weight, w_in, w_out, both, y, slot_of_row, row_of_slot, ends = ctx.saved_tensors
        dy, dweight = gather_sum_back(dout.contiguous(), y, weight, row_of_slot, slot_of_row)
        act, dboth = act_back(both, torch._grouped_mm(dy, w_out, offs=ends))
        dw_out = torch._grouped_mm(dy.t(), act, offs=ends)
        dw_in = torch._grouped_mm(dboth.t(), take_rows(h, slot_of_row, row_of_slot.shape[1]), offs=ends)
        dh = sum_slots(torch._grouped_mm(dboth, w_in, offs=ends), row_of_slot)
        return dh, dweight, dw_in, dw_out, None, None, None


def int8_groups(x, group: int = 32):
    """Rounds to int8 per group of 32 and back, scale max|x|/127: what the engines do before routed experts (W4A8)."""
    g = x.unflatten(-1, (-1, group))
    scale = g.abs().amax(-1, keepdim=True) / 127
    return (torch.round(g / scale.clamp(min=1e-30)) * scale).flatten(-2)


@jit
def experts_everywhere(h, chosen, weight, w_in, w_out):
    """Every expert on every token, then weighted: no sorting, three times the arithmetic. Fallback, and on CPUs."""
    full = torch.zeros(h.shape[0], w_in.shape[0], device=h.device, dtype=weight.dtype).scatter(1, chosen, weight)
    if OPTIONS["int8"]:
        act = int8_groups(swiglu(torch.einsum("nd,eod->neo", int8_groups(h), w_in)))
        return torch.einsum("nei,edi,ne->nd", act, w_out, full.to(h.dtype))
    act = swiglu(F.linear(h, w_in.flatten(0, 1)).unflatten(1, (w_in.shape[0], -1)))
    return (act.float() * full[..., None]).to(h.dtype).flatten(1) @ w_out.mT.flatten(0, 1)


@jit
def shared_and_sum(x, h, routed, w_in, w_out):
    return x + (routed + linear(swiglu(linear(h, w_in)), w_out)).view_as(x)


class MoE(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.s, small = s, (2 * s.layers) ** -0.5
        self.norm = nn.Parameter(torch.ones(s.hidden))
        self.w_router = matrix(s.experts, s.hidden)
        self.register_buffer("bias", torch.zeros(s.experts))
        self.register_buffer("load", torch.zeros(s.experts), persistent=False)
        self.w_in = matrix(s.experts, 2 * s.inter, s.hidden)  # gate rows, then up rows
        self.w_out = matrix(s.experts, s.hidden, s.inter, scale=small)
        self.shared_in = matrix(2 * s.inter, s.hidden)
        self.shared_out = matrix(s.hidden, s.inter, scale=small)

    def forward(self, x):
        s = self.s
        h, chosen, weight = route(x, self.norm, self.w_router, self.bias, s.top_k, s.scaling)
        w_in, w_out = self.w_in.to(h.dtype), self.w_out.to(h.dtype)
        if OPTIONS["moe"] == "grouped":
            slot_of_row, row_of_slot, ends, counts = plan(chosen, s.experts)
            routed = GroupedExperts.apply(h, weight, w_in, w_out, slot_of_row, row_of_slot, ends)
        else:
            counts = chosen.flatten().bincount(minlength=s.experts)
            routed = experts_everywhere(h, chosen, weight, w_in, w_out)
        if self.training:
            self.load += counts
        return shared_and_sum(x, h, routed, self.shared_in, self.shared_out)

    @torch.no_grad()
    def rebalance(self, speed: float) -> torch.Tensor:
        """Loss-free balancing: bias of overloaded experts down, of the others up. -> largest load over mean load."""
        mean = self.load.mean()
        self.bias += speed * torch.sign(mean - self.load)
        worst = self.load.max() / mean.clamp(min=1)
        self.load.zero_()
        return worst
