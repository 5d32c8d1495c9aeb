"""Several requests at once, on a real engine: none is lost, whatever becomes of the server."""

import threading
import time
from dataclasses import replace

import pytest

from labkit import workloads
from labkit.engines import process
from labkit.engines.config import EngineConfig
from labkit.engines.dialects import SGLANG
from labkit.measure import concurrent, session
from labkit.measure.concurrent import Level

PROMPTS = workloads.load("repetitive", count=6, seed=1, output_tokens=48)


@pytest.fixture
def engine(tmp_path):
    found = process.start(EngineConfig(threads=1), tmp_path / "engine")
    yield found
    found.stop()


def side(engine):
    return session.Side("arm", engine.url, dialect=engine.dialect)


def test_every_request_of_both_loops_has_its_row(engine):
    kept = []
    rows = concurrent.run(side(engine), PROMPTS, Level(clients=3), repeat=0, keep=kept.append)
    assert [r["index"] for r in rows] == list(range(6)) and len(kept) == 6
    assert all(r["clients"] == 3 and r["flush_status"] is None and r["status"] in ("ok", "refused") for r in rows)
    # The pocket engine answers one at a time: of three that start together, one waits for two others.
    first = sorted(r["latency_s"] for r in rows if r["index"] < 3)
    assert first[2] > 1.5 * first[0]
    opened = concurrent.run(side(engine), PROMPTS[:4], Level(rate=1000.0), repeat=0)
    assert [r["arrival_s"] for r in opened] == sorted(r["arrival_s"] for r in opened) and opened[0]["arrival_s"] == 0
    assert all(r["rate"] == 1000 and r["waited_s"] >= 0 and r["latency_s"] >= r["waited_s"] for r in opened)
    found = concurrent.summary(rows, Level(clients=3), asked=6)
    assert found["lost"] == 0 and found["ok"] + found["refused"] == 6 and found["loop"] == "closed"
    used = [r for r in rows if r["status"] == "ok"]
    assert found["output_tok_s"]["median"] == pytest.approx(
        sum(r["output_tokens"] for r in used) / max(r["ended_s"] for r in used)
    )


@pytest.mark.parametrize("level", [Level(clients=1), Level(rate=1000.0)])
def test_what_a_busy_server_put_off_is_part_of_the_latency(level, monkeypatch):
    """A server that sheds load must not look fast."""
    row = {"ttft_s": 0.1, "latency_s": 0.2, "put_off_s": 3.0}
    monkeypatch.setattr(session, "sample", lambda *_, **__: dict(row))
    (got,) = concurrent.run(
        session.Side("a", "http://x", dialect=replace(SGLANG, flush=False)), PROMPTS[:1], level, repeat=0
    )
    waited = got.get("waited_s", 0.0)
    assert (got["ttft_s"], got["latency_s"]) == pytest.approx((3.1 + waited, 3.2 + waited))


def test_a_server_that_is_killed_in_between_loses_no_request(engine):
    kept = []

    def keep(row):
        kept.append(row)
        if len(kept) == 2:
            engine.stop()

    rows = concurrent.run(side(engine), PROMPTS, Level(clients=2), repeat=0, keep=keep)
    found = concurrent.summary(rows, Level(clients=2), asked=6)
    assert len(rows) == 6 and found["error"] >= 3 and found["lost"] == 0 and found["why"]


def test_a_cancel_ends_all_clients(engine):
    cancel = threading.Event()
    long = workloads.load("repetitive", count=4, seed=1, output_tokens=4000)
    threading.Timer(0.5, cancel.set).start()
    began = time.monotonic()
    rows = concurrent.run(side(engine), long, Level(clients=2), repeat=0, cancel=cancel)
    assert time.monotonic() - began < 30 and all(r["status"] == "cancelled" for r in rows) and len(rows) <= 2


def level(clients, tok_s, ttft, tpot=0.01):
    values = {"output_tok_s": tok_s, "ttft_s": ttft, "tpot_s": tpot}
    return {"clients": clients, **{k: {"median": v} for k, v in values.items()}}


@pytest.mark.parametrize(
    "levels, said",
    [
        ([level(1, 100, 0.1), level(4, 300, 0.2, 0.013)], None),
        ([level(1, 100, 0.1), level(4, 102, 0.9)], "one at a time"),
        ([level(1, 100, 0.1), level(4, 102, 0.4, 0.039)], "run together"),
        ([level(1, 100, 0.1)], None),
        ([], None),
    ],
)
def test_how_a_server_scales_is_told_by_its_times(levels, said):
    found = concurrent.scaling(levels)
    assert found is None if said is None else said in found


def test_where_an_arm_stops_paying():
    gains = {
        n: {"median": m, "low": a, "high": b}
        for n, m, a, b in ((1, 1.5, 1.4, 1.6), (4, 1, 0.9, 1.1), (8, 0.8, 0.7, 0.9))
    }
    said = dict(zip(("pays", "costs", "open"), concurrent.pays(gains).split(";"), strict=True))
    assert [next(n for n in "148" if n in part) for part in said.values()] == ["1", "8", "4"]
    assert "few passes" in concurrent.pays({2: {"median": 1.2, "low": None, "high": None}})


def test_gains_pair_passes():
    def rows(tokens):
        return [
            {"status": "ok", "repeat": r, "output_tokens": tokens, "ended_s": 1.0 + r, "index": i}
            for r in range(3)
            for i in range(2)
        ]

    found = concurrent.gain(rows(30), rows(20))
    assert found["median"] == pytest.approx(1.5) and found["low"] == pytest.approx(1.5) and found["repeats"] == 3
    assert concurrent.gain(rows(30), []) is None
