"""Optimiser: Muon (momentum, then orthogonalised) for matrices, AdamW for embeddings, head, router, small vectors."""

import math

import torch

# Parameters that AdamW takes: their name's last part is or ends with one of these.
PLAIN = ("embedding", "head", "norm", "A_log", "dt_bias", "conv", "w_beta", "w_router")


def orthogonalise(g: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """Newton-Schulz iteration on [N,a,b] in BF16: singular values go to about 1 (coefficients of Jordan's Muon)."""
    x = g.bfloat16()
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / (x.float().norm(dim=(1, 2), keepdim=True) + 1e-7).bfloat16()
    for _ in range(steps):
        s = x @ x.mT
        x = 3.4445 * x + (2.0315 * s @ s - 4.7750 * s) @ x
    return x.mT if tall else x


class Muon:
    """Nesterov momentum, orthogonalised; an update has the size of AdamW's through 0.2 sqrt(longer side).

    Matrices of one shape, stacks such as [experts, out, in] too, are orthogonalised together.
    """

    def __init__(self, params, momentum: float = 0.95, decay: float = 0.01):
        self.momentum, self.decay = momentum, decay
        self.groups: dict[tuple, tuple[list, list]] = {}
        for p in params:
            own, moments = self.groups.setdefault(tuple(p.shape[-2:]), ([], []))
            own.append(p)
            moments.append(torch.zeros_like(p))

    @torch.no_grad()
    def step(self, lr: float) -> None:
        for shape, (params, moments) in self.groups.items():
            grads = [p.grad for p in params]
            torch._foreach_mul_(moments, self.momentum)
            torch._foreach_add_(moments, grads)
            ahead = torch._foreach_add(grads, moments, alpha=self.momentum)
            stacked = orthogonalise(torch.cat([a.reshape(-1, *shape) for a in ahead]))
            parts = stacked.split([p.numel() // (shape[0] * shape[1]) for p in params])
            torch._foreach_mul_(params, 1 - lr * self.decay)
            torch._foreach_add_(
                params,
                [u.reshape(p.shape).float() for u, p in zip(parts, params, strict=True)],
                alpha=-lr * 0.2 * math.sqrt(max(shape)),
            )

    def moments(self) -> list[torch.Tensor]:
        return [m for _, ms in self.groups.values() for m in ms]


class Optimiser:
    """One step over all parameters, with the gradient norm clipped to 1."""

    def __init__(self, model: torch.nn.Module, lr: float):
        self.lr = lr
        named = list(model.named_parameters())
        plain = [p for n, p in named if n.split(".")[-1].endswith(PLAIN)]
        chosen = {id(p) for p in plain}
        self.params = [p for _, p in named]
        self.adam = torch.optim.AdamW(
            plain, lr=lr, betas=(0.9, 0.95), eps=1e-10, weight_decay=0.0, fused=plain[0].is_cuda
        )
        self.muon = Muon([p for p in self.params if id(p) not in chosen])

    def step(self, scale: float) -> torch.Tensor:
        """Applies the gradients at lr * scale and drops them; -> their norm before clipping."""
        norm = torch.nn.utils.clip_grad_norm_(self.params, 1.0, foreach=True)
        for group in self.adam.param_groups:
            group["lr"] = self.lr * scale
        self.adam.step()
        self.muon.step(self.lr * scale)
        for p in self.params:
            p.grad = None
        return norm

    def state(self) -> dict:
        return {"adam": self.adam.state_dict(), "muon": self.muon.moments()}

    def restore(self, state: dict) -> None:
        self.adam.load_state_dict(state["adam"])
        for mine, saved in zip(self.muon.moments(), state["muon"], strict=True):
            mine.copy_(saved)
