"""Notebook 01's panel: the same numbers headless, under sliders, and in its answers."""

import json

import pytest
import yaml

from labkit import catalog
from labkit.errors import BadInput
from labkit.notebook.bytes import amounts, closing, link, panel, sections
from labkit.notebook.bytes.choice import Choice
from labkit.notebook.widgets import saved
from labkit.roofline.account import per_tensor

PARAMETERS = dict(
    model="ling-3.0-flash",
    machine="dgx-spark",
    context=32768,
    experts="as released",
    head="as released",
    top_k=0,
    window=4,
    tpot_ms=None,
    my_model="gpt-oss-120b",
    my_machine="h200",
)
SECTIONS = (
    "choose",
    "fits",
    "read",
    "accounts",
    "roof",
    "used",
    "context",
    "window",
    "simulate",
    "change",
    "batch",
    "depends",
    "story",
    "yours",
    "check",
)


def lab(**changed):
    return panel.BytesPanel(**(PARAMETERS | {"live": False} | changed))


@pytest.fixture
def shown(monkeypatch):
    """What a section would display: figures, and the plain text of tables."""
    seen = {"figures": [], "text": []}
    monkeypatch.setattr(panel, "show", seen["figures"].append)
    monkeypatch.setattr(panel.BytesPanel, "_display", staticmethod(lambda page, text: seen["text"].append(text)))
    return seen


@pytest.mark.parametrize(
    "model, machine",
    [
        ("ling-3.0-flash", "dgx-spark"),
        ("gpt-oss-120b", "h200"),
        ("qwen3-30b-a3b", "m4-max"),
        ("kimi-linear-48b-a3b", "rtx-5090"),
        ("deepseek-v3", "b200"),
        ("qwen3-8b", "rtx-4090"),
    ],
)
def test_every_section_at_every_kind_of_model(shown, model, machine):
    p = lab(model=model, machine=machine)
    for name in SECTIONS:
        getattr(p, name)()
    assert len(shown["figures"]) == 12 and len(shown["text"]) >= 10
    assert all(f.layout.meta["alt"] and f.data for f in shown["figures"])


def test_the_numbers_of_the_published_setting(shown):
    p = lab()
    p.accounts()
    assert "36% too low" in shown["figures"][0].layout.title.text
    assert "3.356 GB" in shown["text"][0] and "5.23 GB" in shown["text"][0] and "◇ derived" in shown["text"][0]
    p.used()
    assert "44.37 %" in shown["text"][1] and "69.14 %" in shown["text"][1] and "refused" in shown["text"][1]
    p.context()
    assert "596,958 tokens" in shown["text"][2]
    p.window()
    assert "31.3 of 512" in shown["text"][3] and "2.09 plain steps" in shown["text"][3]
    p.batch()
    assert "analytical, not measured" in shown["text"][4] and "analytical" in shown["figures"][-1].layout.title.text


def test_the_waterfall_adds_up(shown):
    lab().accounts()
    bars = shown["figures"][0].data[0]
    assert sum(bars.y[:-1]) == pytest.approx(bars.y[-1])


def test_a_time_is_used_only_where_it_belongs():
    assert lab().at.known_time().value == 27.71
    assert lab(head="fp8").at.known_time().value == 22.76
    for changed in (
        {"machine": "h200"},
        {"context": 1000},
        {"experts": "bf16"},
        {"top_k": 4},
        {"head": "fp32"},
        {"model": "gpt-oss-120b", "context": 32768},
    ):
        assert lab(**changed).at.known_time() is None
    own = lab(machine="h200", tpot_ms=5).at.known_time()
    assert own.value == 5 and own.tier == "reported", "a typed time is not this lab's measurement"


def test_answers_follow_the_settings():
    answers = dict(closing.questions(lab().at))
    assert any(a.startswith("401.8 MB less, 1.472 ms") for a in answers.values())
    assert any(a.startswith("About 31.3, not 32") for a in answers.values())
    assert any(q.startswith("U is 69%") for q in answers)
    other = dict(closing.questions(lab(top_k=4, context=1000).at))
    assert any(a.startswith("About 15.8, not 16") for a in other.values())
    assert not any(q.startswith("U is") for q in other)


def test_the_readers_three_numbers(capsys):
    lab().summary()
    text = capsys.readouterr().out
    step = per_tensor(catalog.load_config("gpt-oss-120b"), context=32768).evidence()
    assert step.quantity() in text and "2. time per token, at least" in text and "room beside the weights" in text
    assert "△ spec" in text and "NVIDIA H200" in text
    lab(my_model="kimi-linear-48b-a3b", my_machine="m5-max").summary()
    assert "room" not in capsys.readouterr().out


