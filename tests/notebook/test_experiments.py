"""What each experiment reads out of rows: the right arms, numbers, tiers, and sentences that follow the numbers."""

import argparse
import json
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml
from conftest_panels import result

from labkit.engines import pocket as launch
from labkit.engines.dialects import SGLANG
from labkit.errors import BadInput
from labkit.evidence import Evidence, Tier
from labkit.evidence import measured as told
from labkit.figures.show import png
from labkit.measure import steps as costs_of
from labkit.measure.foresight import Foreseen
from labkit.measure.probe import probe as PROBE  # the fixture of these tests puts a fake in its place
from labkit.measure.results import speedup
from labkit.notebook import foretold
from labkit.notebook.experiments import mtp, mtp_figures, mtp_lines
from labkit.notebook.experiments.baseline import Baseline
from labkit.notebook.experiments.fallback import Fallback
from labkit.notebook.experiments.fp8_head import Fp8Head
from labkit.notebook.experiments.kernels import Kernels
from labkit.notebook.experiments.long_context import LONGEST, LongContext
from labkit.notebook.experiments.mtp import Mtp
from labkit.notebook.experiments.real_load import RealLoad
from labkit.notebook.experiments.start_here import StartHere
from labkit.notebook.gather import Gathered
from labkit.params import load_params
from labkit.pocket.options import add_flags, from_args

MTP = dict(steps=3, topk=1, draft_tokens=4, longest=3)


def make(kind, parameters, **more):
    return kind(**{**parameters, **more})


@pytest.fixture
def all_of_them(parameters):
    long = {k: v for k, v in parameters.items()} | {"workload": "synthetic", "max_context": 4096}
    real = {k: v for k, v in parameters.items() if k != "output_tokens"}
    return [
        make(StartHere, parameters, guess=500),
        make(Baseline, parameters),
        make(Kernels, parameters),
        make(Fp8Head, parameters),
        make(Mtp, parameters, **MTP),
        make(Fallback, parameters, guess=1.0),
        RealLoad(**real),
        LongContext(**long),
    ]


def measured(experiment):
    """Plausible results for every arm of an experiment."""
    times = {"baseline": 2e-3, "kernels": 1.6e-3, "fp8-head": 1.4e-3, "plain": 1.4e-3, "broken-head": 3e-3}
    out = {}
    for i, arm in enumerate(experiment.sweep() or experiment.arms()):
        speculative = arm.config.speculative
        accept = None
        if speculative is not None:
            accept = 1.0 if arm.config.faults else 1 + 0.8 * speculative.steps
        time = times.get(arm.name, 1e-3)
        out[arm.name] = result(arm, time, accept=accept, start=1000.0 + 20 * i, compile_seconds=0.4)
    return out


def test_before_and_after_a_run_figures_and_tables_are_there(all_of_them):
    for e in all_of_them:
        empty, full = e.figures({}, None), e.figures(measured(e), 2.0)
        assert len(empty) == len(full) > 0, e.name
        assert all(f.layout.meta["alt"] for f in (*empty, *full))
        assert e.findings({})[0][1] == "" or e.name == "00_start_here"
        values = [v for _, v, _ in e.findings(measured(e))]
        assert any(isinstance(v, Evidence) and v.tier is Tier.MEASURED for v in values), e.name
        assert e.verdict({}) == [] and e.verdict(measured(e)), e.name


def test_predictions_never_use_the_arm_they_are_about(all_of_them):
    for e in all_of_them:
        subject = e.arms()[-1].name
        results = measured(e)
        before = [str(v) for _, v, _ in e.predictions({n: r for n, r in results.items() if n != subject})]
        slow = {**results, subject: result(results[subject].arm, 1.0, accept=results[subject].accept and 2.0)}
        if e.name in ("05_mtp", "08_long_context", "06_silent_fallback", "03_humming", "04_fp8_head", "07_real_load"):
            assert [str(v) for _, v, _ in e.predictions(slow)] == before, e.name


def test_saved_parameters_give_the_same_experiment_again(all_of_them):
    for e in all_of_them:
        again = type(e)(**yaml.safe_load(yaml.safe_dump(e.parameters())))
        assert again.values == e.values and again.arms() == e.arms() and again.guessed == e.guessed


