"""The estimates against worked-out numbers, known truths, and the properties that any estimate must have."""

import math
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.errors import BadInput
from labkit.measure import estimates, ladder
from labkit.measure.results import cost, results_of, speedup
from labkit.records import read_run
from labkit.report import compare as report_compare

H200 = Path(__file__).parents[2] / "outputs" / "examples" / "h200"


def row(repeat=0, index=0, *, tpot=0.2, tokens=11, verify=None, **over):
    base = {
        "status": "ok",
        "repeat": repeat,
        "index": index,
        "ttft_s": 1.0,
        "latency_s": 1.0 + tpot * (tokens - 1),
        "output_tokens": tokens,
        "prompt_tokens": 100,
        "tpot_s": tpot,
        "verify_ct": verify,
        "error": None,
        "fixed_length": True,
    }
    return base | over


def drafting(round_s, accepts, *, repeats=3, noise=None):
    """Rows of an arm whose rounds all take round_s while prompt i yields accepts[i] tokens per verify step."""
    out = []
    for repeat in range(repeats):
        for index, a in enumerate(accepts):
            slow = noise[repeat][index] if noise else 1.0
            out.append(row(repeat, index, tpot=slow * round_s / a, tokens=241, verify=240 / a))
    return out


def steady(step_s, count, *, repeats=3, noise=None):
    return [
        row(r, i, tpot=step_s * (noise[r][i] if noise else 1.0), tokens=241)
        for r in range(repeats)
        for i in range(count)
    ]


accepts = st.lists(st.sampled_from([1.0, 1.25, 1.6, 2.0, 2.4, 3.0, 4.0]), min_size=1, max_size=6)
times = st.floats(1e-4, 1.0)


def noises(count):
    return st.lists(st.lists(st.floats(0.7, 3.0), min_size=count, max_size=count), min_size=3, max_size=3)


# --- definitions -------------------------------------------------------------------------------------------------


def test_a_leaves_the_prefills_token_out_and_pools_requests():
    rows = [row(0, 0, tokens=11, verify=5), row(0, 1, tokens=91, verify=25)]
    assert estimates.estimate(rows).accept.value == estimates.accept_length(rows) == pytest.approx(100 / 30)
    assert estimates.estimate([row()]).accept is None and estimates.accept_length([row()]) is None
    assert estimates.accept_length([row(verify=math.nan)]) is None


def test_a_round_is_the_time_after_the_first_token_over_the_verify_steps():
    found = estimates.estimate([row(tpot=0.5, tokens=13, verify=4)])
    assert found.round.value == pytest.approx(0.5 * 12 / 4) and found.accept.value == pytest.approx(3)
    assert found.tpot.value == pytest.approx(found.round.value / found.accept.value)


def test_throughput_is_an_aggregate_not_a_mean_of_ratios():
    rows = [row(), row(tokens=101, tpot=0.01)]
    assert estimates.estimate(rows).throughput == pytest.approx(110 / 3)  # a mean of ratios would say 52.5


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=9).filter(any))
def test_marginal_rates_sum_to_the_mean_of_accepted_drafts(h):
    rates = estimates.by_position(h)
    assert sum(rates) == pytest.approx(sum(i * n for i, n in enumerate(h)) / sum(h))
    assert all(a >= b for a, b in zip(rates, rates[1:], strict=False))


def test_by_position():
    assert estimates.by_position([10, 20, 30, 40]) == pytest.approx([0.9, 0.7, 0.4])
    assert estimates.by_position([10, 20, 30, 40], conditional=True) == pytest.approx([0.9, 7 / 9, 4 / 7])
    with pytest.raises(BadInput):
        estimates.by_position([0, 0])