@pytest.fixture
def live(monkeypatch):
    """A live panel and the widgets that its cells display; `made.plain` holds what stays beside them, by place."""
    pytest.importorskip("anywidget")
    monkeypatch.setattr(saved, "QUIET_S", 3600.0)  # `refresh` is called by the tests
    seen, plain = [], []

    class Handle:
        def __init__(self, at):
            self.at = at

        def update(self, data, **_):
            plain[self.at] = data

    def display(shown, **_):
        if isinstance(shown, dict):
            plain.append(shown)
            return Handle(len(plain) - 1)
        seen.extend(shown.children[1:] if hasattr(shown, "children") else [])  # without the style that hides `plain`

    monkeypatch.setattr("IPython.display.display", display)
    made = lab(live=True)
    made.plain = plain
    seen.clear()
    plain.clear()
    return made, seen


def test_the_longest_bar_is_guessed_before_it_is_seen(live):
    p, shown = live
    p.read()
    asking, rest = shown[0].children
    menu, said = asking.children
    _, board, table = rest.children
    p.front.controls["context"].value = 0
    assert board.figures == [] and table.value == ""
    p.front.controls["context"].value = 32768
    menu.value = "head"
    assert board.figures and "largest part" in table.value
    assert "head: 15%" in said.value and "KDA projections: 35%" in said.value
    menu.value = "KDA projections"
    assert "Right" in said.value and len(p.front.drawn) == 1
    # The KV is a bar like any other: at a long context it is the longest.
    p.at.values["context"] = 262144
    assert "KV cache" in str(amounts.read_lines(p.at)[1])
    assert "Right" in amounts.guessed(p.at, "KV cache")


def test_what_is_saved_beside_the_widgets_follows_the_controls(live):
    p, _ = live
    for cell in ("choose", "fits", "read"):
        getattr(p, cell)()
    assert [set(d) for d in p.plain] == [{"text/plain"}] * 5  # drawn later, once nobody moves anything
    p.front.kept.refresh()
    chosen, held, fits, bar, read = p.plain
    assert "ling-3.0-flash" in chosen["text/html"] and "image/png" in held and "<table" in fits["text/html"]
    assert bar == read == {"text/plain": ""}  # the longest bar is still to be guessed
    p.front.controls["machine"].value = "h200"
    p.front.kept.refresh()
    assert p.plain[1]["image/png"] != held["image/png"] and "h200" in p.plain[0]["text/html"]


def test_live_controls_move_every_section(live):
    p, shown = live
    p.depends()
    p.context()
    (_, first, _), (_, second, table) = (w.children for w in shown)
    before = first.figures[0]["data"][0]["x"], second.figures[0]["data"][-1]["y"]
    context = p.front.controls["context"]
    context.value = context.max
    assert p.at.context == context.max
    assert first.figures[0]["data"][0]["x"] != before[0] and "264.2 MB" not in table.value
    p.front.controls["machine"].value = "h200"
    assert second.figures[0]["data"][-1]["y"] != before[1]


def test_another_model_brings_its_own_ranges(live):
    p, _ = live
    p.choose()
    p.window()
    c = p.front.controls
    c["context"].value = 200_000
    c["model"].value = "qwen3-8b"
    assert p.at.base.name == "qwen3-8b" and c["context"].max == p.at.longest and c["context"].value == p.at.longest
    assert c["top_k"].max <= 1 and p.front.alert.value == ""
    c["model"].value = "deepseek-v3"
    assert c["top_k"].value == 8 and c["context"].max == p.at.longest != 40960


def test_every_model_of_the_catalog_can_be_picked(live):
    p, _ = live
    p.choose()
    for model in catalog.catalog().models:
        p.front.controls["model"].value = model
        assert p.at.base.name == model and p.front.alert.value == "", model


def test_a_bandwidth_of_ones_own_is_used_and_said_to_be_given():
    own, half = lab(), lab(bandwidth=136.5)
    assert own.at.machine.bandwidth.value == 273
    floor = dict((what, v) for what, v, _ in amounts.read_lines(half.at))["lower bound on time"]
    assert floor.value == pytest.approx(2 * 19.16e-3, rel=1e-3)
    assert half.at.machine.bandwidth.tier == "reported" and half.at.known_time() is None


def test_more_sequences_hold_more():
    one, many = lab(batch=1).at.room(), lab(batch=32).at.room()
    assert many.held_bytes > one.held_bytes and many.longest_context < 262144
    full = [n.text for n in amounts.context_figure(lab(batch=32).at).layout.annotations]
    assert any("memory is full" in t for t in full)


CONFIG = json.dumps(catalog.load_config("qwen3-8b").fields)