def test_moved_sliders_are_what_is_saved(parameters):
    e = make(Mtp, parameters, **MTP)
    e.values |= {"steps": 5, "output_tokens": 128}
    saved = e.parameters()
    assert saved["steps"] == 5 and saved["output_tokens"] == 128 and json.dumps(saved)
    assert load_params({"engine": saved["engine"]}).engine == e.params.engine


@pytest.mark.parametrize("steps,topk,tokens", [(5, 1, 4), (1, 1, 16), (2, 4, 16), (3, 2, 2), (1, 3, 16)])
def test_draft_settings_are_saved_as_they_are_measured(parameters, steps, topk, tokens):
    e = make(Mtp, parameters, **MTP)
    e.values |= {"steps": steps, "topk": topk, "draft_tokens": tokens}
    again = make(Mtp, {}, **e.parameters())
    assert again.draft() == e.draft() and again.arms() == e.arms()


@pytest.mark.parametrize(
    "bad",
    [
        {"repeats": "banana"},
        {"guess": -1},
        {"machine": 3},
        {"steps": 99},
        {"topk": 9},
        {"nonsense": 1},
        {"workload": "gsm8k:/nowhere"},
    ],
)
def test_bad_parameters_are_named(parameters, bad):
    with pytest.raises(BadInput) as e:
        assert make(Mtp, parameters, **{**MTP, **bad}).bandwidth
    assert next(iter(bad)) in str(e.value)


def test_baseline_floor_and_utilisation(parameters):
    e = make(Baseline, parameters)
    results = {"baseline": result(e.arms()[0], 5e-3)}
    lines = {what: v for what, v, _ in e.findings(results)}
    step = e.account(results).total_bytes
    assert lines["byte floor"].si == pytest.approx(step / 10e9)
    assert lines["utilisation U"].value == pytest.approx(step / lines["TPOT"].si / 10e9)
    assert lines["accept length"] == "n/a" and lines["TPOT"].low < lines["TPOT"].value < lines["TPOT"].high
    assert any("times as long" in s for s in e.verdict(results))


def test_a_time_below_the_floor_is_called_impossible(parameters):
    e = make(Baseline, parameters)
    assert "impossible" in e.verdict({"baseline": result(e.arms()[0], 1e-5)})[0]


def test_equal_bytes_and_a_gain_for_the_kernels(parameters):
    e = make(Kernels, parameters)
    assert e.predictions({})[0][1].value == pytest.approx(1.0)
    assert e.gain(measured(e)).value == pytest.approx(1.25, rel=1e-3)
    assert "times as fast" in e.verdict(measured(e))[0]


def test_a_rung_that_loses_stops_the_ladder_with_a_reason(parameters):
    e = make(Kernels, parameters)
    base, tuned = e.arms()
    slower = {"baseline": result(base, 1.0e-3), "kernels": result(tuned, 1.5e-3)}
    assert e.verdict(slower)[0].startswith("Stop here")
    same = {"baseline": result(base, 1.0e-3), "kernels": result(tuned, 1.001e-3)}
    for i, row in enumerate(same["kernels"].rows):
        row["tpot_s"] *= 1 + 0.01 * (-1) ** i  # noise that the two arms do not share
    assert "No gain is shown" in e.verdict(same)[0]


def test_the_fp8_head_is_predicted_twice_by_its_bytes(parameters):
    e = make(Fp8Head, parameters)
    results = measured(e)
    adjacent, base = (v.si for _, _, v in e.predicted(results))
    saved, step = e.saved(results).si, e.step("kernels", results).si
    assert saved == pytest.approx(6144 * 384 - 6144 * 4)  # BF16 minus FP8 with a scale per row
    k, b = results["kernels"].tpot.value, results["baseline"].tpot.value
    assert adjacent == pytest.approx(k - saved * k / step) and base == pytest.approx(b - saved * b / step)
    # TPOT is in the formula twice, and its interval must count once.
    after = {n: v for n, _, v in e.predicted(results)}["kernels"]
    assert after.low / after.value == pytest.approx(results["kernels"].tpot.low / k)
    why = e.why_two(results)
    assert f"{(saved * k / step) * 1e3:.3g} ms off {k * 1e3:.3g} ms" in why and "GB/s of baseline" in why
    assert "saved 2.335 MB" in why
    bytes_say = step / (step - saved)
    assert e.by_bytes(results).value == pytest.approx(bytes_say)
    exact = results | {"fp8-head": result(e.arms()[2], k / bytes_say)}
    for i, row in enumerate(exact["fp8-head"].rows):
        row["tpot_s"] *= 1 + 0.01 * (-1) ** i  # noise that the two arms do not share
    assert any("includes the" in s for s in e.verdict(exact))
    tenfold = results | {"fp8-head": result(e.arms()[2], k / 10)}
    assert any("more than its bytes" in s for s in e.verdict(tenfold))


