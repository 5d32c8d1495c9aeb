"""Requests: progress without stopping C, cancelling, limits, errors that name the field, bounded memory."""

import time

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.errors import BadInput
from labkit.pocket import layout
from labkit.pocket.engine import Engine, Sampling
from labkit.pocket.options import Options

GREEDY = Sampling(temperature=0, max_new_tokens=30, ignore_eos=True)


def test_progress_and_times(engines, prompts):
    generation = engines(moe_runner_backend="jit").start(prompts[0], GREEDY)
    seen = []
    while not generation.done:
        generation.wait(5)
        seen += generation.poll(len(seen))
    seen += generation.poll(len(seen))
    assert len(seen) == 30 and seen == generation.poll()
    times = generation.times()
    assert times == sorted(times) and abs(times[-1] - time.monotonic()) < 60
    stats = generation.stats
    assert stats.finish_reason == "length" and stats.prompt_tokens == len(prompts[0])
    assert stats.prefill_s > 0 and 0 < stats.thread_cpu_s <= stats.decode_s * 1.05


def test_wait_times_out_and_wakes(engines, prompts):
    engine = engines(moe_runner_backend="jit")
    generation = engine.start(prompts[0], Sampling(temperature=0, max_new_tokens=1))
    generation.join(240)
    assert generation.wait(0) is True and generation.poll()


@pytest.mark.parametrize("speculative", [None, "NEXTN"])
def test_cancel_ends_within_a_step(engines, prompts, speculative):
    engine = engines(moe_runner_backend="jit", speculative_algorithm=speculative)
    generation = engine.start(prompts[0], Sampling(temperature=0, max_new_tokens=30_000, ignore_eos=True))
    while not generation.poll():
        generation.wait(5)
    generation.cancel()
    count = len(generation.poll())
    stats = generation.join(240)
    assert stats.finish_reason == "abort"
    assert len(generation.poll()) - count <= 8  # at most a round under way and one that began while this thread slept


def test_cancel_during_prefill(engines):
    engine = engines(moe_runner_backend="jit")
    generation = engine.start([7] * 30_000, GREEDY)
    time.sleep(0.05)  # whether prefill has begun or not: no token may come
    generation.cancel()
    assert generation.join(240).finish_reason == "abort" and generation.poll() == []


def test_requests_run_one_after_the_other(engines, prompts):
    engine = engines(moe_runner_backend="jit")
    both = [engine.start(ids, GREEDY) for ids in prompts[:2]]
    for generation in both:
        generation.join(240)
    again = [engine.start(ids, GREEDY) for ids in prompts[:2]]
    for generation in again:
        generation.join(240)
    assert [g.poll() for g in both] == [g.poll() for g in again]


def test_stops_at_the_models_end_token(engines, prompts):
    stats = engines(moe_runner_backend="jit").start(prompts[0], Sampling(temperature=0, max_new_tokens=400)).join(240)
    assert stats.finish_reason == "stop" and stats.stop_token == 0


def test_stops_at_an_asked_token(engines, prompts):
    engine = engines(moe_runner_backend="jit")
    first = engine.start(prompts[0], GREEDY)
    first.join(240)
    wanted = first.poll()[10]
    second = engine.start(prompts[0], Sampling(temperature=0, max_new_tokens=30, stop_token_ids=(wanted,)))
    stats = second.join(240)
    assert second.poll() == first.poll()[: first.poll().index(wanted) + 1]
    assert (stats.finish_reason, stats.stop_token) == ("stop", wanted)


def test_seeds(engines, prompts):
    engine = engines(moe_runner_backend="jit")

    def text(seed):
        generation = engine.start(prompts[0], Sampling(temperature=2.0, max_new_tokens=20, ignore_eos=True, seed=seed))
        generation.join(240)
        return generation.poll()

    assert text(1) == text(1) != text(2)
    assert text(None) == text(0)  # the engine's random_seed


