"""What the yardsticks share: optional packages, interleaving, paired ratios, one-line errors."""

import argparse
import importlib
import json
import platform
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from labkit import waits
from labkit.errors import BadInput, LabError


def need(module: str, package: str) -> ModuleType:
    """Import an optional module; LabError naming the pip package when it is absent or does not load."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise LabError(f"needs the optional package {package}: pip install {package} ({error})") from None


@dataclass(frozen=True)
class Paired:
    """Two arms measured in turn. `ours` and `theirs` hold one figure per round, same unit, same order."""

    ours: tuple[float, ...]
    theirs: tuple[float, ...]

    def __post_init__(self):
        if len(self.ours) != len(self.theirs) or not self.ours:
            raise BadInput("rounds", (len(self.ours), len(self.theirs)), "as many of ours as of theirs, at least one")

    @property
    def ratios(self) -> tuple[float, ...]:
        """theirs / ours, round by round."""
        return tuple(t / o for o, t in zip(self.ours, self.theirs, strict=True))

    @property
    def ratio(self) -> float:
        """Median of the rounds' ratios theirs / ours: a slow spell of the machine hits both arms of its round."""
        return statistics.median(self.ratios)

    @property
    def best(self) -> float:
        """Ratio of each arm's best round: other programs only ever add time, so this survives a busy machine."""
        return min(self.theirs) / min(self.ours)

    def as_dict(self, unit: str) -> dict:
        return {
            "unit": unit,
            "ours": list(self.ours),
            "theirs": list(self.theirs),
            "ours_median": statistics.median(self.ours),
            "theirs_median": statistics.median(self.theirs),
            "ratio_theirs_over_ours": self.ratio,
            "ratio_low": min(self.ratios),
            "ratio_high": max(self.ratios),
            "ours_best": min(self.ours),
            "theirs_best": min(self.theirs),
            "ratio_of_best": self.best,
        }


def interleave(arms: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Call every arm once a round, turning the order round each time (A B, B A, ...); the figures by arm."""
    figures: dict[str, list[float]] = {name: [] for name in arms}
    for index in range(rounds):
        names = list(arms) if index % 2 == 0 else list(reversed(arms))
        for name in names:
            figures[name].append(arms[name]())
    return figures


def whole(field: str, value: int, low: int, high: int) -> int:
    """`value` when it lies in [low, high]; BadInput otherwise."""
    if not low <= value <= high:
        raise BadInput(field, value, f"a whole number from {low} to {high}")
    return value


def existing(field: str, path: str | Path, what: str) -> Path:
    """`path` when it exists; BadInput saying what was expected there otherwise."""
    found = Path(path).expanduser()
    if not found.exists():
        raise BadInput(field, str(path), what)
    return found


def version_in(tool: Path, package: str) -> str:
    """The version of a package in the environment that a tool stands in, by its metadata; "unknown" without any."""
    found = sorted(tool.parent.parent.glob(f"lib/python*/site-packages/{package}-*.dist-info"))
    return found[-1].name.removeprefix(f"{package}-").removesuffix(".dist-info") if found else "unknown"


def ran(argv: Sequence[str], what: str, *, timeout_s: float, env: dict[str, str], wrote: Callable[[], object]) -> None:
    """Run somebody else's tool. LabError with its last line when it fails or `wrote` finds no result."""
    done = waits.run(argv, what=what, timeout_s=timeout_s, env=env)
    if done.returncode or not wrote():
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()] or ["no output"]
        raise LabError(f"{what}: {lines[-1].strip()[:300]}")


def machine() -> dict:
    """The CPU and system that the figures belong to."""
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return {"cpu": name, "system": f"{platform.system()} {platform.release()}", "python": platform.python_version()}


def run(
    main: Callable[[argparse.Namespace], dict],
    parser: argparse.ArgumentParser,
    show: Callable[[dict], str],
    argv: Sequence[str] | None = None,
) -> int:
    """A script's frame: parse, measure, print; a known failure is one line and 1, bad input one line and 2."""
    parser.add_argument("--json", action="store_true", help="print everything measured as JSON")
    args = parser.parse_args(argv)
    try:
        result = main(args)
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(result, indent=1) if args.json else show(result))
    return 0