def test_a_rung_in_the_middle_that_loses_stops_the_ladder_too(parameters):
    e = make(Fp8Head, parameters)
    base, kernels, head = e.arms()
    results = {r.name: r for r in (result(base, 1e-3), result(kernels, 2e-3), result(head, 1.5e-3))}
    said = e.verdict(results)[0]
    assert said.startswith("Stop here") and "kernels" in said and "baseline" in said


def test_compiling_has_its_price_in_tokens(parameters):
    e = make(Kernels, parameters)
    results = measured(e)
    assert not any("paid back" in what for what, _, _ in e.findings(results))
    e.first = {"baseline": (4.0, 4.0), "kernels": (5.0, 3.0)}  # the price is no difference, which could be negative
    lines = {what: v for what, v, _ in e.findings(results)}
    saved = results["baseline"].tpot.value - results["kernels"].tpot.value
    assert lines["compile time of the specialised kernels"].si == pytest.approx(3.0)
    assert lines["paid back after"] == f"{3 / saved:,.0f} tokens"
    rates = [f for f in e.figures(results, None) if "rate" in f.layout.title.text][0]
    assert [t.name for t in rates.data][:2] == ["baseline ◇ derived", "kernels ◇ derived"]


def test_a_time_below_its_floor_asks_for_another_look_at_the_memory(parameters, monkeypatch, tmp_path):
    from labkit.measure import machine, probe

    e = make(Kernels, parameters)
    fine, fast = measured(e), {"baseline": result(e.arms()[0], 1e-3), "kernels": result(e.arms()[1], 0.9e-3)}
    now = {"GB/s": 10.0}
    looks = []

    def look(threads):
        looks.append(threads)
        rate = now["GB/s"] * 1e9
        return probe.Probe(rate, rate, rate, "wall", 1.0, threads, 1, None, "test", time.time())

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(probe, "probe", PROBE)
    monkeypatch.setattr(probe, "_measure", look)
    machine.bandwidth.cache_clear()
    assert e.bandwidth.value == 10.0
    looks.clear()
    now["GB/s"] = 40.0
    slow = {n: result(r.arm, 1.0) for n, r in fine.items()}
    e.look_again(slow)
    assert not looks and not e.impossible(slow)
    assert "impossible" in " ".join(e.verdict(fast))
    e.look_again(fast)
    assert looks == [1] and e.bandwidth.value == 40.0
    now["GB/s"] = 10.0  # a worse look does not replace a better one
    assert machine.look_again().value == 40.0 and e.bandwidth.value == 40.0


def test_chains_always_verify_one_more_than_they_draft(parameters):
    with pytest.raises(BadInput, match=r"draft_tokens: got 9; accepted: 4 \(with topk 1"):
        make(Mtp, parameters, **{**MTP, "draft_tokens": 9})
    e = make(Mtp, parameters, **MTP)
    e.values["draft_tokens"] = 9  # a slider that was moved
    assert e.draft().draft_tokens == 4 and "4 draft tokens are verified" in e.remarks()[0]
    e.values["topk"] = 2
    assert e.draft().draft_tokens == 9
    assert [a.name for a in e.sweep()][:4] == ["plain", "mtp 1/1/2", "mtp 2/1/3", "mtp 3/1/4"]


