"""`labkit eval` on the real pocket engine: paired answers, interrupted and gone on with."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from labkit.cli import main
from labkit.cli.eval import lines
from labkit.engines import process
from labkit.engines.config import EngineConfig
from labkit.records import read_run


def run(*argv, timeout=240, **env):
    return subprocess.run(
        [sys.executable, "-m", "labkit.cli", "eval", *argv],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ | env,
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


def asked_of(run_dir):
    """(arm, index) of every good answer in the record, once for each row."""
    return sorted((r["arm"], r["index"]) for r in read_run(run_dir).rows if r["repeat"] >= 0 and r["status"] == "ok")


def killed_after(argv, out, rows):
    """Run `labkit eval`, and kill it for certain as soon as its record has so many more rows; the run's directory."""
    before = sum(len(p.read_bytes().splitlines()) for p in out.glob("*/requests.jsonl"))
    child = subprocess.Popen(
        [sys.executable, "-m", "labkit.cli", "eval", *argv], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 200
        while child.poll() is None and time.monotonic() < deadline:
            logs = list(out.glob("*/requests.jsonl"))
            if logs and sum(len(p.read_bytes().splitlines()) for p in logs) >= before + rows:
                break
            time.sleep(0.01)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(20)
    return next(out.glob("*/run.json")).parent


def test_a_run_that_was_killed_goes_on_where_it_was(tmp_path):
    cut = killed_after(["--questions", "4", "--out", str(tmp_path)], tmp_path, 7)  # two warm-ups of each arm, 3 answers
    kept, log = asked_of(cut), (cut / "requests.jsonl").read_bytes()
    assert 0 < len(kept) < 8
    out = run("--resume", str(cut), "--json")
    assert out.returncode == 0, out.stderr
    assert f"{len(kept)} answers are in the record already" in out.stderr
    assert asked_of(cut) == sorted((arm, i) for arm in ("baseline", "mtp") for i in range(4)), "each question once"
    assert (cut / "requests.jsonl").read_bytes().startswith(log[: log.rfind(b"\n") + 1])
    assert [a["asked"] for a in json.loads(out.stdout)["arms"]] == [4, 4]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_had_not_been(tmp_path):
    rng, argv = random.Random(5), ["--questions", "12", "--out", str(tmp_path)]
    for _ in range(4):
        cut = killed_after(argv, tmp_path, 4 + rng.randrange(1, 6))
        argv = ["--resume", str(cut)]
    out = run("--resume", str(cut), "--json", timeout=600)
    assert out.returncode == 0, out.stderr
    assert asked_of(cut) == sorted((arm, i) for arm in ("baseline", "mtp") for i in range(12))
    whole = json.loads(run("--questions", "12", "--json", "--out", str(tmp_path / "whole"), timeout=600).stdout)
    again = json.loads(out.stdout)
    assert [a["outcomes"] for a in again["arms"]] == [a["outcomes"] for a in whole["arms"]]


class Breaks:
    """Stands before a server and breaks chosen generations off: the connection closes after the request was read."""

    def __init__(self, url, broken):
        self.target, self.broken, self.seen = ("127.0.0.1", int(url.rpartition(":")[2])), set(broken), 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(client,), daemon=True).start()

    def _one(self, client):
        head = client.recv(65536)
        if head.startswith(b"POST /generate"):
            self.seen += 1
            if self.seen in self.broken:
                client.close()
                return
        with client, socket.create_connection(self.target) as server:
            server.sendall(head)
            threading.Thread(target=self._copy, args=(client, server), daemon=True).start()
            self._copy(server, client)

    @staticmethod
    def _copy(source, sink):
        try:
            while piece := source.recv(65536):
                sink.sendall(piece)
        except OSError:
            pass


def test_questions_whose_request_failed_are_asked_again_and_counted(tmp_path):
    engine = process.start(EngineConfig(threads=1), tmp_path / "engine")
    try:
        # Two warm-ups come first: generations 4 and 6 are the second and the fourth question.
        between = Breaks(engine.url, {4, 6})
        params = tmp_path / "p.yaml"
        params.write_text(json.dumps({"common": {"engine": {"engine": "attach", "url": between.url}}}))
        argv = ["-f", str(params), "--questions", "5", "--out", str(tmp_path / "out"), "--arms", "attached"]
        own = {"LABKIT_RUNTIME_DIR": str(tmp_path / "lock")}  # this test's engine is no other measurement
        out = run(*argv, "--json", **own)
        assert out.returncode == 0, out.stderr
        (arm,) = json.loads(out.stdout)["arms"]
        assert arm["attempts"] == {"questions": 5, "asked_again": 2} and arm["asked"] == 5
        assert arm["outcomes"]["failed"] == 0 and "again (1 of 2)" in out.stderr
        between.broken, between.seen = {4}, 0
        once = json.loads(run(*argv, "--retries", "0", "--json", **own).stdout)["arms"][0]
        assert once["attempts"]["asked_again"] == 0 and once["outcomes"]["failed"] == 1 and once["answered"] == 4
    finally:
        engine.stop()


@pytest.mark.parametrize(
    "argv, words",
    [
        (["--workload", "repetitive"], "questions with answers"),
        (["--margin", "0"], "margin"),
        (["--questions", "0"], "count"),
        (["--retries", "-1"], "retries"),
        (["--arms", "nobody"], "nobody"),
    ],
)
def test_bad_input_is_one_line(argv, words, capsys):
    assert main(["eval", *argv]) == 2
    said = capsys.readouterr()
    assert said.out == "" and words in said.err
    assert len(said.err.strip().splitlines()) == 1
