"""Run notebooks through papermill into one directory of outputs/, then write the report."""

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from labkit import disk
from labkit.batch import reach, schema, watch
from labkit.engines import turn
from labkit.errors import BadInput, LabError
from labkit.params import ROOT
from labkit.report import html as report
from labkit.report.quick import nbformat

CELL_TIMEOUT_S = 3600
KERNEL_START_S = 60
WHOLE = "whole:"  # papermill's scheme for our way of writing
NOTEBOOK_KEPT = "what was measured is kept in records beside it, its outputs as they were before"


@dataclass
class Outcome:
    """One notebook run. status: ok, failed, timeout or dead; summary: the text of cells tagged `summary`."""

    name: str
    path: Path
    status: str = "ok"
    seconds: float = 0.0
    error: str = ""
    summary: str = ""


@dataclass
class Executed:
    """What a run left: its directory, one outcome per notebook, the report."""

    directory: Path
    outcomes: list[Outcome] = field(default_factory=list)
    report: Path | None = None

    @property
    def ok(self) -> bool:
        return all(o.status == "ok" for o in self.outcomes)


def find(names: list[str], folder: Path) -> list[Path]:
    """Notebooks by name (`02_baseline`, `02`, or a path); all numbered ones when no name is given. Raises BadInput."""
    there = sorted(folder.glob("[0-9][0-9]_*.ipynb"))
    if not names:
        if not there:
            raise BadInput("notebook", str(folder), "a folder with numbered notebooks; run this in the project's root")
        return there
    found = []
    for name in names:
        if name.endswith(".ipynb") and Path(name).is_file():
            found.append(Path(name))
            continue
        fits = [p for p in there if p.stem == name or p.stem.split("_")[0] == name]
        if len(fits) != 1:
            raise BadInput("notebook", name, "one of " + ", ".join(p.stem for p in there) if there else "a path")
        found += fits
    return found


