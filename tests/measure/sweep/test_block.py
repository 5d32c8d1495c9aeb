"""In what order a block is measured: request by request side by side, else each engine once between two baselines."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.measure import pool
from labkit.measure.pool import Pool
from labkit.measure.sweep import block, drive, points, rows
from labkit.records import read_run

LOAD = {"workload": "repetitive", "count": 1, "repeats": 4, "warmup": 0, "output_tokens": 8}
GRID = {"fp8_lm_head": [False, True], "output_tokens": [8, 9]}


class Driver(drive.Driver):
    """A sweep's tasks without its folder."""

    def __init__(self, plan):
        self.plan = plan
        self._points = {p.name: p for p in plan.measured}
        self._bases = {g: f"baseline{i + 1 if i else ''}" for i, g in enumerate(plan.baselines)}


def task(engine=None, *, grid=GRID, answers=0, seed=1):
    common = {**LOAD, **({"engine": engine} if engine else {})}
    plan = points.read({"common": common, "sweep": {"grid": grid, "answers": answers, "seed": seed}})
    return Driver(plan)._task("r0-000", [p.name for p in plan.measured], 4, 0)


def test_side_by_side_an_engine_counts_once_whatever_the_number_of_its_loads():
    many = {"fp8_lm_head": [False, True], "moe_runner_backend": ["generic", "jit"], "output_tokens": [8, 9, 10]}
    blocks = task(grid=many).blocks()
    assert len(blocks) == 3 and all(b.start is None and b.repeats == 4 for b in blocks)
    for b in blocks:
        assert len(b.arms) == 5 and len({a.params.output_tokens for a in b.arms}) == 1
        assert sum(a.name.startswith("baseline") for a in b.arms) == 1


SGLANG = {"engine": "sglang", "model": "/models/none"}
GPU = {"mem_fraction_static": [0.6, 0.7, 0.8], "output_tokens": [8, 9]}


@given(st.integers(0, 1000))
@settings(max_examples=20)
def test_on_a_gpu_each_engine_is_started_once_between_two_visits_to_the_baseline(seed):
    blocks = task(SGLANG, grid=GPU, seed=seed).blocks()
    assert blocks == task(SGLANG, grid=GPU, seed=seed).blocks()  # a sweep that goes on decides as it would have
    names = [b.arms[0].name for b in blocks]
    assert all(len(b.arms) == 1 for b in blocks)
    assert sorted(names[:2]) == sorted(names[-2:]) == ["baseline", "baseline2"]
    assert [b.repeats for b in (*blocks[:2], *blocks[-2:])] == [2, 2, 2, 2]
    visits = [b.arms[0].config.digest() for b in blocks]
    starts = 1 + sum(a != b for a, b in zip(visits, visits[1:], strict=False))
    assert starts == 5 and sorted(names[2:-2]) == [f"c{i:03d}" for i in range(1, 7)]


def test_questions_are_asked_once_per_engine():
    asked = [a.name for b in task(answers=2).blocks() for a in b.arms if a.name.endswith(block.ANSWERS)]
    assert len(asked) == 2  # of the baseline, which is the first engine too, and the second
    turns = task(SGLANG, grid=GPU, answers=2).blocks()
    asked = [b for b in turns if b.arms[0].name.endswith(block.ANSWERS)]
    assert len(asked) == 4 and all(len(b.arms) == 1 for b in asked)


def test_a_task_is_the_same_after_its_way_as_text():
    for one in (task(answers=3), task(SGLANG, grid=GPU)):
        assert block.Task.read(one.as_text()) == one


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_turns_and_answers_on_real_engines(tmp_path, monkeypatch):
    """One engine at a time, as on a GPU: every row tells its visit, and each load's row has its engine's accuracy."""
    monkeypatch.setenv("LABKIT_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setattr(pool, "SIDE_BY_SIDE", 1)
    one, engines = task(answers=2), Pool()
    most = 0
    try:
        for _ in block.measure(one, tmp_path / "b", engines):
            most = max(most, len(engines.running()))
    finally:
        engines.stop()
    assert most == 1
    run = read_run(tmp_path / "b")
    assert {r["start"] for r in run.rows if r["arm"] == "baseline"} == {0, 1}
    for arm, base in (("c001", "baseline"), ("c002", "baseline2"), ("c003", "baseline"), ("c004", "baseline2")):
        found = rows.row(arm, base, [run])
        assert found["status"] == "measured" and found["speedup"] > 0 and 0 <= found["accuracy"] <= 1, found
        assert found["accuracy_low"] <= found["accuracy"] <= found["accuracy_high"]
