"""The points of a grid: a setting's values along an axis, and what is known of one point beside its reference."""

import html
import textwrap
from dataclasses import dataclass

from labkit.errors import BadInput, LabError
from labkit.evidence import Evidence
from labkit.measure import estimates
from labkit.measure.results import Arm, Result, cost, speedup, varies
from labkit.measure.runner import Runner
from labkit.notebook.render import span
from labkit.notebook.settings import Setting

MOST = 64  # points of a grid


@dataclass(frozen=True)
class Axis:
    """A setting and the values that it takes."""

    setting: Setting
    values: tuple

    @classmethod
    def read(cls, setting: Setting, text: str) -> "Axis":
        """From words such as "1-4", "1, 2, 8" or "code, repetitive". Raises BadInput naming the setting."""
        values: list[object] = []
        for word in filter(None, (w.strip() for w in text.split(","))):
            low, dash, high = word.partition("-")
            if setting.kind == "int" and dash and low.strip().isdigit() and high.strip().isdigit():
                first, last = setting.check(low.strip()), setting.check(high.strip())
                values += range(first, last + 1)
            else:
                values.append(setting.check(word))
        if not values or len(set(values)) > MOST:
            raise BadInput(setting.name, text, "values with commas between them, or a range such as 1-4")
        return cls(setting, tuple(dict.fromkeys(values)))


@dataclass
class Spot:
    """One point of the grid. skipped: why it cannot be measured; failed: why it could not; result and under: the arm
    and its reference, in the passes that both have; gain: S over the reference."""

    x: object
    y: object
    base: Arm | None = None
    arm: Arm | None = None
    skipped: str = ""
    failed: str = ""
    result: Result | None = None
    under: Result | None = None
    gain: Evidence | None = None

    @property
    def open(self) -> bool:
        """Can it be measured?"""
        return not self.skipped and not self.failed

    @property
    def passes(self) -> int:
        """Whole passes that it shares with its reference."""
        return len({estimates.pass_of(r) for r in self.result.rows}) if self.result is not None else 0

    def row(self) -> dict:
        """As labkit.measure.sweep.race reads a configuration."""
        s = self.gain
        out = {"config": id(self), "status": "measured", "speedup": s.value, "repeats": self.passes}
        return out | {"speedup_low": s.low, "speedup_high": s.high}

    def look(self, runner: Runner) -> bool:
        """Take what is measured by now; True where that is more than before."""
        found = runner.beside(self.base, self.arm)
        if found is None or (self.result is not None and len(found[1].rows) <= len(self.result.rows)):
            return False
        try:
            self.gain = speedup(found[1], found[0])
        except LabError as e:  # requests that were answered and give no time
            self.failed = str(e)
            return False
        self.under, self.result = found
        return True

    def words(self, x: str, y: str) -> str:
        """For the hover: what it is, and its numbers or why it has none."""
        head = f"{x} {self.x}, {y} {self.y}"
        if self.skipped or self.failed:
            return f"{head}<br>{'skipped' if self.skipped else 'failed'}: {_wrapped(self.skipped or self.failed)}"
        if self.result is None:
            return f"{head}<br>not measured yet"
        parts = [f"S {self.gain.value:.3f}, {span(self.gain)}"]
        if self.result.accept is not None and self.under.accept is None and not varies(self.result):
            parts.append(f"a {self.result.accept.value:.2f}, c {cost(self.result, self.under).value:.2f}")
        passes = f"{self.passes} pass{'es' if self.passes != 1 else ''}"
        parts.append(f"{self.arm.name} over {self.base.name}, {passes} ● measured {self.result.when}".rstrip())
        return "<br>".join([head, *parts])


def _wrapped(text: str) -> str:
    """Broken for a hover, without markup of its own."""
    return "<br>".join(map(html.escape, textwrap.wrap(text, 60)))