def run(
    notebooks: list[Path],
    given: dict[str, object],
    out_dir: Path,
    *,
    over: dict[str, object] | None = None,
    cell_timeout_s: int = CELL_TIMEOUT_S,
    wait_s: float = turn.WAIT_S,
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
) -> Executed:
    """Execute each notebook with the given parameters (and `over` above all of them) and write `report.html`.

    Every value is checked before the first kernel starts (BadInput). A notebook that fails does not stop the next; its
    file says so in `metadata.labkit`. Where another run or lab measures on this machine, this one waits for its turn,
    at most wait_s seconds (labkit.engines.turn.Busy). Records land in `records/` of the run's directory; paths in
    parameters count from the working directory, as they do for every other command.
    """
    plans = checked(notebooks, given, over or {})
    stem = notebooks[0].stem if len(notebooks) == 1 else f"{len(notebooks)}-notebooks"
    measures = any("engine" in schema.parameters_of(n) for n in notebooks)
    with turn.turn(stem, wait_s, say, _attached(plans)) if measures else nullcontext():
        done = Executed(fresh(out_dir, f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{stem}"))
        for notebook, values in plans:
            if "out_dir" in schema.parameters_of(notebook):
                values = {**values, "out_dir": str(done.directory / "records")}
            say(f"{notebook.stem}: started {datetime.now():%H:%M:%S}")
            outcome = execute(notebook, done.directory / notebook.name, values, cell_timeout_s, wait_s)
            say(f"{notebook.stem}: {outcome.status} after {outcome.seconds:.0f} s")
            done.outcomes.append(outcome)
    done.report = report.write(done.directory)
    return done


def checked(notebooks: list[Path], given: dict, over: dict) -> list[tuple[Path, dict]]:
    """The values of each notebook. Raises BadInput for a value that is wrong or reaches nobody."""
    names = schema.unknown(notebooks, given)
    if names:
        raise BadInput("params", names[0], "a parameter of the lab or of " + ", ".join(n.stem for n in notebooks))
    reach.check(notebooks, given, over)
    return [(n, schema.check_values(n, {**schema.for_notebook(n, given), **over})) for n in notebooks]


def _attached(plans: list[tuple[Path, dict]]) -> list[str]:
    """Addresses of servers that somebody else started, in engine sections and in arms."""
    sections = [v.get("engine") for _, v in plans] + [a.get("set") for _, v in plans for a in v.get("arms") or []]
    return [s["url"] for s in sections if s and s.get("url")]


def fresh(parent: Path, name: str) -> Path:
    """A directory that nobody had before."""
    for suffix in ("", *(f"-{i}" for i in range(2, 100))):
        path = parent / (name + suffix)
        try:
            path.mkdir(parents=True, exist_ok=False)
        except FileExistsError:
            continue
        except OSError as e:
            raise BadInput("out_dir", str(parent), f"a directory that can be written ({e.strerror})") from None
        return path
    raise LabError(f"{parent}: could not make a new run directory")


@contextmanager
def _headless(deaths: Path, wait_s: float) -> Iterator[None]:
    """Kernels inherit this: no person is watching, also when this runs in a terminal of JupyterLab; and where to say
    what died beside the last cell (labkit.batch.watch)."""
    ours = {"LABKIT_LIVE": "0", ROOT: os.getcwd(), watch.FILE: str(deaths.resolve()), turn.VARIABLE: str(wait_s)}
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@cache
def _papermill():
    import papermill

    papermill.iorw.papermill_io.register(WHOLE, _Whole())
    return papermill


class _Whole:
    """papermill's way to a file: it saves the notebook after every cell, and in place a full disk would cut it."""

    def write(self, text: str, path: str) -> None:
        disk.write_text(path.removeprefix(WHOLE), text, NOTEBOOK_KEPT)

    def pretty_path(self, path: str) -> str:
        return path.removeprefix(WHOLE)


def execute(
    source: Path, target: Path, values: dict, cell_timeout_s: int, wait_s: float, *, quiet: bool = False
) -> Outcome:
    """Run one notebook with checked values. quiet: what it prints is only in its file."""
    from nbclient.exceptions import CellTimeoutError, DeadKernelError

    from labkit.batch.kernel import Kernel

    papermill = _papermill()
    outcome = Outcome(source.stem, target)
    # Its warning about unknown parameters does not understand `int | None`; labkit.batch.schema has checked them.
    logging.getLogger("papermill").setLevel(logging.ERROR)
    began = time.monotonic()
    deaths = target.with_suffix(".deaths")
    try:
        with _headless(deaths, wait_s):
            papermill.execute_notebook(
                str(source),
                WHOLE + str(target),
                parameters=values,
                kernel_name="python3",
                language="python",
                execution_timeout=cell_timeout_s,
                start_timeout=KERNEL_START_S,
                progress_bar=False,
                kernel_manager_class=Kernel,
                extra_arguments=["--IPKernelApp.log_level=ERROR", "--ext=labkit.batch.watch"],
                stdout_file=None if quiet else sys.stderr,
                stderr_file=None if quiet else sys.stderr,
            )
    except papermill.PapermillExecutionError as e:
        outcome.status, outcome.error = "failed", f"cell {e.exec_count}: {e.ename}: {e.evalue or _last_words(target)}"
    except CellTimeoutError:
        outcome.status, outcome.error = "timeout", f"a cell took longer than {cell_timeout_s} s"
    except DeadKernelError:
        outcome.status, outcome.error = "dead", "the kernel died (out of memory, or killed)"
    except RuntimeError as e:
        if not str(e).startswith("Kernel"):  # nbclient has no class for a kernel that does not come up
            raise
        outcome.status, outcome.error = "dead", f"waited {KERNEL_START_S} s for the kernel to come up: {e}"
    outcome.seconds = time.monotonic() - began
    late = _late(deaths)
    deaths.unlink(missing_ok=True)
    if late and outcome.status == "ok":
        outcome.status, outcome.error = "failed", "after its last cell: " + "; ".join(late)
    _finish(outcome)
    return outcome


def _late(deaths: Path) -> list[str]:
    """What the kernel's last moments said (labkit.batch.watch)."""
    try:
        return json.loads(deaths.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except ValueError:  # the file is there, so something died; the disk had no room for more than its name
        return ["a process beside it died, and the disk had no room to write which"]


def _last_words(notebook: Path) -> str:
    """The last line on stderr: an unknown magic raises nothing, it is only said there."""
    outputs = [o for c in nbformat.read(notebook, as_version=4).cells for o in c.get("outputs", [])]
    said = "".join(o.text for o in outputs if o.output_type == "stream" and o.name == "stderr").strip()
    return said.rpartition("\n")[2]


def _finish(outcome: Outcome) -> None:
    """Collect the summary, and mark the file: papermill leaves a timed-out notebook looking like a finished one."""
    if not outcome.path.exists():
        return
    nb = nbformat.read(outcome.path, as_version=4)
    code = [c for c in nb.cells if c.cell_type == "code" and c.source.strip()]
    if outcome.status == "ok" and any(c.execution_count is None for c in code):
        # papermill takes sys.exit(0) for a success, and what was to follow, findings and checks, never ran.
        last = max((c.execution_count or 0 for c in code), default=0)
        outcome.status = "failed"
        outcome.error = f"cell {last} ended the notebook (sys.exit or the like): the cells after it did not run"
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell["outputs"] = [nbformat.from_dict(o) for o in report.merged(cell.outputs)]
        if cell.cell_type == "code" and "summary" in cell.metadata.get("tags", []):
            for output in cell.get("outputs", []):
                text = output.get("text") or output.get("data", {}).get("text/plain", "")
                outcome.summary += (
                    "".join(text) if output.output_type in ("stream", "display_data", "execute_result") else ""
                )
    nb.metadata["labkit"] = {"status": outcome.status, **({"error": outcome.error} if outcome.error else {})}
    # Machine paths say nothing to a reader and must not travel with a committed example.
    for name in ("input_path", "output_path"):
        if name in nb.metadata.get("papermill", {}):
            nb.metadata.papermill[name] = Path(nb.metadata.papermill[name]).name
    disk.write_text(outcome.path, nbformat.writes(nb) + "\n", NOTEBOOK_KEPT)
