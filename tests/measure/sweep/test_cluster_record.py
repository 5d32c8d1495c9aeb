"""What a worker sends is checked before it is written, and written whole or not at all."""

import json
from types import SimpleNamespace

import pytest

from labkit.measure.sweep import cluster_record, cluster_worker, drive
from labkit.measure.sweep.block import Task
from labkit.measure.sweep.cluster import doubts
from labkit.measure.sweep.cluster_crew import Crew, Gone, Job, Worker
from labkit.measure.sweep.local import Local
from labkit.records import read_run
from labkit.records.sweep import BLOCKS, read_sweep

DOCUMENT = {"common": {"workload": "repetitive"}, "sweep": {"grid": {"fp8_lm_head": [False, True]}}}
META = {"schema": 1, "status": "finished", "failed": {}, "arms": [], "environment": {}}
GOOD = {"run.json": json.dumps(META), "requests.jsonl": '{"arm":"c001"}\n', "engine-1.log": "ready\n"}


class Cut(BaseException):
    """A kill."""


@pytest.fixture
def driver(tmp_path):
    folder = tmp_path / "s"
    folder.mkdir()
    drive.create(DOCUMENT, folder)
    return drive.Driver(folder, Local(), lambda *_: None)


@pytest.fixture
def task(driver) -> Task:
    return driver._task("r0-000", ["c001", "c002"], 3, 0)


@pytest.mark.parametrize(
    "files",
    [
        None,
        [],
        {},
        {"run.json": "{}"},
        {**GOOD, "../outside": "x"},
        {**GOOD, "/tmp/outside": "x"},
        {**GOOD, ".hidden": "x"},
        {**GOOD, "number": 3},
        {**GOOD, "run.json": json.dumps({**META, "schema": 99})},
        {**GOOD, "run.json": json.dumps({**META, "failed": "c001"})},
        {**GOOD, "requests.jsonl": '{"arm":"c001"\n'},
    ],
)
def test_what_is_no_record_is_refused_and_nothing_is_written(tmp_path, task, files):
    with pytest.raises(cluster_record.NoRecord):
        cluster_record.keep(task, tmp_path / "s", files, {})
    assert not (tmp_path / "s" / BLOCKS).exists() and not (tmp_path / "outside").exists()


def test_a_record_says_where_and_how_often_it_was_tried(tmp_path, task):
    about = {"worker": {"name": "one", "host": "h", "address": "tls://h:1"}, "attempts": 2}
    cluster_record.keep(task, tmp_path / "s", GOOD, about)
    run = read_run(tmp_path / "s" / BLOCKS / "r0-000")
    assert run.meta["worker"]["name"] == "one" and run.meta["attempts"] == 2 and len(run.rows) == 1
    assert cluster_record.whole(task, tmp_path / "s")


def test_a_kill_while_a_record_is_written_leaves_none(tmp_path, task, monkeypatch):
    def cut(path, *_):
        raise Cut

    monkeypatch.setattr(cluster_record.disk, "write_text", cut)
    with pytest.raises(Cut):
        cluster_record.keep(task, tmp_path / "s", GOOD, {})
    monkeypatch.undo()
    assert not cluster_record.whole(task, tmp_path / "s")
    cluster_record.keep(task, tmp_path / "s", GOOD, {})
    assert cluster_record.whole(task, tmp_path / "s")


def test_what_this_machine_had_begun_is_put_aside_not_mixed_in(tmp_path, task):
    begun = tmp_path / "s" / BLOCKS / "r0-000"
    begun.mkdir(parents=True)
    (begun / "run.json").write_text(json.dumps({**META, "status": "running"}))
    (begun / "requests.jsonl").write_text('{"arm":"c001"}\n')
    assert not cluster_record.whole(task, tmp_path / "s")
    [aside] = (tmp_path / "s" / cluster_record.CUT).iterdir()
    assert (aside / "requests.jsonl").read_text() == '{"arm":"c001"}\n' and not begun.exists()