def test_settings_engine_section_and_titles_say_one_thing(parameters):
    """A YAML file that asked for one draft step once built an arm of three, titled so."""
    one = {"engine": "pocket", "speculative": {"steps": 1, "topk": 1, "draft_tokens": 2}}
    base = {**parameters, "engine": {**parameters["engine"], **one}, "longest": 2}
    plain, drafting = make(Mtp, base).arms()
    assert plain.config.speculative is None and drafting.config.speculative.steps == 1
    assert (drafting.name, drafting.title) == ("mtp 1/1/2", "1 draft step, chain, 2 tokens verified")
    # What is given beside it wins, and the tokens follow.
    assert make(Mtp, base, steps=5).arms()[1].name == "mtp 5/1/6"
    assert make(Mtp, base, topk=4, steps=8).draft().draft_tokens == 16  # the engine's most
    for bad, field in (({"steps": 9}, "steps"), ({"topk": 5}, "topk"), ({"arm": "kernels"}, "arm")):
        with pytest.raises(BadInput, match=f"^{field}: got"):
            make(Mtp, base, **bad)


def test_a_notebook_is_about_the_arm_that_is_asked_for(parameters):
    arms = [
        {"name": "one", "set": {"moe_runner_backend": "jit"}},
        {"name": "two", "expect": "same bytes, better kernels", "set": {"threads": 2}},
        {"name": "small", "from": "one", "expect": "fewer bytes", "set": {"fp8_lm_head": True}},
    ]
    assert [a.name for a in make(Kernels, parameters, arms=arms).arms()] == ["one", "two"]
    assert [a.name for a in make(Kernels, parameters, arms=arms, arm="small").arms()] == ["one", "small"]
    assert [a.name for a in make(Baseline, parameters, arms=arms, arm="two").arms()] == ["two"]
    with pytest.raises(BadInput, match='an arm that expects "a > c"'):
        make(Mtp, parameters, arms=arms)


def test_cost_yield_and_speed_up_hang_together(parameters):
    from labkit.measure.results import cost, speedup

    e = make(Mtp, parameters, **MTP)
    results = measured(e)
    r, base = results["mtp 3/1/4"], results["plain"]
    s = speedup(r, base).value
    assert r.accept.value / cost(r, base).value == pytest.approx(s, rel=0.02)
    best, how = mtp_lines.best(e, results)
    assert best.name in results and "times as fast" in how


def test_a_losing_draft_is_named_with_its_numbers(parameters):
    e = make(Mtp, parameters, **MTP)
    plain, drafting = e.arms()
    results = {plain.name: result(plain, 1e-3), drafting.name: result(drafting, 2e-3, accept=1.2)}
    assert "does not exceed" in e.verdict(results)[0]
    assert not any("Drafting pays" in line for line in e.verdict(results))
    pays = {plain.name: result(plain, 1e-3), drafting.name: result(drafting, 0.5e-3, accept=3.5)}
    assert e.verdict(pays)[0].startswith("Drafting pays on this load: mtp 3/1/4 yields a = ")


def test_experts_are_counted_on_every_engine_that_drafted_and_belong_to_their_load(parameters, monkeypatch):
    from labkit.evidence import measured as seen
    from labkit.measure import experts

    e = make(Mtp, {**parameters, "engine": {"engine": "pocket"}}, **MTP)
    asked = []

    def count(url, prompts, *, api_key=None):
        asked.append((url, prompts[0].workload))
        return {1: seen(8, "1", "test"), int(url) + 1: seen(15, "1", "test")}

    monkeypatch.setattr(experts, "count", count)
    monkeypatch.setattr(mtp, "timed", lambda *_, **__: {})  # an engine that does not time itself
    pool = SimpleNamespace(
        get=lambda config: (
            config.speculative and SimpleNamespace(url=str(config.speculative.steps), api_key=None, dialect=SGLANG)
        )
    )
    e.after(pool)
    assert sorted(url for url, _ in asked) == ["1", "2", "3"] and sorted(e.counted) == [1, 2, 3, 4]
    assert set(e.extra()["distinct experts"]) == {"1", "2", "3", "4"}
    e.after(pool)
    assert len(asked) == 3  # counted is counted
    e.values["workload"] = "code"
    assert e.counted == {} and e.extra() == {}
    e.after(pool)
    assert {load for _, load in asked[3:]} == {"code"}


