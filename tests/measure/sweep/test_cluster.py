"""Sweeps on a real Dask scheduler with real worker processes: complete, once each, from text, and never by accident."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml
from clusters import Cluster

import labkit
from labkit.records import read_run
from labkit.records.sweep import BLOCKS, read_sweep
from labkit.report import sweep as report

LOAD = {"workload": "repetitive", "count": 1, "repeats": 3, "warmup": 0, "output_tokens": 8}
GRID = {"fp8_lm_head": [True]}
BOMB = "cos\nsystem\n(S'touch {}'\ntR."


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two workers that may measure at once, and one that was started without the resource."""
    with Cluster(tmp_path_factory.mktemp("c") / "dask") as cluster:
        for name in ("one", "two"):
            cluster.worker(name)
        cluster.worker("three", resources="")
        yield cluster


def params(tmp_path, grid=GRID, **sweep):
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump({"common": LOAD, "sweep": {"grid": grid, "block": 1, **sweep}}))
    return file


def labkit_sweep(*args, timeout=240):
    """Run `labkit sweep` to its end: (exit code, standard output, standard error)."""
    argv = [sys.executable, "-m", "labkit.cli", "sweep", *map(str, args)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout)
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    return done.returncode, done.stdout, done.stderr


def whole(folder, workers):
    """A sweep that has ended: each configuration and each request once, each block on one machine."""
    run = read_sweep(folder)
    assert [r["status"] for r in run.rows] == ["measured"] * len(run.rows)
    assert max(Counter(x["block"] for x in run.lines if "block" in x).values()) == 1
    for block in (folder / BLOCKS).iterdir():
        record = read_run(block)
        asked = Counter((r["arm"], r["repeat"], r["index"]) for r in record.rows if r["status"] == "ok")
        assert set(asked.values()) == {1} and record.meta["worker"]["name"] in workers
    for r in run.rows:
        assert r["worker"] in workers and r["host"] and r["attempts"] >= 1
        there = r["environment"]
        assert there["cpu"] and there["labkit"] and there["engine"] and there["kernel_variant"], there
    assert run.table["tpot_s"].notna().all() and run.table["speedup"].notna().all()
    return run


def test_every_configuration_once_and_a_hostile_value_stays_text(tmp_path, pair):
    mark = tmp_path / "touched"
    hostile = {"env.A": BOMB.format(mark), "env.B": f"!!python/object/apply:os.system ['touch {mark}']"}
    file = params(tmp_path, list=[hostile])
    code, out, err = labkit_sweep(file, "--scheduler", pair.address, "--insecure", "--out", tmp_path, "--json")
    assert code == 0, err
    folder = Path(json.loads(out)["sweep"])
    run = whole(folder, {"one", "two"})
    assert {r["worker"] for r in run.rows} == {"one", "two"}  # both had something to do
    assert run.rows[1]["fields"] == hostile and not mark.exists()
    page = report.write(folder, tmp_path / "report.html").read_text()
    assert all(r["config"] in page for r in run.rows)
    told = err.splitlines()
    assert any("three" in x and "engine=1" in x for x in told)
    assert any("one host" in x and "one" in x and "two" in x for x in told)
    assert not list(pair.folder.glob("*/dask-scratch-space/*/labkit-*"))  # nothing is left at the workers


@pytest.mark.parametrize(
    "args, field",
    [
        (["--scheduler", "tcp://127.0.0.1:8786"], "--scheduler"),
        (["--scheduler", "127.0.0.1:8786", "--insecure"], "--scheduler"),
        (["--scheduler", "ws://127.0.0.1:8786", "--insecure"], "--scheduler"),
        (["--scheduler", "tls://127.0.0.1:8786"], "--tls-ca"),
        (["--scheduler", "tls://127.0.0.1:8786", "--tls-ca", "/none.pem"], "--tls-ca"),
        (["--scheduler", "tls://127.0.0.1:8786", "--insecure"], "--insecure"),
        (["--insecure"], "--insecure"),
    ],
)
def test_an_address_in_the_clear_and_options_without_sense_are_refused(tmp_path, args, field, capsys):
    from labkit.cli import main

    assert main(["sweep", str(params(tmp_path)), "--out", str(tmp_path / "out"), *args]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith(f"labkit sweep: {field}: got ") and not (tmp_path / "out").exists()


def test_a_sweep_that_says_where_it_is_measured_is_refused(tmp_path, capsys):
    from labkit.cli import main

    there = {"there": {"command_prefix": ["ssh", "x"]}}
    file = params(tmp_path, {"machine": ["this", "there"]}, machines=there)
    assert main(["sweep", str(file), "--scheduler", "tcp://127.0.0.1:1", "--insecure"]) == 2
    assert "sweep.machines.there" in capsys.readouterr().err


def test_nobody_at_the_address_is_one_line(tmp_path, monkeypatch, capsys):
    from labkit.cli import main
    from labkit.measure.sweep import cluster_access

    monkeypatch.setattr(cluster_access, "CONNECT_S", 1.0)
    began = time.monotonic()
    assert main(["sweep", str(params(tmp_path)), "--scheduler", "tcp://127.0.0.1:1", "--insecure"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err.strip().splitlines()[-1] and time.monotonic() - began < 60


def test_no_worker_that_can_measure_is_bad_input_before_anything_is_written(tmp_path):
    """One without the resource, one without a folder that can be written, one with another version of the lab."""
    other = tmp_path / "other"
    other.mkdir()
    for path in Path(labkit.__file__).parent.parent.glob("labkit"):
        _copy_with_another_version(path, other / "labkit")
    with Cluster(tmp_path / "dask") as cluster:
        cluster.worker("bare", resources="")
        cluster.worker("older", PYTHONPATH=str(other))
        code, _, err = labkit_sweep(
            params(tmp_path), "--scheduler", cluster.address, "--insecure", "--out", tmp_path / "out"
        )
        assert code == 2 and not (tmp_path / "out").exists()
        told = {name: next(x for x in err.splitlines() if f"worker {name}:" in x) for name in ("bare", "older")}
        assert "engine=1" in told["bare"] and "0.0.7" in told["older"], err
        assert err.splitlines()[-1].startswith("labkit sweep: --scheduler: got ")


def _copy_with_another_version(source, target):
    """Its Python files, and links to everything else."""
    for path in source.rglob("*"):
        there = target / path.relative_to(source)
        if "__pycache__" in path.parts or path.is_dir():
            continue
        there.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(path, there)
    file = target / "__init__.py"
    text = file.read_text().replace(labkit.__version__, "0.0.7")
    file.unlink()
    file.write_text(text)