@pytest.mark.parametrize(
    ("ids", "field"),
    [
        ([], "input_ids"),
        ([6144], "input_ids"),
        ([-1], "input_ids"),
        ([1.5], "input_ids"),
        ([1] * 32768, "input_ids"),
        ([True], "input_ids"),
    ],
)
def test_bad_prompts(engines, ids, field):
    with pytest.raises(BadInput) as caught:
        engines(moe_runner_backend="jit").start(ids, GREEDY)
    assert caught.value.field == field and len(str(caught.value)) < 300


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "temperature": st.one_of(st.floats(), st.text(max_size=3), st.none()),
            "top_p": st.one_of(st.floats(), st.integers()),
            "top_k": st.one_of(st.integers(), st.floats(), st.booleans()),
            "min_p": st.floats(),
            "max_new_tokens": st.one_of(st.integers(), st.floats()),
            "ignore_eos": st.one_of(st.booleans(), st.integers()),
            "seed": st.one_of(st.integers(), st.none(), st.text(max_size=2)),
            "stop_token_ids": st.one_of(st.none(), st.tuples(st.one_of(st.integers(), st.floats()))),
        },
    )
)
def test_sampling_is_valid_or_names_the_field(values):
    try:
        made = Sampling(**values)
    except BadInput as e:
        assert e.field in values
    else:
        assert 0 <= made.temperature <= 100 and 0 < made.top_p <= 1 and 0 <= made.min_p <= 1


def test_context_limit_cuts_the_output(prompts):
    with Engine(Options(context_length=64, moe_runner_backend="jit")) as engine:
        stats = engine.start(
            (prompts[0] + prompts[1])[:50], Sampling(temperature=0, max_new_tokens=500, ignore_eos=True)
        ).join(240)
        assert stats.completion_tokens == 14 and stats.finish_reason == "length"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("speculative", [None, "NEXTN"])
def test_32k_context_in_bounded_memory(speculative):
    """A full context adds its caches (three times 10 MiB) and little else."""
    with Engine(Options(moe_runner_backend="jit", speculative_algorithm=speculative)) as engine:
        engine.start([5], GREEDY).join(240)
        before = psutil.Process().memory_info().rss
        prompt = [(i * 7919) % 6000 + 2 for i in range(32_700)]
        stats = engine.start(prompt, Sampling(temperature=0, max_new_tokens=60, ignore_eos=True)).join(800)
        assert stats.completion_tokens == 60
        assert psutil.Process().memory_info().rss - before < 60 << 20


def test_closing_frees_the_arena():
    engine = Engine(Options(moe_runner_backend="jit"))
    size = engine.describe()["arena_bytes"]
    engine.start([5, 6], GREEDY).join(240)
    before = psutil.Process().memory_info().rss
    engine.close()
    engine.close()
    assert before - psutil.Process().memory_info().rss > 0.8 * size
    with pytest.raises(RuntimeError):
        engine.start([5], GREEDY)


def test_describe(engines):
    facts = engines(moe_runner_backend="jit", fp8_lm_head=True).describe()
    assert facts["moe_kernels"] == "jit" and facts["lm_head_dtype"] == "fp8" and facts["provenance"] == "trained"
    assert facts["replicas"] >= 2 and "last-level cache" in facts["replicas_why"]
    bf16 = engines(moe_runner_backend="jit").describe()
    assert (
        bf16["bytes_per_step"] - facts["bytes_per_step"] == 6144 * 384 - 6144 * 4
    )  # a byte a weight less, a scale a row more


def test_copies_defeat_the_last_level_cache_where_memory_is_not_short(monkeypatch):
    options, found = Options(moe_runner_backend="jit"), []
    monkeypatch.delenv(layout.MOST_MIB)
    for mib in (None, "1"):
        if mib:
            monkeypatch.setenv(layout.MOST_MIB, mib)
        with Engine(options) as engine:
            found.append(engine.describe())
    usual, short = found
    assert usual["replicas"] * usual["bytes_per_step"] >= 2 * usual["last_level_cache_bytes"]
    assert short["replicas"] == 2 and "2 copies are the least" in short["replicas_why"]
    monkeypatch.setenv(layout.MOST_MIB, "plenty")
    with pytest.raises(BadInput, match="POCKET_COPIES_MIB: got 'plenty'"):
        Engine(options)


def test_silent_fallback_runs_generic(engines):
    assert engines(moe_runner_backend="jit", faults=frozenset({"moe-fallback"})).describe()["moe_kernels"] == "generic"