def test_the_broken_draft_is_caught_by_both_signs_and_the_healthy_one_passes(parameters):
    e = make(Fallback, parameters, guess=1.0)
    plain, healthy, broken = e.arms()
    assert broken.config.faults == ("bare-head",) and not healthy.config.faults
    results = {
        plain.name: result(plain, 1.0e-3),
        healthy.name: result(healthy, 0.6e-3, accept=3.5),
        broken.name: result(broken, 2.1e-3, accept=1.0),
    }
    assert [says for _, says, _ in e.checks(results)] == ["passes", "passes", "fails", "fails"]
    assert "Caught by" in e.verdict(results)[1]
    results[broken.name] = result(broken, 0.6e-3, accept=3.5)
    assert "Not caught" in e.verdict(results)[1]
    assert "log" not in e.verdict(results)[0]  # nobody has read it
    results[broken.name].rows[0]["status"] = "error"
    for lines, says in ((["all is well"], "no line with error"), (["ERROR: bad head"], "the first: ERROR: bad head")):
        e.after(SimpleNamespace(get=lambda config, lines=lines: SimpleNamespace(tail=lambda n: lines)))
        assert says in e.verdict(results)[0] and "answered 5 of 6 requests" in e.verdict(results)[0]
    with pytest.raises(BadInput, match="a silent fault"):
        make(Fallback, {**parameters, "engine": {"engine": "attach", "url": "http://127.0.0.1:1"}})


def test_the_readers_guess_stands_in_the_figure_beside_the_measurement(all_of_them):
    for e in all_of_them:
        names = [t.name for f in e.figures(measured(e), 2.0) for t in f.data]
        assert "your guess ✎" in names, e.name


def test_arms_that_did_not_take_turns_are_named(parameters):
    e = make(Kernels, parameters)
    base, tuned = e.arms()
    turns = {"baseline": result(base, 2e-3), "kernels": result(tuned, 1e-3, start=1000.5)}
    assert not any("not interleaved" in w for w in e.warnings(turns))
    late = {"baseline": result(base, 2e-3), "kernels": result(tuned, 1e-3, start=4000.0)}
    (said,) = [w for w in e.warnings(late) if "not interleaved" in w]
    assert said.startswith("kernels was measured 49.9 min after baseline")
    long = LongContext(**{**parameters, "workload": "synthetic", "max_context": 2048})
    apart = {a.name: result(a, 1e-3, start=1000.0 * a.params.prompt_tokens) for a in long.arms()}
    assert not any("not interleaved" in w for w in long.warnings(apart))  # contexts are different loads


@pytest.mark.parametrize("longest", LONGEST.choices)
def test_every_context_on_offer_is_one_that_the_engine_takes(parameters, longest):
    """The engine reads its own command line; prompt, output and a pass of drafts fit."""
    e = LongContext(**{**parameters, "workload": "synthetic", "max_context": longest})
    for arm in e.sweep():
        flags = argparse.ArgumentParser()
        add_flags(flags)
        args, _ = flags.parse_known_args(launch.command(arm.config, 0).argv[3:])
        assert from_args(args, {}).context_length > arm.params.prompt_tokens + arm.params.output_tokens


def test_what_is_said_of_c_follows_what_was_measured(parameters):
    e = LongContext(**{**parameters, "workload": "synthetic", "max_context": 2048})
    arms = {a.name: a for a in e.arms()}

    def at(last):
        times = {"plain at 1K": 1e-3, "mtp at 1K": 1e-3, "plain at 2K": 1e-3, "mtp at 2K": last}
        return {n: result(arms[n], t, accept=2.0 if "mtp" in n else None) for n, t in times.items()}

    assert any(s.startswith("c rises from") for s in e.verdict(at(2e-3)))
    assert any(s.startswith("c falls from") for s in e.verdict(at(0.5e-3)))
    assert any("c shows no change" in s for s in e.verdict(at(1e-3)))
    # 22 MB in 1 ms are more than 10 GB/s: at each context the panel says so.
    assert [s[:11] for s in e.verdict(at(1e-3)) if "impossible" in s] == ["plain at 1K", "plain at 2K"]


