"""Configurations of a sweep: all that are asked for, none that the engine would rewrite, one line for what is wrong."""

import itertools

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import BadInput
from labkit.measure.sweep import points


def read(text: str) -> points.Plan:
    return points.read(yaml.safe_load(text))


DRAFTS = """
sweep:
  grid:
    speculative.steps: [1, 2, 3]
    speculative.topk: [1, 2]
    speculative.draft_tokens: [2, 3, 4]
    fp8_lm_head: [false, true]
"""


def test_a_grid_is_every_combination_and_what_the_engine_would_rewrite_is_skipped_with_a_reason():
    plan = read(DRAFTS)
    assert len(plan.points) == 36 and len({p.name for p in plan.points}) == 36
    for p in plan.points:
        steps, topk, tokens = (p.fields[f"speculative.{n}"] for n in ("steps", "topk", "draft_tokens"))
        fits = tokens == steps + 1 if topk == 1 else tokens <= 1 + topk + (steps - 1) * topk**2
        assert (p.arm is not None) == fits
        if fits:
            spec = p.arm.config.speculative
            assert (spec.steps, spec.topk, spec.draft_tokens) == (steps, topk, tokens)
        else:
            assert "draft_tokens" in p.skipped
    assert len(plan.baselines) == 1


def test_conditions_leave_out_without_a_row():
    plan = read(DRAFTS + '  where: ["speculative.topk == 1", "speculative.steps < 3 or fp8_lm_head"]\n')
    assert plan.excluded + len(plan.points) == 36
    assert all(p.fields["speculative.topk"] == 1 for p in plan.points)
    assert {p.fields["fp8_lm_head"] for p in plan.points if p.fields["speculative.steps"] == 3} == {True}


def test_loads_contexts_environment_and_arguments():
    plan = read("""
common: {engine: {engine: pocket, extra_args: [--log-level, info], env: {A: 1}}, workload: synthetic}
sweep:
  grid: {prompt_tokens: [64, 128], moe_runner_backend: [generic]}
  list: [{env.A: 2}, {env.A: null, env.B: 3}, {extra_args: [--log-requests]}, {sampling.temperature: 0.5}]
""")
    assert len(plan.points) == 6 and len(plan.baselines) == 4
    first, second = plan.points[0], plan.points[1]
    assert first.arm.load["prompt_tokens"] == 64 and points.group(first) != points.group(second)
    assert first.arm.config.digest() == second.arm.config.digest()
    env = [p.arm.config.env for p in plan.points[2:4]]
    assert env == [{"A": "2"}, {"B": "3"}]
    assert plan.points[4].arm.config.extra_args == ("--log-level", "info", "--log-requests")
    assert plan.points[5].arm.load["sampling"] == {"temperature": 0.5}


AXES = {  # field -> two values, and where a configuration has the second one
    "workload": ("synthetic", "word-problems", lambda a: a.load["workload"]),
    "count": (2, 3, lambda a: a.load["count"]),
    "seed": (1, 2, lambda a: a.load["seed"]),
    "shots": (0, 2, lambda a: a.load["shots"]),
    "prompt_tokens": (64, 256, lambda a: a.load["prompt_tokens"]),
    "output_tokens": (16, 32, lambda a: a.load["output_tokens"]),
    "sampling": ({"temperature": 0.0}, {"temperature": 0.8, "top_p": 0.9}, lambda a: a.load["sampling"]),
    "sampling.top_k": (1, 5, lambda a: a.load["sampling"]["top_k"]),
    "model": ("pocket", "/models/other", lambda a: a.config.model),
    "context_length": (1024, 2048, lambda a: a.config.context_length),
    "threads": (1, 2, lambda a: a.config.threads),
    "env.OMP_NUM_THREADS": ("1", "2", lambda a: a.config.env["OMP_NUM_THREADS"]),
    "extra_args": ([], ["--log-requests"], lambda a: list(a.config.extra_args)),
    "python": ("/a/python", "/b/python", lambda a: a.config.python),
}


@pytest.mark.parametrize("name", AXES)
def test_each_kind_of_field_can_be_an_axis(name):
    """Two configurations, each with its own value; under a load of its own there is a baseline of its own."""
    first, second, value = AXES[name]
    plan = points.read({"sweep": {"grid": {name: [first, second]}}})
    assert [value(p.arm) for p in plan.measured] == [first, second], [p.skipped for p in plan.points]
    assert len(plan.baselines) == (2 if name.partition(".")[0] in points.LOAD else 1)
    assert all(plan.baselines[points.group(p)].arm.load == p.arm.load for p in plan.measured)


