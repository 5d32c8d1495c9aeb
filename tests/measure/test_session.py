"""What counts as a sample, in which order arms are measured, and that rows are kept before anything else happens."""

import functools
import threading

import pytest

from labkit.errors import BadInput
from labkit.measure import client, session
from labkit.workloads import Prompt

PROMPTS = [
    Prompt(
        text=f"p{i}", sampling={"temperature": 0.0, "ignore_eos": True}, max_new_tokens=40 + i, seed=i, workload="test"
    )
    for i in range(2)
]


def answer(wire, **meta) -> list:
    """Six tokens in two events, with a pause between them as a real stream has."""
    last = wire.chunk(wire.event(6, finish="length", **meta))
    return [wire.head + wire.chunk(wire.event(1, **meta)), 0.01, last + wire.end]


def test_rows_of_a_session(server, wire):
    server.script = answer(wire, spec_verify_ct=2)
    kept = []
    rows = list(session.measure(server.url, PROMPTS, arm="a", repeats=2, warmup=2, writer=kept))
    assert [(r["repeat"], r["index"], r["status"]) for r in rows] == [(r, i, "ok") for r in (0, 1) for i in (0, 1)]
    assert [r["status"] for r in kept] == ["warmup"] * 2 + ["ok"] * 4
    row = rows[0]
    assert (row["arm"], row["workload"], row["seed"], row["output_tokens"]) == ("a", "test", 0, 6)
    assert row["accept_length"] == 3.0 and row["fixed_length"] and row["tpot_s"] > 0
    assert rows[0]["prompt_sha256"] == rows[2]["prompt_sha256"] != rows[1]["prompt_sha256"]
    assert [p.split("?")[0] for p, *_ in server.requests] == ["/flush_cache", "/generate"] * 6
    # Warm-up has the shape of a measured prompt, shortened; measured ones are asked at full length.
    assert [a["sampling_params"]["max_new_tokens"] for a in server.asked()] == [32, 32, 40, 41, 40, 41]


def test_a_flush_that_was_not_answered_200_refuses_the_sample(server, wire, monkeypatch):
    server.script = answer(wire)
    server.flushes = [200, 400, 400, 400, 200]
    monkeypatch.setattr(client, "FLUSH_WAIT_S", 0.05)
    rows = list(session.measure(server.url, PROMPTS[:1], arm="a", repeats=3, warmup=0))
    assert rows[1]["status"] == "refused" and rows[-1]["status"] == "ok"
    assert "400" in rows[1]["error"] and rows[1]["tpot_s"] is None
    assert len(server.asked()) == 2  # nothing was generated on an unflushed cache


def test_a_flush_refused_for_a_moment_costs_no_sample(server, wire):
    """An engine still holds a request just after its last byte: the server is asked to wait, then asked again."""
    server.script = answer(wire)
    server.flushes = [400, 400, 200]
    (row,) = session.measure(server.url, PROMPTS[:1], arm="a", repeats=1, warmup=0)
    assert row["status"] == "ok"
    assert [p for p, *_ in server.requests][:3] == ["/flush_cache?timeout=5"] * 3


@pytest.mark.parametrize("status, asked", [(404, 2), (405, 2), (401, 1)])
def test_a_server_without_a_flush_is_told_at_once(server, wire, status, asked):
    server.flush_status = status
    (row,) = session.measure(server.url, PROMPTS[:1], arm="a", repeats=1, warmup=0)
    assert row["status"] == "refused" and str(status) in row["error"] and len(server.requests) == asked


def test_three_refused_flushes_end_the_session(server, wire):
    server.flush_status = 404
    assert len(list(session.measure(server.url, PROMPTS, arm="a", repeats=50, warmup=0))) == 3


def test_cached_tokens_refuse_the_sample(server, wire):
    server.script = answer(wire, cached=3)
    (row,) = session.measure(server.url, PROMPTS[:1], arm="a", repeats=1, warmup=0)
    assert row["status"] == "refused" and "3 prompt tokens" in row["error"]


def test_tokens_that_all_come_at_once_are_no_measurement(server, wire):
    server.script = [wire.stream(wire.event(1), wire.event(6, finish="length"))]
    (row,) = session.measure(server.url, PROMPTS[:1], arm="a", repeats=1, warmup=0)
    # Two recvs are possible in principle; then there is a time between the events and the row counts.
    assert row["status"] == ("refused" if row["tpot_s"] == 0 else "ok")
    assert row["status"] == "ok" or "all at once" in {d["kind"] for d in row["doubts"]}


def test_errors_become_rows(server, wire):
    server.script = [wire.plain(b"no", 500)]
    rows = list(session.measure(server.url, PROMPTS[:1], arm="a", repeats=2, warmup=0))
    assert [r["status"] for r in rows] == ["error"] * 2 and "HTTP 500" in rows[0]["error"]


def test_three_errors_in_a_row_end_the_session(server, wire):
    server.script = [wire.plain(b"no", 500)]
    assert len(list(session.measure(server.url, PROMPTS, arm="a", repeats=50, warmup=0))) == 3


def test_cancel_ends_the_session_with_a_row(server, wire, monkeypatch):
    server.script = [wire.head, wire.chunk(wire.event(1)), 1.5]
    cancel, kept = threading.Event(), []
    at_the_first = functools.partial(client.generate, on_chunk=lambda *_: cancel.set())
    monkeypatch.setattr(client, "generate", at_the_first)
    rows = list(
        session.measure(
            server.url,
            PROMPTS,
            arm="a",
            repeats=3,
            warmup=0,
            writer=kept,
            cancel=cancel,
        )
    )
    assert [r["status"] for r in rows] == ["cancelled"] == [r["status"] for r in kept]
    assert rows[0]["chunk_tokens"] == [1]


def test_arms_alternate_with_equal_prompts(server, wire):
    server.script = answer(wire)
    arms = [session.Side("a", server.url), session.Side("b", server.url)]
    rows = list(session.interleave(arms, PROMPTS, repeats=2, warmup=0))
    assert [r["arm"] for r in rows] == ["a", "b", "b", "a", "b", "a", "a", "b"]
    for repeat in (0, 1):
        for index in (0, 1):
            pair = [r for r in rows if (r["repeat"], r["index"]) == (repeat, index)]
            assert len({r["prompt_sha256"] for r in pair}) == 1


def test_a_row_is_kept_before_it_is_yielded(server, wire):
    server.script = answer(wire)
    kept = []
    for n, row in enumerate(session.measure(server.url, PROMPTS, arm="a", repeats=2, warmup=0, writer=kept), 1):
        assert len(kept) == n and kept[-1] is row


def test_measure_again_counts_on(server, wire):
    server.script = answer(wire)
    rows = session.measure(server.url, PROMPTS[:1], arm="a", repeats=2, warmup=0, first_repeat=5)
    assert [r["repeat"] for r in rows] == [5, 6]


def test_the_key_is_in_no_row(server, wire):
    server.script = answer(wire)
    rows = list(session.measure(server.url, PROMPTS, arm="a", repeats=1, api_key="sk-very-secret"))
    assert rows and "sk-very-secret" not in repr(rows)
    assert all(b"sk-very-secret" in head for _, head, _ in server.requests)


def test_bad_plans():
    with pytest.raises(BadInput, match="at least one prompt"):
        list(session.measure("http://127.0.0.1:9", [], arm="a", repeats=1))
    two = [session.Side("a", "http://127.0.0.1:9")] * 2
    with pytest.raises(BadInput, match="distinct names"):
        list(session.interleave(two, PROMPTS, repeats=1))
