"""An executed notebook does not contradict itself: shown on the committed set, and proved by breaking it."""

import re
from pathlib import Path

import nbformat
import pytest
from contradictions import AGAIN, EXTREMES, OF_SWEEP, RATIO, contradictions, texts, unstable, values

EXAMPLES = Path(__file__).parents[2] / "outputs/examples/pocket"
EVERY = sorted(EXAMPLES.parent.glob("*/[0-9]*.ipynb"))  # on the pocket engine, on llama.cpp


def example(name):
    return nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)


@pytest.mark.parametrize("path", EVERY, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_no_notebook_of_the_sets_contradicts_itself(path):
    assert contradictions(nbformat.read(path, as_version=4)) == []


def test_there_is_something_to_compare():
    found = values(example("05_mtp"))
    assert sum(w.startswith("speed-up, ") for w in found) >= 2 and sum(w.startswith("c, ") for w in found) >= 2
    assert "TPOT over floor" in values(example("02_baseline"))


def test_not_every_arm_of_the_set_is_unstable():
    seen = [unstable(example(n)) for n in ("02_baseline", "03_humming", "04_fp8_head", "05_mtp")]
    arms, shaky = (sum(len(s[i]) for s in seen) for i in (0, 1))
    assert arms >= 8 and shaky < arms


def broken(name, change):
    """The example with the plain text and the HTML of its outputs changed."""
    nb, changed = example(name), 0
    for cell in nb.cells:
        for o in cell.get("outputs", []):
            for kind, text in o.get("data", {}).items():
                if kind in ("text/plain", "text/html") and change(text) != text:
                    o["data"][kind], changed = change(text), changed + 1
    assert changed
    return nb


def first(name, what):
    return values(example(name))[what][0][0]


def test_a_token_under_its_floor_is_found():
    over = first("02_baseline", "TPOT over floor")
    nb = broken("02_baseline", lambda t: t.replace(f"{over:.4g} [", "0.96 ["))
    assert any("floor" in s for s in contradictions(nb))


def test_a_speed_up_that_is_not_a_over_c_is_found():
    arm = next(w for w in values(example("05_mtp")) if w.startswith("speed-up, "))
    shown = f"{first('05_mtp', arm):.4g}"
    nb = broken("05_mtp", lambda t: t.replace(f"{shown} [", "3.9 [") if not t.startswith("Figure") else t)
    assert any("a / c" in s for s in contradictions(nb))


def test_a_figure_that_differs_from_the_table_is_found():
    nb = broken("05_mtp", lambda t: t.replace(": a ", ": a 1") if t.startswith("Figure: ") else t)
    assert any("in a figure" in s for s in contradictions(nb))


def test_a_sentence_that_differs_from_the_table_is_found():
    # A quiet run has such a sentence of its own; an unstable one says no cause.
    nb = broken("05_mtp", lambda t: f"{t}<p>It pays because a is above c = 7.00.</p>" if "<table" in t else t)
    assert any("a sentence has c" in s for s in contradictions(nb))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda t: t.replace("; fastest c", "; fastest c9"), "in a figure"),
        (lambda t: t.replace("in the sweep (x", "in the sweep (x9"), "in a sentence"),
        (lambda t: t.replace(" in the sweep, x", " in the sweep, x9"), "in a sentence"),
        (lambda t: t.replace(" / generic: x", " / generic: x9") if t.startswith("Figure") else t, "in the table"),
        (lambda t: re.sub(r"^(c\d+ +)(\d)", r"\g<1>9\g<2>", t, flags=re.M), "a / c"),
    ],
)
def test_a_sweep_that_contradicts_itself_is_found(change, word):
    assert any(word in s for s in contradictions(broken("10_sweep", change)))


def test_the_sweep_s_table_and_figures_are_read_at_all():
    nb = example("10_sweep")
    text = "\n".join(texts(nb))
    assert len(OF_SWEEP.findall(text)) >= 100  # findings and summary, fifty each
    assert len(EXTREMES.findall(text)) == 2 and len(AGAIN.findall(text)) >= 2 and len(RATIO.findall(text)) >= 4
