"""`labkit profile` on the real engine: parts beside predictions, sums that agree, a word when the core was shared."""

import json
import shutil

import pytest

from labkit.cli import main
from labkit.cli import profile as command

pytestmark = pytest.mark.skipif(
    not (shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")), reason="no C compiler"
)


@pytest.fixture(scope="module")
def found():
    return command.profiled(2, seed=3)


@pytest.fixture(scope="module")
def document(found):
    return command.document(found)


def test_every_part_has_both_roofs_and_a_residual(document):
    for name in ("plain", "round"):
        one = document[name]
        assert {"experts", "head", "kda_projections", "kda_state", "mlp", "router"} <= {p["name"] for p in one["parts"]}
        for p in one["parts"]:
            assert p["residual_s"] == pytest.approx(p["measured_s"] - p["predicted_s"])
        for p in document["plain"]["parts"]:
            higher = max(p["by_bytes_s"], p["by_arithmetic_s"])
            assert p["predicted_s"] == pytest.approx(higher + p["fixed_s"])
        assert one["measured_s"] == pytest.approx(sum(p["measured_s"] for p in one["parts"]))
        worst = max(one["parts"], key=lambda p: abs(p["residual_s"]))
        assert one["largest_residual"] == worst["name"]


def test_a_round_is_its_phases(document):
    phases = [v for k, v in document["phases"].items() if k != "plain"]
    assert len(phases) == 4
    assert document["round"]["measured_s"] == pytest.approx(sum(p["measured_s"] for p in phases))
    assert document["c"]["measured"] == pytest.approx(document["round"]["measured_s"] / document["plain"]["measured_s"])
    assert 1.7 < document["c"]["bytes"] < 2.2  # bytes alone do not depend on this machine's speed


def test_every_kernel_has_a_rate_for_each_number_of_tokens(document):
    rates = document["kernels_flop_s"]
    assert {"expert gate and up", "expert down", "fp8 head", "f32"} <= set(rates)
    assert all(set(by) >= {1, 4, 8} and min(by.values()) > 0 for by in rates.values())


def test_the_table_names_the_largest_residual(document):
    text = command.table(document)
    assert text.count("largest residual: ") == 2 and "error of the prediction" in text
    assert len(document["warnings"]) == (document["cpu_share"] < 0.97) + bool(document["disturbed"])
    json.dumps(document)


def test_the_figures_are_a_page_and_a_picture(found, tmp_path):
    page, picture = tmp_path / "p.html", tmp_path / "p.png"
    command.draw(found, str(page), str(picture))
    text = page.read_text()
    assert text.count('class="plot"') == 2 and "<script src=" not in text and "Content-Security-Policy" in text
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_bad_counts_are_bad_input(capsys):
    assert main(["profile", "--prompts", "0"]) == 2
    assert "prompts" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--html", "--png"])
def test_a_place_that_is_not_there_is_refused_before_anything_is_measured(capsys, monkeypatch, tmp_path, option):
    monkeypatch.setattr(command, "profiled", lambda *_: pytest.fail("measured"))
    assert main(["profile", option, str(tmp_path / "none" / "file")]) == 2
    assert f"{option.removeprefix('--')}: " in capsys.readouterr().err
