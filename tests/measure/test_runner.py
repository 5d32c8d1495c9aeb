"""The runner: who takes turns with whom, what is measured again, what is kept apart, what goes on after a kill."""

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from labkit import cli
from labkit.engines import ladder
from labkit.engines.config import EngineConfig
from labkit.engines.dialects import SGLANG
from labkit.errors import LabError
from labkit.measure import estimates
from labkit.measure.plan import comparisons
from labkit.measure.pool import Pool
from labkit.measure.results import Arm, results_of, speedup
from labkit.measure.runner import Runner
from labkit.params import Params
from labkit.records import RunWriter, Store, read_run

POCKET, GPU = EngineConfig(), EngineConfig.from_dict({"engine": "sglang", "model": "pocket"})


class Engine:
    """A scripted server under a configuration."""

    api_key, start_seconds, alive, dialect = None, 0.5, True, SGLANG

    def __init__(self, config, url, log):
        self.config, self.url, self._log = config, url, log
        log.append(f"+{config.moe_runner_backend}")

    def server_info(self):
        shown = {"moe_runner_backend": self.config.moe_runner_backend, "threads": 1}
        return {"engine": "pocket", "version": "1", **shown}

    def launch_record(self):
        return {"argv": [self.config.moe_runner_backend], "start_seconds": 0.5}

    def failure(self):
        return None

    def stop(self):
        self._log.append(f"-{self.config.moe_runner_backend}")


class ScriptedPool(Pool):
    """Starts nothing: every engine is the scripted server. log: what was started (+) and stopped (-), in order."""

    def __init__(self, url):
        super().__init__()
        self.url, self.log = url, []

    def _start(self, config, run_dir, on_event, *, cancel):
        return Engine(config, self.url, self.log)


@pytest.fixture
def pool(server, wire):
    server.script = [
        wire.head + wire.chunk(wire.event(1)),
        0.01,
        wire.chunk(wire.event(9, finish="length")) + wire.end,
    ]
    return ScriptedPool(server.url)


def arms(*names, engine=POCKET, repeats=2, count=1, **more):
    params = Params(workload="code", count=count, warmup=1, output_tokens=9, repeats=repeats, **more)
    return [Arm.of(a, params.replace(engine=a.config)) for a in ladder.choose(ladder.arms(engine), names)]


def go(runner, todo, path, cancel=None, **plan):
    """Measure; returns the blocks and the progress."""
    blocks = runner.plan(todo, **plan)
    with RunWriter(path, todo[0].params.as_dict()) as writer:
        return blocks, [(p.text, p.done, p.eta_s) for p in runner.run(blocks, writer, cancel=cancel)]


def asked(path):
    return [(r["arm"], r["repeat"], r["index"]) for r in read_run(path).rows if r["status"] == "ok"]


def test_side_by_side_the_arms_alternate(pool, tmp_path):
    runner = Runner(pool)
    _, seen = go(runner, arms("baseline", "kernels"), tmp_path / "r")
    assert pool.log == ["+generic", "+jit"]
    assert [a for a, _, _ in asked(tmp_path / "r")] == ["baseline", "kernels", "kernels", "baseline"]
    assert [done for _, done, _ in seen] == [0, 0, 1, 2, 3, 4] and seen[-1][2] == 0
    run = read_run(tmp_path / "r")
    assert {r["session"] for r in run.rows} == {run.meta["id"]} and not any("start" in r for r in run.rows)
    assert [a["title"] for a in run.meta["arms"]] == [r.arm.title for r in runner.results.values()]
    assert speedup(runner.results["kernels"], runner.results["baseline"]).value > 0


