"""A panel is an experiment on the page. The same cells have three lives: widgets at a front end, a plain run without
one, and static figures in a report."""

import contextlib
import json
import threading
from pathlib import Path

import plotly.graph_objects as go

from labkit.checks import judged
from labkit.figures import decode
from labkit.figures.explored import coordinates
from labkit.figures.show import follow_theme, show
from labkit.measure.foresight import errors
from labkit.measure.pool import Pool, pool
from labkit.measure.results import Arm
from labkit.measure.runner import Block, Runner
from labkit.notebook import explored, headless, render, static
from labkit.notebook.experiment import Experiment
from labkit.notebook.explored import Explored
from labkit.notebook.gate import OPEN, Gate
from labkit.notebook.grid import Grid
from labkit.notebook.mode import is_live
from labkit.notebook.reading import no_conclusion, waiting
from labkit.records import RunWriter, Store
from labkit.records.writer import new_directory
from labkit.units import minutes

KEPT = 8  # results of other settings that the first figure has room for


class Panel:
    """What a notebook holds: `ask`, `predict`, `run`, `findings`, `summary`, one cell each.

    Headless, `run` measures at once with the parameters' values and writes a record; live, it shows settings and waits
    for the reader. Nothing measured headless comes from the store.
    """

    def __init__(self, experiment: Experiment, *, engines: Pool | None = None, live: bool | None = None):
        self.experiment = experiment
        self.live = is_live() if live is None else live
        self.out_dir = Path(experiment.params.out_dir)
        store = Store(self.out_dir / "store") if self.live else None
        self.runner = Runner(engines or pool(), store, check=judged.at_start)
        self.cancel = threading.Event()
        self.record: Path | None = None  # directory of the newest record
        self.grid: Grid | None = None  # the newest one of this panel
        self.gate = Gate(experiment.guess, live=self.live, given=experiment.guessed)
        self.experiment.guessed = self.gate.value
        self._front = None
        if self.live:
            follow_theme()
        self.adopted = headless.adopt(self, experiment.record) if experiment.record is not None else None

    # --- the state that both lives share --------------------------------------------------------------------------

    @property
    def results(self):
        """Measured arms by name."""
        return self.runner.results

    def arms(self, sweep: bool = False) -> list[Arm]:
        return self.experiment.sweep() if sweep else self.experiment.arms()

    def blocks(self, *, sweep: bool = False, again: bool = False) -> list[Block]:
        return self.experiment.order(self.runner.plan(self.arms(sweep), again=again))

    def forecast(self, blocks: list[Block]) -> str:
        """How long a run will take, before it starts."""
        if not blocks:
            return "measured already; Measure again adds passes"
        seconds, known = self.runner.forecast(blocks)
        seconds += self.experiment.after_seconds()
        requests = sum(b.requests for b in blocks)
        basis = "from earlier measurements" if known else "a first estimate from bytes"
        return f"about {minutes(seconds)} for {requests} request{'s' if requests != 1 else ''} ({basis})"

    def writer(self, label: str = "") -> RunWriter:
        """A new record with the parameters of this moment: sliders move afterwards."""
        name = self.experiment.name
        self.record = new_directory(self.out_dir, name)
        return RunWriter(self.record, self.experiment.parameters(), label=label or name)

    def measure(self, blocks: list[Block], writer: RunWriter, tell=lambda text: None, enough=lambda: False):
        """Measure and record; yields labkit.measure.runner.Progress. enough(): no further request is to be made."""
        with writer:
            said = self.experiment.foretell(list({a.name: a for b in blocks for a in b.arms}.values()))
            if said:
                writer.meta["predictions"] = [f.as_dict() for f in said.values()]
                writer.save()
            with contextlib.closing(self.runner.run(blocks, writer, cancel=self.cancel, tell=tell)) as run:
                for progress in run:
                    yield progress
                    if enough():
                        break
            if said:
                writer.meta["prediction_errors"] = errors(said, self.runner.results)
            if not self.cancel.is_set():
                self.experiment.after(self.runner.pool)
                self.experiment.look_again(self.results)
            status = "cancelled" if self.cancel.is_set() else "finished"
            writer.finish(self.runner.summary() | self.experiment.extra(), status=status)

    def recall(self) -> None:
        """Show what is kept of the present settings: the whole curve where it is there, else what Run would measure."""
        self.runner.results, self.runner.kept, self.runner.noticed = {}, {}, {}
        sweep = self.arms(sweep=True)
        self.runner.recall(*([sweep] if sweep else []), self.arms())

    def kept_lines(self) -> list[render.Line]:
        """What was measured under this load with other settings, or not side by side with the present ones."""
        kept = sorted(self.runner.kept.values(), key=lambda r: r.tpot.value)
        return [
            (f"{r.name}, {r.when}", r.tpot, "plain" if r.accept is None else f"a = {r.accept.value:.2f}") for r in kept
        ]

    def rebuild(self, engine: dict) -> None:
        """The same experiment at the same settings on another engine section; another engine has a ladder of its own.
        Raises BadInput; then all stays."""
        old = self.experiment
        other = {} if engine["engine"] == old.params.engine.engine else {"arms": None, "arm": None}
        made = type(old)(**{**old.given, **old.values, **other, "engine": engine, "guess": None})
        made.settings, made.guessed = old.settings, old.guessed
        self.experiment = made

    def key(self) -> str:
        """What a guess is about: the arms that Run measures at the present settings."""
        return json.dumps([a.setting for a in self.arms()])

    @property
    def guess(self) -> float | None:
        """The committed guess, None where there is none or it was made for other settings."""
        return self.gate.at(self.key()) if self.gate.key else self.gate.value

    def lines(self) -> list[render.Line]:
        """The findings; a number that rests on a doubtful result says so beside itself."""
        self.experiment.guessed = self.guess
        doubtful = [n for r in self.results.values() for n in r.doubtful()]
        return render.doubted(self.experiment.findings(self.results), doubtful)

    def predictions(self) -> list[render.Line]:
        """What was and is predicted, from bytes and from reference arms."""
        return [*self.experiment.foreseen_lines(self.results), *self.experiment.predictions(self.results)]

    def verdict(self) -> list[str]:
        """What the results show, in sentences; of unstable ones only what does not rest on their times."""
        doubt = no_conclusion(self.results)
        e = self.experiment
        return [doubt, *e.certain(self.results)] if doubt else e.verdict(self.results)

    def cautions(self) -> list[str]:
        """What was not in effect when the engines started, then why results may not be trusted."""
        noticed = [f"{name}: {text}" for name, said in self.runner.noticed.items() for text in said]
        return list(dict.fromkeys([*noticed, *self.experiment.warnings(self.results)]))

    @property
    def veiled(self) -> bool:
        """Live and the guess still open: whatever is shown would give the answer away."""
        return self.gate.open

    def figures(self) -> list[go.Figure]:
        """The experiment's figures; results of other settings stand in the first one, hollow and with their time."""
        if self.veiled:
            return [waiting("The figures wait for your guess", why=OPEN)]
        self.experiment.guessed = self.guess
        first, *rest = self.experiment.figures(self.results, self.guess)
        newest = sorted(self.runner.kept.values(), key=lambda r: -r.used[-1]["started_unix"])[:KEPT]
        decode.add_kept(first, [(r.name, r.when, r.tpot) for r in newest])
        return [first, *rest]

    # --- cells -----------------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Commit to a guess before anything is measured."""
        self._cell("ask")

    def predict(self) -> None:
        """What bytes and earlier arms say; live, after the guess."""
        self._cell("predict")

    def run(self) -> None:
        """Measure: at once when headless, at the press of a button when live."""
        if not self.live:
            headless.run(self)
        self._cell("run")

    def findings(self) -> None:
        """Measured beside predicted and reported, and what it does and does not show."""
        self._cell("findings")

    def summary(self) -> None:
        """The findings as plain text: what `labkit run` prints at the end; live, it follows the measurements."""
        from IPython.display import display

        if self.live:
            self._cell("summary")
            return
        # Not printed: `labkit run` streams what is printed, and shows the summary itself at the end.
        display(render.mime(self.summary_text()), raw=True)

    def summary_text(self) -> str:
        if not self.any:
            return "Nothing measured yet: go up and press Run; this text is then filled in."
        notes = [f"note: {w}" for w in self.cautions()]
        table = render.plain(self.lines(), self.experiment.name)
        return "\n".join(
            [*notes, *([""] if notes else []), table, *([f"record: {self.record}"] if self.record else [])]
        )

    @property
    def any(self) -> bool:
        """Whether anything is measured."""
        return any(r.used for r in self.results.values())

    def found(self) -> str:
        """Warnings, then the table, then what it shows, as HTML."""
        warned = render.cautions(self.cautions())
        return warned + render.table(self.lines()) + render.paragraphs(self.verdict())

    def _cell(self, which: str) -> None:
        from IPython.display import display

        if self.live:
            display(self.front().part(which))
            self.front().kept.place(which)
            return
        for data, metadata in self.static(which):
            display(data, metadata=metadata, raw=True)

    def front(self):
        """The widgets (labkit.notebook.widgets.front.Front), made when first needed."""
        if self._front is None:
            from labkit.notebook.widgets.front import Front

            self._front = Front(self)
        return self._front

    @property
    def explored(self) -> list[Explored]:
        """What was ever measured on this machine, as the table on the page has it; live alone."""
        return self._front.explored.settings if self._front is not None else []

    def static(self, which: str) -> static.Outputs:
        """A cell's content without widgets, as MIME bundles."""
        return static.outputs(self, which)

    def grid_figures(self) -> list[go.Figure]:
        """The newest grid as a heat map, and every setting that was measured, axis by axis."""
        rows = explored.plotted(self.explored)
        return [self.grid.figure(), *([coordinates(rows)] if len(rows) > 1 else [])]

    @property
    def places(self) -> int:
        """How many outputs the cell `run` may come to have."""
        own = len(self.experiment.figures(self.results, None))
        return own + (2 if self.experiment.axes() else 0) + 1


__all__ = ["Panel", "show"]
