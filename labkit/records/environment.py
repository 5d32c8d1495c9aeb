"""The machine and the software under a measurement, as far as they can be read without privileges."""

import importlib.metadata
import os
import platform
import shutil
from pathlib import Path

from labkit import waits

PACKAGES = ("labkit", "numpy", "pandas", "plotly", "papermill", "jupyterlab", "tokenizers", "uvicorn", "sglang")
_GPU_FIELDS = (
    "name,driver_version,memory.total,clocks.sm,clocks.mem,clocks.max.sm,temperature.gpu,power.draw,utilization.gpu"
)


def capture() -> dict:
    """Everything that can change a result: machine, cores, memory, clocks, load, Python, packages, GPU, compiler."""
    software = {"python": platform.python_version(), "packages": packages(), "compiler": compiler()}
    return {**machine(), **changing(), **software}


def machine() -> dict:
    """What stays the same between runs on one machine; `labkit compare` demands that it is equal."""
    import psutil

    return {
        "cpu": cpu_model(),
        "architecture": platform.machine(),
        "cores": psutil.cpu_count(logical=False) or os.cpu_count(),
        "logical_cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.release()}",
        "gpus": [{k: g[k] for k in ("name", "driver_version", "memory.total")} for g in gpus()],
    }


def changing() -> dict:
    """What drifts during a run: load, free memory, clocks, temperature, governor, other GPU users."""
    import psutil

    frequency = None
    try:
        frequency = psutil.cpu_freq()
    except (OSError, RuntimeError):
        pass  # virtual machines often hide it
    return {
        "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "available_bytes": psutil.virtual_memory().available,
        "cpu_mhz": round(frequency.current, 1) if frequency else None,
        "governor": _line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "huge_pages": _line("/sys/kernel/mm/transparent_hugepage/enabled"),
        "gpu_state": gpus(),
    }


def cpu_model() -> str:
    """The processor's name as the system gives it."""
    text = _text("/proc/cpuinfo")
    for line in text.splitlines():
        if line.startswith(("model name", "Model", "Hardware")):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def packages() -> dict[str, str]:
    """Versions of the packages that matter, those that are installed."""
    out = {}
    for name in PACKAGES:
        try:
            out[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return out


def compiler() -> str | None:
    """First line of the C compiler's version, None without one."""
    for name in filter(None, (os.environ.get("CC"), "cc", "gcc", "clang")):
        path = shutil.which(name.split()[0])
        if path:
            return (_run([path, "--version"]) or path).splitlines()[0]
    return None


def git_state(directory: str | Path | None = None) -> dict | None:
    """Commit and whether the lab's checkout has changes; None outside a checkout."""
    where = Path(directory) if directory else Path(__file__).resolve().parents[2]
    commit = _run(["git", "-C", str(where), "rev-parse", "HEAD"])
    if not commit:
        return None
    changed = _run(["git", "-C", str(where), "status", "--porcelain", "--untracked-files=no"])
    return {"commit": commit.strip(), "dirty": bool(changed and changed.strip())}


def gpus() -> list[dict]:
    """One dict per NVIDIA GPU from nvidia-smi, [] without it. Values as it prints them."""
    if not shutil.which("nvidia-smi"):
        return []
    printed = _run(["nvidia-smi", f"--query-gpu={_GPU_FIELDS}", "--format=csv,noheader"])
    names = _GPU_FIELDS.split(",")
    rows = [[v.strip() for v in line.split(",")] for line in (printed or "").splitlines() if line.strip()]
    return [dict(zip(names, row, strict=True)) for row in rows if len(row) == len(names)]


def _run(argv: list[str]) -> str | None:
    try:
        done = waits.run(argv, what=argv[0], timeout_s=10)
    except (OSError, waits.TookTooLong):
        return None
    return done.stdout if done.returncode == 0 else None


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _line(path: str) -> str | None:
    return _text(path).strip() or None