# --- properties --------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(accepts, times, times, st.data())
def test_the_truth_is_found_whatever_slowed_single_moments(yields, step_s, round_s, data):
    """Rounds cost the same for every prompt, prompts accept differently, and each pair meets its own disturbance."""
    noise = data.draw(noises(len(yields)))
    found = estimates.compare(
        drafting(round_s, yields, noise=noise),
        steady(step_s, len(yields), noise=noise),
        seed=data.draw(st.integers()) % 1000,
    )
    assert found.cost.value == pytest.approx(round_s / step_s)
    assert found.cost.low == pytest.approx(found.cost.high)  # what hits both sides of a pair leaves no doubt about c
    a = len(yields) / sum(1 / y for y in yields)
    assert found.accept.value == pytest.approx(a)
    assert found.speedup.value == pytest.approx(a * step_s / round_s)


@settings(max_examples=30, deadline=None)
@given(accepts, st.data(), st.booleans())
def test_s_times_c_is_a_and_agrees_with_the_arms_own_numbers(yields, data, together):
    fast = drafting(0.01, yields, noise=data.draw(noises(len(yields))))
    slow = steady(0.004, len(yields), noise=data.draw(noises(len(yields))))
    found, arm = estimates.compare(fast, slow, together=together), estimates.estimate(fast)
    assert found.speedup.value * found.cost.value == pytest.approx(found.accept.value)
    assert (found.accept.value, found.accept.low) == pytest.approx((arm.accept.value, arm.accept.low))
    assert arm.tpot.value * arm.accept.value == pytest.approx(arm.round.value)
    for i in (found.speedup, found.cost, found.accept, arm.tpot, arm.round):
        assert i.low <= i.value <= i.high


@settings(max_examples=30, deadline=None)
@given(accepts, st.floats(1e-3, 1e3), st.data())
def test_a_unit_of_time_changes_times_alone(yields, factor, data):
    def scaled(rows):
        return [r | {n: r[n] * factor for n in ("tpot_s", "ttft_s", "latency_s")} for r in rows]

    noise = data.draw(noises(len(yields)))
    fast, slow = drafting(0.01, yields, noise=noise), steady(0.004, len(yields))
    before, after = (estimates.compare(f(fast), f(slow)) for f in (list, scaled))
    for name in ("speedup", "cost", "accept", "ttft"):
        one, two = getattr(before, name), getattr(after, name)
        assert (two.value, two.low, two.high) == pytest.approx((one.value, one.low, one.high))
    one, two = estimates.estimate(fast), estimates.estimate(scaled(fast))
    for name in ("tpot", "ttft", "round"):
        assert getattr(two, name).high == pytest.approx(factor * getattr(one, name).high)


@settings(max_examples=20, deadline=None)
@given(accepts, st.randoms(use_true_random=False), st.data())
def test_the_order_of_rows_says_nothing(yields, random, data):
    noise = data.draw(noises(len(yields)))
    fast, slow = drafting(0.01, yields, noise=noise), steady(0.004, len(yields))
    expected = estimates.compare(fast, slow), estimates.estimate(fast)
    random.shuffle(fast)
    random.shuffle(slow)
    assert (estimates.compare(fast, slow), estimates.estimate(fast)) == expected


# --- what makes a pair -------------------------------------------------------------------------------------------


def test_a_lost_request_costs_its_pair_and_other_prompts_make_none():
    fast, slow = drafting(0.01, [2.0, 4.0]), steady(0.005, 2)
    assert estimates.compare(fast[1:], slow).speedup.count == 5
    with pytest.raises(BadInput, match="both sides"):
        estimates.compare([r | {"prompt_sha256": "a"} for r in fast], slow, together=True)
    apart = estimates.compare([r | {"prompt_sha256": "a"} for r in fast], slow)
    assert apart.speedup.count == 6 and apart.cost.value == pytest.approx(2)


