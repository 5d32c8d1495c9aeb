"""Notebooks run headless on the real engine, and what they leave is checked as data, not as pictures."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from structure import outputs as outputs_of

from labkit.measure import estimates
from labkit.records import read_run

ROOT = Path(__file__).parents[2]
QUICK = {"count": 2, "repeats": 2, "warmup": 1, "output_tokens": 64}
# What each notebook needs instead, the arms it must leave, and how many requests each.
CASES = {
    "00_start_here": ({"count": 1}, ["baseline"]),
    "02_baseline": ({}, ["baseline"]),
    "03_humming": ({}, ["baseline", "kernels"]),
    "04_fp8_head": ({}, ["baseline", "kernels", "fp8-head"]),
    "05_mtp": ({"longest": 2, "steps": 2, "workload": "repetitive"}, ["plain", "mtp 1/1/2", "mtp 2/1/3"]),
    "06_silent_fallback": ({"workload": "repetitive"}, ["fp8-head", "mtp", "broken-head"]),
    "07_real_load": (
        {"questions": 0, "timing_tokens": 32},
        [
            f"{arm} on {load}"
            for load in ("timing", "real", "greedy", "sampled as greedy")
            for arm in ("baseline", "fp8-head", "mtp")
        ],
    ),
    "08_long_context": (
        {"max_context": 2048, "workload": "synthetic", "count": 1, "output_tokens": 48},
        ["plain at 1K", "mtp at 1K", "plain at 2K", "mtp at 2K"],
    ),
}


def labkit_run(names, tmp_path, own, timeout_s=280):
    """`labkit run` as a person calls it; (process, run directory)."""
    import yaml

    params = tmp_path / "params.yaml"
    params.write_text(yaml.safe_dump({**QUICK, "out_dir": str(tmp_path / "out"), "notebooks": own}))
    env = {k: v for k, v in os.environ.items() if k != "JPY_SESSION_NAME"}
    env |= {"LABKIT_STATIC": "0", "LABKIT_RUNTIME_DIR": str(tmp_path / "lock")}
    done = subprocess.run(
        [sys.executable, "-m", "labkit.cli", "run", *names, "-f", str(params), "--json"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-3000:]
    return json.loads(done.stdout)


def check(name, document, tmp_path):
    outcome = next(o for o in document["notebooks"] if o["name"] == name)
    assert outcome["status"] == "ok" and f"{name}\n" in outcome["summary"]
    arms = CASES[name][1]
    (record,) = sorted((Path(document["directory"]) / "records").glob(f"*-{name}"))
    run = read_run(record)
    assert run.arms == arms and run.meta["status"] == "finished" and run.meta["parameters"]["repeats"] == 2
    for arm in arms:
        rows = [r for r in run.arm(arm) if r["repeat"] >= 0]
        count = run.meta["parameters"]["count"]
        assert len(rows) == 2 * count, arm
        for r in rows:
            lump = r["ttft_s"] == r["latency_s"]  # a busy machine: all tokens arrived together, which is refused
            assert r["status"] == ("refused" if lump else "ok") and r["cached_tokens"] == 0, arm
            # TPOT by its definition, from the row's own times.
            decoded = r["output_tokens"] - r["chunk_tokens"][0]
            assert lump or r["tpot_s"] == pytest.approx((r["latency_s"] - r["ttft_s"]) / decoded)
        assert run.meta["summary"][arm]["tpot_s"] == pytest.approx(estimates.summarise(rows, seed=1)["tpot_s"])
    same: dict[str, list[list[str]]] = {}
    for arm in arms:  # arms of one load got the same prompts
        asked = [r["prompt_sha256"] for r in sorted(run.arm(arm), key=lambda r: (r["repeat"], r["index"]))]
        load = next((arm.partition(word)[2] for word in (" at ", " on ") if word in arm), "")
        same.setdefault(load, []).append(asked[-2 * count :])
    assert all(a == group[0] for group in same.values() for a in group)
    nb = nbformat.read(outcome["path"], as_version=4)
    outputs = [o for c in nb.cells for o in c.get("outputs", [])]
    figures = [o for o in outputs if "application/vnd.plotly.v1+json" in o.get("data", {})]
    assert figures and nb.metadata.labkit.status == "ok" and "widgets" not in nb.metadata
    assert not any("Nothing measured yet" in json.dumps(f) for f in figures)
    committed = ROOT / f"outputs/examples/pocket/{name}.ipynb"
    if committed.exists():
        # The committed set has the structure that the sources produce today.
        assert outputs_of(nbformat.read(committed, as_version=4)) == outputs_of(nb)
    return run


WALKED = ("02_baseline", "03_humming", "05_mtp", "06_silent_fallback")


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """What one `labkit run` of these notebooks said."""
    return labkit_run(WALKED, tmp_path_factory.mktemp("run"), {n: CASES[n][0] for n in WALKED}, 560)


@pytest.mark.timeout(600)
def test_first_light_leaves_record_notebook_and_report(executed, tmp_path):
    document = executed
    run = check("02_baseline", document, tmp_path)
    info = run.described("baseline")["server_info"]
    assert info["engine"] == "pocket" and info["moe_runner_backend"] == "generic"
    for word in ("TPOT", "byte floor", "utilisation U", "accept length", "n/a", "● measured", "◇ derived"):
        assert word in document["notebooks"][0]["summary"]
    report = Path(document["report"]).read_text(encoding="utf-8")
    assert report.count("plotly.js v") == 1 and "utilisation U" in report and "<td>workload</td>" in report


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", WALKED[1:])
def test_comparisons_on_the_engine(executed, name, tmp_path):
    run = check(name, executed, tmp_path)
    if name == "06_silent_fallback":
        broken = estimates.accept_length([r for r in run.arm("broken-head") if r["repeat"] >= 0])
        healthy = estimates.accept_length([r for r in run.arm("mtp") if r["repeat"] >= 0])
        assert broken < 1.2 < healthy
    if name == "05_mtp":
        assert "distinct experts" in run.meta["summary"]


@pytest.mark.slow
def test_the_whole_book_runs_and_is_gathered(tmp_path):
    own = {n: o for n, (o, _) in CASES.items()}
    document = labkit_run([*CASES, "09_report"], tmp_path, own)
    for name in CASES:
        check(name, document, tmp_path)
    gathered = document["notebooks"][-1]["summary"]
    assert "03_humming: kernels" in gathered and "ladder" in gathered


def test_the_notebook_of_a_sweep_reads_one(tmp_path):
    from sweeps import made

    document = labkit_run(["10_sweep"], tmp_path, {"10_sweep": {"folder": str(made(tmp_path / "s"))}})
    (outcome,) = document["notebooks"]
    assert outcome["status"] == "ok" and "c007" in outcome["summary"]
    shown = outputs_of(nbformat.read(outcome["path"], as_version=4))
    assert sum(kind.startswith("figure: ") for cell in shown for kind in cell) == 6


QUICKEST = ("02_baseline", "09_report")
OTHERS = [n for n in (*CASES, "09_report", "10_sweep") if n not in QUICKEST]


@pytest.mark.parametrize(
    "names", [QUICKEST, *(pytest.param((n,), marks=pytest.mark.slow) for n in OTHERS)], ids=" ".join
)
def test_sources_run_under_nbval(names, tmp_path):
    """Cells of the sources as they are, with the sources' own defaults made small by a copy."""
    sys.path.insert(0, str(ROOT / "tests" / "browser"))
    from lab import with_parameters

    (tmp_path / "notebooks").mkdir()
    (tmp_path / "params").mkdir()
    for name in names:
        small = {k: repr(v) for k, v in {**QUICK, **(CASES.get(name, ({}, []))[0])}.items()}
        text = (ROOT / f"notebooks/{name}.ipynb").read_text(encoding="utf-8")
        (tmp_path / "notebooks" / f"{name}.ipynb").write_text(with_parameters(text, small), encoding="utf-8")
    env = {k: v for k, v in os.environ.items() if k != "JPY_SESSION_NAME"}
    env |= {"LABKIT_STATIC": "0", "LABKIT_RUNTIME_DIR": str(tmp_path / "lock")}
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval-lax", "--nbval-current-env"]
    argv += [
        "--nbval-cell-timeout",
        "200",
        "--nbval-sanitize-with",
        str(Path(__file__).with_name("nbval_sanitize.cfg")),
    ]
    argv += ["--rootdir", str(tmp_path), str(tmp_path / "notebooks")]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-3000:]
