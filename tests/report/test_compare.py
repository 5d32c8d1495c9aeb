"""Comparing runs: refused under unequal conditions, which are named; otherwise a ratio with its interval."""

import json
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from labkit.cli import main
from labkit.cli import parser as command_line
from labkit.records import RunWriter
from labkit.report import compare

POCKET = {"engine": "pocket", "model_path": "m", "version": "1", "kernel_variant": "avx2"}
BASE = {"workload": "code", "prompt_tokens": None, "output_tokens": 64, "seed": 1, "count": 2}


def record(path, tpot=1e-3, *, prompts=("p0", "p1"), arm="a", machine=None, info=None, url=None, rows=None, **changed):
    with RunWriter(path, BASE | changed) as writer:
        writer.add_arm(arm, server_info=POCKET | (info or {}), requested={"engine": "attach", "url": url})
        writer.meta["environment"].update(machine or {})
        for repeat in range(3):
            for index, prompt in enumerate(prompts):
                t = tpot * (1 + 0.01 * repeat)
                writer.append(
                    {
                        "arm": arm,
                        "repeat": repeat,
                        "index": index,
                        "status": "ok",
                        "prompt_sha256": prompt,
                        "tpot_s": t,
                        "ttft_s": 0.01,
                        "latency_s": 0.01 + 63 * t,
                        "output_tokens": 64,
                        "prompt_tokens": 9,
                        "accept_length": None,
                        "verify_ct": None,
                        "error": None,
                        "asked_sha256": prompt,
                        "temperature": 0.0,
                    }
                    | (rows or {})
                )
    return path


@pytest.fixture
def run(tmp_path, capsys):
    def compare(a, b, *flags):
        code = main(["compare", str(a), str(b), *flags])
        out = capsys.readouterr()
        return code, out.out, out.err

    return compare


def test_equal_conditions(tmp_path, run):
    a, b = record(tmp_path / "a"), record(tmp_path / "b", 1.2e-3, info={"fp8_lm_head": True})
    code, out, _ = run(a, b, "--json")
    said = json.loads(out)
    (pair,) = said["pairs"]
    assert code == 0 and said["equal_conditions"] and said["differences"] == []
    assert pair["tpot_s"]["ratio"]["median"] == pytest.approx(1.2) and pair["tpot_s"]["ratio"]["low"] > 1
    assert {c["what"] for c in pair["changes"]} == {"fp8_lm_head"}
    code, out, _ = run(a, b)
    assert code == 0 and "x1.200" in out and "slower" in out and "changed: fp8_lm_head: None -> True" in out


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 2}, "seed (1 / 2)"),
        ({"workload": "repetitive"}, "workload (code / repetitive)"),
        ({"output_tokens": 128}, "output_tokens (64 / 128)"),
        ({"prompts": ("p0", "other")}, "prompts (2 distinct / 2 distinct, 1 shared)"),
        ({"machine": {"cpu": "another"}}, "machine: cpu"),
        ({"machine": {"gpus": [{"name": "H200"}]}}, "machine: gpus"),
        ({"machine": {"governor": "turtle"}}, "machine: governor"),
        ({"info": {"model_path": "n"}}, "model (m / n)"),
        ({"info": {"engine": "other"}}, "engine (pocket / unknown)"),
        ({"info": {"version": "2"}}, "engine version (1 / 2)"),
        ({"info": {"quantization": "fp8"}}, "quantisation: quantization (None / fp8)"),
        ({"info": {"dense_dtype": "bf16"}}, "quantisation: dense_dtype (None / bf16)"),
        ({"url": "http://spark:30000"}, "machine: server (this machine / spark)"),
        ({"rows": {"prompt_tokens": 46}}, "context: prompt tokens read (9 / 46)"),
        (
            {"rows": {"prompt_sha256": "q", "temperature": 0.6}},
            "sampling of requests (temperature 0.0 / temperature 0.6)",
        ),
        ({"sampling": "recommended"}, "sampling (None / recommended)"),
    ],
)
def test_unequal_conditions_are_refused_and_named(tmp_path, run, change, named):
    a, b = record(tmp_path / "a"), record(tmp_path / "b", **change)
    code, out, err = run(a, b)
    assert code == 2 and out == "" and named in err and err.count("\n") == 1
    code, out, _ = run(a, b, "--json")
    assert code == 2 and json.loads(out)["pairs"] == [] and json.loads(out)["differences"]
    code, out, _ = run(a, b, "--anyway")
    assert code == 0 and "NOT EQUAL" in out and "TPOT" in out
    said = json.loads(run(a, b, "--anyway", "--json")[1])
    assert not said["equal_conditions"] and said["pairs"][0]["unequal"] == said["differences"] != []