def test_engines_that_ran_one_after_another_make_no_pairs_and_a_disturbed_start_is_left_out():
    slow = [r | {"start": r["repeat"]} for r in steady(0.005, 3, repeats=4)]
    for i, r in enumerate(r for r in slow if r["start"] == 3):
        r["tpot_s"] *= 1 + 0.2 * i
    assert estimates.disturbed_starts(slow) == [("", 3)] and len(estimates.counted(slow)) == 9
    found = estimates.summarise(slow)
    assert found["tpot_s"]["median"] == pytest.approx(0.005)
    assert any("3 samples left out: the requests of start 3" in w for w in found["warnings"])
    fast = [r | {"start": 0} for r in drafting(0.01, [2.0] * 3)]
    assert estimates.compare(fast, slow).speedup.value == pytest.approx(1.0)
    everywhere = [r | {"tpot_s": r["tpot_s"] * (1 + 0.2 * r["index"])} for r in slow]
    assert len(estimates.counted(everywhere)) == 12  # nothing steady is left to prefer


def test_an_interval_takes_three_repeats():
    two, three = (estimates.summarise(drafting(0.01, [2.0, 3.0], repeats=n)) for n in (2, 3))
    assert two["tpot_s"]["low"] is two["accept_length"]["high"] is None
    assert any("only 2 repeat(s): no interval" in w for w in two["warnings"])
    assert three["tpot_s"]["low"] is not None and three["warnings"] == []


# --- what may not be trusted -------------------------------------------------------------------------------------


def test_summary_leaves_out_what_does_not_count_and_says_so():
    rows = [row(r, tpot=0.2 + 0.001 * r) for r in range(3)]
    rows += [row(1, 1, status="refused", error="flush"), row(-1, status="warmup", tpot=9.0)]
    s = estimates.summarise(rows)
    assert (s["requests"], s["left_out"]) == (3, 1)
    assert s["tpot_s"]["median"] == pytest.approx(0.201) and s["accept_length"] is None
    assert s["warnings"] == ["1 of 4 samples refused: flush"]


def test_warnings():
    few = estimates.summarise([row(), row(1, tpot=0.3, tokens=7, thread_cpu_s=0.9)])
    assert any(w.startswith("unstable") for w in few["warnings"])
    assert any("output lengths differ (7 to 11)" in w for w in few["warnings"])
    assert any("a core only 50%" in w for w in few["warnings"])


def test_a_long_prompt_is_no_disturbance():
    """The CPU time is decoding's, so the seconds before the first token are not held against it."""
    rows = [row(r, ttft_s=60.0, latency_s=62.0, thread_cpu_s=1.98) for r in range(3)]
    assert not any("disturbed" in w for w in estimates.summarise(rows)["warnings"])


def test_no_sample_is_an_error_that_names_the_reason():
    with pytest.raises(estimates.NoSamples, match="HTTP 500"):
        estimates.estimate([row(status="error", error="HTTP 500: no", tpot_s=None)])


# --- one truth on every surface ----------------------------------------------------------------------------------


