"""Energy where a meter shows it: the processor's own counter (RAPL), or the GPU's power as nvidia-smi reads it.

Without a meter that can be read nothing is estimated: the energy is then "not measured". A time per token says nothing
about energy, and a meter sees all that runs on its part of the machine, not the engine alone.
"""

import shutil
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from labkit import waits
from labkit.evidence import Evidence, measured

RAPL = Path("/sys/class/powercap")
EVERY_S = 0.1  # between two readings of a GPU's power
SHORTEST_S = 1.0  # below this a counter that ticks every few milliseconds and a sampled power say little


@dataclass(frozen=True)
class Counter:
    """A counter of energy: `name` as the system has it; joules since some moment, back to 0 after `most`."""

    name: str
    path: Path
    most: float

    def read(self) -> float | None:
        return _number(self.path)


def counters(root: Path = RAPL) -> list[Counter]:
    """The packages' RAPL counters that this user may read (Linux gives them to root alone by default)."""
    found = []
    for folder in sorted(root.glob("intel-rapl:*")):
        if folder.name.count(":") != 1:  # parts of a package are in its sum
            continue
        energy, most = folder / "energy_uj", _number(folder / "max_energy_range_uj")
        if _number(energy) is not None and most:
            name = (folder / "name").read_text(encoding="utf-8").strip() if (folder / "name").exists() else folder.name
            found.append(Counter(f"RAPL {name}", energy, most))
    return found


def gpu_watts() -> float | None:
    """Power of all NVIDIA GPUs together, W; None without nvidia-smi or where it says N/A."""
    if not shutil.which("nvidia-smi"):
        return None
    command = ["nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits"]
    try:
        done = waits.run(command, what="nvidia-smi", timeout_s=10)
    except (OSError, waits.TookTooLong):
        return None
    try:
        return sum(float(line) for line in done.stdout.split() if line) if done.returncode == 0 else None
    except ValueError:
        return None


def described(root: Path = RAPL) -> str:
    """Which meters can be read here, in words."""
    names = [c.name for c in counters(root)]
    watts = gpu_watts()
    if watts is not None:
        names.append(f"nvidia-smi ({watts:.0f} W now)")
    return ", ".join(names) or "none that can be read: energy is not measured"


@dataclass
class Meter:
    """`with Meter() as meter:` around what is measured; then `joules()` by meter, {} where there is none."""

    root: Path = RAPL
    seconds: float = 0.0
    _sums: dict[str, float] = field(default_factory=dict)

    def __enter__(self) -> "Meter":
        self._began = time.monotonic()
        self._counters = counters(self.root)
        self._last = {c.name: c.read() for c in self._counters}
        self._watts: list[tuple[float, float]] = []
        self._stop = threading.Event()
        self._thread = None
        if self._counters or shutil.which("nvidia-smi"):
            self._thread = threading.Thread(target=self._sample, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        if self._thread is not None:
            waits.join([self._thread], "the thread that reads the power meters", 30.0)
        self._add_counters()
        self.seconds = time.monotonic() - self._began
        if len(self._watts) > 1:
            pairs = zip(self._watts, self._watts[1:], strict=False)
            total = sum((t1 - t0) * (w0 + w1) / 2 for (t0, w0), (t1, w1) in pairs)
            span = self._watts[-1][0] - self._watts[0][0]
            self._sums["nvidia-smi"] = total * self.seconds / span if span else 0.0

    def _sample(self) -> None:
        while not self._stop.is_set():
            watts = gpu_watts()
            if watts is not None:
                self._watts.append((time.monotonic(), watts))
            elif not self._counters:
                return
            self._add_counters()  # often enough that a counter cannot go round unseen
            self._stop.wait(EVERY_S if watts is not None else 5.0)

    def _add_counters(self) -> None:
        for c in self._counters:
            now, before = c.read(), self._last[c.name]
            if now is not None and before is not None:
                step = now - before if now >= before else now + c.most - before
                self._sums[c.name] = self._sums.get(c.name, 0.0) + step / 1e6
                self._last[c.name] = now

    def joules(self) -> dict[str, float]:
        """Joules by meter over the block; {} where no meter could be read or the block was too short for one."""
        return {n: j for n, j in self._sums.items() if j > 0} if self.seconds >= SHORTEST_S else {}


def per_token(meter: Meter, tokens: int) -> dict[str, Evidence]:
    """Joules per measured token by meter, with warm-up, idle and prompts in it; {} is "not measured"."""
    if tokens < 1:
        return {}
    how = f"over {meter.seconds:.1f} s and {tokens} tokens; warm-up, idle and prompts are in it"
    return {name: measured(j / tokens, "J/token", f"{name} {how}") for name, j in meter.joules().items()}


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
