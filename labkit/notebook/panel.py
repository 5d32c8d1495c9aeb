"""A panel is an experiment on the page. The same cells have three lives: widgets at a front end, a plain run without
one, and static figures in a report."""

import contextlib
import json
import threading
from pathlib import Path

import plotly.graph_objects as go

from labkit.checks import judged
from labkit.engines import turn
from labkit.errors import BadInput
from labkit.figures import decode
from labkit.figures.explored import coordinates
from labkit.figures.show import bundle, follow_theme, show
from labkit.figures.theme import alt_of
from labkit.measure import estimates
from labkit.measure.foresight import Foreseen, errors
from labkit.measure.pool import Pool, pool
from labkit.measure.results import Arm
from labkit.measure.runner import Block, Runner
from labkit.notebook import explored, render
from labkit.notebook.experiment import Experiment, waiting
from labkit.notebook.explored import Explored
from labkit.notebook.gate import OPEN, Gate
from labkit.notebook.grid import Grid
from labkit.notebook.mode import is_live
from labkit.records import RunWriter, Store, read_run
from labkit.records.writer import new_directory
from labkit.units import minutes

NOTHING_HERE = "Nothing is measured in this notebook."
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
        if experiment.record is not None:
            self._adopt(experiment.record)

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
        doubtful = [r for r in self.results.values() if r.used and r.warnings]
        return render.doubted(self.experiment.findings(self.results), [n for r in doubtful for n in r.numbers()])

    def predictions(self) -> list[render.Line]:
        """What was and is predicted, from bytes and from reference arms."""
        return [*self.experiment.foreseen_lines(self.results), *self.experiment.predictions(self.results)]

    def unstable(self) -> list[str]:
        """Arms whose passes differ so much that no cause can be read from them."""
        return [n for n, r in self.results.items() if r.used and r.estimates.tpot.spread > estimates.UNSTABLE]

    def verdict(self) -> list[str]:
        """What the results show, in sentences; of unstable ones only what does not rest on their times."""
        names, e = self.unstable(), self.experiment
        if not names:
            return e.verdict(self.results)
        spread = max(self.results[n].estimates.tpot.spread for n in names)
        return [
            f"No conclusion is drawn: passes of {', '.join(names)} differ by up to {spread:.0%}"
            f" (the limit is {estimates.UNSTABLE:.0%}). Close what else uses this machine and measure again.",
            *e.certain(self.results),
        ]

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
            self._run_headless()
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
        display({"text/plain": self.summary_text()}, raw=True)

    def summary_text(self) -> str:
        if not self._any:
            return "Nothing measured yet: go up and press Run; this text is then filled in."
        notes = [f"note: {w}" for w in self.cautions()]
        table = render.plain(self.lines(), self.experiment.name)
        return "\n".join(
            [*notes, *([""] if notes else []), table, *([f"record: {self.record}"] if self.record else [])]
        )

    @property
    def _any(self) -> bool:
        return any(r.used for r in self.results.values())

    def found(self) -> str:
        """Warnings, then the table, then what it shows, as HTML."""
        warned = render.cautions(self.cautions())
        return warned + render.table(self.lines()) + render.paragraphs(self.verdict())

    def _adopt(self, record: str) -> None:
        """Take everything from a finished record, and nothing from another minute beside it. What was predicted before
        it was measured is shown as such; measured arms are shown from the cell `run` on. Raises BadInput."""
        if self.live:
            raise BadInput("record", record, "nothing in JupyterLab: there a panel measures")
        found, arms = read_run(record), self.arms(sweep=True) or self.arms()
        lacking = self.runner.adopt(found, arms)
        if lacking:
            names = ", ".join(a.name for a in lacking)
            raise BadInput("record", record, f"a finished record with {names} under {json.dumps(arms[0].load)}")
        self.record, self._read = Path(record), dict(self.runner.results)
        self.runner.results = {}
        said = [Foreseen.from_dict(p) for p in found.meta.get("predictions", [])]
        self.experiment.foreseen = {f.digest: f for f in said} | {f.arm: f for f in said}
        self._summary = found.meta["summary"]

    def _run_headless(self) -> None:
        if self.record is not None:
            self.runner.results = self._read
            self.experiment.restore(self._summary)
            print(f"{self.experiment.name}: read from {self.record}, whose arms were measured in turns", flush=True)
            return
        sweep = bool(self.experiment.sweep())
        blocks = self.blocks(sweep=sweep)
        urls = [a.config.url for b in blocks for a in b.arms if a.config.url]
        turn.wait_for_engines(turn.wait_s(), lambda text: print(text, flush=True), urls=urls)
        print(f"{self.experiment.name}: {self.forecast(blocks)}", flush=True)
        quarter = 0
        for progress in self.measure(blocks, self.writer()):
            if progress.text.startswith("warning: "):
                print(progress.text, flush=True)
            now = 4 * progress.done // max(1, progress.total)
            if now > quarter:
                quarter = now
                left = f", about {minutes(progress.eta_s)} left" if progress.done < progress.total else ""
                print(f"{progress.done} of {progress.total} requests{left}", flush=True)

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

    def static(self, which: str) -> list[tuple[dict, dict]]:
        """A cell's content without widgets, as MIME bundles: headless runs and exported reports use it."""
        e = self.experiment
        if which == "ask":
            if e.guess is None:
                return []
            said = "none was made" if self.gate.value is None else f"{self.gate.value:g} {e.guess.unit}"
            note = "".join(f"<p>{render.note(s)}</p>" for s in e.instead())
            text = "\n".join([*e.instead(), f"Guess: {said}"])
            return [_html(note + render.note(f"{e.guess.question} Guess: {said}."), text)]
        if self.veiled and which in ("predict", "findings", "summary"):
            return [_html(render.note(OPEN), OPEN)]
        if which == "predict":
            lines = self.predictions()
            return [_html(render.table(lines, ("", "predicted", "evidence", "")), render.plain(lines))] if lines else []
        if which == "run":
            return self._drawn()
        if which in ("findings", "summary") and not self._any:
            said = self.grid.findings() if self.grid is not None else []
            return [_html(render.paragraphs(said) or render.note(NOTHING_HERE), "\n".join(said) or NOTHING_HERE)]
        if which == "findings":
            return [_html(self.found(), render.plain(self.lines()))]
        if which == "summary":
            return [({"text/plain": self.summary_text()}, {})]
        raise KeyError(which)

    @property
    def explored(self) -> list[Explored]:
        """What was ever measured on this machine, as the table on the page has it; live alone."""
        return self._front.explored.settings if self._front is not None else []

    def _drawn(self) -> list[tuple[dict, dict]]:
        """The figures that show something, then the grid and, live, the settings that were ever measured here."""
        figures = [f for f in self.figures() if alt_of(f) not in (decode.NOT_YET, OPEN)]
        if self.veiled:
            return []
        if self.grid is not None:
            figures += self.grid_figures()
        table = [explored.as_outputs(self.explored)] if self.explored else []
        return [*map(bundle, figures), *table]

    def grid_figures(self) -> list[go.Figure]:
        """The newest grid as a heat map, and every setting that was measured, axis by axis."""
        rows = explored.plotted(self.explored)
        return [self.grid.figure(), *([coordinates(rows)] if len(rows) > 1 else [])]

    @property
    def places(self) -> int:
        """How many outputs the cell `run` may come to have."""
        own = len(self.experiment.figures(self.results, None))
        return own + (2 if self.experiment.axes() else 0) + 1


def _html(markup: str, text: str) -> tuple[dict, dict]:
    return {"text/html": render.STYLE + markup, "text/plain": text}, {}


__all__ = ["Panel", "show"]
