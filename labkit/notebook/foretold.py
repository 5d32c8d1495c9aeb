"""Predictions of single arms part by part: said before they are measured, kept, and shown beside what came."""

from collections.abc import Callable, Mapping, Sequence

from labkit.measure.foresight import Foreseen, by_parts
from labkit.measure.results import Arm, Result
from labkit.notebook.render import Line


class Foretelling:
    """An experiment's predictions. foretells: whether its arms are predicted part by part before they are measured."""

    foretells = False
    machine: str
    record: str | None
    arms: Callable[[], list[Arm]]

    def __init__(self):
        self.foreseen: dict[str, Foreseen] = {}  # by `said_of`: what was predicted before it was measured

    def foresee(self, arm: Arm, context: int) -> Foreseen | None:
        """The prediction for an arm part by part: as the record has it, else from probes of this machine; None where
        only bytes are known. A record that is read gets no prediction afterwards."""
        key = self.said_of(arm)
        if key not in self.foreseen and self.record is None and self.machine == "this":
            found = by_parts(arm, arm.params, context)
            if found is not None:
                self.foreseen[key] = found
        found = self.foreseen.get(key)
        return found if found is not None and found.pass_s is not None else None

    def said_of(self, arm: Arm) -> str:
        """What its prediction is kept under: configuration and load; in a record that is read, the configuration."""
        return arm.setting if self.record is None else arm.config.digest()

    def foretell(self, arms: Sequence[Arm]) -> dict[str, Foreseen]:
        """Predictions of arms that are about to be measured, by name, of those that can be predicted part by part."""
        if not self.foretells:
            return {}
        found = {a.name: self.foresee(a, a.params.context) for a in arms}
        return {name: said for name, said in found.items() if said is not None}

    def foreseen_lines(self, results: Mapping[str, Result]) -> list[Line]:
        """What is predicted part by part for the arms of this notebook, and whether that was before they were measured:
        a kept result may be older than its prediction, which takes nothing from it all the same."""
        found = {a.name: self.foreseen.get(self.said_of(a)) for a in self.arms()}
        out: list[Line] = []
        for name, f in found.items():
            if f is not None:
                ends = [("TPOT, at least", f.best)] if f.bound else [("TPOT", f.best)]
                if f.worst is not None:
                    ends = [("TPOT at best", f.best), ("TPOT at worst", f.worst)]
                out += [(f"{name}: {what}", e, self._order(f, results.get(name)) + f.why) for what, e in ends]
        return out

    def _order(self, f: Foreseen, r: Result | None) -> str:
        measured = r is not None and r.used
        if self.record is not None or (measured and f.made_unix < min(row["started_unix"] for row in r.used)):
            return "said before it was measured: "
        return "calculated after the measurement, from probes alone: " if measured else ""
