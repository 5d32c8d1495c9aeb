"""Engines that fill the machine are started in turn, the second time in reversed order."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from labkit.engines.config import EngineConfig
from labkit.engines.dialects import SGLANG
from labkit.measure import ladder as climb
from labkit.params import Params
from labkit.records import RunWriter, read_run


class Seen(list):
    """What was started and stopped, in order; shown: more fields of the engines' descriptions."""

    shown: dict = {}


@pytest.fixture
def starts(server, wire, monkeypatch):
    """Replaces starting an engine by pointing at the scripted server; says what was started and stopped, in order."""
    server.script = [wire.head + wire.chunk(wire.event(1)), 0.01, wire.chunk(wire.event(9, finish="length")) + wire.end]
    seen = Seen()

    @contextmanager
    def start(config, run_dir, *, beside, cancel):
        name = config.moe_runner_backend
        seen.append(f"+{name}")
        yield SimpleNamespace(
            url=server.url,
            dialect=SGLANG,
            api_key=None,
            server_info=lambda: {"moe_runner_backend": name, **seen.shown},
            launch_record=lambda: {"argv": [name]},
            failure=lambda: None,
        )
        seen.append(f"-{name}")

    monkeypatch.setattr(climb.process, "start", start)
    return seen


def params(engine, **more):
    return Params(engine=engine, workload="code", count=1, warmup=1, output_tokens=9, **more)


def test_in_turn(starts, tmp_path):
    engine = EngineConfig.from_dict({"engine": "sglang", "model": "pocket"})
    plan = params(engine, repeats=5, only=("baseline", "kernels"))
    with RunWriter(tmp_path / "r", plan.as_dict()) as writer:
        found = climb.climb(plan, writer, progress=lambda text: None)
    fi, hm = "flashinfer_mxfp4", "humming"
    assert starts == [f"+{fi}", f"-{fi}", f"+{hm}", f"-{hm}", f"+{hm}", f"-{hm}", f"+{fi}", f"-{fi}"]
    rows = [r for r in read_run(tmp_path / "r").rows if r["status"] == "ok"]
    order = [(r["arm"], r["repeat"]) for r in rows]
    assert order == [
        ("baseline", 0),
        ("baseline", 1),
        ("baseline", 2),
        ("kernels", 0),
        ("kernels", 1),
        ("kernels", 2),
        ("kernels", 3),
        ("kernels", 4),
        ("baseline", 3),
        ("baseline", 4),
    ]
    assert [r["tpot_s"]["repeats"] for r in found] == [5, 5]
    arms = read_run(tmp_path / "r").meta["arms"]
    assert {a["name"]: a["launch"]["argv"] for a in arms} == {"baseline": [fi], "kernels": [hm]}
    # What was asked, what was sent and what the engine shows, for every field that is set.
    tuned = next(a for a in arms if a["name"] == "kernels")
    (moe,) = [o for o in tuned["options"] if o["field"] == "moe_runner_backend"]
    assert (moe["asked"], moe["sent"], moe["seen"], moe["in_effect"]) == (hm, f"--moe-runner-backend {hm}", hm, True)
    assert (tuned["expect"], tuned["before"]) == ("same bytes, better kernels", "baseline")


def test_together(starts, tmp_path):
    plan = params(EngineConfig(), repeats=2, only=("baseline", "kernels"))
    with RunWriter(tmp_path / "r", plan.as_dict()) as writer:
        climb.climb(plan, writer, progress=lambda text: None)
    assert starts == ["+generic", "+jit", "-jit", "-generic"]
    rows = [r for r in read_run(tmp_path / "r").rows if r["status"] == "ok"]
    assert [r["arm"] for r in rows] == ["baseline", "kernels", "kernels", "baseline"]


def test_an_option_that_is_not_in_effect_is_a_warning(starts, tmp_path):
    plan = params(EngineConfig(threads=2), repeats=2, only=("baseline",))
    starts.shown = {"threads": 1}
    with RunWriter(tmp_path / "r", plan.as_dict()) as writer:
        (line,) = climb.climb(plan, writer, progress=lambda text: None)
    assert "threads: asked 2, sent as --threads 2, but /server_info threads shows 1" in line["warnings"]
