"""Paired evaluations from rows whose truth is known, the published one among them."""

import pytest

from labkit.measure import evaluation
from labkit.measure.evaluation import outcome


def row(arm, index, text="so #### 18", status="ok", finish="stop", tokens=101, tpot=0.002, ttft=0.3, **more):
    """One answered question: 18 is right. Times in s."""
    ok = status == "ok"
    return {
        "arm": arm,
        "repeat": 0,
        "index": index,
        "prompt_sha256": str(index),
        "status": status,
        "error": None if ok else "why",
        "text": text if ok else None,
        "expected": "18",
        "finish_reason": finish if ok else None,
        "output_tokens": tokens,
        "prompt_tokens": 60,
        "tpot_s": tpot if ok else None,
        "ttft_s": ttft if ok else None,
        "latency_s": ttft + tpot * (tokens - 1) if ok else None,
        "verify_ct": None,
        **more,
    }


def published():
    """1264 both right, 14 only the baseline, 13 only the other, 28 neither (ly01325/Ling3-Flash-DGX-Spark)."""
    cells = [("18", "18")] * 1264 + [("18", "7")] * 14 + [("7", "18")] * 13 + [("7", "7")] * 28
    return [
        row(arm, i, f"#### {said}", tpot=0.02645 if arm == "baseline" else 0.01856)
        for i, cell in enumerate(cells)
        for arm, said in zip(("baseline", "all"), cell, strict=True)
    ]


def test_the_published_run():
    found = evaluation.evaluation(published(), ["baseline", "all"])
    assert [a["outcomes"]["right"] for a in found["arms"]] == [1278, 1277]
    assert found["mcnemar"] == {"both": 1264, "only_a": 14, "only_b": 13, "neither": 28, "p": 1.0}
    assert 100 * found["pairs"][0]["difference"] == pytest.approx(-0.08, abs=0.005)
    assert 0.958 < found["arms"][0]["low"] < 0.9585 and 0.976 < found["arms"][0]["high"] < 0.978
    assert found["pairs"][0]["speedup"]["median"] == pytest.approx(1.425, abs=0.001)
    assert found["pairs"][0]["non_inferiority"]["holds"]
    assert any("ceiling" in w for w in found["warnings"])


@pytest.mark.parametrize(
    "spoilt, name",
    [
        (row("a", 0, status="refused"), "refused"),
        (row("a", 0, status="error"), "failed"),
        (row("a", 0, text="first 12 +", finish="length"), "truncated"),
        (row("a", 0, text="no idea"), "no answer"),
    ],
)
def test_what_was_not_answered_is_not_wrong(spoilt, name):
    assert outcome(spoilt) == name
    rows = [spoilt, *(row("a", i) for i in range(1, 10))]
    found = evaluation.arm(rows)
    assert found["outcomes"][name] == 1 and found["outcomes"]["wrong"] == 0 and found["asked"] == 10
    unanswered = name != "no answer"
    assert found["answered"] == 10 - unanswered and found["accuracy"] == (1.0 if unanswered else 0.9)


def test_a_pair_needs_two_answers():
    rows = [row("a", i) for i in range(10)] + [row("b", i) for i in range(5)] + [row("b", 5, status="error")]
    found = evaluation.evaluation(rows, ["a", "b"])
    assert found["pairs"][0]["questions"] == 5 and found["mcnemar"]["both"] == 5
    assert any("1 of 6 questions failed" in w for w in found["warnings"])


def test_strict_and_flexible_stand_apart():
    rows = [row("a", i, "The answer is 18." if i % 2 else "#### 18") for i in range(10)]
    found = evaluation.arm(rows)
    assert found["accuracy"] == 1.0 and found["strict"]["accuracy"] == 0.5
    assert found["strict"]["outcomes"]["no answer"] == 5


def test_latency_is_rebuilt_from_its_parts():
    rows = [row("a", i, tokens=51 + 10 * i, server_latency_s=None) for i in range(20)]
    found = evaluation.arm(rows)["rebuilt"]
    assert found["residual_s"] == pytest.approx(0, abs=1e-12) and found["queue_s"] is None
    waited = [{**r, "server_latency_s": r["latency_s"] - 0.25} for r in rows]
    assert evaluation.arm(waited)["rebuilt"]["queue_s"] == pytest.approx(0.25)


def test_lengths_and_percentiles():
    rows = [row("a", i, tokens=102 + i) for i in range(100)]
    found = evaluation.arm(rows)
    assert found["output_tokens"]["mean"] == pytest.approx(151.5)
    latency = found["latency_s"]
    assert latency["p50"] < latency["p90"] < latency["p95"] < latency["p99"]
    shown = found["intervals"]["latency_s"]["p95"]
    assert shown["low"] <= latency["p95"] <= shown["high"]


def test_few_questions_decide_nothing():
    rows = [row(arm, i) for i in range(60) for arm in ("a", "b")]
    listed = evaluation.evaluation(rows, ["a", "b"])["usable"]
    by_name = {u["figure"]: u["usable"] for u in listed}
    assert by_name["accuracy, b against a"] is False
    assert by_name["TPOT, b against a"] is True
    assert any("P99" in name for name in by_name)
    assert "19 points wide" in evaluation.preview(43, 50)


def test_no_answer_at_all():
    rows = [row(arm, i, status="error") for i in range(3) for arm in ("a", "b")]
    found = evaluation.evaluation(rows, ["a", "b"])
    assert found["arms"][0]["accuracy"] is None and found["arms"][0]["latency_s"] is None
    assert found["mcnemar"]["p"] is None


def test_each_question_counts_once_however_often_it_was_asked():
    def row(index, status, **more):
        return {"index": index, "status": status, "repeat": 0, "arm": "a", **more}

    rows = [
        row(0, "ok", n=1),
        row(1, "error"),
        row(2, "refused"),
        row(1, "ok", n=2),
        row(2, "error", n=3),
        row(0, "ok"),
    ]
    settled = evaluation.settled(rows)
    assert [r["index"] for r in settled] == [0, 1, 2]
    assert [r.get("n") for r in settled] == [1, 2, 3], "the first good answer, else the last attempt"
    assert evaluation.attempts(rows) == {"questions": 3, "asked_again": 3}
