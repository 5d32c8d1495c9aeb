"""`labkit bench` from the command line to the record, against a scripted server."""

import json

import pytest

from labkit.cli import main
from labkit.records import read_run


@pytest.fixture
def bench(server, wire, tmp_path, capsys):
    spec = {"spec_verify_ct": 3, "spec_correct_drafts_histogram": [0, 1, 1, 1]}
    server.script = [
        wire.head + wire.chunk(wire.event(1)),
        0.01,
        wire.chunk(wire.event(9, finish="length", **spec)) + wire.end,
    ]

    def run(*flags):
        load = ["--workload", "code", "--count", "2"]
        code = main(["bench", "--url", server.url, *load, "--out", str(tmp_path), *flags])
        out = capsys.readouterr()
        return code, out.out, out.err

    return run


def test_json(bench, tmp_path):
    code, out, _ = bench("--json", "--repeats", "3", "--output-tokens", "9")
    assert code == 0
    said = json.loads(out)
    assert {"tpot_s", "ttft_s", "accept_length", "decode_tok_s", "engine", "warnings"} <= set(said)
    for name in ("tpot_s", "ttft_s"):
        assert said[name]["low"] <= said[name]["median"] <= said[name]["high"] and said[name]["repeats"] == 3
    assert (said["engine"], said["version"]) == ("pocket", "9.9")
    assert said["accept_length"]["median"] == pytest.approx(8 / 3)  # the first of 9 tokens came from the prefill
    run = read_run(said["run"])
    assert run.meta["status"] == "finished" and run.meta["summary"]["tpot_s"] == said["tpot_s"]
    assert len(run.rows) == 2 + 6
    everything = "".join(p.read_text(errors="replace") for p in run.directory.iterdir())
    assert "sk-planted" not in everything  # the scripted /server_info has one


def test_table(bench):
    code, out, _ = bench("--repeats", "1")
    assert code == 0
    assert "TPOT" in out and "accept length 2.667" in out and "warning: only 1 repeat" in out


def test_refused_samples_end_in_an_error_that_says_why(bench, server, monkeypatch):
    monkeypatch.setattr("labkit.measure.client.FLUSH_WAIT_S", 0.05)
    server.flush_status = 400
    code, _, err = bench()
    assert code == 1 and "refused" in err and "400" in err


def test_answers_of_one_token_end_in_an_error_that_says_so(bench, server, wire):
    server.script = [wire.stream(wire.event(1, finish="stop"))]
    code, _, err = bench()
    assert code == 1 and err.count("\n") == 1 and "output_tokens" in err
    assert "ok" not in err.split(": ")[-1].split()


def test_a_server_that_changes_under_the_run_is_noticed(bench, server):
    original = server.info
    type(server).info = property(lambda self: original | ({"version": "10"} if self.asked() else {}))
    del server.__dict__["info"]
    try:
        _, out, _ = bench("--repeats", "1")
    finally:
        del type(server).info
    assert "settings changed" in out


@pytest.mark.parametrize(
    "flags", [("--repeats", "0"), ("--count", "x"), ("--workload", "nope"), ("--output-tokens", "1")]
)
def test_bad_flags(bench, flags):
    code, _, err = bench(*flags)
    assert code == 2 and err.count("\n") == 1 and "accepted:" in err
