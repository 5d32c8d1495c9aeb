"""`labkit eval` on the real pocket engine: paired answers, interrupted and gone on with."""

import json
import subprocess
import sys

import pytest

from labkit.cli.eval import lines
from labkit.records import read_run


def run(*argv, timeout=240):
    return subprocess.run(
        [sys.executable, "-m", "labkit.cli", "eval", *argv], capture_output=True, text=True, timeout=timeout
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = run("--questions", "5", "--json", "--out", str(tmp_path_factory.mktemp("eval")))
    assert out.returncode == 0, out.stderr
    return json.loads(out.stdout)


def test_two_arms_are_paired_and_their_answers_kept(finished):
    assert [a["name"] for a in finished["arms"]] == ["baseline", "mtp"]
    for arm in finished["arms"]:
        assert arm["asked"] == 5 and sum(arm["outcomes"].values()) == 5
        assert {"accuracy", "low", "high", "tpot_s", "accept_length"} <= set(arm)
        assert set(arm["latency_s"]) == {"mean", "p50", "p90", "p95", "p99"}
    assert finished["arms"][0]["accept_length"] is None and finished["arms"][1]["accept_length"] > 1
    cells = finished["mcnemar"]
    assert sum(cells[c] for c in ("both", "only_a", "only_b", "neither")) == finished["pairs"][0]["questions"]
    rows = [r for r in read_run(finished["run"]).rows if r["repeat"] >= 0]
    assert all(r["text"] and r["expected"] and r["outcomes"]["flexible"] for r in rows)
    texts = {arm: {r["index"]: r["text"] for r in rows if r["arm"] == arm} for arm in ("baseline", "mtp")}
    assert texts["baseline"] == texts["mtp"], "greedy answers do not depend on drafting"
    assert lines(finished)[0].startswith("arm")


def test_a_run_that_was_cut_goes_on_without_asking_again(finished, tmp_path):
    source = read_run(finished["run"]).directory
    cut = tmp_path / "cut"
    cut.mkdir()
    (cut / "run.json").write_text((source / "run.json").read_text())
    kept = (source / "requests.jsonl").read_text().splitlines()[:-3]
    (cut / "requests.jsonl").write_text("\n".join(kept) + '\n{"arm": "mt')  # killed in the middle of a row
    out = run("--resume", str(cut), "--json")
    assert out.returncode == 0, out.stderr
    again = json.loads(out.stdout)
    assert [a["outcomes"] for a in again["arms"]] == [a["outcomes"] for a in finished["arms"]]
    log = (cut / "requests.jsonl").read_text().splitlines()
    assert log[: len(kept)] == kept
    asked = [(r["arm"], r["index"]) for r in read_run(cut).rows if r["repeat"] >= 0]
    assert sorted(asked) == sorted({(arm, i) for arm in ("baseline", "mtp") for i in range(5)}), "each question once"


@pytest.mark.parametrize(
    "argv, words",
    [
        (["--workload", "repetitive"], "questions with answers"),
        (["--margin", "0"], "margin"),
        (["--questions", "0"], "count"),
        (["--arms", "nobody"], "nobody"),
    ],
)
def test_bad_input_is_one_line(argv, words):
    out = run(*argv)
    assert out.returncode == 2 and out.stdout == "" and words in out.stderr
    assert len(out.stderr.strip().splitlines()) == 1