def test_another_byte_model_is_refused(tmp_path, run):
    paths = [record(tmp_path / name) for name in "ab"]
    for path, model in zip(paths, ("per tensor", "simple"), strict=True):
        meta = json.loads((path / "run.json").read_text())
        meta["summary"] = {"ladder": [{"arm": "a", "account": {"byte_model": model}}]}
        (path / "run.json").write_text(json.dumps(meta))
    code, _, err = run(*paths)
    assert code == 2 and "byte model (per tensor / simple)" in err


def test_what_neither_record_tells_is_said(tmp_path, run):
    info = {"engine": None, "version": None, "model_path": None, "kernel_variant": None}
    a, b = record(tmp_path / "a", info=info), record(tmp_path / "b", info=info)
    code, out, _ = run(a, b)
    assert code == 0 and "cannot tell whether equal: engine version" in out
    assert {"engine", "engine version"} <= set(json.loads(run(a, b, "--json")[1])["not_recorded"])


def test_the_same_model_elsewhere_is_the_same_model(tmp_path, run):
    a = record(tmp_path / "a", info={"weights_sha256": "f00", "model_path": "/x"})
    b = record(tmp_path / "b", info={"weights_sha256": "f00", "model_path": "/y"})
    assert run(a, b)[0] == 0


@pytest.mark.parametrize(("limit", "code"), [("5%", 1), ("0.05", 1), ("10%", 1), ("25%", 0)])
def test_fail_if_slower(tmp_path, run, limit, code):
    a, b = record(tmp_path / "a"), record(tmp_path / "b", 1.2e-3)
    got, out, _ = run(a, b, "--fail-if-slower", limit)
    assert got == code and ("slower than allowed: a by 20.0%" in out) == bool(code)
    assert run(b, a, "--fail-if-slower", limit)[0] == 0  # faster is never a failure


@pytest.mark.parametrize("limit", ["five", "-5%", "5 percent"])
def test_bad_limits(tmp_path, run, limit):
    a = record(tmp_path / "a")
    code, _, err = run(a, a, f"--fail-if-slower={limit}")
    assert code == 2 and "--fail-if-slower" in err


def test_arms(tmp_path, run):
    a, b = record(tmp_path / "a", arm="x"), record(tmp_path / "b", arm="y")
    assert "x against y" in run(a, b)[1]  # the only arm of each
    assert run(a, b, "--arm", "x:y")[0] == 0
    code, _, err = run(a, b, "--arm", "z")
    assert code == 2 and "one of x" in err
    assert run(tmp_path / "none", b)[0] == 2


def test_a_run_without_good_samples(tmp_path, run):
    a = record(tmp_path / "a", prompts=())
    code, _, err = run(a, a)
    assert code == 1 and "no good sample" in err


@given(low=st.floats(0.2, 3), median=st.floats(0.2, 3), high=st.floats(0.2, 3), limit=st.floats(0, 1))
def test_a_regression_is_beyond_limit_and_chance(low, median, high, limit):
    low, median, high = sorted((low, median, high))
    found = compare.regressed({"low": low, "median": median, "high": high}, limit)
    assert found == (median > 1 + limit and low > 1)


def test_without_an_interval_the_median_decides():
    ratio = {"low": None, "median": 1.2, "high": None}
    assert compare.regressed(ratio, 0.1) and not compare.regressed(ratio, 0.25)


def test_what_chance_may_explain_is_said_and_does_not_fail(tmp_path, capsys):
    """Repeats of B scatter so widely that its interval reaches below 1."""
    a, b = record(tmp_path / "a"), record(tmp_path / "b")
    rows = [json.loads(line) for line in (b / "requests.jsonl").read_text().splitlines()]
    for row in rows:
        row["tpot_s"] *= {0: 0.7, 1: 1.3, 2: 1.4}[row["repeat"]]
        row["latency_s"] = row["ttft_s"] + 63 * row["tpot_s"]
    (b / "requests.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert main(["compare", str(a), str(b), "--fail-if-slower", "5%"]) == 0
    assert "a by 30.0%" in capsys.readouterr().out


def test_the_readmes_action_is_valid_and_calls_commands_that_exist():
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (text,) = [b for b in re.findall(r"```yaml\n(.*?)```", readme, re.S) if "runs-on" in b]
    steps = [s["run"] for job in yaml.safe_load(text)["jobs"].values() for s in job["steps"] if "run" in s]
    calls = [line.strip() for step in steps for line in step.splitlines() if line.strip().startswith("labkit ")]
    assert any(c.startswith("labkit compare") and "--fail-if-slower" in c for c in calls)
    for call in calls:
        words = re.sub(r"\$\([^)]*\)|\$\{\{[^}]*\}\}|\$\w+", "X", call).split(">")[0].split()[1:]
        try:
            command_line().parse_args(words)
        except SystemExit as e:
            pytest.fail(f"{call}: exit {e.code}")
