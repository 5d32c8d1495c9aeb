"""Two settings against each other: which points there are, what is measured next, when it is over."""

import pytest
from conftest_panels import rows

from labkit.errors import BadInput
from labkit.measure import stats
from labkit.measure.pool import Pool
from labkit.measure.runner import Runner
from labkit.notebook import grid as g
from labkit.notebook.experiments.long_context import LongContext
from labkit.notebook.experiments.mtp import Mtp
from labkit.notebook.panel import Panel
from labkit.records import Store


@pytest.fixture
def experiment(parameters):
    return Mtp(**{**parameters, "count": 2, "guess": None}, steps=3, topk=1, draft_tokens=4)


@pytest.fixture
def runner(tmp_path):
    return Runner(Pool(), Store(tmp_path / "store"))


def axis(experiment, name, text):
    return g.Axis.read({s.name: s for s in experiment.axes()}[name], text)


def grid_of(experiment, x="steps", xs="1-4", y="topk", ys="1-2", **how):
    return g.Grid(experiment, axis(experiment, x, xs), axis(experiment, y, ys), **how)


_PASSES = 0


def measure(runner, blocks, speed, passes=None):
    """As if these blocks had been measured: arms alternate, and each is `speed(arm)` times as fast as 10 ms."""
    global _PASSES
    for block in blocks:
        for _ in range((passes or block.repeats) // 3 or 1):
            _PASSES += 1
            for arm in block.arms:
                s = arm.config.speculative
                mine = rows(arm.name, 10e-3 / speed(arm), accept=2.0 if s else None, steps=s.steps if s else 3)
                for row in mine:
                    row["session"] = f"session {_PASSES}"
                runner.store.add(arm.config, arm.load, "test", mine)
                runner.versions[arm.config.engine] = "test"


def drive(grid, runner, speed, budget=1e9, seconds=lambda blocks: 1.0):
    """Until the grid has nothing more to do; the blocks that were measured."""
    asked = []
    while blocks := grid.next(budget, seconds):
        before = grid.passes()
        measure(runner, blocks, speed)
        asked += blocks
        assert grid.look(runner, blocks)
        grid.settle(blocks, before)
        assert len(asked) < 100
    return asked


def fast(arm):
    """More steps are better here, and a tree no worse than a chain."""
    s = arm.config.speculative
    return 1.0 if s is None else 1 + 0.1 * s.steps + 0.01 * s.topk


@pytest.mark.parametrize(
    ("text", "values"), [("1-4", (1, 2, 3, 4)), ("1, 2,8", (1, 2, 8)), ("2", (2,)), ("1-2, 2, 4", (1, 2, 4))]
)
def test_an_axis_is_read_from_words(experiment, text, values):
    assert axis(experiment, "steps", text).values == values
    assert axis(experiment, "workload", "code, repetitive").values == ("code", "repetitive")


@pytest.mark.parametrize("text", ["", ",", "x", "0-3", "1-99", "4-1", "1.5", "1--3"])
def test_a_wrong_axis_is_one_line_with_its_name(experiment, text):
    with pytest.raises(BadInput, match="^steps: got "):
        axis(experiment, "steps", text)
    with pytest.raises(BadInput, match="^workload: got "):
        axis(experiment, "workload", text)


def test_a_grid_that_cannot_be_is_refused(experiment):
    with pytest.raises(BadInput, match="two different settings"):
        grid_of(experiment, y="steps")
    with pytest.raises(BadInput, match="at most 64"):
        grid_of(experiment, "steps", "1-8", "prompt_tokens", "101-110")
    with pytest.raises(BadInput, match="one that can be measured"):
        grid_of(experiment, "steps", "2", "draft_tokens", "5")  # topk 1


def test_points_that_an_engine_would_rewrite_are_left_out_with_the_reason(experiment):
    grid = grid_of(experiment, "steps", "1-3", "draft_tokens", "2-4")
    measured = {(s.x, s.y) for s in grid.spots if s.open}
    assert measured == {(1, 2), (2, 3), (3, 4)}  # topk is 1: always steps + 1
    assert len(grid.left_out()) == 6 and all("draft_tokens" in s for s in grid.left_out())
    # Without an axis of their own the draft tokens follow the rule, and a tree has its own number.
    grid = grid_of(experiment, "steps", "1-3", "topk", "1-2")
    assert all(s.open for s in grid.spots)
    assert {s.arm.config.speculative.numbers() for s in grid.spots} == {
        *("1/1/2", "2/1/3", "3/1/4", "1/2/3", "2/2/4", "3/2/4")
    }


def test_each_point_is_measured_in_turns_with_the_reference_of_its_own_load(experiment):
    grid = grid_of(experiment, "steps", "1-2", "workload", "code, repetitive")
    for s in grid.spots:
        assert s.base.load == s.arm.load and s.arm.load["workload"] == s.y
        assert s.base.config.speculative is None
    grid = grid_of(experiment, "steps", "1-2", "prompt_tokens", "64, 128")
    assert [s.arm.load["prompt_tokens"] for s in grid.spots] == [64, 64, 128, 128]


def test_everything_is_looked_at_once_and_then_only_what_may_still_win(experiment, runner):
    grid = grid_of(experiment)
    asked = drive(grid, runner, fast)
    first, second = asked[:2]
    assert {len(b.arms) for b in asked[:2]} <= {8, 2} and {b.repeats for b in asked[:2]} == {stats.LEAST}
    assert {a.name for b in (first, second) for a in b.arms} == {"plain", *(s.arm.name for s in grid.spots)}
    assert all(b.arms[0].name == "plain" for b in asked)
    assert all(s.passes >= stats.LEAST for s in grid.spots)
    (best,) = grid.best()
    assert (best.x, best.y) == (4, 2) and grid.end in (g.DECIDED, g.ALIKE)
    # Whatever was measured on is among the fastest.
    more = {a.name for b in asked[2:] for a in b.arms if a.name != "plain"}
    fastest = sorted(grid.spots, key=lambda s: -s.gain.value)[:3]
    assert more <= {s.arm.name for s in fastest}


def test_a_clear_winner_ends_it_and_equal_ones_end_it_too(experiment, runner):
    grid = grid_of(experiment, xs="1-2", ys="1")
    asked = drive(grid, runner, lambda a: 1.0 if a.config.speculative is None else 1.0 + a.config.speculative.steps)
    assert grid.end == g.DECIDED and len(asked) == 1
    assert any("decided" in s for s in grid.findings())
    grid = grid_of(experiment, xs="3-4", ys="1")
    asked = drive(grid, runner, lambda a: 1.0 if a.config.speculative is None else 1.5)
    assert grid.end == g.ALIKE and max(s.passes for s in grid.spots) == g.ENOUGH
    assert len(asked) == g.ENOUGH // stats.LEAST


def test_the_reference_may_be_the_winner(experiment, runner):
    grid = grid_of(experiment, xs="1-2", ys="1")
    drive(grid, runner, lambda a: 1.0 if a.config.speculative is None else 0.5 + 0.2 * a.config.speculative.steps)
    assert grid.end == g.DECIDED and grid.best()[0].gain.below(1)


def test_what_is_measured_already_is_not_asked_again(experiment, runner):
    drive(grid_of(experiment, until_decided=False), runner, fast)
    again = grid_of(experiment, until_decided=False)
    assert again.look(runner) and again.next(1e9, lambda blocks: 1.0) == [] and again.end == g.EVERYTHING
    wider = grid_of(experiment, xs="1-5", until_decided=False)
    wider.look(runner)
    (block,) = wider.next(1e9, lambda blocks: 1.0)
    assert {a.name for a in block.arms} == {"plain", "mtp 5/1/6", "mtp 5/2/4"}


def test_a_budget_is_kept_by_asking_for_less_and_then_for_nothing(experiment, runner):
    grid = grid_of(experiment)

    def seconds(blocks):
        return 10.0 * sum(len(b.arms) for b in blocks)

    (block,) = grid.next(45.0, seconds)
    assert len(block.arms) <= 4 and block.arms[0].name == "plain"
    assert grid.next(15.0, seconds) == [] and grid.end == g.NO_TIME
    drive(grid, runner, fast)
    assert all(s.result for s in grid.spots)


def test_a_point_that_fails_or_never_counts_does_not_stop_the_rest(experiment, runner):
    grid = grid_of(experiment, ys="1")
    (blocks, before) = grid.next(1e9, lambda blocks: 1.0), grid.passes()
    assert grid.fail("mtp 2/1/3", "the engine did not start\nlast lines") and not grid.fail("plain", "it died")
    measure(runner, [type(b)([a for a in b.arms if a.name != "mtp 3/1/4"], b.repeats) for b in blocks], fast)
    grid.look(runner, blocks)
    grid.settle(blocks, before)
    failed = {s.x: s.failed for s in grid.spots if s.failed}
    assert set(failed) == {2, 3} and failed[2] == "the engine did not start"
    drive(grid, runner, fast)
    assert {s.x for s in grid.spots if s.result} >= {1, 4}


def test_the_heat_map_shows_what_is_known_of_every_point(experiment, runner):
    grid = grid_of(experiment, "steps", "1-3", "draft_tokens", "2-4")
    figure = grid.figure()
    (heat,) = figure.data
    assert [v for row in heat.z for v in row] == [None] * 9
    assert len(figure.layout.annotations) == 9 and not figure.layout.shapes
    drive(grid, runner, fast)
    (heat,), layout = grid.figure().data, grid.figure().layout
    values = {(i, j): v for j, row in enumerate(heat.z) for i, v in enumerate(row) if v is not None}
    assert set(values) == {(0, 0), (1, 1), (2, 2)}
    for s in grid.spots:
        if s.open:
            i, j = grid.x.values.index(s.x), grid.y.values.index(s.y)
            assert values[i, j] == s.gain.value == pytest.approx(fast(s.arm), rel=0.05)
            assert f"{s.gain.value:.3f}" in heat.customdata[j][i]
    assert len(layout.annotations) == 6 and len(layout.shapes) == 1
    assert heat.zmin + heat.zmax == pytest.approx(2)  # white is S = 1


def test_a_number_without_an_interval_is_marked_so_and_leads_nothing(experiment, runner):
    grid = grid_of(experiment, xs="1-2", ys="1")
    (block,) = grid.next(1e9, lambda blocks: 1.0)
    for arm in block.arms:
        mine = [{**r, "session": "one"} for r in rows(arm.name, 10e-3 / fast(arm), accept=2.0) if r["repeat"] == 0]
        runner.store.add(arm.config, arm.load, "test", mine)
    assert grid.look(runner)
    (heat,), layout = grid.figure().data, grid.figure().layout
    assert all(t.startswith("~") for row in heat.text for t in row) and not layout.shapes
    assert not grid.leads(grid.spots)
    drive(grid, runner, fast)
    (heat,), layout = grid.figure().data, grid.figure().layout
    assert all(float(t) for row in heat.text for t in row) and len(layout.shapes) == 1


def test_a_picture_of_it_can_be_drawn(experiment, runner):
    from labkit.figures.show import png

    grid = grid_of(experiment, "steps", "1-3", "draft_tokens", "2-4")
    drive(grid, runner, fast)
    assert png(grid.figure())[:4] == b"\x89PNG"


def test_context_and_draft_steps_over_each_other(parameters, runner):
    e = LongContext(**{**parameters, "workload": "synthetic", "max_context": 2048, "guess": None})
    grid = grid_of(e, "prompt_tokens", "64, 128", "steps", "1-2")
    names = {(s.base.name, s.arm.name) for s in grid.spots}
    assert len(names) == 4 and len({a for a, _ in names}) == 2
    for s in grid.spots:
        assert s.base.load == s.arm.load and s.arm.load["prompt_tokens"] == s.x
        assert s.arm.config.speculative.steps == s.y == s.arm.params.engine.speculative.steps
    (block,) = grid.next(1e9, lambda blocks: 1.0)
    assert len({str(a.load) for a in block.arms}) == 1 and len(block.arms) == 3


def test_what_a_grid_found_stands_in_a_copy_without_a_kernel(experiment, runner):
    panel = Panel(experiment, engines=runner.pool, live=False)
    assert not any(a.name in panel.static("findings")[0][0]["text/plain"] for a in panel.arms())
    panel.grid = grid_of(experiment, xs="1-2", ys="1")
    drive(panel.grid, runner, fast)
    for cell in ("findings", "summary"):
        ((data, _),) = panel.static(cell)
        assert all(s.arm.name in data["text/plain"] and s.arm.name in data["text/html"] for s in panel.grid.spots)