def test_contexts_double_and_bytes_grow_with_them(parameters):
    e = LongContext(**{**parameters, "workload": "synthetic", "max_context": 8192})
    assert e.contexts() == [1024, 2048, 4096, 8192]
    assert len(e.sweep()) == 8 and len(e.arms()) == 4
    assert e.arms()[-1].params.prompt_tokens == 8192
    ratio = next(v for what, v, _ in e.predictions({}) if "longest" in what)
    assert ratio.value > 1 and e.cost_at(8192).value < e.cost_at(1024).value + 0.5


def test_real_load_lets_the_model_stop_by_itself(parameters):
    e = RealLoad(**{k: v for k, v in parameters.items() if k != "output_tokens"})
    assert all(a.params.output_tokens is None for a in e.arms() if not a.name.endswith(" on timing"))


def test_the_account_reads_the_tokenizers_folder_when_the_model_is_a_hub_id(parameters, model):
    hub = {**parameters, "engine": {"engine": "sglang", "model": "somebody/a-model"}}
    known = make(Kernels, {**hub, "tokenizer": model})
    assert known.account_of(known.arms()[0].config, context=9).total_bytes > 1e6
    with pytest.raises(BadInput, match="tokenizer"):
        assert make(Kernels, hub).model


def test_the_gathered_ladder_takes_no_engine_that_was_broken_on_purpose(parameters, tmp_path):
    e = make(Fallback, parameters, guess=1.0)
    results = measured(e)
    gathered = Gathered(out_dir=str(tmp_path / "nothing"), live=False)
    gathered.records = [("06_silent_fallback", results)]
    gathered.ladders = [e.ladder]
    assert [(n, r.name) for n, r in gathered.ladder()] == [("fp8-head", "fp8-head"), ("mtp", "mtp")]
    (step,) = [line for line in gathered.lines() if line[0] == "ladder: mtp over the arm before"]
    assert step[1].value > 1 and step[2] == "same load, side by side in one run"
    later = {n: result(r.arm, 1e-3, accept=2.0, start=9000.0) for n, r in results.items() if n == "mtp"}
    gathered.records.append(("05_mtp", later))  # newer, but measured without the arm before
    assert next(line for line in gathered.lines() if line[0].startswith("ladder: mtp")) == step
    alone = {n: r for n, r in results.items() if n == "fp8-head"}
    gathered.records = [("04_fp8_head", alone), ("05_mtp", later)]
    assert next(line[1] for line in gathered.lines() if line[0].startswith("ladder: mtp")) == "not compared"


def test_on_another_ladder_a_notebook_says_what_stands_in_the_place_of_the_published_change(tmp_path):
    from labkit.notebook.experiments.fallback import Fallback
    from labkit.notebook.experiments.fp8_head import Fp8Head
    from labkit.notebook.experiments.kernels import Kernels
    from labkit.notebook.experiments.mtp import Mtp

    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    file = str(tmp_path / "m.gguf")
    arms = [
        {"name": "plain"},
        {"name": "two-threads", "expect": "same bytes, better kernels", "set": {"threads": 2}},
        {"name": "small-cache", "expect": "fewer bytes", "set": {"kv_cache_dtype": "q8_0"}},
        {"name": "lookup", "expect": "a > c", "set": {"speculative": {"algorithm": "ngram-mod", "steps": 4}}},
        {"name": "useless", "expect": "a silent fault", "set": {"simulate_acc_len": 1}},
    ]
    named = {Kernels: "two-threads", Fp8Head: "small-cache", Mtp: "lookup", Fallback: "useless"}
    for kind, name in named.items():
        there = kind(engine={"engine": "llamacpp", "model": file}, arms=arms)
        assert name in there.instead()[0] and not there.published
        assert name in there.guess.question or kind is Mtp
        here = kind()
        assert here.instead() == [] and here.guess is kind.guess
    assert "no pass over any weights" in Mtp(engine={"engine": "llamacpp", "model": file}, arms=arms).instead()[1]