def test_every_surface_says_the_same_of_the_h200_rows():
    from benchmarks.h200 import tables

    run = read_run(H200 / "1k")
    fast, slow = (run.arm(n) for n in ("mtp a=2.68", "fp8-head"))
    truth, arm = estimates.compare(fast, slow), estimates.estimate(fast)
    s, c, a = (i.value for i in (truth.speedup, truth.cost, truth.accept))
    # By hand, from the rows that count.
    rounds = [r["tpot_s"] * (r["output_tokens"] - 1) / r["verify_ct"] for r in estimates.counted(fast)]
    assert c == pytest.approx(median(rounds) / median(r["tpot_s"] for r in estimates.counted(slow)))
    assert s * c == pytest.approx(a)
    # The notebooks' panels and the gathered report.
    results = results_of(run)
    assert speedup(results["mtp a=2.68"], results["fp8-head"]).value == pytest.approx(s, rel=1e-12)
    assert cost(results["mtp a=2.68"], results["fp8-head"]).value == pytest.approx(c, rel=1e-12)
    # The H200 report's tables.
    record = tables.read(H200)
    line = tables.speculation_table(record, "1k", "fp8-head", "mtp a=1").loc["mtp a=2.68"]
    assert (line["a"], line["c"], line["S measured"]) == pytest.approx((a, c, s), rel=1e-12)
    assert tables.arms_table(record, "1k").loc["mtp a=2.68", "round ms"] == pytest.approx(arm.round.value * 1e3)
    # The ladder's table.
    plain, drafting = (results[n].arm for n in ("fp8-head", "mtp a=2.68"))
    drafting.before = plain.name
    _, rung = ladder.table([plain, drafting], {plain.name: slow, drafting.name: fast})
    assert (rung["accept_length"]["median"], rung["c"]["median"], rung["S"]["median"]) == pytest.approx((a, c, s))
    assert rung["tpot_s"]["median"] == pytest.approx(arm.tpot.value)
    # Two runs side by side: these arms never took turns, so their comparison is the same one.
    pair = report_compare.compare(run, run, "mtp a=2.68", "fp8-head")
    assert pair["tpot_s"]["ratio"]["median"] == pytest.approx(s)


def test_draft_steps_that_vary_have_a_time_per_token_but_no_c():
    """Rounds of 1, 3 and 5 drafts have no median that stands for them: TPOT is time over tokens, and c is refused."""
    plain, varied = [], []
    for i in range(9):
        base = {
            "status": "ok",
            "repeat": i // 3,
            "index": i % 3,
            "ttft_s": 0.05,
            "output_tokens": 61,
            "prompt_sha256": i,
        }
        k = (1, 3, 5)[i % 3]
        rounds = {1: 40, 3: 24, 5: 12}[k]
        times = {1: 0.014, 3: 0.022, 5: 0.030}
        row = {"verify_ct": rounds, "proposed_drafts": k * rounds, "tpot_s": times[k] * rounds / 60, "error": None}
        varied.append(base | row)
        plain.append(base | {"verify_ct": None, "tpot_s": 0.01, "error": None})
    spent = sum(r["tpot_s"] * 60 for r in varied)
    assert estimates.estimate(varied).tpot.value == pytest.approx(spent / (9 * 60))
    found = estimates.compare(varied, plain)
    assert found.cost is None and found.accept.value == pytest.approx(9 * 60 / sum(r["verify_ct"] for r in varied))
    # One round that the length limit cut short is no change of steps.
    trimmed = [r | {"proposed_drafts": 3 * r["verify_ct"] - (i % 2)} for i, r in enumerate(varied)]
    assert estimates.compare(trimmed, plain).cost is not None


def test_rounds_that_vary_by_nature_have_a_mean_cost():
    """Drafts from the text, as many as are found: S = a / c with the mean round, and no doubt about the steps."""
    drafting, plain = [], []
    for i in range(12):
        base = {"arm": "x", "status": "ok", "repeat": i // 3, "index": i % 3, "ttft_s": 0.05, "output_tokens": 61}
        rounds = (60, 30, 12)[i % 3]
        spec = {"verify_ct": rounds, "proposed_drafts": 5 * (60 - rounds), "drafts_vary": True}
        drafting.append(base | spec | {"tpot_s": 0.012 * rounds / 60, "error": None, "prompt_sha256": i})
        plain.append(base | {"verify_ct": None, "tpot_s": 0.01, "error": None, "prompt_sha256": i})
    found = estimates.compare(drafting, plain)
    assert found.speedup.value == pytest.approx(found.accept.value / found.cost.value)
    assert found.accept.value == pytest.approx(180 / 102)
    summary = estimates.summarise(drafting)
    assert summary["round_s"]["median"] == pytest.approx(0.012) and not any("steps" in w for w in summary["warnings"])
    assert estimates.drafts_a_round(drafting) == pytest.approx(5 * 78 / 102) and estimates.drafts_a_round(plain) is None
