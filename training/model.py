"""The pocket model for training: embedding, 12 layers, head, and one NEXTN layer applied recursively.

Logits at position t: lm_head rms(x_t; model.norm), predicting token t+1.
NEXTN step s = 1.. at position t predicts token t+s+1: it reads the embedding of token t+s and a hidden vector (step 1:
the main model's after model.norm; later: the previous step's own output after final_layernorm), mixes them as
W_eh [rms(embedding; enorm) | rms(hidden; hnorm)], runs MLA at rope position t+s-1 and the MoE, then
hidden = rms(x; final_layernorm), logits = lm_head hidden. Its attention sees the step-1 entries of positions <= t and
this position's own entries of steps 2..s: exactly what an engine's draft cache holds.
"""

import torch
import torch.nn.functional as F
from torch import nn

from .config import Shape
from .layers import KDA, MLA, OPTIONS, jit, linear, matrix, rms, rope_table
from .moe import DenseMLP, MoE


@jit
def embed(tokens, weight, dtype: torch.dtype):
    return weight[tokens].to(dtype)


@jit
def final_norm(x, weight):
    return rms(x, weight)


@jit
def mix(token, hidden, e_norm, h_norm, w_eh):
    return linear(torch.cat([rms(token, e_norm), rms(hidden, h_norm)], -1), w_eh)


@jit
def head_loss(h, w_head, target, weight):
    """-> weighted mean cross-entropy; for the log, sum and count over the targets of weight 1."""
    logits = linear(h.flatten(0, 1), w_head)
    nll = F.cross_entropy(logits.float(), target.flatten(), reduction="none")
    w = weight.flatten()
    full = (w == 1.0).float()
    return (nll * w).sum() / w.sum().clamp(min=1.0), (nll.detach() * full).sum(), full.sum()


class Layer(nn.Module):
    def __init__(self, s: Shape, index: int):
        super().__init__()
        self.is_mla = s.is_mla(index)
        self.attention = MLA(s) if self.is_mla else KDA(s)
        self.mlp = DenseMLP(s) if index < s.dense_layers else MoE(s)

    def forward(self, x, cos, sin):
        return self.mlp(self.attention(x, cos, sin) if self.is_mla else self.attention(x))


class Nextn(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.e_norm = nn.Parameter(torch.ones(s.hidden))
        self.h_norm = nn.Parameter(torch.ones(s.hidden))
        self.w_eh = matrix(s.hidden, 2 * s.hidden)
        self.attention = MLA(s)
        self.mlp = MoE(s)
        self.norm = nn.Parameter(torch.ones(s.hidden))

    def forward(self, token, hidden, cos, sin, past, mask):
        x = mix(token, hidden, self.e_norm, self.h_norm, self.w_eh)
        return final_norm(self.mlp(self.attention(x, cos, sin, past, mask)), self.norm)


class Pocket(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.s = s
        self.embedding = nn.Parameter(torch.randn(s.vocab, s.hidden) * 0.02)
        self.layers = nn.ModuleList(Layer(s, i) for i in range(s.layers))
        self.norm = nn.Parameter(torch.ones(s.hidden))
        self.head = nn.Parameter(torch.randn(s.vocab, s.hidden) * 0.02)
        self.nextn = Nextn(s)
        self._cache: dict = {}

    def rope(self, length: int, offset: int):
        key = ("rope", length, offset)
        if key not in self._cache:
            positions = torch.arange(offset, offset + length, device=self.embedding.device)
            self._cache[key] = rope_table(self.s, positions)
        return self._cache[key]

    def draft_mask(self, length: int, step: int):
        """[T, step*T] of who a query of draft step `step` sees: step-1 entries up to t, own entries of later steps."""
        key = ("mask", length, step)
        if key not in self._cache:
            seen = torch.ones(length, length, dtype=torch.bool, device=self.embedding.device).tril()
            own = torch.eye(length, dtype=torch.bool, device=seen.device)
            self._cache[key] = torch.cat([seen] + [own] * (step - 1), 1)
        return self._cache[key]

    def hidden(self, tokens):
        """[B,T] -> [B,T,D] after model.norm; head and NEXTN read this."""
        cos, sin = self.rope(tokens.shape[1], 0)
        x = embed(tokens, self.embedding, OPTIONS["dtype"])
        for layer in self.layers:
            x = layer(x, cos, sin)
        return final_norm(x, self.norm)

    def drafts(self, tokens, hidden, steps: int):
        """Teacher-forced: yields for s = 1..steps the hidden [B,T,D] from which position t predicts token t+s+1."""
        T, past = tokens.shape[1], []
        for s in range(1, steps + 1):
            token = embed(F.pad(tokens[:, s:], (0, s)), self.embedding, OPTIONS["dtype"])
            cos, sin = self.rope(T, s - 1)
            hidden = self.nextn(token, hidden, cos, sin, past, None if s == 1 else self.draft_mask(T, s))
            yield hidden

    def loss(self, tokens, weight, draft_weights: tuple[float, ...]):
        """tokens and weight [B,T+1] (weight of each token as a target) -> loss, cross-entropies of main and
        each step.
        """
        x = tokens[:, :-1].contiguous()
        h = self.hidden(x)
        total, nll, count = head_loss(h, self.head, tokens[:, 1:].contiguous(), weight[:, 1:].contiguous())
        parts = [nll / count.clamp(min=1)]
        for s, (hs, share) in enumerate(
            zip(self.drafts(x, h, len(draft_weights)), draft_weights, strict=True), start=1
        ):
            target, w = F.pad(tokens[:, s + 1 :], (0, s)), F.pad(weight[:, s + 1 :], (0, s))
            loss, nll, count = head_loss(hs, self.head, target, w)
            total = total + share * loss
            parts.append(nll / count.clamp(min=1))
        return total, torch.stack(parts)

    def mixtures(self) -> list[MoE]:
        return [m for m in self.modules() if isinstance(m, MoE)]
