"""What this machine lacks, what that costs, and how to get it: one line each, for `labkit doctor`."""

import importlib.util
import shutil
from dataclasses import dataclass
from pathlib import Path

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")
LITTLE_MEMORY = 2e9  # bytes; five pocket engines side by side, a kernel and a browser's page
LITTLE_DISK = 5e8  # bytes


@dataclass(frozen=True)
class Lack:
    """what is missing, what that costs, how to get it ("" where nothing can be done); stops: the pocket engine cannot
    run without it."""

    what: str
    cost: str
    remedy: str = ""
    stops: bool = False

    def line(self) -> str:
        return f"{self.what}: {self.cost}" + (f" ({self.remedy})" if self.remedy else "")


def found(machine: dict, changing: dict, cgroup: Path = Path("/sys/fs/cgroup")) -> list[Lack]:
    """Everything that is missing here, most expensive first. Takes labkit.records.environment's machine() and
    changing()."""
    return [*_engine(), *_speed(machine, changing, cgroup), *_room(changing, cgroup), *_gpu(machine), *_tools()]


def _engine() -> list[Lack]:
    from labkit.errors import LabError
    from labkit.pocket import build

    try:
        build.find_compiler()
    except LabError:
        cost = "the pocket engine cannot run, and memory is probed with NumPy, which reads slower"
        return [Lack("no C compiler", cost, "apt install gcc, or pip install ziglang", stops=True)]
    if build.available_variants() == ["portable"]:
        cost = "the pocket engine runs its portable kernels, several times slower than with vector instructions"
        return [Lack("no AVX2, AVX512 or NEON", cost)]
    return []


def _speed(machine: dict, changing: dict, cgroup: Path) -> list[Lack]:
    out = []
    cores = min(machine["usable_cores"], _quota(cgroup / "cpu.max") or machine["usable_cores"])
    if cores < 2:
        cost = "the engine and the client that times it take turns on it, so tokens take longer and arrive in lumps"
        out.append(Lack("one core", cost, "give this machine or container two"))
    if "[never]" in (changing["huge_pages"] or "[never]"):
        cost = "a step takes about half as long again"
        how = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, as root"
        out.append(Lack("no transparent huge pages", cost, how))
    if changing["governor"] == "powersave":
        cost = "clocks may stay low at first, so early requests are slower than late ones"
        out.append(Lack("no steady clock (governor powersave)", cost, "cpupower frequency-set -g performance"))
    busy = (changing["load_average"] or [0.0])[0]
    if busy > max(0.5, cores / 2):
        out.append(Lack("no quiet machine", f"{busy:.1f} processes ran on average in the last minute; times will vary"))
    return out


def _room(changing: dict, cgroup: Path) -> list[Lack]:
    out = []
    free = changing["available_bytes"]
    limit = _number(cgroup / "memory.max")
    if limit is not None:
        free = min(free, limit - (_number(cgroup / "memory.current") or 0))
    if free < LITTLE_MEMORY:
        cost = f"{free / 1e9:.1f} GB are free; arms that run side by side may be killed"
        out.append(Lack("little memory", cost, f"{LITTLE_MEMORY / 1e9:.0f} GB do"))
    disk = shutil.disk_usage(".").free
    if disk < LITTLE_DISK:
        out.append(Lack("little disk", f"{disk / 1e6:.0f} MB are free here; a run with its report takes some 20 MB"))
    return out


def _gpu(machine: dict) -> list[Lack]:
    if not machine["gpus"]:
        cost = "SGLang cannot run here; the notebooks measure the pocket engine, or a server that runs elsewhere"
        return [Lack("no NVIDIA GPU", cost, "params/attach.yaml for the latter")]
    if importlib.util.find_spec("sglang") is None:
        cost = "params/spark.yaml and params/h200.yaml cannot start their engine"
        return [Lack("no SGLang", cost, "pip install -e '.[sglang]'")]
    return []


def _tools() -> list[Lack]:
    out = []
    if not shutil.which("git"):
        out.append(Lack("no git", "records cannot name the commit that they were made with", "apt install git"))
    if not any(map(shutil.which, CHROMIUM)):
        cost = "`make test` skips the tests in a browser; the lab itself needs none"
        out.append(Lack("no Chromium", cost, "apt install chromium"))
    if not (shutil.which("aarch64-linux-gnu-gcc") and any(map(shutil.which, ("qemu-aarch64", "qemu-aarch64-static")))):
        cost = "`make test` skips the tests of the NEON kernels"
        out.append(Lack("no Arm compiler and emulator", cost, "apt install gcc-aarch64-linux-gnu qemu-user"))
    return out


def _quota(path: Path) -> float | None:
    """Cores that a container may use, None without a limit."""
    try:
        most, period = path.read_text().split()
        return None if most == "max" else int(most) / int(period)
    except (OSError, ValueError):
        return None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # absent, or "max"
        return None
