"""Notebook 01's panel: the same numbers headless, under sliders, and in its answers."""

import pytest

from labkit import catalog
from labkit.errors import BadInput
from labkit.notebook import bytes as panel
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
    "fits",
    "read",
    "accounts",
    "roof",
    "used",
    "context",
    "window",
    "change",
    "batch",
    "hangs",
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
    assert len(shown["figures"]) == 10 and len(shown["text"]) >= 8
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
    answers = dict(lab().questions())
    assert any(a.startswith("401.8 MB less, 1.472 ms") for a in answers.values())
    assert any(a.startswith("About 31.3, not 32") for a in answers.values())
    assert any(q.startswith("U is 69%") for q in answers)
    other = dict(lab(top_k=4, context=1000).questions())
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


def test_the_longest_bar_is_guessed_before_it_is_seen(monkeypatch):
    import IPython.display

    shown = []
    monkeypatch.setattr(IPython.display, "display", shown.append)
    p = lab(live=True)
    shown.clear()
    p.read()
    asking, sliders, board, table = shown[0].children
    menu, said = asking.children
    p._controls["context"].value = 0
    assert board.figures == [] and table.value == ""
    p._controls["context"].value = 32768
    menu.value = "head"
    assert board.figures and "largest part" in table.value
    assert "head: 15%" in said.value and "KDA projections: 35%" in said.value
    menu.value = "KDA projections"
    assert "Right" in said.value and len(p._sections) == 1
    # The KV is a bar like any other: at a long context it is the longest.
    p.at.values["context"] = 262144
    assert "KV cache" in str(p._read_lines()[1])
    assert "Right" in p._largest("KV cache")


def test_live_sliders_move_every_section(monkeypatch):
    pytest.importorskip("anywidget")
    monkeypatch.setattr("IPython.display.display", lambda *a, **k: None)
    p = lab(live=True)
    p.hangs()
    p.context()
    (_, first, _, note), (_, second, _, table) = p._sections
    before = first.figures[0]["data"][0]["x"], second.figures[0]["data"][-1]["y"]
    p._controls["context"].value = p._controls["context"].max
    assert p.at.context == p._controls["context"].max
    assert first.figures[0]["data"][0]["x"] != before[0]
    assert "264.2 MB" not in table.value and note is not table
    p._controls["machine"].value = "h200"
    assert second.figures[0]["data"][-1]["y"] != before[1]


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
    ],
)
def test_bad_parameters_are_named_at_once(changed, what):
    with pytest.raises(BadInput, match=what):
        lab(**changed)