def test_engines_are_an_axis():
    plan = points.read({"sweep": {"list": [{"threads": 1}, {"engine": "sglang", "model": "/models/other"}]}})
    assert [(p.arm.config.engine, p.skipped) for p in plan.measured] == [("pocket", ""), ("sglang", "")]


def test_machines_are_an_axis_and_compare_with_a_baseline_of_their_own():
    machines = {"far": {"command_prefix": ["ssh", "far"]}, "near": {"url": "http://127.0.0.1:9"}}
    plan = points.read({"sweep": {"grid": {"machine": ["this", "far"], "fp8_lm_head": [True]}, "machines": machines}})
    assert [p.machine for p in plan.measured] == ["this", "far"] and len(plan.baselines) == 2
    far = plan.baselines[points.group(plan.measured[1])]
    assert far.machine == "far" and list(far.arm.config.command_prefix) == ["ssh", "far"]


def test_the_baseline_among_the_configurations_is_a_control_and_doubles_are_measured_once():
    plan = read("sweep: {list: [{fp8_lm_head: true}, {fp8_lm_head: true, port: 4000}, {fp8_lm_head: false}]}")
    assert [bool(p.arm) for p in plan.points] == [True, False, True]
    assert "c001" in plan.points[1].skipped


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("common: {seed: 1}", "sweep"),
        ("sweep: {}", "sweep"),
        ("sweep: {gird: {seed: [1]}}", "sweep.gird"),
        ("sweep: {grid: {fp8_lm_heat: [true]}}", "sweep.grid.fp8_lm_heat"),
        ("sweep: {grid: {fp8_lm_head: [2]}}", "sweep.grid.fp8_lm_head"),
        ("sweep: {grid: {speculative.stepz: [2]}}", "sweep.grid.speculative.stepz"),
        ("sweep: {grid: {speculative.steps: [many]}}", "sweep.grid.speculative.steps"),
        ("sweep: {grid: {env.API_KEY: [sk-hidden]}}", "sweep.grid.env.API_KEY"),
        ("sweep: {grid: {machine: [moon]}}", "sweep.grid.machine"),
        ("sweep: {grid: {count: [0]}}", "sweep.grid.count"),
        ("sweep: {grid: {concurrency: [1, 4]}}", "sweep.grid.concurrency"),
        ("sweep: {list: [{rate: 2.5}]}", "sweep.list[0].rate"),
        ("sweep: {list: [{threads: 1}], where: ['threads <']}", "sweep.where[0]"),
        ("sweep: {list: [{threads: 1}], where: ['thread < 2']}", "sweep.where[0]"),
        ("sweep: {list: [{threads: 2}], machines: {far: {model: x}}}", "sweep.machines.far.model"),
        ("sweep: {list: [{kv_cache_dtype: fp8_e4m3}]}", "engine.kv_cache_dtype"),
        ("{sweep: {list: [{threads: 2}]}, common: {arms: [{name: a}]}}", "common.arms"),
        ("sweep: {list: [{threads: 1}, {extra_args: [--hf-token, sk-hidden]}]}", "sweep.list[1].extra_args[0]"),
        (
            "sweep: {list: [{threads: 1}, {machine: far}], machines: {far: {url: 'http://u:sk-hidden@h:1'}}}",
            "engine.url",
        ),
        ("{sweep: {grid: {seed: [1, 2], count: [1, 2]}, list: [], block: 0}}", "sweep.block"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_field(text, field):
    with pytest.raises(BadInput) as refused:
        read(text)
    assert refused.value.field == field and "\n" not in str(refused.value) and "sk-hidden" not in str(refused.value)


def test_conditions_cannot_reach_beyond_the_fields():
    with pytest.raises(BadInput):
        read("""sweep: {list: [{threads: 1}], where: ["''.__class__.__mro__[1].__subclasses__() != 3"]}""")


VALUES = {"fp8_lm_head": [True, False], "speculative.steps": [1, 2, 3], "threads": [1, 2], "prompt_tokens": [8, 16]}


@given(st.dictionaries(st.sampled_from(sorted(VALUES)), st.just(None), min_size=1), st.randoms())
def test_every_combination_once_whatever_the_order(names, random):
    grid = {n: random.sample(VALUES[n], len(VALUES[n])) for n in names}
    extra = {"speculative.topk": [1], "speculative.draft_tokens": [2, 3, 4]} if "speculative.steps" in grid else {}
    plan = points.read({"sweep": {"grid": grid | extra, "baseline": {"moe_runner_backend": "generic"}}})
    wanted = set(itertools.product(*(grid | extra).values()))
    assert {tuple(p.fields[n] for n in grid | extra) for p in plan.points} == wanted
    assert len(plan.points) == len(wanted)
    seen = [(points.group(p), p.arm.config.digest()) for p in plan.measured]
    assert len(seen) == len(set(seen))