def test_predictions_move_with_the_sliders_before_anything_is_measured(parameters):
    e = Mtp(**parameters, steps=1, longest=3)
    seen = []
    for steps in (1, 3):
        e.values["steps"] = steps
        tpot, gain, plane, curve, *_ = e.figures({}, None)
        spans = [t for t in gain.data if t.name.startswith("predicted")]
        seen.append(spans[0].y)
        assert max(y for y in spans[0].y if y) == pytest.approx((steps + 1) / e.cost_of(e.draft(), {}).value)
        assert any("byte floor" in t.name for t in tpot.data) and any(
            "predicted" in t.name for t in plane.data if t.name
        )
        assert any("by bytes" in t.name for t in curve.data) and not any("measured" in t.name for t in tpot.data)
    assert seen[0] != seen[1]
    long = LongContext(**{**parameters, "workload": "synthetic", "max_context": 4096})
    times, costs, _ = long.figures({}, None)
    assert len(times.data[0].x) == len(costs.data[0].x) == 3  # 1K, 2K, 4K


def test_an_arrow_leads_from_predicted_to_measured(parameters):
    e = Mtp(**parameters, steps=3, longest=3)
    plain, drafting = e.arms()
    found = {plain.name: result(plain, 3e-3), drafting.name: result(drafting, 2e-3, accept=2.5)}
    _, gain, plane, *_ = e.figures(found, None)
    (arrow,) = [a for a in plane.layout.annotations if a.showarrow]
    assert arrow.ax == e.cost_of(e.draft(), found).value and arrow.ay == arrow.y
    (arrow,) = [a for a in gain.layout.annotations if a.showarrow]
    assert arrow.y == speedup(found[drafting.name], found[plain.name]).value
    assert all(len(png(f)) > 5000 for f in (gain, plane))  # also in the picture


def test_another_load_gets_a_prediction_of_its_own(parameters, monkeypatch):
    """One configuration under two loads: other prompts, other experts, another context."""
    said = []
    monkeypatch.setattr(foretold, "by_parts", lambda arm, params, context: said.append(context) or None)
    e = Mtp(**parameters)
    arms = e.arms()
    longer = [replace(a, params=a.params.replace(prompt_tokens=700)) for a in arms]
    assert {e.said_of(a) for a in arms}.isdisjoint(e.said_of(a) for a in longer)
    e.foretell(arms)
    e.foretell(longer)
    assert len(said) == 2 * len(arms) and max(said) > 700


def test_what_was_predicted_after_a_measurement_does_not_claim_to_be_older(parameters):
    e = Baseline(**parameters)
    (arm,) = e.arms()
    ms = told(2e-3, "s", "x")
    for made, says in ((999.0, "before"), (5000.0, "afterwards")):
        e.foreseen = {e.said_of(arm): Foreseen(arm.name, arm.config.digest(), ms, None, False, "why", made)}
        assert [remark for *_, remark in e.foreseen_lines({})] == ["why"]  # not measured yet: no word on the order
        ((_, _, remark),) = e.foreseen_lines({arm.name: result(arm, 3e-3, start=1000.0)})
        assert ("before it was measured" in remark) == (says == "before") and remark.endswith("why")


def test_every_prediction_of_a_setting_rests_on_one_c(parameters, monkeypatch):
    """What the table, the plane, the speed-up and the time say of one setting, where the parts of a pass are known."""
    e = Mtp(**parameters, steps=3, longest=3)
    plain, drafting = e.arms()
    c, best, worst = (told(v, u, "x") for v, u in ((1.8, "1"), (0.8e-3, "s"), (3.2e-3, "s")))
    said = Foreseen(drafting.name, drafting.config.digest(), best, worst, False, "why", 1.0, worst, worst, c, c)
    monkeypatch.setattr(e, "foresee", lambda arm, context: said if arm.config.speculative else None)
    tpot, gain, plane, *_ = e.figures({}, None)
    ends = {
        t.name.split(" \u25c7")[0]: [y for y in t.y if y] for f in (tpot, gain) for t in f.data if "predicted" in t.name
    }
    assert ends["predicted, all drafts right to none"] == [0.8, 3.2] and ends["predicted"] == [1 / 1.8, 4 / 1.8]
    (span,) = [t for t in plane.data if t.name and t.name.startswith("predicted")]
    assert [x for x in span.x if x] == [1.8, 1.8]
    found = {plain.name: result(plain, 3e-3), drafting.name: result(drafting, 2e-3, accept=2.5)}
    a = found[drafting.name].accept.value
    assert e.predicted_speedup(found[drafting.name], found).value == pytest.approx(a / 1.8)
    _, _, plane, *_ = e.figures(found, None)
    (arrow,) = [n for n in plane.layout.annotations if n.showarrow]
    assert arrow.ax == 1.8 and arrow.ay == pytest.approx(a)


