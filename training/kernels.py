"""Getting the fast kernels ready: few autotuning choices, compiled beside other set-up, checked, with fallbacks."""

import math
import os
import subprocess
import sys
import time
import traceback

import torch

from . import layers
from .config import Shape


def trim_autotuning(keep: int = 1) -> None:
    """Leaves every autotuned Triton kernel its `keep` most ordinary choices (4 warps, 2 stages, 64-wide blocks).

    fla's kernels have some 150 choices in all; trying them one after the other would eat a minute of a short run.
    """
    from triton.runtime import autotuner

    original = autotuner.Autotuner.__init__

    def distance(config) -> float:
        sizes = (v for v in config.kwargs.values() if isinstance(v, int) and v > 0)
        return (
            0.5 * abs(math.log2(config.num_warps / 4))
            + 0.6 * abs(config.num_stages - 2)
            + 0.7 * sum(abs(math.log2(v / 64)) for v in sizes)
        )

    def patched(self, fn, arg_names, configs, *args, **kwargs):
        configs = sorted(configs, key=distance)[:keep] if configs else configs
        return original(self, fn, arg_names, configs, *args, **kwargs)

    autotuner.Autotuner.__init__ = patched


def example(s: Shape, rows: int, length: int, device: str) -> list[torch.Tensor]:
    """Random inputs of kda_core that need gradients."""

    def leaf(t):
        return t.to(device).requires_grad_()

    size = (rows, length, s.heads, s.head_dim)
    return [
        *(leaf(torch.randn(size, dtype=torch.bfloat16)) for _ in range(4)),
        leaf(torch.randn(size[:3], dtype=torch.bfloat16)),
        leaf(torch.zeros(s.heads)),
        leaf(torch.randn(s.width) - 4),
    ]


def warm_kda(s: Shape, rows: int, length: int) -> None:
    """Forward and backward at the training shape, so that everything is compiled into Triton's disk cache."""
    small = example(s, 1, length, "cuda")
    inputs = [t.detach().expand(rows, *t.shape[1:]).contiguous().requires_grad_() if t.dim() > 1 else t for t in small]
    layers.kda_fused(*inputs, s.gate_floor).float().sum().backward()
    torch.cuda.synchronize()


def start_warmer(rows: int, length: int) -> subprocess.Popen:
    """warm_kda in a process of its own, beside the compilation of the rest."""
    code = (
        "from training import kernels, config;"
        f"kernels.trim_autotuning(); kernels.warm_kda(config.Shape(), {rows}, {length})"
    )
    return subprocess.Popen([sys.executable, "-c", code], env=os.environ.copy(), stderr=subprocess.PIPE, text=True)


def check_kda(s: Shape) -> list[float]:
    """Relative error of the fused kernels against plain PyTorch: output, then every gradient."""
    inputs, results = example(s, 2, 256, "cuda"), []
    grad = torch.randn(2, 256, s.heads, s.head_dim, device="cuda")
    for fn in (layers.kda_chunked, layers.kda_fused):
        for t in inputs:
            t.grad = None
        o = fn(*inputs, s.gate_floor)
        (o.float() * grad).sum().backward()
        results.append([o.detach().float()] + [t.grad.float() for t in inputs])
    return [((b - a).norm() / a.norm()).item() for a, b in zip(*results, strict=True)]


def check_moe(model, rows: int, length: int, log) -> None:
    """Compiles one MoE layer, compares the grouped products with every-expert-everywhere, and falls back when
    they fail.
    """
    layer = next(m for m in model.mixtures())
    pieces = ("take_rows", "act_rows", "gather_sum", "gather_sum_back", "act_back", "sum_slots")
    for kind, uncompiled in (("grouped", ()), ("grouped", pieces), ("everywhere", ())):
        layers.OPTIONS.update(moe=kind, eager=uncompiled)
        try:
            x = torch.randn(rows, length, model.s.hidden, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            for i in range(8):
                if i == 3:
                    torch.cuda.synchronize()
                    start = time.time()
                y = layer(x)
                layer.zero_grad()
                y.backward(torch.ones_like(y))
            torch.cuda.synchronize()
            log("moe", kind=kind, uncompiled=len(uncompiled), ms=(time.time() - start) / 5 * 1e3)
            break
        except Exception:
            log("moe_failed", kind=kind, uncompiled=len(uncompiled), error=traceback.format_exc()[-1500:])
    if layers.OPTIONS["moe"] == "grouped":
        log("moe_check", errors=[f"{e:.1e}" for e in _compare_moe(layer, length)])
    layer.load.zero_()
    model.zero_grad(set_to_none=True)


def _compare_moe(layer, length: int) -> list[float]:
    results = []
    compiled = layers.OPTIONS["compile"]
    layers.OPTIONS["compile"] = False
    x0 = torch.randn(2, length, layer.s.hidden, device="cuda", dtype=torch.bfloat16)
    for kind in ("everywhere", "grouped"):
        layers.OPTIONS["moe"] = kind
        x = x0.clone().requires_grad_()
        layer.zero_grad()
        y = layer(x)
        y.backward(torch.ones_like(y))
        results.append(
            [
                (y - x).detach().float(),
                x.grad.float() - 1,
                *(p.grad.clone() for p in (layer.w_in, layer.w_out, layer.w_router)),
            ]
        )
    layers.OPTIONS.update(compile=compiled, moe="grouped")
    return [((b - a).norm() / a.norm()).item() for a, b in zip(*results, strict=True)]


def prepare(model, rows: int, length: int, log, *, known: bool) -> None:
    """Everything above in the order that takes least time; OPTIONS holds what works afterwards.

    known: a checkpoint will say what worked on this machine, so only the autotuning is trimmed.
    """
    if known:
        trim_autotuning()
        return
    warmer = start_warmer(rows, length)
    trim_autotuning()
    check_moe(model, rows, length, log)
    try:
        _, errors = warmer.communicate(timeout=90)
        log("warmer", code=warmer.returncode, errors=(errors or "")[-300:] if warmer.returncode else "")
    except subprocess.TimeoutExpired:
        log("warmer", code="still compiling")
    try:
        warm_kda(model.s, rows, length)
        errors = check_kda(model.s)
        log("kda_check", errors=[f"{e:.1e}" for e in errors])
        layers.OPTIONS["kda"] = "fla" if max(errors[:4]) < 0.05 else "chunked"
    except Exception:
        log("kda_failed", error=traceback.format_exc()[-1500:])
        layers.OPTIONS["kda"] = "chunked"