def test_engines_that_fill_the_machine_take_turns_there_and_back(pool, tmp_path):
    runner, todo = Runner(pool), arms("baseline", "kernels", "fp8-head", engine=GPU, repeats=3)
    go(runner, todo, tmp_path / "r")
    fi, hm = "flashinfer_mxfp4", "humming"
    assert pool.log == [f"+{fi}", f"-{fi}", f"+{hm}", f"-{hm}", f"+{hm}", f"-{hm}", f"+{hm}", f"-{hm}", f"+{fi}"]
    order = ["baseline"] * 2 + ["kernels"] * 2 + ["fp8-head"] * 3 + ["kernels", "baseline"]
    assert [a for a, _, _ in asked(tmp_path / "r")] == order
    rows = [r for r in read_run(tmp_path / "r").rows if r["arm"] == "kernels" and r["repeat"] >= 0]
    assert [(r["repeat"], r["start"]) for r in rows] == [(0, 0), (1, 0), (2, 1)]
    # What was asked, what was sent and what the engine shows, for every field that is set.
    tuned = next(a for a in read_run(tmp_path / "r").meta["arms"] if a["name"] == "kernels")
    (moe,) = [o for o in tuned["options"] if o["field"] == "moe_runner_backend"]
    assert (moe["asked"], moe["sent"], moe["seen"], moe["in_effect"]) == (hm, f"--moe-runner-backend {hm}", hm, True)
    assert (tuned["expect"], tuned["before"]) == ("same bytes, better kernels", "baseline")


def test_one_engine_serves_its_loads_in_one_visit(pool):
    two = [
        replace(a, name=f"{a.name} {n}", params=a.params.replace(seed=n))
        for n in (1, 2)
        for a in arms("baseline", "kernels", engine=GPU, repeats=2)
    ]
    assert [(b.arms[0].name, b.first) for b in Runner(Pool()).plan(two)] == [
        ("baseline 1", 0),
        ("baseline 2", 0),
        ("kernels 1", 0),
        ("kernels 2", 0),
        ("kernels 2", 1),
        ("kernels 1", 1),
        ("baseline 2", 1),
        ("baseline 1", 1),
    ]


def test_many_arms_each_alternate_with_the_first_one():
    one = arms("baseline")[0]
    many = [replace(one, name=str(i)) for i in range(20)]
    groups = comparisons(many)
    assert all(g[0].name == "0" and len(g) <= 8 for g in groups)
    assert sorted(int(a.name) for g in groups for a in g[1:]) == list(range(1, 20))


# --- what is measured again, and what is kept apart ----------------------------------------------------------------


def test_an_arm_is_measured_beside_its_reference_though_the_reference_is_kept(pool, tmp_path):
    runner, both = Runner(pool, Store(tmp_path / "s")), arms("baseline", "kernels")
    go(runner, both[:1], tmp_path / "1")
    assert runner.plan(both[:1]) == []
    runner.recall(both)
    assert runner.results == {} and set(runner.kept) == {"baseline"}  # a reference of another minute is none
    (block,), _ = go(runner, both, tmp_path / "2")
    assert [a.name for a in block.arms] == ["baseline", "kernels"] and (block.repeats, block.first) == (2, 2)
    assert {len(r.rows) for r in runner.results.values()} == {2}  # the first run's rows are no part of it
    assert {r["session"] for res in runner.results.values() for r in res.rows} == {read_run(tmp_path / "2").meta["id"]}
    # Later, in another kernel: the whole comparison is there, and nothing is asked again.
    later = Runner(pool, Store(tmp_path / "s"))
    later.recall(both)
    assert later.plan(both) == [] and {r.when[:3] for r in later.results.values()} == {"at "}
    assert {n: r.used for n, r in later.results.items()} == {n: r.used for n, r in runner.results.items()}


def test_measuring_again_adds_whole_passes_from_every_state(pool, tmp_path):
    both = arms("baseline", "kernels")
    go(Runner(pool, Store(tmp_path / "s")), both, tmp_path / "1")
    pool._running.pop(both[0].config.digest()).stop()  # the reference's engine is gone, the other one still runs
    runner = Runner(pool, Store(tmp_path / "s"))
    (block,), _ = go(runner, both, tmp_path / "2", again=True)
    assert (block.repeats, block.first) == (2, 2) and pool.log == ["+generic", "+jit", "-generic", "+generic"]
    assert {len(r.rows) for r in runner.results.values()} == {4}
    assert speedup(runner.results["kernels"], runner.results["baseline"]).value > 0
    assert runner.summary()["kernels"]["requests"] == 2  # the record sums up its own rows