def test_a_lost_block_is_a_row_for_each_of_its_configurations(driver, task):
    about = {"worker": {"name": "two", "host": "h", "address": ""}, "attempts": 2}
    cluster_record.fail(task, driver.directory, "worker one was lost; then worker two was lost", about, {})
    with driver:
        driver._round(0, ["c001", "c002"], 3, "all")
        driver._commit(task, 0, 1.0)
    for row in read_sweep(driver.directory).rows:
        assert (row["status"], row["attempts"], row["worker"]) == ("failed", 2, "two")
        assert row["reason"] == "worker one was lost; then worker two was lost"


def test_other_code_of_the_same_version_is_told_apart(tmp_path, monkeypatch):
    (tmp_path / "__init__.py").write_text("x = 1\n")
    monkeypatch.setattr(cluster_worker.labkit, "__file__", str(tmp_path / "__init__.py"))
    before = cluster_worker.versions()
    assert cluster_worker.versions() == before
    (tmp_path / "__init__.py").write_text("x = 2\n")
    after = cluster_worker.versions()
    assert [k for k in before if before[k] != after[k]] == ["digest_of_labkit's_code"]


def worker(name, host="h", runtime="/run/1", cpu="A", gpus=()):
    environment = {"cpu": cpu, "gpus": [{"name": g} for g in gpus]}
    return Worker(f"tls://{name}", name, {"host": host, "runtime": runtime, "environment": environment})


@pytest.mark.parametrize(
    "workers, words",
    [
        ([worker("a"), worker("b", host="g")], []),
        ([worker("a"), worker("b")], ["take turns"]),
        ([worker("a"), worker("b", runtime="/run/2")], ["bandwidth"]),
        ([worker("a"), worker("b", host="g", cpu="B")], ["A (a); B (b)"]),
        ([worker("a", gpus=["H200"]), worker("b", host="g")], ["A and H200 (a); A (b)"]),
    ],
)
def test_what_makes_numbers_of_two_workers_differ_is_said(workers, words):
    said = doubts(workers)
    assert len(said) == len(words) and all(w in x for w, x in zip(words, said, strict=True))


def crew(status="finished", answer='{"files": {}}'):
    """A crew whose one worker has a block; what it hears is put into its mouth."""
    client = SimpleNamespace(scheduler=SimpleNamespace(address="tcp://s:1"), cancel=lambda futures: None)
    found = Crew(client, {}, 1.0, lambda text: None)
    one = found.workers["tcp://one:1"] = Worker("tcp://one:1", "one", {"host": "h"})
    future = SimpleNamespace(status=status, result=lambda timeout: answer, exception=lambda timeout: OSError("gone"))
    one.job = found.jobs["k"] = Job("k", one, "the block", future)
    return found


def event(kind, pid, key="k"):
    return json.dumps({"key": key, "kind": kind, "text": "", "eta_s": None, "pid": pid})


def test_a_result_that_arrives_twice_counts_once():
    mine = crew()
    assert mine._done("k").answer == {"files": {}} and mine._done("k") is None
    assert mine.workers["tcp://one:1"].job is None and mine._done("somebody else's") is None


def test_a_block_begun_again_by_a_worker_that_was_restarted_is_a_lost_one():
    mine = crew()
    assert mine._heard(event("begun", 7)) is None and mine._heard(event("says", 7)) is None
    lost = mine._heard(event("begun", 8))
    assert lost.of == "the block" and "lost" in lost.answer and not mine.jobs
    assert mine._heard(event("says", 8)) is None


@pytest.mark.parametrize("status, answer", [("error", ""), ("lost", ""), ("finished", "no JSON"), ("finished", "[1]")])
def test_whatever_comes_instead_of_an_answer_is_a_lost_block(status, answer):
    assert "one" in crew(status, answer)._done("k").answer["lost"]


def test_a_broken_connection_is_no_fault_of_a_block():
    with pytest.raises(Gone):
        crew("cancelled")._done("k")
