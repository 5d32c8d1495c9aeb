"""What happens to a cluster in a night: workers die or stand still, the scheduler dies, somebody presses Ctrl-C. What
was committed is kept, nothing is asked twice, no engine is left, and every wait ends."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from clusters import Cluster

from labkit.measure.sweep import cluster_crew, drive
from labkit.measure.sweep.cluster import Cluster as Executor
from labkit.measure.sweep.cluster_access import connect
from labkit.records import read_run
from labkit.records.sweep import BLOCKS, FINISHED, LOG, read_sweep

LOAD = {"workload": "repetitive", "count": 1, "repeats": 3, "warmup": 0, "output_tokens": 8}
LONG = {**LOAD, "repeats": 10, "output_tokens": 48}  # a block during which something can happen
GRID = {"fp8_lm_head": [False, True]}


def begun(directory, load=LONG, **sweep):
    directory.mkdir(parents=True)
    drive.create({"common": load, "sweep": {"grid": GRID, "block": 1, **sweep}}, directory)
    return directory


@pytest.fixture
def resumed():
    """Starts `labkit sweep --resume` on a cluster; whatever a test leaves running is ended."""
    started = []

    def start(folder, cluster, *args):
        argv = [sys.executable, "-m", "labkit.cli", "sweep", "--resume", str(folder)]
        argv += ["--scheduler", cluster.address, *(["--insecure"] if cluster.protocol == "tcp" else []), *args]
        heard = {
            "preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
        }  # whatever the tests' own starter did
        started.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **heard))
        return started[-1]

    yield start
    for lab in started:
        lab.kill()
        lab.communicate(timeout=60)


def until(lab, condition, within_s=200):
    end = time.monotonic() + within_s
    while not (found := condition()):
        assert lab.poll() is None, lab.stderr.read()[-3000:]
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def ended(lab, code, within_s=240):
    """Its last line of standard error, once it has ended with this exit code."""
    _, err = lab.communicate(timeout=within_s)
    assert lab.returncode == code and "Traceback" not in err, err[-3000:]
    return err.splitlines()[-1] if err else ""


def measuring(cluster, name):
    """The block that this worker is in the middle of; "" for none."""
    for log in cluster.blocks(name):
        with contextlib.suppress(OSError, ValueError):
            if log.read_bytes().count(b"\n") > 2:
                return read_run(log.parent).meta["label"].rsplit(" ", 1)[-1]
    return ""


def test_a_block_whose_worker_is_killed_is_measured_once_more_elsewhere(tmp_path, resumed):
    folder = begun(tmp_path / "s")
    with Cluster(tmp_path / "dask") as cluster:
        for name in ("one", "two"):
            cluster.worker(name)
        lab = resumed(folder, cluster)
        block = until(lab, lambda: measuring(cluster, "one"))
        family = cluster.kill("one")
        assert family and psutil.wait_procs(family, timeout=60)[1] == []  # its engines die with it
        ended(lab, 0)
    run = read_sweep(folder)
    lost = [r for r in run.rows if r["blocks"] == [block]]
    assert [(r["attempts"], r["worker"], r["status"]) for r in lost] == [(2, "two", "measured")]
    assert [(r["attempts"], r["status"]) for r in run.rows if r not in lost] == [(1, "measured")]
    rows = [(r["arm"], r["repeat"], r["index"]) for r in read_run(folder / BLOCKS / block).rows]
    assert len(rows) == len(set(rows)) == 2 * LONG["repeats"]  # the configuration and its baseline


@pytest.mark.slow
def test_a_block_that_loses_two_workers_is_a_failure_and_the_sweep_can_go_on(tmp_path, resumed):
    folder = begun(tmp_path / "s")
    with Cluster(tmp_path / "dask") as cluster:
        for name in ("one", "two"):
            cluster.worker(name)
        lab = resumed(folder, cluster, "--wait", "5")
        block = until(lab, lambda: measuring(cluster, "one"))
        cluster.kill("one")
        until(lab, lambda: measuring(cluster, "two") == block)
        cluster.kill("two")
        assert "no worker" in ended(lab, 1)
        [failed] = [r for r in read_sweep(folder).rows if r["status"] == "failed"]
        assert failed["attempts"] == 2 and failed["blocks"] == [block]
        assert "one" in failed["reason"] and "two" in failed["reason"]
        kept = (folder / LOG).read_bytes()
        cluster.worker("three")
        ended(resumed(folder, cluster), 0)
        assert (folder / LOG).read_bytes().startswith(kept)
        assert sorted(r["status"] for r in read_sweep(folder).rows) == ["failed", "measured"]


@pytest.mark.slow
def test_without_its_scheduler_a_sweep_ends_and_goes_on_with_another_one(tmp_path, resumed):
    folder = begun(tmp_path / "s", grid={**GRID, "output_tokens": [47, 48]})
    with Cluster(tmp_path / "dask") as cluster:
        cluster.worker("one")
        lab = resumed(folder, cluster)
        until(lab, lambda: any("block" in x for x in read_sweep(folder).lines) and measuring(cluster, "one"))
        family = cluster.workers["one"].children(recursive=True)
        cluster.scheduler.kill()
        assert "scheduler" in ended(lab, 1, within_s=90)
        assert psutil.wait_procs(family, timeout=60)[1] == []
    kept = (folder / LOG).read_bytes()
    assert any("block" in json.loads(x) for x in kept.splitlines())
    with Cluster(tmp_path / "dask2") as cluster:
        cluster.worker("another")
        ended(resumed(folder, cluster), 0)
    assert (folder / LOG).read_bytes().startswith(kept)
    run = read_sweep(folder)
    assert [r["status"] for r in run.rows] == ["measured"] * 4
    blocks = [x["block"] for x in run.lines if "block" in x]
    assert len(blocks) == len(set(blocks)) == 4


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_however_the_sweep_ends_so_do_its_engines_and_the_worker_is_free_again(tmp_path, resumed, how):
    folder = begun(tmp_path / "s")
    with Cluster(tmp_path / "dask") as cluster:
        cluster.worker("one")
        lab = resumed(folder, cluster)
        until(lab, lambda: measuring(cluster, "one"))
        family = cluster.workers["one"].children(recursive=True)
        os.kill(lab.pid, how)
        lab.communicate(timeout=60)
        if how == signal.SIGINT:
            assert lab.returncode == 130
        assert family and psutil.wait_procs(family, timeout=60)[1] == []
        ended(resumed(folder, cluster), 0)
    assert [r["status"] for r in read_sweep(folder).rows] == ["measured"] * 2


@pytest.mark.slow
def test_a_worker_that_stands_still_is_left_out_and_its_block_measured_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_crew, "SILENT_S", 20.0)
    folder, said = begun(tmp_path / "s"), []
    with Cluster(tmp_path / "dask") as cluster:
        for name in ("one", "two"):
            cluster.worker(name)
        plan = drive.points.read(read_sweep(folder).meta["document"])
        stopped: list[str] = []

        def tell(text, left_s):
            if not stopped and (block := measuring(cluster, "one")):
                stopped.append(block)
                cluster.workers["one"].suspend()

        with Executor(connect(cluster.address, insecure=True), plan, 10.0, said.append) as execute:
            execute.preflight()
            with drive.Driver(folder, execute, tell) as driver:
                run = driver.go()
        for child in cluster.workers["one"].children(recursive=True):
            assert child.is_running()  # nobody has killed what stands still
        cluster.workers["one"].resume()
    [row] = [r for r in run.rows if r["blocks"] == stopped]
    assert (row["attempts"], row["worker"], row["status"]) == (2, "two", "measured")
    assert any("one" in x and "silent" in x for x in said)


@pytest.mark.slow
def test_a_budget_ends_the_blocks_on_the_workers(tmp_path, resumed):
    folder = tmp_path / "s"
    folder.mkdir()
    drive.create({"common": LONG, "sweep": {"grid": {**GRID, "output_tokens": [47, 48]}, "block": 1}}, folder, 30.0)
    with Cluster(tmp_path / "dask") as cluster:
        for name in ("one", "two"):
            cluster.worker(name)
        began = time.monotonic()
        lab = resumed(folder, cluster)
        _, err = lab.communicate(timeout=200)
        assert lab.returncode in (0, 1) and "Traceback" not in err, err[-3000:]
        assert time.monotonic() - began < 30 + 20 + 60  # the budget, cluster_crew.END_S, and the look at the workers
        assert not cluster.blocks("one") and not cluster.blocks("two")
    run = read_sweep(folder)
    assert run.state == FINISHED and {r["status"] for r in run.rows} <= {"measured", "pending"}


def certificates(folder: Path) -> dict[str, Path]:
    """A certificate authority and one certificate that it has signed, as openssl makes them."""
    folder.mkdir()
    names = {n: folder / f"{n}.pem" for n in ("ca", "ca-key", "cert", "key")}

    def openssl(*words):
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=60)

    ec = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *ec, "-keyout", names["ca-key"], "-out", names["ca"], "-days", "2", "-subj", "/CN=lab")
    openssl("req", *ec, "-keyout", names["key"], "-out", folder / "csr.pem", "-subj", "/CN=worker")
    signed = ("-CA", names["ca"], "-CAkey", names["ca-key"], "-CAcreateserial", "-days", "2")
    openssl("x509", "-req", "-in", folder / "csr.pem", *signed, "-out", names["cert"])
    return names


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl")
def test_over_tls_with_certificates_of_ones_own(tmp_path, resumed):
    mine, strange = certificates(tmp_path / "mine"), certificates(tmp_path / "strange")
    folder = begun(tmp_path / "s", LOAD)
    options = ["--tls-ca-file", mine["ca"], "--tls-cert", mine["cert"], "--tls-key", mine["key"]]
    with Cluster(tmp_path / "dask", *map(str, options), protocol="tls") as cluster:
        cluster.worker("one")
        assert cluster.address.startswith("tls://")

        def lab(of):
            return resumed(folder, cluster, "--tls-ca", of["ca"], "--tls-cert", of["cert"], "--tls-key", of["key"])

        assert cluster.address in ended(lab(strange), 1)
        ended(lab(mine), 0)
    assert [r["status"] for r in read_sweep(folder).rows] == ["measured"] * 2
