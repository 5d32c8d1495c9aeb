"""09: everything that was measured here, oldest first, as one table and one ladder."""

import json
from itertools import pairwise
from pathlib import Path

import plotly.graph_objects as go

from labkit.checks import judged
from labkit.engines import ladder
from labkit.errors import BadInput, LabError
from labkit.fields import Text, check
from labkit.figures import decode, gains, runs
from labkit.figures.show import bundle, follow_theme
from labkit.measure import gain, machine
from labkit.measure.gain import Split
from labkit.measure.results import Result, results_of, speedup
from labkit.notebook import render
from labkit.notebook.mode import is_live
from labkit.notebook.reading import no_conclusion
from labkit.params import Params
from labkit.records import read_run


class Gathered:
    """The records below a directory. Cells: `run` (figures), `findings` (table), `summary` (text)."""

    name = "09_report"

    def __init__(self, *, out_dir: str = "outputs", live: bool | None = None):
        self.out_dir = Path(check(Text, "out_dir", out_dir))
        self.live = is_live() if live is None else live
        if self.live:
            follow_theme()
        self.records: list[tuple[str, dict[str, Result]]] = []
        self.unreadable: list[str] = []
        self.ladders: list[list[ladder.Arm]] = []
        self._ladder: tuple[list[Result], list[tuple[str, Result]]] | None = None  # from these results
        for meta in sorted(self.out_dir.glob("*/run.json")):
            try:
                run = read_run(meta.parent)
                found = results_of(meta.parent)
                arms = _ladder_of(run.meta["parameters"])
            except LabError as e:
                self.unreadable.append(f"{meta.parent.name}: {e}")
                continue
            if found:
                ended = run.meta.get("status", "finished")
                said = "" if ended == "finished" else f" ({ended})"
                self.records.append((f"{run.meta.get('label') or meta.parent.name}{said}", found))
                self.ladders.append(arms)

    def ladder(self) -> list[tuple[str, Result]]:
        """The newest result of each arm of a ladder under one load: the load that has most arms; of equals one whose
        arms stand in a single record, then one with its own sampling, then the newest. An arm that is broken on purpose
        stands on no ladder."""
        results = [r for _, found in self.records for r in found.values()]
        if self._ladder is None or [*map(id, self._ladder[0])] != [*map(id, results)]:
            self._ladder = results, self._found()
        return self._ladder[1]

    def _found(self) -> list[tuple[str, Result]]:
        order: dict[str, str] = {}  # digest of a configuration -> the arm's name, in the order of the ladders
        for arms in self.ladders:
            for arm in ladder.choose(arms):
                order.setdefault(arm.config.digest(), arm.name)
        # By load and record, and by load alone (record None).
        by_load: dict[tuple[str, int | None], dict[str, Result]] = {}
        for number, (_, found) in enumerate(self.records):
            for result in found.values():
                digest = result.arm.config.digest()
                if digest in order:
                    for record in (number, None):
                        by_load.setdefault((json.dumps(result.arm.load), record), {})[digest] = result
        if not by_load:
            return []
        _, best = max(
            by_load.items(),
            key=lambda item: (
                len(item[1]),
                item[0][1] is not None,
                json.loads(item[0][0])["sampling"] is None,  # else it was measured to explain another load
                max(r.used[-1]["started_unix"] for r in item[1].values()),
            ),
        )
        return [(name, best[digest]) for digest, name in order.items() if digest in best]

    def cautions(self) -> list[str]:
        """Why arms of the ladder may not be trusted."""
        return [f"{name}: {w}" for name, r in self.ladder() for w in r.warnings]

    def lines(self) -> list[render.Line]:
        """Every arm of every record, then the ladder; a number that rests on a doubtful result says so."""
        doubtful = [n for _, found in self.records for r in found.values() for n in r.doubtful()]
        return render.doubted(self._lines(), doubtful)

    def _lines(self) -> list[render.Line]:
        out: list[render.Line] = []
        for label, found in self.records:
            for name, r in found.items():
                a = f"a = {r.accept.value:.2f}" if r.accept is not None else "plain"
                out.append((f"{label}: {name}", r.tpot, f"{a}; {_load(r)}"))
        arms = self.ladder()
        if arms:
            out.append(("the ladder's load", _load(arms[0][1]), "the one that most arms share"))
        pairs = {name: (before, after) for before, after, name in self.steps()}
        for name, _ in arms[1:]:
            if name in pairs:
                line = (speedup(pairs[name][1], pairs[name][0]), "same load, side by side in one run")
            else:
                line = ("not compared", "no run measured both: the machine may have changed in between")
            out.append((f"ladder: {name} over the arm before", *line))
        out += [
            (f"ladder: {name}", "not measured under this load", f"measured under {', '.join(loads)}")
            for name, loads in self._elsewhere().items()
        ]
        if len(arms) > 1:
            last = arms[-1][0]
            out.append((f"ladder: {last} over {arms[0][0]}", speedup(arms[-1][1], arms[0][1]), "all changes together"))
            split = dict(self.splits()).get(last)
            if split is not None:
                out += [
                    ("  of it, fewer bytes per token", split.fewer_bytes, "by the per-tensor account"),
                    ("  of it, more bandwidth", split.more_bandwidth, "counted bytes per second, after over before"),
                ]
        return out

    def _elsewhere(self) -> dict[str, list[str]]:
        """Arms of a ladder that were measured under other loads than the ladder's alone, with these loads."""
        there = {r.arm.config.digest() for _, r in self.ladder()}
        names = {a.config.digest(): a.name for arms in self.ladders for a in ladder.choose(arms)}
        out: dict[str, list[str]] = {}
        for _, found in self.records:
            for r in found.values():
                digest = r.arm.config.digest()
                if digest in names and digest not in there and r.arm.load["workload"] not in out.get(names[digest], []):
                    out.setdefault(names[digest], []).append(r.arm.load["workload"])
        return out

    def splits(self) -> list[tuple[str, Split]]:
        """(arm, its gain over the first arm as fewer bytes x more bandwidth); [] where bytes cannot be counted."""
        arms = self.ladder()
        out = []
        for name, r in arms[1:]:
            try:
                found = gain.split(r, arms[0][1], model=machine.model_of(r.arm.params))
            except BadInput:  # a model whose shape is not known here, or a first arm that drafts
                return []
            if found is not None:
                out.append((name, found))
        return out

    def steps(self) -> list[tuple[Result, Result, str]]:
        """(before, after, name of the latter) for neighbours on the ladder, from the newest run that measured both."""
        out, arms = [], self.ladder()
        for (_, before), (name, after) in zip(arms, arms[1:], strict=False):
            for _, found in reversed(self.records):
                by_setting = {r.arm.setting: r for r in found.values()}
                if before.arm.setting in by_setting and after.arm.setting in by_setting:
                    out.append((by_setting[before.arm.setting], by_setting[after.arm.setting], name))
                    break
        return out

    def candidates(self) -> list[str]:
        """For each arm of the ladder that brought no clear gain: candidate causes, each with its next experiment; of an
        unstable ladder, that nothing can be said."""
        arms = self.ladder()
        doubt = no_conclusion(dict(arms))
        if doubt:
            return [doubt]
        judgements = (judged.step(b, a, again="labkit ladder") for (_, a), (_, b) in pairwise(arms))
        return [line for found in judgements for line in found.lines()]

    def figures(self) -> list[go.Figure]:
        arms, splits = self.ladder(), self.splits()
        everything: dict[str, list[dict]] = {}
        for label, found in self.records:
            everything.setdefault(label, []).extend(row for r in found.values() for row in r.rows)
        return [
            decode.ladder([(n, r.tpot) for n, r in arms])
            if arms
            else decode.waiting("The ladder", why="No arm of a ladder measured."),
            gains.splits([(f"{n} over {arms[0][0]}", s.fewer_bytes, s.more_bandwidth) for n, s in splits])
            if splits
            else decode.waiting(
                "Each gain: fewer bytes x more bandwidth", why="No two arms of a ladder whose bytes can be counted."
            ),
            runs.run_order(everything) if everything else decode.waiting("All requests", why="No record found."),
        ]

    def static(self, which: str) -> list[tuple[dict, dict]]:
        """A cell's content without widgets, as MIME bundles."""
        if which == "run":
            return [bundle(f) for f in self.figures()]
        lines = self.lines() or [("no record found", "", f"looked in {self.out_dir}: run another notebook first")]
        notes = render.paragraphs([*(f"not read: {u}" for u in self.unreadable), *self.candidates()])
        page = render.STYLE + render.cautions(self.cautions()) + render.table(lines) + notes
        return [({"text/html": page, "text/plain": render.plain(lines)}, {})]

    def _show(self, items) -> None:
        from IPython.display import display

        for data, metadata in items:
            display(data, metadata=metadata, raw=True)

    def run(self) -> None:
        if self.live:
            from IPython.display import display

            from labkit.figures.live import Board
            from labkit.notebook.widgets.saved import Alive, Saved

            display(Alive(Board(self.figures())))
            Saved(self.static).place("run")
        else:
            self._show(self.static("run"))

    def findings(self) -> None:
        """Every arm of every record; live, below it every setting in a table to sort, search, plot and take away."""
        self._show(self.static("findings"))
        if self.live:
            import ipywidgets as W
            from IPython.display import display

            from labkit.notebook.widgets import controls
            from labkit.notebook.widgets.explored import Table
            from labkit.notebook.widgets.saved import Alive

            alert = controls.Alert()
            table = Table(self.out_dir, alert.guarded)
            alert.guarded(table.refresh)
            box = W.VBox([alert, table.box])
            box.add_class("labkit-run")
            display(Alive(box))

    def summary(self) -> None:
        text = render.plain(self.lines(), self.name) if self.records else f"{self.name}: no record in {self.out_dir}"
        self._show([(render.mime(text), {})])


def _ladder_of(parameters: dict) -> list[ladder.Arm]:
    """The ladder of a record's parameters."""
    known = {k: v for k, v in parameters.items() if k in ("engine", "arms")}
    return Params.checked(known).ladder()


def _load(r: Result) -> str:
    load = r.arm.load
    length = f"{load['output_tokens']} tokens out" if load.get("output_tokens") else "own length"
    sampled = [f"{name} {v:g}" for name, v in (load.get("sampling") or {}).items()]
    return ", ".join([load["workload"], *sampled, length, f"{r.estimates.requests} requests"])
