"""One test for each trap, by its number and name: what it looks like, and that the lab says so."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from compared import compared

from labkit.checks import Observed, benefit, causes, configuration
from labkit.checks.benefit import Side
from labkit.checks.servers import DRAFTS, INFO
from labkit.checks.traps import TRAPS
from labkit.cli import main
from labkit.engines import llamacpp
from labkit.engines.config import Speculative
from labkit.engines.dialects import LLAMACPP as LLAMACPP_DIALECT
from labkit.engines.identify import Identity
from labkit.errors import BadInput
from labkit.measure import doubts, sse
from labkit.measure.answer import Answer
from labkit.measure.doubts import Asked
from labkit.measure.wire import RequestError

MTP = {**INFO, **DRAFTS}
HEAD = "labkit plugin: FP8 lm_head on\n"


def test_every_trap_has_its_test_and_nothing_else_is_here():
    assert [t.number for t in TRAPS] == list(range(1, len(TRAPS) + 1))
    assert len({t.name for t in TRAPS}) == len(TRAPS)
    here = {name for name in globals() if re.match(r"test_\d\d_", name)}
    assert here == {t.test for t in TRAPS}


def test_labkit_traps(capsys):
    assert main(["traps", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["traps"]
    assert len(listed) == len(TRAPS) and {"number", "name", "shows", "catches", "test"} <= set(listed[0])
    assert main(["traps", "bare-head"]) == 0 and "a = 1.00" in capsys.readouterr().out
    assert main(["traps", "no-such"]) == 2


# --- helpers ----------------------------------------------------------------------------------------------------------


def row(i=0, *, arm="x", tpot=0.02, a=None, steps=3, histogram=None, **more):
    n = 96
    out = {
        "arm": arm,
        "status": "ok",
        "error": None,
        "repeat": i // 3,
        "index": i % 3,
        "tpot_s": tpot,
        "ttft_s": 0.05,
        "latency_s": 0.05 + 95 * tpot,
        "output_tokens": n,
        "decode_tokens": n - 1,
        "prompt_tokens": 20,
        "cached_tokens": 0,
        "started_unix": 1000.0 + i,
        "prompt_sha256": f"p{i % 3}",
        "asked_sha256": f"p{i % 3}",
        "text_sha256": f"t{i % 3}",
        "doubts": [],
        "verify_ct": None,
        "fixed_length": True,
        "temperature": 0.0,
    }
    if a is not None:
        rounds = round((n - 1) / a)
        out |= {"verify_ct": rounds, "proposed_drafts": rounds * steps, "histogram": histogram or [rounds, 0, 0, 0]}
    return out | more


def rows(count=9, **more):
    return tuple(row(i, **more) for i in range(count))


def failed(info, expect, log=None, seen=(), **more):
    spec = more.pop("spec", None)
    found = configuration(Observed(info, log, tuple(seen), **more), expect, speculative=spec)
    return {c.name: c for c in found if c.verdict == "fail"}


def verdicts(info, expect, log=None, seen=(), **more):
    return {c.name: c.verdict for c in configuration(Observed(info, log, tuple(seen), **more), expect)}


def event(n, ids=None, text="", finish=None, **meta):
    meta = {"prompt_tokens": 7, "cached_tokens": 0, "completion_tokens": n, "finish_reason": finish, **meta}
    return json.dumps({"text": text, "output_ids": ids, "meta_info": {k: v for k, v in meta.items()}}).encode()


def answered(*events, times=None):
    answer = Answer(0.0)
    for i, data in enumerate(events):
        answer.take(times[i] if times else 0.1 + 0.01 * i, None, data)
    return answer.read()


def kinds(result, **asked):
    return {d.kind for d in doubts.of(result, Asked(**{"output_tokens": 64, **asked}))}


def stream(n=12, told=lambda k: k, **last):
    ids = list(range(n))
    return [
        event(told(k), ids[:k], finish="length" if k == n else None, **(last if k == n else {}))
        for k in range(1, n + 1)
    ]


def lost(checks):
    return {c.name.split(": ", 1)[-1]: c for c in checks if c.verdict == "fail"}


# --- an option is asked for and not in effect -------------------------------------------------------------------------


def test_01_bare_head():
    log = HEAD + "draft keeps the bare weight tensor\n"
    assert "draft shares the head" in failed(MTP, "fp8-head,mtp", log)
    assert "draft shares the head" in failed(MTP, "fp8-head,mtp", None, rows(a=1.0))


def test_02_misread_draft():
    assert {"accept length", "first draft position"} <= set(failed(MTP, "mtp", None, rows(a=1.0)))


def test_03_damaged_draft():
    found = failed(MTP, "mtp", None, rows(a=1.5, histogram=[32, 32, 0, 0]))
    assert set(found) == {"later draft positions"}


def test_04_draft_tokens_rewritten():
    assert "draft tokens" in failed(MTP, "mtp", spec=Speculative(steps=3, topk=1, draft_tokens=6))
    log = "speculative_num_draft_tokens is adjusted to speculative_num_steps + 1 = 4 with topk 1\n"
    assert "draft tokens" in failed(MTP, "mtp", log)


def test_05_moe_fallback():
    assert "MoE kernels" in failed(INFO, "kernels", "Preparing DSv4 MXFP4 experts for FlashInfer SM90 (layer: 2)\n")


def test_06_unknown_variable():
    assert "variable" in failed(INFO, "kernels", env={"SGLANG_NO_SUCH_THING": "1"})


def test_07_head_still_16_bit():
    assert "FP8 head" in failed(INFO, "fp8-head", "no such line\n")


def test_08_flag_resolved_otherwise():
    info = {**INFO, "launch_command": "sglang --attention-backend fa3", "attention_backend": "triton"}
    assert "flag --attention-backend" in failed(info, "kernels")


def test_09_draft_loaded_and_idle():
    loaded = {**INFO, "speculative_draft_model_path": "draft"}
    assert "loaded and idle" in failed(loaded, "mtp", None, rows())["drafting"].seen
    assert "drafting" in failed(MTP, "mtp", None, rows())


def test_10_drafting_by_another_name():
    eagle3 = {**MTP, "speculative_algorithm": "EAGLE3"}
    assert "drafting algorithm" in failed(eagle3, "mtp", None, rows(a=3.0))
    assert verdicts({**INFO, "speculative_algorithm": "NONE"}, "drafting")["drafting"] == "fail"
    assert verdicts({**INFO, "speculative_algorithm": "NONE"}, "baseline")["no drafting"] == "pass"


def test_11_steps_that_change():
    varied = [row(i, a=2.0, steps=k, histogram=[20, 10, 10, 8]) for i, k in enumerate((1, 3, 5) * 3)]
    assert "draft steps" in failed(MTP, "mtp", None, varied)
    step = benefit.step(Side("plain", rows()), Side("mtp", varied))
    assert "so no c" in next(c for c in step if "a against c" in c.name).seen


def test_12_no_cuda_graph():
    assert "CUDA graph" in failed(INFO, "kernels", "Decode batch, #running-req: 1, cuda graph: False\n")


def test_13_two_heads():
    info = {**INFO, "enable_fp32_lm_head": True}
    assert {"FP8 head", "conflicting options"} <= set(failed(info, "fp8-head", HEAD))


def test_14_head_before_its_turn():
    assert "no FP8 head" in failed(INFO, "baseline", HEAD)


def test_15_reference_drafts():
    assert "no drafting" in failed(MTP, "baseline", None, rows(a=2.0))


def test_16_memory_too_small():
    assert "memory" in failed({**INFO, "max_total_num_tokens": 1000}, "kernels")


def test_17_another_engine():
    found = verdicts({"version": "0.26.0"}, "baseline", None, rows())
    assert found["who is serving"] == found["no drafting"] == found["MoE kernels"] == "cannot tell"


def test_18_stale_accept_length():
    """The server's cumulative 2.7 is from other requests; ours accepted nothing."""
    info = {**MTP, "internal_states": [{"avg_spec_accept_length": 2.7}]}
    assert "accept length" in failed(info, "mtp", None, rows(a=1.0))