def test_other_settings_of_the_load_are_kept_and_take_no_part(pool, tmp_path):
    runner = Runner(pool, Store(tmp_path / "s"))
    go(runner, arms("fp8-head", "mtp"), tmp_path / "1")
    spec = {"speculative": {"steps": 5, "topk": 1, "draft_tokens": 6}}
    (deeper,) = arms("mtp", engine=EngineConfig.from_dict(spec))
    pair = [arms("fp8-head")[0], replace(deeper, name="deeper")]
    go(runner, pair, tmp_path / "2")
    assert set(runner.results) == {"fp8-head", "deeper"} and set(runner.kept) == {"mtp"}
    assert speedup(runner.results["deeper"], runner.results["fp8-head"]).value > 0
    runner.recall(pair, arms("fp8-head", "mtp"))  # the first choice that is there whole
    assert set(runner.results) == {"fp8-head", "deeper"}
    runner.recall(arms("fp8-head", "mtp"))
    assert set(runner.results) == {"fp8-head", "mtp"} and set(runner.kept) == {"deeper"}
    assert runner.plan(arms("fp8-head", "mtp")) == []


def test_a_pass_that_was_cut_short_is_measured_again(pool, tmp_path):
    runner, both, cancel = Runner(pool, Store(tmp_path / "s")), arms("baseline", "kernels", count=2), threading.Event()
    blocks = runner.plan(both)
    with RunWriter(tmp_path / "1", {}) as writer:
        for p in runner.run(blocks, writer, cancel=cancel):
            if p.done == 7:  # of eight
                cancel.set()
    assert p.text == "cancelled"
    (block,) = runner.plan(both)
    assert (block.repeats, block.first) == (1, 2)


# --- what is no success --------------------------------------------------------------------------------------------


def test_a_refused_run_is_an_error_in_the_record_too(pool, server, tmp_path, monkeypatch):
    monkeypatch.setattr("labkit.measure.client.FLUSH_WAIT_S", 0.0)
    server.flush_status = 400
    runner = Runner(pool, Store(tmp_path / "s"))
    with pytest.raises(LabError, match="3 requests in a row were refused, .* answered 400"):
        go(runner, arms("baseline", "kernels", repeats=9), tmp_path / "r")
    run = read_run(tmp_path / "r")
    assert run.meta["status"] == "failed" and "refused" in run.meta["error"]
    assert sum(r["repeat"] >= 0 for r in run.rows) == 3 and Store(tmp_path / "s").settings() == []


def test_a_run_of_empty_answers_is_an_error(pool, server, wire, tmp_path):
    server.script = [wire.head + wire.chunk(wire.event(1, finish="length")) + wire.end]
    with pytest.raises(LabError, match="no good sample|in a row"):
        go(Runner(pool), arms("baseline"), tmp_path / "r")
    assert read_run(tmp_path / "r").meta["status"] == "failed"


# --- after a kill --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [POCKET, GPU], ids=["side by side", "in turns"])
@pytest.mark.parametrize("killed_after", [0, 1, 2, 5, 7, 8])
def test_a_record_that_was_cut_short_is_completed_and_nothing_is_asked_twice(pool, tmp_path, killed_after, engine):
    both = arms("baseline", "kernels", count=2, engine=engine)
    blocks = Runner(pool).plan(both)
    first = RunWriter(tmp_path / "r", {})
    rows = (p for p in Runner(pool).run(blocks, first) if p.row is not None)
    for _ in range(killed_after):
        next(rows)
    rows.close()
    first._log.close()  # as a kill leaves it: status "running", a line cut in the middle
    with open(tmp_path / "r" / "requests.jsonl", "ab") as log:
        log.write(b'{"arm": "base')
    runner = Runner(pool)
    with RunWriter.resume(tmp_path / "r") as writer:
        seen = [p.done for p in runner.run(blocks, writer)]
    got = asked(tmp_path / "r")
    assert len(got) == len(set(got)) == 8 and seen[-1:] == [8] * (killed_after < 8)
    run = read_run(tmp_path / "r")
    assert run.meta["status"] == "finished" and {n: len(rows) for n, rows in runner.fresh.items()} == {
        "baseline": 4,
        "kernels": 4,
    }
    if engine is POCKET:  # a pair whose sides lie before and after the break is none
        pairs = estimates.compare(runner.fresh["kernels"], runner.fresh["baseline"]).speedup.count
        assert pairs == 4 - killed_after % 2


