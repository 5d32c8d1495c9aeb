"""What this GPU sustains: its memory by a large copy, and what one kernel of a CUDA graph costs.

On the GPU machine: python -m labkit.engines.sglang.gpu. The probes need torch, which labkit itself does not:
`sustained` runs them in a process of its own.
"""

import importlib.util
import json
import sys

from labkit import waits
from labkit.evidence import Evidence, measured

COPY_BYTES = 4 << 30
REPEATS = 20
KERNELS = 1000  # in a graph, as many as a decode step of a large hybrid MoE has
COLUMNS = 2560  # of the matrices that the reading kernels multiply with a vector
READS = tuple(int(mb * 2**20) for mb in (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64))  # bytes, one matrix each
FRESH_BYTES = 1 << 30  # matrices of a graph together, so that no L2 cache helps
PROBE_S = 180.0  # for starting CUDA and all probes


def copy_bandwidth(size: int = COPY_BYTES, repeats: int = REPEATS) -> dict:
    """Device-to-device copy of `size` bytes: bytes read plus written over the time of each of `repeats` copies, B/s.

    Random data: zeros can run faster. Returns median, low, high (smallest and largest) and the device's name.
    """
    import torch

    source = torch.randint(0, 2**31 - 1, (size // 4,), dtype=torch.int32, device="cuda")
    target = torch.empty_like(source)
    rates = []
    for i in range(repeats + 3):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        target.copy_(source)
        stop.record()
        torch.cuda.synchronize()
        if i >= 3:
            rates.append(2 * size / (start.elapsed_time(stop) * 1e-3))
    if not torch.equal(source, target):
        raise RuntimeError("the copy differs from its source")
    rates.sort()
    return {
        "device": torch.cuda.get_device_name(),
        "bytes": 2 * size,
        "repeats": repeats,
        "median": rates[len(rates) // 2],
        "low": rates[0],
        "high": rates[-1],
        "unit": "B/s",
        "torch": torch.__version__,
    }


def kernel_costs() -> dict:
    """Seconds of one kernel of a replayed CUDA graph: the smallest, and BF16 matrix times vector by bytes read.

    {"kernel_s": s of a kernel that adds 1 to one number, "reads": [[bytes, s of one product], ...]}. Kernels depend on
    each other as those of a decode step do; every product reads a matrix that no cache holds.
    """
    import torch

    one = torch.zeros(1, device="cuda")
    smallest = _graph_s([lambda: one.add_(1.0)] * KERNELS)
    reads = []
    x = torch.randn(COLUMNS, dtype=torch.bfloat16, device="cuda")
    for size in READS:
        rows = size // (2 * COLUMNS)
        matrices = torch.randn(FRESH_BYTES // size, rows, COLUMNS, dtype=torch.bfloat16, device="cuda")
        out = torch.empty(rows, dtype=torch.bfloat16, device="cuda")
        seconds = _graph_s([lambda m=m, o=out: torch.mv(m, x, out=o) for m in matrices[:KERNELS]])
        reads.append([rows * 2 * COLUMNS, seconds])
        del matrices
    return {"kernel_s": smallest, "reads": reads}


def _graph_s(calls: list, replays: int = 7) -> float:
    """Seconds of one of `calls` when all are replayed as one CUDA graph: the median of `replays`."""
    import torch

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for call in calls[:3]:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    times = []
    for i in range(replays + 2):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        stop.record()
        torch.cuda.synchronize()
        if i >= 2:
            times.append(start.elapsed_time(stop) * 1e-3 / len(calls))
    return sorted(times)[len(times) // 2]


def smi() -> dict:
    """Name, driver, memory, clocks, temperature and other processes as nvidia-smi tells them; {} without it."""
    fields = (
        "name",
        "driver_version",
        "memory.total",
        "memory.used",
        "clocks.sm",
        "clocks.mem",
        "clocks.max.mem",
        "temperature.gpu",
        "power.draw",
        "compute_cap",
    )
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = waits.run(command, what="nvidia-smi", timeout_s=20.0)
    except (OSError, waits.TookTooLong):
        return {}
    out = "" if done.returncode else done.stdout
    return dict(zip(fields, [v.strip() for v in out.splitlines()[0].split(",")], strict=False)) if out else {}


def sustained() -> tuple[Evidence | None, str]:
    """What the first GPU's memory sustains by a large copy, and where that comes from or why it is not known."""
    if not smi():
        return None, "no NVIDIA GPU"
    if importlib.util.find_spec("torch") is None:
        return None, "not measured: PyTorch with CUDA is not installed"
    try:
        done = waits.run([sys.executable, "-m", __spec__.name], what="the GPU's memory probe", timeout_s=PROBE_S)
        copy = json.loads(done.stdout)["copy"]
    except (OSError, waits.TookTooLong, ValueError, KeyError) as e:
        return None, f"not measured: {e}"
    source = f"copy of {copy['bytes'] / 2e9:.1f} GB on {copy['device']}, read and written, {copy['repeats']} times"
    return measured(copy["median"] / 1e9, "GB/s", source, copy["low"] / 1e9, copy["high"] / 1e9), source


if __name__ == "__main__":
    json.dump({"copy": copy_bandwidth(), "kernels": kernel_costs(), "nvidia_smi": smi()}, sys.stdout)