def test_19_simulated_acceptance():
    env = {"SGLANG_SIMULATE_ACC_LEN": "3.9"}
    assert verdicts(MTP, "mtp", None, rows(a=3.9), env=env)["accept length"] == "cannot tell"
    assert "conflicting options" in failed(MTP, "mtp", None, rows(a=3.9), env=env)


def test_20_dummy_weights():
    assert verdicts({**MTP, "load_format": "dummy"}, "mtp", None, rows(a=1.0))["accept length"] == "cannot tell"


# --- what a client can be told ----------------------------------------------------------------------------------------


def test_21_event_is_no_token():
    texts = [json.dumps({"text": f"a few words {i}", "meta_info": {"finish_reason": None}}).encode() for i in range(9)]
    assert "no token count" in kinds(answered(*texts, event(None, None, "", "stop")))
    assert "first event unknown" in kinds(answered(*texts, event(30, None, "", "stop")))


def test_22_first_event_carries_several():
    r = answered(*(event(4 * k, list(range(4 * k)), finish="length" if k == 4 else None) for k in range(1, 5)))
    assert r.tpot_s == pytest.approx(0.03 / 12) and r.decode_tokens == 12


def test_23_overcount():
    assert "counts disagree" in kinds(answered(*stream(told=lambda k: k * (k + 1) // 2)))
    spec = {"spec_verify_ct": 4, "spec_num_proposed_drafts": 12}
    assert "more tokens than drafts allow" in kinds(answered(*stream(24, **spec)))


def test_24_early_stop():
    assert "stopped early" in kinds(answered(*stream()), fixed=True)


def test_25_prompt_changed():
    assert "prompt changed" in kinds(answered(*stream()), prompt_tokens=5)


def test_26_pieces_for_the_whole():
    r = answered(*(event(k, [k], f"w{k} ", "length" if k == 12 else None) for k in range(1, 13)))
    assert r.stream == "incremental" and r.text == "".join(f"w{k} " for k in range(1, 13))


def test_27_strange_framing():
    whole = b": ping\r\n\r\nid: 1\r\nevent: message\r\ndata: " + event(1) + b"\r\n\r\n"
    assert [name for _, name, _ in sse.events([(0.0, whole)])] == ["message"]


def test_28_tail_event():
    events = stream()
    r = answered(*events, events[-1], times=[*(0.1 + 0.01 * i for i in range(12)), 0.9])
    assert r.latency_s == pytest.approx(0.21)


def test_29_error_in_mid_stream():
    with pytest.raises(RequestError, match="out of memory"):
        answered(*stream()[:-1], b'{"error": {"message": "out of memory"}}')


def test_30_not_streamed():
    assert "one event" in kinds(answered(event(12, list(range(12)), finish="length")))


def test_31_held_back():
    times = [0.1] * 6 + [0.2] * 6
    assert "bursts" in kinds(answered(*stream(), times=times))
    assert "clocks far apart" in kinds(answered(*stream(40, decode_throughput=1e4)))


def test_32_flush_race():
    from random import Random

    from labkit.checks.faults import measured, plain

    rng = Random(1)
    assert measured(plain(rng, busy_s=0.03), rng, repeats=1) == set()


def test_33_warm_prefix():
    assert "cached prompt" in kinds(answered(*stream(cached_tokens=3)))
    assert "prefix cache" in failed(INFO, "kernels", None, [row(cached_tokens=3, status="refused")])


def test_34_counts_contradict():
    spec = {"spec_verify_ct": 4, "spec_num_correct_drafts": 8, "spec_correct_drafts_histogram": [9, 9]}
    assert "speculative counts disagree" in kinds(answered(*stream(**spec)))


# --- does it pay? -----------------------------------------------------------------------------------------------------


def test_35_accepts_and_loses():
    found = lost(benefit.step(Side("plain", rows(tpot=0.02)), Side("mtp", rows(tpot=0.028, a=1.5))))
    assert "c = 2.1" in found["a against c"].seen


def test_36_unpaired_prompts():
    other = [r | {"prompt_sha256": r["prompt_sha256"] + "'"} for r in rows(tpot=0.01)]
    assert "prompts" in lost(benefit.paired(Side("a", rows()), Side("b", other)))


def test_37_all_on_no_better():
    sides = [Side("base", rows(tpot=0.03)), Side("head", rows(tpot=0.02)), Side("mtp", rows(tpot=0.024, a=1.5))]
    found = [c for c in benefit.of(sides) if c.name.startswith("all on")]
    assert found[0].verdict == "fail" and "candidates" in found[0].note
    judged = causes.judge("mtp against base", compared(0.83, 0.8, 0.86, accept=1.5, c=1.8))
    assert len(judged.causes) > 4 and sum(c.supported is not True for c in judged.causes) > 2


def test_38_machine_changed():
    found = lost(benefit.alone(Side("x", [row(i, tpot=0.02 if i < 8 else 0.03) for i in range(15)])))
    assert "request 9 " in found["run order"].seen and "1.5 times slower" in found["run order"].seen


def test_39_one_after_the_other():
    later = [r | {"started_unix": r["started_unix"] + 500} for r in rows(tpot=0.01)]
    found = {c.name: c for c in benefit.paired(Side("a", rows()), Side("b", later))}
    assert found["b and a: order"].verdict == "cannot tell" and "drift" in found["b and a: order"].note


def test_40_temperature_ignored():
    same = [row(i, temperature=0.8, asked_sha256="p", prompt_sha256=f"seed{i}", text_sha256="t") for i in range(3)]
    assert "sampling" in lost(benefit.answers(Side("x", same)))
    varied = [r | {"text_sha256": f"t{i}"} for i, r in enumerate(same)]
    assert not lost(benefit.answers(Side("x", varied)))


def test_41_answers_alike():
    assert "answers" in lost(benefit.answers(Side("x", rows(text_sha256="t"))))


def test_42_acceptance_fades():
    fades = [row(i, a=3.0 if i < 5 else 1.6, prompt_tokens=100 if i < 5 else 8000) for i in range(10)]
    assert "acceptance over context" in lost(benefit.alone(Side("x", fades, MTP)))


def test_43_acceptance_below_known():
    side = Side("x", rows(a=1.5, histogram=[40, 10, 10, 3]), MTP, expected_accept=(3.9, "published"))
    found = {c.name: c for c in benefit.alone(side)}
    assert found["x: acceptance as known"].verdict == "cannot tell" and "3.90" in found["x: acceptance as known"].asked


def test_44_random_ids():
    assert any(
        "random ids" in s or "random token ids" in s for s in benefit.alarms(Side("x", rows(workload="synthetic")))
    )


def test_45_faster_than_bytes():
    found = lost(benefit.alone(Side("x", rows(tpot=0.02), floor_s=0.025)))
    assert "impossible: 1.25 times" in found["byte floor"].note


def test_46_disturbed_core():
    from labkit.measure import estimates

    slow = rows(thread_cpu_s=0.5 * 95 * 0.02)
    assert any("disturbed" in w for w in estimates.summarise(slow)["warnings"])


# --- what must not be concluded from numbers --------------------------------------------------------------------------


def test_47_product_called_measured():
    from labkit.evidence import Evidence, Tier, measured, spec

    product = spec(20.0, "ms", "sheet") * measured(2.0, "1", "here")
    assert product.tier == Tier.DERIVED
    with pytest.raises(BadInput):
        Evidence(1.0, "ms", Tier.MEASURED, "x", formula="20 * 2", inputs=(product,))


def test_48_gain_carried_over(unequal):
    assert "workload" in unequal(workload="code")


def test_49_accuracy_unchanged():
    from labkit.roofline import proportions

    low, high = proportions.wilson(1277, 1319)
    assert low < 1277 / 1319 < high and proportions.mcnemar_exact(14, 13) > 0.9


def test_50_utilisation_across():
    from labkit.roofline.floors import Work, compare_utilisation

    a = Work("per tensor", "m", "fp8", "1K")
    for other in (
        Work("simple", "m", "fp8", "1K"),
        Work("per tensor", "m", "fp8", "32K"),
        Work("per tensor", "n", "fp8", "1K"),
    ):
        with pytest.raises(BadInput):
            compare_utilisation((a, 0.7), (other, 0.8))


def test_51_metric_swapped():
    from labkit.evidence import measured

    with pytest.raises(BadInput):
        measured(20.0, "ms", "TPOT") + measured(50.0, "tok/s", "throughput")


def test_52_energy_from_tpot():
    """No unit of time turns into one of energy, and money has none at all."""
    from labkit.evidence import measured

    for unit in ("USD", "EUR", "USD/token"):
        with pytest.raises(BadInput):
            measured(1.0, unit, "x")
    with pytest.raises(BadInput):
        measured(20.0, "ms", "TPOT") + measured(1.0, "J", "a meter")


def test_53_long_context_mixed_in(unequal):
    assert "prompt_tokens" in unequal(prompt_tokens=32768)


def test_54_text_must_be_equal():
    one, two = Side("plain", rows(tpot=0.02)), Side("mtp", rows(tpot=0.015, a=2.0, text_sha256="other"))
    assert not any("text" in c.name for c in benefit.step(one, two))


# --- drafting works, and its rounds cost more than they need ----------------------------------------------------------

LOGS = Path(__file__).parents[1] / "engines" / "sglang" / "data"


def h200(backend):
    """(description, log) of MTP on one H200 with this attention backend; the log lines are real."""
    return {**MTP, "load_format": "dummy", "attention_backend": backend}, (LOGS / f"mtp-{backend}.log").read_text()


def test_55_rounds_wait_for_the_host():
    info, log = h200("flashinfer")
    assert "rounds wait for the host" in failed(info, "mtp", log)
    assert verdicts(info, "mtp")["rounds wait for the host"] == "cannot tell"  # without a log: MLA or not?
    mixed = {**info, "speculative_draft_attention_backend": "triton"}
    assert "rounds wait for the host" in failed(mixed, "mtp", log)
    info, log = h200("fa3")
    assert verdicts(info, "mtp", log)["rounds wait for the host"] == "pass"
    assert "rounds wait for the host" not in verdicts({**INFO, "attention_backend": "flashinfer"}, "kernels", log)


def test_56_draft_extend_eager():
    info, log = h200("flashinfer")
    found = failed(info, "mtp", log)
    assert "draft-extend CUDA graph" in found and "CUDA graph" not in found  # decode lines say True all the same
    info, log = h200("fa3")
    assert verdicts(info, "mtp", log)["draft-extend CUDA graph"] == "pass"
    judged = causes.judge("mtp against plain", compared(1.0, 0.9, 1.1, accept=1.5), checks=found.values())
    named = {c.name: c.supported for c in judged.causes}
    assert named["rounds wait for the host"] is True and named["draft-extend CUDA graph"] is True


def test_57_glue_graph_frozen():
    glue = {"SGLANG_ENABLE_METADATA_GLUE_GRAPH": "1"}
    info, log = h200("flashinfer")
    assert "host" in failed(info, "mtp", log, env=glue)["conflicting options"].seen
    assert "conflicting options" not in failed(info, "mtp", log, env={next(iter(glue)): "0"})
    info, log = h200("fa3")
    assert "conflicting options" not in failed(info, "mtp", log, env=glue)


LLAMACPP = Identity("llamacpp", "b1", ("/props with build_info", "/v1/models owned by llamacpp"))


def test_58_props_say_none(monkeypatch):
    documents = {
        "/props": {"default_generation_settings": {"params": {"speculative.types": "none"}}},
        "/v1/models": {"data": [{"id": "m"}]},
        "/slots": [],
    }
    answer = {"generation_settings": {"speculative.types": "none,ngram-mod"}}
    monkeypatch.setattr(llamacpp, "get_json", lambda url, path, key: documents[path])
    monkeypatch.setattr(llamacpp, "post_json", lambda *_: answer)

    def verdict():
        seen = Observed(llamacpp.describe("http://x"), who=LLAMACPP)
        return {c.name: c.verdict for c in configuration(seen, "baseline")}["no drafting"]

    assert verdict() == "fail"
    answer["generation_settings"]["speculative.types"] = "none"
    assert verdict() == "pass"


def test_59_mean_of_drafting_passes():
    """96 tokens as llama.cpp counted them: 10 passes whose 8 drafts were all accepted, and 5 that found none."""
    answer, read = Answer(0.0), LLAMACPP_DIALECT.reader()
    events = [{"content": "a", "tokens": [7], "tokens_predicted": i + 1, "stop": False} for i in range(96)]
    counts = {"predicted_n": 96, "draft_n": 80, "draft_n_accepted": 80, "cache_n": 0}
    events.append({"content": "", "tokens": [], "tokens_predicted": 96, "stop": True, "stop_type": "limit"})
    events[-1] |= {"timings": counts, "generation_settings": {"speculative.types": "none,ngram-mod"}}
    for i, event in enumerate(events):
        for data in read(json.dumps(event).encode()):
            answer.take(0.1 + i / 100, None, data)
    r = answer.read()
    assert r.verify_ct == 15 and (r.output_tokens - 1) / r.verify_ct == pytest.approx(6.33, abs=0.01)
    # The log's own mean is never taken for a.
    log = (
        "statistics ngram_mod: #gen drafts = 2, #acc drafts = 2, #gen tokens = 66, #acc tokens = 66, mean len = 34.00\n"
    )
    assert Observed({}, log).proof.accept_lengths == []


def test_60_synthetic_acceptance():
    info = {"engine": "llamacpp", "speculative_algorithm": "ngram-mod"}
    said = "W common_speculative: synthetic speculative acceptance is enabled\n"
    for log, expected in ((said, "cannot tell"), ("", "pass")):
        seen = Observed(info, log, rows(a=3.9, drafts_vary=True), who=LLAMACPP)
        found = {c.name: c for c in configuration(seen, "ngram")}
        assert found["accept length"].verdict == expected
        assert ("simulated" in found["accept length"].seen) == bool(log)


def test_61_count_lags_behind():
    ids = list(range(12))
    events = [event(1, [k], f"w{k} ", finish="length" if k == 11 else None) for k in ids]
    assert "counts disagree" in kinds(answered(*events))
    halved = [event((k + 2) // 2, None, "w" * (k + 1), finish="length" if k == 11 else None) for k in ids]
    assert "counts disagree" in kinds(answered(*halved))


def test_62_drafts_from_earlier_answers():
    told = [
        row(i, session="s", repeat=i, prompt_sha256="p", text_sha256="t", verify_ct=v) for i, v in enumerate((63, 15))
    ]
    assert any("earlier answers" in s for s in doubts.said(told))


def test_a_simulated_accept_length_is_never_shown_as_the_model_s_own():
    info, log = h200("fa3")
    for told in ({"log": log}, {"log": None, "env": {"LABKIT_SIMULATE_ACC_LEN_FILE": "accept"}}):
        env = told.get("env", {})
        found = {c.name: c for c in configuration(Observed(info, told["log"], rows(a=3.9), env), "mtp")}
        for name in ("accept length", "drafting pays"):
            assert found[name].verdict == "cannot tell" and "simulated" in found[name].seen


@pytest.fixture
def unequal():
    """What `labkit compare` says differs between two runs of which one has these parameters."""
    from labkit.records.reader import Run
    from labkit.report import compare

    base = {"workload": "prose", "prompt_tokens": 1024, "output_tokens": 96, "seed": 1, "count": 3}

    def differ(**changes):
        runs = [
            Run(
                Path("x"),
                {"parameters": p, "arms": [{"name": "x", "server_info": INFO}], "environment": {}},
                list(rows()),
            )
            for p in (base, base | changes)
        ]
        return {d["what"] for d in compare.conditions(*runs, "x", "x")}

    assert differ() == set()
    return differ


def _in_order(gaps_of, times):
    """Requests in order, with the time per token and the gaps between the events of each."""
    return [row(i, tpot=t, chunk_times=[float(x) for x in 0.1 + np.cumsum(gaps_of(i, t))]) for i, t in enumerate(times)]


def test_a_busy_moment_is_told_from_a_slower_machine():
    """Delayed events that come in bursts behind a wait are no change of the engine's step; a change of each step is."""
    times = [0.003] * 6 + [0.005] * 6
    each = _in_order(lambda i, t: [t] * 64, times)
    assert "run order" in lost(benefit.alone(Side("x", each)))
    waits = _in_order(lambda i, t: [0.003] * 64 if i < 6 else [0.015, *[0.0001] * 3] * 16, times)
    found = next(c for c in benefit.alone(Side("x", waits)) if c.name.endswith("run order"))
    assert found.verdict == "cannot tell" and found.note
    unknown = _in_order(lambda i, t: [t] * 4, times)  # too few events: the times alone decide
    assert "run order" in lost(benefit.alone(Side("x", unknown)))