def test_a_finished_record_stands_in_for_measuring(pool, tmp_path):
    all_four = arms("baseline", "kernels", "fp8-head")
    go(Runner(pool), all_four, tmp_path / "r")
    runner = Runner(pool)
    other = replace(all_four[1], name="other load", params=all_four[1].params.replace(seed=9))
    renamed = replace(all_four[0], name="slow")
    assert runner.adopt(tmp_path / "r", [renamed, all_four[1], other]) == [other]
    assert list(runner.results) == ["slow", "kernels"] and runner.results["slow"].start_s == 0.5
    whole = results_of(tmp_path / "r")
    expected = speedup(whole["kernels"], whole["baseline"])
    assert speedup(runner.results["kernels"], runner.results["slow"]).value == expected.value


def test_the_forecast_takes_what_was_timed(pool, tmp_path):
    runner, todo = Runner(pool, Store(tmp_path / "s")), arms("baseline", "kernels", repeats=3)
    before, known = runner.forecast(runner.plan(todo))
    assert not known and before > 10  # two starts of five seconds
    go(runner, todo, tmp_path / "r")
    after, known = runner.forecast(runner.plan(todo, again=True))
    request = sum(r["latency_s"] for r in runner.results["kernels"].rows) / 3
    assert known and after < 8 * (request + 0.1) + 1  # both engines run


def test_the_ladder_s_command_measures_warns_and_goes_on_after_a_cut(pool, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Pool, "_start", lambda _, config, *rest, **more: Engine(config, pool.url, pool.log))
    file = tmp_path / "params.yaml"
    file.write_text("engine: {threads: 2}\nworkload: code\ncount: 1\nwarmup: 0\nrepeats: 3\noutput_tokens: 9\n")
    ask = ["ladder", "-f", str(file), "--arms", "baseline,kernels", "--out", str(tmp_path / "out"), "--json"]
    assert cli.main(ask) == 0
    said = json.loads(capsys.readouterr().out)
    assert [a["arm"] for a in said["arms"]] == ["baseline", "kernels"] and said["arms"][1]["step"]["low"] is not None
    assert "threads: asked 2, sent as --threads 2, but /server_info threads shows 1" in said["arms"][0]["warnings"]
    assert pool.log == ["+generic", "+jit", "-generic", "-jit"]
    log = Path(said["run"]) / "requests.jsonl"
    log.write_bytes(log.read_bytes()[:-700])  # the last row is cut
    assert cli.main(["ladder", "--resume", said["run"], "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert len(asked(said["run"])) == len(set(asked(said["run"]))) == 6
    assert [a["requests"] for a in again["arms"]] == [3, 3]


@pytest.mark.parametrize("strict", [False, True])
def test_what_is_not_in_effect_at_the_start_is_told_before_the_first_request(pool, server, tmp_path, strict):
    def check(result, log):
        return [] if result.name == "baseline" else ["MoE kernels: asked jit, seen generic"]

    wanted = arms("baseline", "kernels")
    runner = Runner(pool, check=check, strict=strict)
    told = []
    with RunWriter(tmp_path / "run", {}, label="t") as writer:
        try:
            for progress in runner.run(runner.plan(wanted), writer):
                told.append(progress.text if progress.row is None else "row")
        except LabError as e:
            assert strict and str(e).startswith("kernels is not measured") and "generic" in str(e)
    assert told[1] == "warning: kernels: MoE kernels: asked jit, seen generic"
    assert ("row" in told) is not strict
    assert runner.noticed["kernels"] and not runner.noticed["baseline"]


def test_an_arm_broken_on_purpose_is_measured_all_the_same(pool, tmp_path):
    broken = [replace(a, expect=ladder.FAULT) for a in arms("baseline")]
    runner = Runner(pool, check=lambda result, log: ["draft shares the head: no"], strict=True)
    with RunWriter(tmp_path / "run", {}, label="t") as writer:
        assert any(p.row for p in runner.run(runner.plan(broken), writer))
