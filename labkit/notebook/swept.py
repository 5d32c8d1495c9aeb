"""10: a sweep: finished, interrupted, or under way in whatever process."""

from pathlib import Path
from typing import TYPE_CHECKING

from labkit.errors import BadInput
from labkit.fields import Text, check
from labkit.figures.show import bundle, follow_theme
from labkit.notebook import render
from labkit.notebook.mode import is_live
from labkit.records.sweep import LOG, META, SweepRun, read_sweep
from labkit.report import sweep as parts

if TYPE_CHECKING:
    from IPython.display import DisplayHandle

NONE = "No sweep in {}: labkit sweep params/sweep-pocket.yaml measures one."


class Swept:
    """One sweep, read again whenever it is asked for. Cells: `run` (figures), `findings` (tables), `configs` (each
    configuration's command line, record and params file), `summary` (text)."""

    name = "10_sweep"

    def __init__(self, *, folder: str | None = None, out_dir: str = "outputs", live: bool | None = None):
        self.out_dir = Path(check(Text, "out_dir", out_dir))
        self.live = is_live() if live is None else live
        self._folder = Path(check(Text, "folder", folder)) if folder else None
        if self._folder is not None:
            read_sweep(self._folder)  # BadInput at once, not in a later cell
        self._read: tuple[tuple, SweepRun | None] = ((), None)
        self._placed: dict[str, DisplayHandle] = {}
        if self.live:
            follow_theme()

    @property
    def folder(self) -> Path | None:
        """The sweep's folder: the one that was given, else the newest; None where there is none."""
        if self._folder is not None:
            return self._folder
        found = sorted(self.out_dir.glob(f"*/{META}"), key=lambda p: p.stat().st_mtime)
        return found[-1].parent if found else None

    def read(self) -> SweepRun | None:
        """The sweep as it stands now, None where there is none; the same object as long as its log has not grown."""
        folder = self.folder
        if folder is None:
            return None
        stamp = tuple((folder / name).stat() if (folder / name).exists() else None for name in (META, LOG))
        stamp = folder, *((s.st_ino, s.st_mtime_ns, s.st_size) for s in stamp if s is not None)
        if self._read[0] != stamp:
            self._read = stamp, read_sweep(folder)
        return self._read[1]

    def details(self, run: SweepRun, name: str) -> str:
        """One configuration as HTML."""
        return parts.details(run, parts.plan_of(run), name)

    def params_text(self, run: SweepRun, name: str) -> str:
        """A configuration's params file. Raises BadInput where it cannot be measured."""
        text = parts.params_text(parts.plan_of(run), name)
        if not text:
            raise BadInput("config", name, "a configuration that can be measured")
        return text

    # --- cells -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """The figures; live, they follow a sweep that is under way, and a click on a point shows its configuration."""
        run = self.read()
        if not self.live:
            from IPython.display import display

            said = parts.standing(run) if run else self.none()
            figures = parts.drawn(run) if run else []
            for data, metadata in [_text(render.note(said), said), *map(bundle, figures)]:
                display(data, metadata=metadata, raw=True)
            return
        from labkit.notebook.widgets.swept import Watcher

        Watcher(self).show()

    def findings(self) -> None:
        """What may be called best, the effect of each setting, every configuration."""
        self._place("findings")

    def configs(self) -> None:
        """Each configuration, folded: what a click on its point shows."""
        self._place("configs")

    def summary(self) -> None:
        """The findings as plain text."""
        self._place("summary")

    def static(self, cell: str) -> tuple[dict, dict]:
        """A cell of tables or text as it stands now: MIME data and metadata."""
        run = self.read()
        if run is None:
            return _text(render.note(self.none()), f"{self.name}: {self.none()}")
        if cell == "findings":
            markup = render.paragraphs(parts.best(run)) + parts.effects_html(run) + parts.configs_html(run)
            return _text(markup, self.text(run))
        if cell == "configs":
            return _text(parts.each(run), f"{len(run.rows)} configurations; each has its own fold in HTML")
        return {"text/plain": "\n".join([self.name, "", self.text(run)])}, {}

    def renew(self) -> None:
        """Bring tables and text that are on a live page up to date."""
        for cell, handle in self._placed.items():
            data, metadata = self.static(cell)
            handle.update(data, metadata=metadata, raw=True)

    def text(self, run: SweepRun) -> str:
        """How it stands, what may be called best, effects and configurations, in columns."""
        blocks = [parts.standing(run), *parts.best(run)]
        for head, rows in (parts.effect_rows(run), parts.config_rows(run), parts.rest_rows(run)):
            if rows:
                blocks += ["", *_columns([tuple(head), *rows])]
        return "\n".join(blocks)

    def none(self) -> str:
        """What to say where there is no sweep."""
        return NONE.format(self.out_dir)

    def _place(self, cell: str) -> None:
        from IPython.display import display

        data, metadata = self.static(cell)
        handle = display(data, metadata=metadata, raw=True, display_id=self.live or None)
        if self.live:
            self._placed[cell] = handle


def _columns(rows: list[tuple]) -> list[str]:
    """Rows as lines of text, all but the widest last column aligned."""
    texts = [[str(c) for c in row] for row in rows]
    widths = [min(max(len(row[i]) for row in texts), 40) for i in range(len(texts[0]))]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in texts]


def _text(markup: str, text: str) -> tuple[dict, dict]:
    return {"text/html": render.STYLE + markup, "text/plain": text}, {}