def test_a_pasted_config_is_counted(live):
    p, shown = live
    p.choose()
    row, paste, alert, *_ = shown[0].children
    text, take = paste.children[0].children
    text.value = CONFIG
    take.click()
    assert p.at.base.name == "pasted config" and alert.value == ""
    assert p.at.account().total_bytes == lab(model="qwen3-8b", machine="h200").at.account().total_bytes
    assert lab(config=CONFIG).at.account().total_bytes == p.at.account().total_bytes


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "not json <script>", "{}", '{"architectures": ["Nobody"]}', '{"architectures": 3}']
)
def test_a_config_that_cannot_be_counted_is_one_line_and_changes_nothing(live, text):
    with pytest.raises(BadInput) as e:
        lab(config=text)
    assert len(str(e.value).splitlines()) == 1
    p, _ = live
    p.choose()
    before = p.at.base
    p.front._change(lambda: p.at.paste(text))
    assert p.at.base is before and "role=" in p.front.alert.value and "<script>" not in p.front.alert.value


def test_a_link_brings_every_setting_back():
    there = lab(model="deepseek-v3", machine="h200", context=4096, batch=8, bandwidth=2000.0, head="fp8", top_k=4).at
    here = lab().at
    link.apply(here, link.query(there))
    assert here.values == there.values
    pasted = lab(config=CONFIG).at
    link.apply(here, link.query(pasted))
    assert here.values == pasted.values and here.account().total_bytes == pasted.account().total_bytes


@pytest.mark.parametrize("text", ["model=nonesuch", "context=-1", "engine=x", "machine=h200&batch=0"])
def test_a_link_that_does_not_fit_changes_nothing(text):
    at = lab().at
    before = dict(at.values)
    with pytest.raises(BadInput):
        link.apply(at, text)
    assert at.values == before


def test_the_command_gives_the_same_choice():
    import shlex

    at = lab(model="qwen3-30b-a3b", machine="h200", context=4096, acceptance=[0.5, 0.4], draft_cost=0.02).at
    words = shlex.split(link.command(at))
    given = {words[i + 1]: words[i + 2] for i, w in enumerate(words) if w == "-p"}
    more = yaml.safe_load("\n".join(words[i + 1] for i, w in enumerate(words) if w == "-y"))
    again = Choice(**{"tpot_ms": None, **{k: yaml.safe_load(v) for k, v in given.items()}, **more})
    assert again.values == at.values


def test_the_simulation_says_what_it_is_wherever_it_is_shown(shown):
    p = lab()
    p.simulate()
    assert all("imulated" in f.layout.title.text and "not measured" in f.layout.title.text for f in shown["figures"])
    assert "simulated" in shown["text"][0]
    said = json.dumps([f.to_plotly_json() for f in shown["figures"]], default=str, ensure_ascii=False)
    assert "● measured" not in said + shown["text"][0]
    drawn = [t for f in shown["figures"] for t in f.data if t.marker.symbol]
    assert drawn and all(t.marker.symbol.endswith("-open") for t in drawn)


def test_simulated_points_lie_where_a_and_c_say():
    p = lab(acceptance=[0.5, 0.5], verify_cost=0.1, draft_cost=0.1)
    rounds = p.at.drafting()
    assert [r.a for r in rounds[:2]] == pytest.approx([1.5, 1.75]) and [r.c for r in rounds[:2]] == [1.2, 1.4]
    assert rounds[2].a == rounds[1].a  # no third draft is ever accepted
    plane = sections.SECTIONS["simulate"].figures[0](p.at)
    point = plane.data[-1]
    assert "S = 1" in {n.text for n in plane.layout.annotations} and point.y[0] == pytest.approx(1.75)


def test_costs_follow_the_bytes_until_they_are_set():
    at = lab().at
    first = at.values["verify_cost"]
    at.choose("model", "qwen3-8b")
    assert at.values["verify_cost"] < first < 1
    at.choose("verify_cost", 0.5)
    at.choose("model", "ling-3.0-flash")
    assert at.values["verify_cost"] == 0.5


@pytest.mark.parametrize(
    "changed, what",
    [
        ({"model": "nonesuch"}, "model"),
        ({"machine": "abacus"}, "machine"),
        ({"context": -1}, "context"),
        ({"context": 10**7}, "context"),
        ({"experts": "fp3"}, "experts"),
        ({"head": "int4"}, "head"),
        ({"top_k": 33}, "top_k"),
        ({"window": 0}, "window"),
        ({"window": 17}, "window"),
        ({"tpot_ms": -1}, "tpot_ms"),
        ({"tpot_ms": "soon"}, "tpot_ms"),
        ({"bandwidth": -1}, "bandwidth"),
        ({"bandwidth": "fast"}, "bandwidth"),
        ({"batch": 0}, "batch"),
        ({"acceptance": [1.5]}, "acceptance"),
        ({"acceptance": [0.5] * 9}, "acceptance"),
        ({"draft_cost": -0.1}, "draft_cost"),
    ],
)
def test_bad_parameters_are_named_at_once(changed, what):
    with pytest.raises(BadInput, match=what):
        lab(**changed)
