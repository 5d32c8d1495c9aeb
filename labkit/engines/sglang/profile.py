"""Where the time of a decode step goes: kernel times from the trace that SGLang's own profiler writes.

A trace of GPU activity has one event per kernel, also inside a replayed CUDA graph. Between them the GPU waits: for
launches, for the CPU, for nothing else to do. Bytes explain busy time at best, never the gaps.
"""

import gzip
import json
import re
from collections.abc import Iterable
from pathlib import Path

from labkit.errors import LabError

_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
# First match wins; parts of kernel names as seen on an H200 with SGLang 0.5.23 (Humming, FlashInfer, DeepGEMM, Triton).
GROUPS = (
    ("expert products", r"humming<|GroupProblemShape|fused_moe_kernel|moe_gemm"),
    (
        "expert bookkeeping",
        r"moe_align|count_and_sort|ExpertPrefixSum|computeStrides|build_precomputed|expandInput|finalizeMoe|"
        r"moe_fused_mul_sum|doActivation|flashinfer::activation",
    ),
    ("router", r"router|topk"),
    ("KDA", r"kda|delta_rule|conv1d|conv_window|layer_norm_gated|gated_norm|mamba"),
    ("MLA", r"mla|rope|BatchPrefill|BatchDecode|flash::|flash_fwd"),
    ("FP8 projections", r"deep_gemm|per_token_group_quant"),
    ("head and sampling", r"cutlass_3x_gemm_sm90_fp8|per_token_quant_fp8|nvjet_sm\d+_tss|argmax|sampl|softmax"),
    ("BF16 products", r"nvjet|cublas|gemm|gemv|splitK"),
    ("norms", r"norm"),
    ("copies and elementwise", r"memcpy|memset|elementwise|copy|index|scatter|act_and_mul|alloc|indices"),
)


def read_trace(path: str | Path) -> list[dict]:
    """The GPU events of a Chrome trace (plain or gzip), by start: {name, ts, dur} in microseconds. Raises LabError."""
    opener = gzip.open if str(path).endswith(".gz") else open
    try:
        with opener(path, "rt") as file:
            events = json.load(file)["traceEvents"]
    except (OSError, ValueError, KeyError, EOFError) as e:
        raise LabError(f"profile {Path(path).name}: not a readable trace ({e})") from None
    kept = [{"name": e["name"], "ts": e["ts"], "dur": e["dur"]} for e in events if e.get("cat") in _ON_GPU]
    return sorted(kept, key=lambda e: e["ts"])


def summarise(events: list[dict], steps: int) -> dict:
    """Per decode step, in seconds: span, busy (overlaps counted once), idle, kernels, time by kernel name.

    steps: forward passes that the profiler was told to record. Raises LabError for an empty trace.
    """
    if not events or steps < 1:
        raise LabError("profile: the trace holds no GPU events")
    end = busy = 0.0
    for event in events:
        start, stop = event["ts"], event["ts"] + event["dur"]
        busy += max(0.0, stop - max(start, end))
        end = max(end, stop)
    span = end - events[0]["ts"]
    by_name: dict[str, list[float]] = {}
    for event in events:
        entry = by_name.setdefault(event["name"][:160], [0, 0.0])
        entry[0] += 1
        entry[1] += event["dur"]
    scale = 1e-6 / steps
    return {
        "steps": steps,
        "kernels_per_step": len(events) / steps,
        "span_s": span * scale,
        "busy_s": busy * scale,
        "idle_s": (span - busy) * scale,
        "by_name": {
            n: {"count": c / steps, "time_s": t * scale}
            for n, (c, t) in sorted(by_name.items(), key=lambda item: -item[1][1])
        },
    }


def grouped(by_name: dict[str, dict]) -> dict[str, float]:
    """Seconds a step by group of kernels, largest first; what no pattern knows is `other`."""
    out: dict[str, float] = {}
    for name, entry in by_name.items():
        part = group(name)
        out[part] = out.get(part, 0.0) + entry["time_s"]
    return dict(sorted(out.items(), key=lambda item: -item[1]))


def newest(folder: str | Path, after: float) -> Path | None:
    """The largest trace in a folder that was written after a time (seconds since 1970); None while there is none."""
    files: Iterable[Path] = Path(folder).rglob("*.json*")
    fresh = [f for f in files if f.stat().st_mtime >= after]
    return max(fresh, key=lambda f: f.stat().st_size, default=None)


def group(name: str) -> str:
    """The group of a kernel, by its name; `other` when no pattern knows it."""
    for known, pattern in GROUPS:
        if re.search(pattern, name, re.IGNORECASE):
            return known
    return "other"