def test_parts_stand_predicted_until_the_engines_timed_them(parameters, monkeypatch):
    """05's last figure, from what was said before and from the record's times."""
    monkeypatch.setattr(costs_of, "model_for", lambda params: None)
    e = make(Mtp, {**parameters, "engine": {"engine": "pocket"}}, **MTP)
    plain, drafting = e.arms()
    assert len(e.figures({}, None)) == len(mtp_figures.TITLES) and not e.figures({}, None)[-1].data
    parts = [{"name": n, "bytes_read": 1e6, "kernel_s": 1e-5, "fixed_s": 1e-5} for n in ("head", "experts")]
    known = {"bandwidth": 1e10, "plain": parts, "round": parts}
    s = seen_seconds(1e-3)
    said = Foreseen("mtp", drafting.config.digest(), s, s, False, "", 0.0, s, s, s, s, "", known)
    e.foreseen[e.said_of(drafting)] = Foreseen.from_dict(json.loads(json.dumps(said.as_dict())))
    before = mtp_figures._parts(e)
    assert [list(bar.x) for bar in before.data] == [["plain step<br>predicted ◇", "round<br>predicted ◇"]] * 2
    times = {
        plain.setting: {"plain": {"head": 2e-4, "experts": 3e-4}},
        drafting.setting: {"verify": {"head": 4e-4}, "draft 1": {"experts": 1e-4, "head": 1e-4}},
    }
    e.restore({mtp.TIMES: times})
    assert e.extra() == {mtp.TIMES: times}
    heads = next(bar for bar in mtp_figures._parts(e).data if bar.name == "head")
    assert list(heads.y) == pytest.approx([110, 200, 110, 500])


def seen_seconds(value, unit="s"):
    return Evidence.from_dict({"value": value, "unit": unit, "tier": "measured", "source": "test"})


def test_every_context_is_predicted_by_itself_and_its_error_stands_beside_it(parameters, monkeypatch):
    asked = []

    def by_parts(arm, params, context):
        asked.append((arm.name, params.prompt_tokens, context))
        whole, c = seen_seconds(1e-3 + context * 1e-7), seen_seconds(2.0 + context / 1e4, "1")
        kind = (c, c) if arm.config.speculative else (None, None)
        return Foreseen(arm.name, arm.config.digest(), whole, None, False, "test", 0.0, whole, whole, *kind)

    monkeypatch.setattr(foretold, "by_parts", by_parts)
    e = make(LongContext, {**parameters, "workload": "synthetic", "max_context": 4096}, output_tokens=32)
    arms = e.sweep()
    said = e.foretell(arms)
    assert list(said) == [a.name for a in arms] and {p for _, p, _ in asked} == {1024}
    assert [c for _, _, c in asked] == [n + 16 for n in (1024, 2048, 4096) for _ in e.sides]
    results = {a.name: result(a, 2e-3, accept=2.0 if a.config.speculative else None) for a in arms}
    lines = {what: (value, remark) for what, value, remark in e.findings(results)}
    assert "ms (-44." in lines["TPOT, plain at 1K"][1]  # 1.104 against 2 ms
    c, remark = lines["c at 1K"]
    assert f"by both roofs 2.10 ({2.104 / c.value - 1:+.1%})" in remark
    tokens, costs = e.figures(results, None)[:2]
    assert (
        sum("both roofs" in (t.name or "") for t in costs.data)
        == sum("both roofs" in (t.name or "") for t in tokens.data)
        == 1
    )
    assert {what for what, *_ in e.predictions(results)} >= {"c by both roofs at 4K", "plain TPOT by both roofs at 1K"}
    assert len(asked) == len(arms)  # said once
