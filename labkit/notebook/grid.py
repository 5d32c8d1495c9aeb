"""Two settings against each other: which points there are, what is measured next, and when the best one is known.

Every point is measured beside its reference, in turns, as Run does it; S is never taken between two runs. A first look
gives each point a few passes; then only those that may still be the best are measured on, together, until the lead of
one is shown, or its passes or the time run out.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence

import plotly.graph_objects as go

from labkit.errors import BadInput
from labkit.figures import grid as figures
from labkit.measure import stats
from labkit.measure.plan import Block
from labkit.measure.pool import SIDE_BY_SIDE
from labkit.measure.recall import turned
from labkit.measure.runner import Runner
from labkit.measure.sweep import race
from labkit.notebook.experiment import Experiment
from labkit.notebook.render import span
from labkit.notebook.spots import MOST, Axis, Spot
from labkit.units import minutes

SIZE = SIDE_BY_SIDE - 1  # points beside one reference
ENOUGH = 5 * stats.LEAST  # passes after which two settings that still look alike are alike
DECIDED, EVERYTHING, ALIKE, NO_TIME = (
    "the best setting is decided",
    "every setting is measured",
    "the best ones cannot be told apart",
    "the time is up",
)


class Grid:
    """Points over two axes, and the order in which they are measured.

    repeats: passes of each point where `until_decided` is False, else a first look has stats.LEAST. seed: of the order.
    Raises BadInput for two equal axes, too many points, or none that can be measured.
    """

    def __init__(self, experiment: Experiment, x: Axis, y: Axis, *, until_decided: bool = True):
        if x.setting.name == y.setting.name:
            raise BadInput("axes", x.setting.label, "two different settings")
        if len(x.values) * len(y.values) > MOST:
            raise BadInput("axes", f"{len(x.values)} x {len(y.values)} points", f"at most {MOST} points")
        self.x, self.y, self.until_decided = x, y, until_decided
        self.repeats = stats.LEAST if until_decided else int(experiment.values.get("repeats", stats.LEAST))
        self.seed, self.end = experiment.params.seed, ""
        self._places: dict[str, int] = {}  # of engines in the order of the first look, by configuration
        self.spots = list(self._spread(experiment))
        if not any(s.open for s in self.spots):
            raise BadInput("axes", f"{len(self.spots)} points", f"one that can be measured ({self.spots[0].skipped})")

    def _spread(self, experiment: Experiment) -> Iterator[Spot]:
        seen: dict[str, Spot] = {}
        for b in self.y.values:
            for a in self.x.values:
                spot = Spot(a, b)
                try:
                    spot.base, spot.arm = experiment.point({self.x.setting.name: a, self.y.setting.name: b})
                except BadInput as e:
                    spot.skipped = str(e)
                else:
                    same = seen.setdefault(spot.arm.setting, spot)
                    if same is not spot:
                        spot.skipped = f"to the engine the same as {self._at(same)}"
                yield spot

    def _at(self, s: Spot) -> str:
        return f"{self.x.setting.label} {s.x}, {self.y.setting.label} {s.y}"

    # --- what is next ----------------------------------------------------------------------------------------------

    def next(self, left_s: float, seconds: Callable[[Sequence[Block]], float]) -> list[Block]:
        """What to measure now, within `left_s` by the prediction of `seconds`; [] at the end, and `end` says why."""
        spots, passes = self._first_look()
        if spots:
            while spots:
                blocks = self._blocks(spots, passes)
                if seconds(blocks) <= left_s:
                    return blocks
                spots = spots[: len(spots) // 2]
            self.end = NO_TIME
            return []
        ends = [self._on(load) for load in self._loads()] if self.until_decided else [EVERYTHING]
        for rivals in ends:
            if isinstance(rivals, list):
                least = min(s.passes for s in rivals)
                for passes in range(min(stats.LEAST, ENOUGH - least), 0, -1):
                    blocks = self._blocks(rivals, passes)
                    if seconds(blocks) <= left_s:
                        return blocks
                self.end = NO_TIME
                return []
        self.end = next((e for e in (ALIKE, EVERYTHING) if e in ends), DECIDED)
        return []

    def _first_look(self) -> tuple[list[Spot], int]:
        """Points that have too few passes, as many as alternate with one reference, and how many passes they lack."""
        lacking = [s for s in self.spots if s.open and s.passes < self.repeats]
        if not lacking:
            return [], 0
        if not self._places:
            engines = list(dict.fromkeys(s.arm.config.digest() for s in lacking))
            random.Random(self.seed).shuffle(engines)
            self._places = {digest: i for i, digest in enumerate(engines)}
        lacking.sort(key=lambda s: self._places[s.arm.config.digest()])
        # Engines that run are used under every load before the next ones start.
        turn = [self._places[s.arm.config.digest()] // SIZE for s in lacking]
        mine = [s for s, t in zip(lacking, turn, strict=True) if t == turn[0] and s.arm.load == lacking[0].arm.load]
        return mine, self.repeats - min(s.passes for s in mine)

    def _blocks(self, spots: Sequence[Spot], passes: int) -> list[Block]:
        return turned([Block([spots[0].base, *(s.arm for s in spots)], passes)])

    def _loads(self) -> list[list[Spot]]:
        """Measured points of one load each: only these are compared with each other."""
        out: dict[str, list[Spot]] = {}
        for s in self.spots:
            if s.open and s.result is not None:
                out.setdefault(str(s.arm.load), []).append(s)
        return list(out.values())

    def _on(self, spots: list[Spot]) -> list[Spot] | str:
        """The points of a load that are to be measured on, or why none is."""
        if self.leads(spots):
            return DECIDED
        stands = race.standing([s.row() for s in spots])
        names = (stands.focus() or stands.names[:1])[:SIZE]
        rivals = [s for s in spots if id(s) in names]
        return rivals if min(s.passes for s in rivals) < ENOUGH else ALIKE

    @staticmethod
    def leads(spots: Sequence[Spot]) -> bool:
        """Does the interval of the best lie apart from the runner-up's? The reference, at S = 1, takes part."""
        ranked = sorted(((s.gain.value, s.gain.low, s.gain.high) for s in spots), reverse=True)
        (_, low, _), (_, _, high) = sorted([*ranked, (1.0, 1.0, 1.0)], key=lambda r: -r[0])[:2]
        return low is not None and high is not None and low > high

    # --- what is found ---------------------------------------------------------------------------------------------

    def look(self, runner: Runner, blocks: Sequence[Block] | None = None) -> bool:
        """Take what is measured by now, of the arms of these blocks or of all; True where it is more than before."""
        return any([s.look(runner) for s in self._of(blocks)])

    def settle(self, blocks: Sequence[Block], before: Mapping[int, int]) -> None:
        """These blocks have been measured to their end: a point that has no more passes than `before` will get none."""
        for s in self._of(blocks):
            if s.passes <= before[id(s)]:
                s.failed = "no pass of it counts: at least one of its requests, or of the reference's, was refused"

    def passes(self) -> dict[int, int]:
        """How many passes each point has, by its id."""
        return {id(s): s.passes for s in self.spots}

    def _of(self, blocks: Sequence[Block] | None) -> list[Spot]:
        wanted = None if blocks is None else {a.setting for b in blocks for a in b.arms}
        return [s for s in self.spots if s.open and (wanted is None or s.arm.setting in wanted)]

    def fail(self, name: str, why: str) -> bool:
        """An arm of this name could not be measured; False where that is no point of the grid."""
        mine = [s for s in self.spots if s.arm is not None and s.arm.name == name]
        for s in mine:
            s.failed = why.splitlines()[0]
        return bool(mine)

    def best(self) -> list[Spot]:
        """The fastest point of each load."""
        return [max(spots, key=lambda s: s.gain.value) for spots in self._loads()]

    def counts(self) -> str:
        """How many points are measured, failed, skipped; in words."""
        done = sum(s.result is not None for s in self.spots)
        out = [f"{done} of {sum(not s.skipped for s in self.spots)} settings measured"]
        for what in ("failed", "skipped"):
            n = sum(bool(getattr(s, what)) for s in self.spots)
            out += [f"{n} {what}"] if n else []
        return ", ".join(out)

    def left_out(self) -> list[str]:
        """One sentence for each point without a measurement that could not have one."""
        return [f"{self._at(s)}: {s.skipped or s.failed}" for s in self.spots if not s.open]

    def findings(self) -> list[str]:
        """The best of each load with its interval and the runner-up's, in sentences."""
        out = []
        for spots in self._loads():
            best, *others = sorted(spots, key=lambda s: -s.gain.value)
            text = f"{best.arm.load['workload']}: {_lead(best)}"
            text += f", then {_lead(others[0])}" if others else ""
            end = "these cannot be told apart yet"
            if self.leads(spots):
                end = "the best is decided" if best.gain.value > 1 else f"{best.base.name} is faster than all of them"
            out.append(f"{text}: {end}.")
        return out

    def figure(self) -> go.Figure:
        """The heat map of what is measured by now."""
        x, y, best = self.x.setting.label, self.y.setting.label, self.best()
        cells = {}
        for s in self.spots:
            state = "skipped" if s.skipped else "failed" if s.failed else "measured" if s.result else "waiting"
            gain = s.gain.value if s.result is not None else None
            sure = s.result is not None and s.gain.low is not None
            cells[s.x, s.y] = figures.Cell(state, s.words(x, y), gain, sure, sure and s in best)
        loads = list(dict.fromkeys(s.arm.load["workload"] for s in self.spots if s.arm is not None))
        title = f"S over {x} and {y}" + (f": {loads[0]}" if len(loads) == 1 else "")
        return figures.heat(x, self.x.values, y, self.y.values, cells, title=title)


def _lead(s: Spot) -> str:
    return f"{s.arm.name} with S {s.gain.value:.2f} ({span(s.gain, '.2f')})"


def forecast(grid: Grid, runner: Runner) -> str:
    """How long everything would take that is not measured yet, in words."""
    seconds, loads = 0.0, {}
    for s in grid.spots:
        if s.open and s.passes < grid.repeats:
            loads.setdefault(str(s.arm.load), []).append(s)
    for spots in loads.values():
        for i in range(0, len(spots), SIZE):
            seconds += runner.forecast(grid._blocks(spots[i : i + SIZE], grid.repeats))[0]
    return f"about {minutes(seconds)}" if seconds else "measured already"
