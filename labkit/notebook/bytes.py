"""Notebook 01: bytes without an engine. One set of sliders, and the figure of every section follows all of them."""

import html
from collections.abc import Callable

import plotly.graph_objects as go

from labkit import catalog
from labkit.errors import BadInput
from labkit.evidence import Evidence, derived, spec
from labkit.figures import bytes as figures
from labkit.figures import decode
from labkit.figures.show import follow_theme, show
from labkit.measure import machine as machines
from labkit.notebook import render
from labkit.notebook.bytes_choice import BATCHES, WINDOWS, Choice
from labkit.notebook.mode import is_live
from labkit.roofline.account import Account, per_tensor
from labkit.roofline.floors import (
    Work,
    compare_utilisation,
    effective_bandwidth,
    floor_s,
    intensity,
    ridge,
    utilisation,
)
from labkit.roofline.predictions import context_crossover, room, sensitivity, split_curve
from labkit.roofline.simple import simple
from labkit.roofline.sizes import checkpoint_bytes

Lines = list[render.Line]


class BytesPanel:
    """The sections of notebook 01, one method a cell. Parameters are the notebook's; wrong ones raise BadInput.

    model, my_model: catalog ids or paths to a config.json; machine, my_machine: catalog ids or `this`; context in
    tokens; experts, head: number formats; top_k 0 means the model's own; tpot_ms: a time that you know, or None.
    """

    def __init__(self, *, my_model: str, my_machine: str, live: bool | None = None, **choice):
        self.at = Choice(**choice)
        self.my_model, self.my_machine = my_model, my_machine
        self.live = is_live() if live is None else live
        self._controls: dict[str, object] = {}
        self._sections: list[tuple[Callable[[], go.Figure] | None, object, Callable[[], Lines], object]] = []
        follow_theme()

    # --- sections -------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Where one step's bytes go."""
        self._section(
            lambda: decode.account_bars(self.at.account()),
            self._read_lines,
            ("machine", "context", "experts", "head", "top_k"),
            guess=self._largest,
        )

    def _largest(self, said: str) -> str:
        """The reader's guess of the longest bar, held against the account."""
        shares = self._shares()
        biggest = next(iter(shares))
        right = "Right, it is the longest." if said == biggest else f"The longest is {biggest}: {shares[biggest]:.0%}."
        return f"You chose {said}: {shares.get(said, 0):.0%} of the step. {right}"

    def _shares(self) -> dict[str, float]:
        """Every bar's share of the step, longest first."""
        a = self.at.account()
        sizes = {name: (values + scales) / a.total_bytes for name, values, scales, _ in decode.parts(a)}
        return dict(sorted(sizes.items(), key=lambda item: -item[1]))

    def _read_lines(self) -> Lines:
        a = self.at.account()
        biggest, share = next(iter(self._shares().items()))
        return [
            ("bytes of one step", a.evidence(), f"context {a.context:,} tokens"),
            ("largest part", biggest, f"{share:.0%} of the step"),
            ("lower bound on time", floor_s(a.evidence(), self.at.machine.bandwidth), f"on {self.at.machine.name}"),
        ]

    def accounts(self) -> None:
        """The simple account beside the per-tensor one, and what it misses."""
        self._section(
            lambda: figures.two_accounts(self.at.simple(), self.at.account()),
            self._accounts_lines,
            ("context", "experts", "head", "top_k"),
        )

    def _accounts_lines(self) -> Lines:
        short, full = self.at.simple_step(), self.at.account().evidence()
        return [
            ("simple account", short, ""),
            ("per-tensor account", full, ""),
            ("simple below per-tensor", (1 - short / full).to("%"), ""),
        ]

    def roof(self) -> None:
        """The roofline with the work point, in both accounts."""
        self._section(self._roof_figure, self._roof_lines, ("machine", "context", "head"))

    def _work(self) -> list[tuple[str, Evidence, Evidence]]:
        """(name, FLOP a byte, FLOP/s): at the known time, or else where the floor would put it."""
        active = spec(self.at.simple().active_parameters, "FLOP", self.at.base.source)
        time, found = self.at.known_time(), []
        for name, step in (
            ("per-tensor account", self.at.account().evidence()),
            ("simple account", self.at.simple_step()),
        ):
            seconds = floor_s(step, self.at.machine.bandwidth) if time is None else time
            found.append(
                (name + (", at its floor" if time is None else ""), intensity(active, step), 2 * active / seconds)
            )
        return found

    def _roof_figure(self) -> go.Figure:
        machine, points = self.at.machine, self._work()
        peak = machine.peaks[0].flops if machine.peaks else None
        if peak is not None:  # the corner of the roof, so that the way to it can be seen
            points.append(("ridge point", ridge(peak, machine.bandwidth), peak * 1))
        first = machine.peaks[0] if machine.peaks else None
        name = f"compute roof, {first.precision} {'sparse' if first.sparse else 'dense'}" if first else ""
        return decode.roofline(
            points, machine.bandwidth, peak=peak, peak_name=name, title="Roofline: far left, under the slope"
        )

    def _roof_lines(self) -> Lines:
        lines: Lines = [(f"work per byte, {name}", at, "") for name, at, _ in self._work()]
        for p in self.at.machine.peaks:
            lines.append(
                (
                    "ridge point",
                    ridge(p.flops, self.at.machine.bandwidth),
                    f"{p.precision}, {'sparse' if p.sparse else 'dense'} peak",
                )
            )
        return lines

    def used(self) -> None:
        """What U says, and the comparison that the lab refuses."""
        self._section(None, self._used_lines, ("machine", "context", "head"))

    def _used_lines(self) -> Lines:
        time = self.at.known_time()
        if time is None:
            return [("a time for these settings", "none is known", "give tpot_ms, or go back to the published setting")]
        lines: Lines = [("time per token", time, time.source)]
        works = []
        for name, step in (("simple", self.at.simple_step()), ("per tensor", self.at.account().evidence())):
            used = utilisation(step, time, self.at.machine.bandwidth)
            works.append((Work(name, self.at.base.name, str(self.at.recipe.as_dict()), "synthetic"), used.value))
            lines += [
                (f"bandwidth, {name}", effective_bandwidth(step, time), ""),
                (f"U, {name}", used.to("%"), f"{1 - used.value:.0%} left, by this account"),
            ]
        try:
            compare_utilisation(*works)
        except BadInput as refusal:
            lines.append(("ratio of the two U", "refused", str(refusal)))
        return lines

    def context(self) -> None:
        """KV against context."""
        self._section(self._context_figure, self._context_lines, ("machine", "context", "head"))

    def _context_figure(self) -> go.Figure:
        cross = self.at.crossover()
        last = max(self.at.longest, 1.2 * cross if cross and cross < 8 * self.at.longest else 0)
        accounts = [self.at.account(context=int(last * i / 40)) for i in range(41)]
        return figures.against_context(accounts, cross, self.at.machine.bandwidth, self.at.context)

    def _context_lines(self) -> Lines:
        a, cross = self.at.account(), self.at.crossover()
        kv = derived(a.kv_bytes, "B", "context * KV per token", (spec(a.context, "token", self.at.base.source),))
        return [
            ("KV read per step", kv, f"{a.kv_bytes / a.total_bytes:.1%} of the step"),
            ("KV equals the weights at", f"{cross:,.0f} tokens" if cross else "no length", "◇ derived"),
        ]

    def window(self) -> None:
        """Experts and bytes against the window."""
        self._section(self._window_figure, self._window_lines, ("context", "experts", "top_k", "window"))

    def _window_figure(self) -> go.Figure:
        verifies = [self.at.account(tokens=m) for m in range(1, WINDOWS + 1)]
        return figures.against_window(verifies, self.at.rounds(), self.at.shape.experts, self.at.top_k, self.at.window)

    def _window_lines(self) -> Lines:
        m, verify = self.at.window, self.at.account(tokens=self.at.window)
        most = min(self.at.shape.experts, m * self.at.top_k)
        distinct = (
            "distinct experts per layer",
            f"{verify.distinct_experts:.1f} of {self.at.shape.experts}",
            f"◇ derived; {most} if none were chosen twice",
        )
        lines: Lines = [
            *([distinct] if self.at.shape.experts else []),
            (
                "bytes of the step",
                verify.evidence(),
                f"{verify.total_bytes / self.at.account().total_bytes:.2f} plain steps",
            ),
        ]
        if self.at.shape.nextn and m > 1:
            lines.append(
                (
                    "bytes per round, drafts included",
                    f"{self.at.rounds()[m - 2].c:.2f} plain steps",
                    f"◇ derived; the accept length must exceed it, and cannot exceed {m}",
                )
            )
        return lines

    def fits(self) -> None:
        """Capacity first: what must be held against what may be filled."""
        self._section(
            lambda: figures.held(self.at.room()) if self.at.room() else figures.held_unknown(self.at.machine.name),
            self._fits_lines,
            ("machine", "context", "experts"),
        )

    def _fits_lines(self) -> Lines:
        room = self.at.room()
        if room is None:
            return [("memory", "not known", f"of {self.at.machine.name}: add it to catalog/*.yaml")]
        base = (spec(room.context, "token", self.at.base.source),)
        held = derived(room.held_bytes, "B", "weights + caches + state + the engine's own memory", base)
        read = derived(room.read_bytes, "B", "one plain step", base)
        return [
            ("to be held", held, room.sentence().partition(":")[0]),
            ("usable", room.usable, room.how),
            (
                "read by one step",
                read,
                f"{room.read_bytes / room.held_bytes:.0%} of what is held: two different numbers",
            ),
            ("longest context that fits", f"{room.longest_context:,} tokens", "◇ derived"),
        ]

    def change(self) -> None:
        """What single changes of format, head and context do to bytes and floor."""
        self._section(
            lambda: figures.changes(self.at.changes(), self.at.machine.bandwidth),
            self._change_lines,
            ("machine", "context", "experts", "head"),
        )

    def _change_lines(self) -> Lines:
        (_, base), *others = self.at.changes()
        best, account = min(others, key=lambda row: row[1].total_bytes)
        less = 1 - account.total_bytes / base.total_bytes
        return [("the largest single saving", best, f"{less:.0%} of the step's bytes, and so of the floor")]

    def batch(self) -> None:
        """The batch axis: analytical."""
        self._section(
            lambda: figures.batches(self.at.batches(), self.at.machine.bandwidth, self._ends()),
            self._batch_lines,
            ("machine", "context", "experts"),
        )

    def _batch_lines(self) -> Lines:
        first, last = self.at.batches()[0], self.at.batches()[-1]
        gain = f"x{last.tokens_per_s / first.tokens_per_s:.1f}, not x{last.batch}"
        lines: Lines = [(f"batch {last.batch} over batch 1", gain, f"◇ {last.label}")]
        turn = next((p.batch for p in self.at.batches() if p.bound == "compute"), None)
        peak = self.at.peak()
        if peak is None:
            lines.append(("compute roof", "not known", "the catalog has no peak of this machine"))
        else:
            lines.append(("compute-bound from", f"batch {turn}" if turn else "no batch shown", peak[1]))
        if ends := self._ends():
            lines.append(("the curve stops", ends, "◇ derived"))
        return lines

    def _ends(self) -> str:
        """Why the batch curve stops where it does; empty where it was drawn to its end."""
        last, room = self.at.batches()[-1].batch, self.at.room()
        if room is not None and not room.fits:
            return "memory does not hold even one sequence"
        return f"memory holds no more than batch {last}" if last < BATCHES[-1] else ""

    def story(self) -> None:
        """The published gain split in two, over the c that one assumes: always the published machine and model."""
        base, fast = (catalog.result(f"synthetic-{r}").metrics for r in ("baseline", "mtp"))
        ling = catalog.model("ling-3.0-flash")
        steps = [
            simple(ling.config, bits, active_parameters=ling.published["active_parameters"].si).total_bytes
            for bits in (16, 8)
        ]
        curve = split_curve(
            [1.2 + 0.02 * i for i in range(81)],
            a=fast["accept_length"].si,
            step_bytes=steps[1],
            base_bytes=steps[0],
            tpot=fast["tpot"].si,
            base_tpot=base["tpot"].si,
        )
        gain = base["tpot"] / fast["tpot"]
        self._section(
            lambda: figures.split(curve, fast["verify_cost_ratio"].value, gain.value),
            lambda: [
                ("total gain", gain, "published times"),
                ("stated c", fast["verify_cost_ratio"], "its head format is not published"),
            ],
            (),
        )

    def hangs(self) -> None:
        """Which input the floor hangs on."""
        self._section(self._hangs_figure, list, ("machine", "context", "experts", "head"))

    def _hangs_figure(self) -> go.Figure:
        a, speed = self.at.account(), self.at.machine.bandwidth
        sizes = {g.name: g.total_bytes for g in a.groups}
        experts, head = (sizes.get(n, 0.0) for n in ("routed experts", "head"))
        parts = {
            "bandwidth": speed.si,
            "dense weights": a.weight_bytes - experts - head,
            "routed experts": experts,
            "head": head,
            "context": a.kv_bytes,
            "linear-attention state": a.state_bytes + a.convolution_bytes,
        }

        def floor(bandwidth: float, **sizes: float) -> float:
            return sum(sizes.values()) / bandwidth

        found = sensitivity(floor, {k: v for k, v in parts.items() if v})
        return figures.tornado(found, floor_s(a.evidence(), speed), 0.1)

    def yours(self) -> None:
        """The reader's three numbers, for their own machine and model."""
        self._table(self._your_lines())

    def _your_lines(self) -> Lines:
        config, machine = catalog.load_config(self.my_model), machines.find(self.my_machine)
        context = min(self.at.context, config.fields.get("max_position_embeddings", self.at.context))
        step = per_tensor(config, context=context).evidence()
        floor = floor_s(step, machine.bandwidth)
        try:
            cross = f"{context_crossover(config):,.0f} tokens"
        except BadInput:
            cross = "no length"
        lines: Lines = [
            ("1. bytes of a step", step, f"{config.name}, context {context:,}"),
            (
                "2. time per token, at least",
                floor,
                f"{machine.name}, {machine.bandwidth}: at most {1 / floor.value:.4g} tokens per second",
            ),
            ("3. KV equals the weights at", cross, "◇ derived"),
        ]
        if machine.memory is not None:
            held = derived(checkpoint_bytes(config), "B", "all tensors in their formats", step.inputs)
            lines.append(("room beside the weights", room(machine.memory, held), "before KV and the system's own part"))
        return lines

    def check(self) -> None:
        """Questions with answers that the lab computes at the present settings."""
        asked = self.questions()
        page = "".join(
            f"<details><summary>{html.escape(q)}</summary><p>{html.escape(a)}</p></details>" for q, a in asked
        )
        self._display(page, "\n".join(f"{q}\n    {a}" for q, a in asked))

    def questions(self) -> list[tuple[str, str]]:
        """(question, answer) at the present settings."""
        speed, plain, four = self.at.machine.bandwidth, self.at.account(), self.at.account(tokens=4)
        saved = self.at.account(head="bf16").evidence() - self.at.account(head="fp8").evidence()
        twice = self.at.account(context=2 * self.at.context)
        got = [
            (
                "An FP8 head instead of BF16: how many bytes less, and how much time at least?",
                f"{saved.quantity()} less, {(saved / speed).quantity()} at {speed.quantity('g')}. A little less than"
                " half of the head, because its scales are new.",
            ),
            (
                "Twice the context: does a step read twice as much?",
                f"No, {twice.total_bytes / plain.total_bytes:.3f} times as much. Only the KV doubles, and it was "
                f"{plain.kv_bytes / plain.total_bytes:.1%} of the step.",
            ),
            *self._experts_question(four),
            (
                "Four positions in one step: four times the bytes?",
                f"No, {four.total_bytes / plain.total_bytes:.2f} times. Dense weights, head and KV are read once.",
            ),
        ]
        time = self.at.known_time()
        if time is not None:
            u = utilisation(plain.evidence(), time, speed).value
            got.append(
                (
                    f"U is {u:.0%}. Will better kernels save the other {1 - u:.0%}?",
                    "U alone cannot say. It is an estimate of bytes over a time, compared with a nominal figure; "
                    "memory does not sustain the nominal figure, and not all of the time is memory time.",
                )
            )
        return got

    def _experts_question(self, four: Account) -> list[tuple[str, str]]:
        if not self.at.shape.experts:
            return []
        answer = (
            f"About {four.distinct_experts:.1f}, not {4 * self.at.top_k}, if the choices are independent. "
            "Neighbouring tokens may share more of them; the engine can count."
        )
        return [("Four positions choose their experts. How many distinct experts does a layer read?", answer)]

    def summary(self) -> None:
        """The three numbers as plain text."""
        print(render.plain(self._your_lines(), "01_bytes"))

    # --- showing --------------------------------------------------------------------------------------------------

    def _section(
        self,
        figure: Callable[[], go.Figure] | None,
        lines: Callable[[], Lines],
        controls: tuple[str, ...],
        guess: Callable[[str], str] | None = None,
    ) -> None:
        """One section: live with its sliders and a figure that follows them, headless at the parameters' values.

        guess: live, figure and table appear once the reader has named a part of the step; says how good that was.
        """
        if not self.live:
            if figure is not None:
                show(figure())
            self._table(lines())
            return
        import ipywidgets as W
        from IPython.display import display

        from labkit.figures.live import Board

        drawn = Board() if figure is not None else None
        note = W.HTML()

        def begin() -> None:
            """From here on figure and table follow the sliders."""
            self._sections.append((figure, drawn, lines, note))
            self._draw(self._sections[-1])

        rows = W.HBox([self._control(n) for n in controls], layout=W.Layout(flex_flow="row wrap"))
        asking = [] if guess is None else [self._asking(guess, begin)]
        if guess is None:
            begin()
        display(W.VBox([*asking, *(w for w in (rows, drawn, note) if w is not None)]))

    def _asking(self, guess: Callable[[str], str], begin: Callable[[], None]):
        """A menu of the step's parts; the first choice begins the section."""
        import ipywidgets as W

        parts = sorted(self._shares())
        menu = W.Dropdown(
            options=[("choose a part", ""), *((p, p) for p in parts)],
            description="longest bar",
            tooltip="Commit to a guess; the figure then appears.",
            style={"description_width": "150px"},
        )
        said, begun = W.HTML(render.note("The figure appears once you have chosen.")), []

        def chosen(change) -> None:
            if change["new"]:
                said.value = render.note(guess(change["new"]))
                if not begun:
                    begun.append(True)
                    begin()

        menu.observe(chosen, "value")
        return W.HBox([menu, said])

    @staticmethod
    def _draw(section) -> None:
        figure, drawn, lines, note = section
        if figure is not None:
            drawn.show([figure()])
        note.value = render.STYLE + render.table(lines()) if lines() else ""

    def _control(self, name: str):
        """The one control of a setting: shown in several sections it is the same widget, and moves in all of them."""
        if name not in self._controls:
            from labkit.notebook.widgets.controls import control

            self._controls[name] = control(self.at.setting(name), self.at.values[name])
            self._controls[name].observe(lambda change: self._moved(name, change["new"]), "value")
        return self._controls[name]

    def _moved(self, name: str, value: object) -> None:
        self.at.values[name] = value
        for section in self._sections:
            self._draw(section)

    def _table(self, lines: Lines) -> None:
        if lines:
            self._display(render.STYLE + render.table(lines), render.plain(lines))

    @staticmethod
    def _display(page: str, text: str) -> None:
        from IPython.display import display

        display({"text/html": page, "text/plain": text}, raw=True)
