"""Notebook 01 on the page: one cell a section. Live, one set of controls moves the figures of all sections; headless,
each section is shown once at the parameters' values."""

import html

from labkit.figures.show import bundle, follow_theme, show
from labkit.notebook import render
from labkit.notebook.bytes import closing, sections
from labkit.notebook.bytes.choice import Choice
from labkit.notebook.bytes.link import command
from labkit.notebook.mode import is_live


class BytesPanel:
    """The sections of notebook 01, one method a cell. Parameters are the notebook's; wrong ones raise BadInput.

    model, my_model: catalog ids or paths to a config.json; config: a config.json as text, counted instead of model;
    machine, my_machine: catalog ids or `this`; bandwidth in GB/s, None for the machine's own; context in tokens; batch:
    sequences; experts, head: number formats; top_k 0 means the model's own; tpot_ms: a time that you know, or None;
    acceptance, verify_cost, draft_cost: of the simulated drafting.
    """

    def __init__(self, *, my_model: str, my_machine: str, live: bool | None = None, **choice):
        self.at = Choice(**choice)
        self.my_model, self.my_machine = my_model, my_machine
        self.live = is_live() if live is None else live
        self._front = None
        follow_theme()

    @property
    def front(self):
        """The widgets (labkit.notebook.bytes.front.Front), made when first needed."""
        if self._front is None:
            from labkit.notebook.bytes.front import Front

            self._front = Front(self.at, self.static)
        return self._front

    def choose(self) -> None:
        """What is counted: model, machine and load, and the same choice as a command or a link."""
        if self.live:
            self._live("choose", self.front.choosing())
        else:
            self._table(self._chosen())

    def fits(self) -> None:
        """What must be held in memory, compared with what may be filled."""
        self._section("fits")

    def read(self) -> None:
        """Where one step's bytes go; live, after a guess of the longest bar."""
        if self.live:
            self._live("read", self.front.guessed(sections.SECTIONS["read"]))
        else:
            self._section("read")

    def accounts(self) -> None:
        """The simple account beside the per-tensor one, and what it misses."""
        self._section("accounts")

    def roof(self) -> None:
        """The roofline with the work point, in both accounts."""
        self._section("roof")

    def used(self) -> None:
        """What U says, and the comparison that the lab refuses."""
        self._section("used")

    def context(self) -> None:
        """KV over context length."""
        self._section("context")

    def window(self) -> None:
        """Experts and bytes over the window."""
        self._section("window")

    def simulate(self) -> None:
        """When drafting pays, simulated: no engine runs."""
        self._section("simulate")

    def change(self) -> None:
        """What single changes of format, head and context do to bytes and lower bound."""
        self._section("change")

    def batch(self) -> None:
        """The batch axis: analytical."""
        self._section("batch")

    def depends(self) -> None:
        """Which input the lower bound depends on most."""
        self._section("depends")

    def story(self) -> None:
        """The published gain split in two, over the c that one assumes: always the published machine and model."""
        self._section("story")

    def yours(self) -> None:
        """The reader's three numbers, for their own machine and model."""
        self._table(self._yours())

    def check(self) -> None:
        """Questions with answers that the lab computes at the present settings."""
        asked = closing.questions(self.at)
        page = "".join(
            f"<details><summary>{html.escape(q)}</summary><p>{html.escape(a)}</p></details>" for q, a in asked
        )
        self._display(page, "\n".join(f"{q}\n    {a}" for q, a in asked))

    def summary(self) -> None:
        """The three numbers as plain text."""
        print(render.plain(self._yours(), "01_bytes"))

    def _yours(self) -> list[render.Line]:
        return closing.your_lines(self.at, self.my_model, self.my_machine)

    def _chosen(self) -> list[render.Line]:
        return [("model", self.at.base.name, self.at.base.source), ("the same again", command(self.at), "")]

    # --- showing --------------------------------------------------------------------------------------------------

    def static(self, name: str) -> list[tuple[dict, dict]]:
        """What stays of a live cell in the notebook's file: its figures and its table as MIME bundles."""
        found = sections.SECTIONS.get(name)
        lines = found.lines(self.at) if found else self._chosen()
        page = {"text/html": render.STYLE + render.table(lines), "text/plain": render.plain(lines)}
        return [*(bundle(f(self.at)) for f in (found.figures if found else ())), *([(page, {})] if lines else [])]

    def _live(self, name: str, widget) -> None:
        self._widget(widget)
        self.front.kept.place(name, empty=True)
        self.front.kept.soon()

    def _section(self, name: str) -> None:
        found = sections.SECTIONS[name]
        if self.live:
            self._live(name, self.front.section(found))
            return
        for figure in found.figures:
            show(figure(self.at))
        self._table(found.lines(self.at))

    def _table(self, lines: list[render.Line]) -> None:
        if lines:
            self._display(render.STYLE + render.table(lines), render.plain(lines))

    @staticmethod
    def _display(page: str, text: str) -> None:
        from IPython.display import display

        display({"text/html": page, "text/plain": text}, raw=True)

    @staticmethod
    def _widget(widget) -> None:
        from IPython.display import display

        from labkit.notebook.widgets.saved import Alive

        display(Alive(widget))
