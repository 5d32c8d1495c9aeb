"""The published account of Ling-3.0-flash on a DGX Spark, number by number: the simple formula and its predictions.

A row: name, published text, computed evidence, unit, source, tolerance or None, assumptions, reason of a disagreement.
"""

from collections.abc import Iterator

from labkit import catalog
from labkit.evidence import Evidence, apply, spec
from labkit.roofline.account import kv_bytes_per_token
from labkit.roofline.counts import correct_of, mcnemar_exact, paired_difference, wilson
from labkit.roofline.floors import effective_bandwidth, intensity, ridge, utilisation
from labkit.roofline.predictions import latency, next_rung, room, saving, weights_bytes
from labkit.roofline.speculation import (
    c_at_bandwidth,
    c_from_times,
    expected_distinct_experts,
    fallback_tpot,
    predicted_tpot,
    speedup,
)

BLOG, RECIPE = "blog [1]", "recipe repository [9]"
SIMPLE = "simple account: active parameters at 4 bits, head apart"
TWO_C = "c by time or byte style: one is a ratio of times, the other assumes a bandwidth; they must not be mixed"
UTILISATION = ("44% or 69%: the simple account takes FP8 tensors for 4-bit ones and leaves out KV and state, which the "
               "per-tensor account counts; time and machine are the same")


class Known:
    """The catalog's constants for this machine and model, as evidence."""

    def __init__(self):
        self.model, self.machine = catalog.model("ling-3.0-flash"), catalog.machine("dgx-spark")
        fields = self.model.config.fields
        self.vocab = spec(fields["vocab_size"], "param", self.model.source)
        self.hidden = spec(fields["hidden_size"], "param", self.model.source)
        self.active = self.model.published["active_parameters"]
        self.total = self.model.published["total_parameters"]
        self.nominal = self.machine.bandwidth
        self.head = self.vocab * self.hidden
        self.head_bf16, self.head_fp8 = self.head * bytes_each(2), self.head * bytes_each(1)
        body = self.active * bytes_each(0.5)
        self.step, self.step_fp8 = body + self.head_bf16, body + self.head_fp8
        self.tpot = {r: catalog.result(f"synthetic-{r}").metrics["tpot"]
                     for r in ("baseline", "kernels", "fp8-head", "mtp")}
        self.decode = {r: catalog.result(f"synthetic-{r}").metrics["decode"] for r in self.tpot}
        mtp, self.gsm, self.gsm_base = (catalog.result(r).metrics
                                        for r in ("synthetic-mtp", "gsm8k-all", "gsm8k-baseline"))
        self.a, self.c, self.a_gsm = mtp["accept_length"], mtp["verify_cost_ratio"], self.gsm["accept_length"]
        self.kv = spec(kv_bytes_per_token(self.model.config), "B/token", self.model.source)


def bytes_each(width: float) -> Evidence:
    """The width of one parameter in bytes."""
    return spec(width, "B/param", "number format")


def published_facts() -> Iterator[tuple]:
    """All rows that rest on the simple account and on published measurements."""
    k = Known()
    yield from _bytes(k)
    yield from _rungs(k)
    yield from _speculation(k)
    yield from _split(k)
    yield from _context(k)
    yield from _accuracy()
    yield from _capacity(k)


def _bytes(k: Known) -> Iterator[tuple]:
    yield "head parameters", "402.39e6", k.head, "param", BLOG, None, "V * d", ""
    yield "head bytes, BF16", "0.805", k.head_bf16, "GB", BLOG, None, "", ""
    yield "head bytes, FP8", "0.402", k.head_fp8, "GB", BLOG, None, "payload alone, without scales", ""
    yield "head share of the step, BF16", "24.0", k.head_bf16 / k.step, "%", BLOG, None, SIMPLE, ""
    yield "head share of the step, FP8", "13.6", k.head_fp8 / k.step_fp8, "%", BLOG, None, SIMPLE, ""
    yield "simple step, BF16 head", "3.355", k.step, "GB", BLOG, None, SIMPLE, ""
    yield "simple step, FP8 head", "2.952", k.step_fp8, "GB", BLOG, None, SIMPLE, ""
    yield "effective bandwidth, baseline", "121.1", effective_bandwidth(k.step, k.tpot["baseline"]), "GB/s", BLOG, \
        None, SIMPLE, ""
    used = utilisation(k.step, k.tpot["baseline"], k.nominal)
    yield "utilisation, baseline, simple account", "44", used, "%", BLOG, None, SIMPLE, UTILISATION
    yield "headroom left, baseline, simple account", "56", 1 - used, "%", BLOG, None, SIMPLE, UTILISATION
    yield "effective bandwidth with Humming", "132.4", effective_bandwidth(k.step, k.tpot["kernels"]), "GB/s", BLOG, \
        0.1, SIMPLE + "; the published quotient is of rounded bytes", ""
    intense = intensity(k.active * spec(1, "FLOP/param", "one multiply-add is two FLOP"), k.step)
    yield "arithmetic intensity", "3.04", intense, "FLOP/B", BLOG, None, SIMPLE, ""
    sparse = k.machine.peaks[0].flops
    yield "ridge point, sparse peak", "3663", ridge(sparse, k.nominal), "FLOP/B", BLOG, None, "1e15 FLOP/s is sparse", \
        "sparse or dense: the stated peak counts skipped zeros; half of it is an assumption for dense work"
    yield "ridge point, assumed dense half", "1832", ridge(sparse / 2, k.nominal), "FLOP/B", BLOG, None, \
        "half the sparse peak", \
        "sparse or dense: the stated peak counts skipped zeros; half of it is an assumption for dense work"


def _rungs(k: Known) -> Iterator[tuple]:
    saved = saving(k.tpot["baseline"], k.step, k.head_fp8)
    yield "FP8 head from the baseline: saving", "3.32", saved, "ms", BLOG, 0.006, SIMPLE + "; rounded inputs", ""
    yield "FP8 head from the baseline: TPOT", "24.38", k.tpot["baseline"] - saved, "ms", BLOG, 0.011, \
        "counterfactual: baseline bandwidth, head bytes halved; published from rounded inputs", ""
    next_one = next_rung(k.tpot["kernels"], k.step, k.step_fp8)
    yield "FP8 head from the Humming rung: TPOT", "22.31", next_one, "ms", BLOG, None, \
        "bandwidth stays as on the Humming rung", ""
    yield "that prediction against the reported TPOT", "2.0", 1 - next_one / k.tpot["fp8-head"], "%", BLOG, None, "", ""
    yield "reported step from Humming to FP8 head", "2.59", k.tpot["kernels"] - k.tpot["fp8-head"], "ms", BLOG, None, \
        "", ""
    for rung, gain in (("kernels", "9.3"), ("fp8-head", "21.7"), ("mtp", "185.1")):
        more = k.decode[rung] / k.decode["baseline"] - 1
        yield f"{rung} over the baseline, synthetic", gain, more, "%", BLOG, 0.06, \
            "throughput; both published throughputs are rounded", ""
    yield "FP8 head over Humming", "11.4", k.decode["fp8-head"] / k.decode["kernels"] - 1, "%", BLOG, None, "", ""


def _speculation(k: Known) -> Iterator[tuple]:
    fields = k.model.config.fields
    n, top = (spec(fields[f], "expert", k.model.source) for f in ("num_experts", "num_experts_per_tok"))
    m = spec(4, "position", "three drafts and the token before them")
    distinct = apply(lambda *x: expected_distinct_experts(*map(int, x)), "expert", "N * (1 - (1 - k/N)^m)", n, top, m)
    yield "expected distinct experts, 4 positions", "31.3", distinct, "expert", BLOG, None, "independent choices", ""
    yield "experts of one token", "1.56", top / n, "%", BLOG, None, "", ""
    yield "MTP speed-up, synthetic", "1.73", speedup(k.a, k.c), "1", BLOG, None, "S = a / c", ""
    yield "MTP TPOT, synthetic, predicted", "13.19", predicted_tpot(k.tpot["fp8-head"], k.a, k.c), "ms", BLOG, None, \
        "reported is 9.72 ms: an open residual, not explained here", ""
    yield "c that would close it, by time", "1.67", c_from_times(k.tpot["mtp"], k.a, k.tpot["fp8-head"]), "1", BLOG, \
        None, "round time over the plain step", TWO_C
    yield "c that would close it, byte style", "1.55", c_at_bandwidth(
        effective_bandwidth(k.step, k.tpot["baseline"]), k.tpot["mtp"], k.a, k.step_fp8), "1", BLOG, None, \
        "assumes the baseline's bandwidth", TWO_C
    yield "MTP factor, GSM8K", "1.19", speedup(k.a_gsm, k.c), "1", BLOG, None, \
        "c of the synthetic load on another load", ""
    low, high = k.c - 0.3, k.c + 0.3
    yield "S at a = 3.90 with c = 2.56", "1.52", speedup(k.a, high), "1", BLOG, None, "", ""
    yield "S at a = 3.90 with c = 1.96", "1.99", speedup(k.a, low), "1", BLOG, None, "", ""
    fallen = fallback_tpot(k.tpot["fp8-head"], k.c)
    both = ("20 or 24 tok/s: the estimate takes the synthetic mid rung and a synthetic c; the measurement seems to be "
            "GSM8K's, whose plain step is shorter")
    yield "silent fallback, estimate", "51.4", fallen, "ms", BLOG, None, "a = 1; synthetic mid rung", both
    yield "silent fallback, estimate, throughput", "19.4", 1 / fallen, "tok/s", BLOG, None, "published rounded: 20", \
        both
    yield "silent fallback, share of the baseline", "54", (1 / fallen) / k.decode["baseline"], "%", BLOG, None, \
        "published rounded: 55%", ""
    measured = catalog.result("fallback").metrics["decode"]
    yield "silent fallback, reported by its author", "24.0", measured * 1, "tok/s", RECIPE, None, \
        "load not stated", both
    yield "silent fallback, reported, TPOT", "41.7", 1 / measured, "ms", RECIPE, None, "", both
    yield "the estimate below that measurement", "19", 1 - (1 / fallen) / measured, "%", RECIPE, None, "", ""
    yield "c in the broken run, synthetic mid rung", "1.83", c_from_times(1 / measured, 1, k.tpot["fp8-head"]), "1", \
        RECIPE, None, "a = 1", both
    mid = k.gsm_base["tpot"] * (k.tpot["fp8-head"] / k.tpot["baseline"])
    yield "GSM8K mid rung, scaled", "21.73", mid, "ms", RECIPE, None, "gain of the synthetic load carried over", ""
    yield "c in the broken run, scaled mid rung", "1.92", c_from_times(1 / measured, 1, mid), "1", RECIPE, None, \
        "a = 1", both
    yield "silent fallback, estimate scaled to GSM8K", "49.1", fallback_tpot(mid, k.c), "ms", RECIPE, None, "", both
    yield "the same as throughput", "20.4", 1 / fallback_tpot(mid, k.c), "tok/s", RECIPE, None, "", both
    yield "round time, synthetic", "37.9", k.tpot["mtp"] * k.a, "ms", RECIPE, None, "TPOT * a", ""
    yield "round time, GSM8K", "49.7", k.gsm["tpot"] * k.a_gsm, "ms", RECIPE, None, "TPOT * a", ""
    yield "c on GSM8K, scaled mid rung", "2.29", c_from_times(k.gsm["tpot"], k.a_gsm, mid), "1", RECIPE, None, \
        "published as 2.2 to 2.3; here its value with the scaled mid rung", ""


def _split(k: Known) -> Iterator[tuple]:
    note = "c taken as a ratio of bytes; another c splits the same gain otherwise"
    base = effective_bandwidth(k.step, k.tpot["baseline"])
    token = k.c * k.step_fp8 / k.a
    yield "two-factor split, synthetic: bytes a token", "1.711", token, "GB", BLOG, None, note, ""
    yield "two-factor split, synthetic: bytes factor", "1.96", k.step / token, "1", BLOG, None, note, ""
    yield "two-factor split, synthetic: bandwidth", "176.0", token / k.tpot["mtp"], "GB/s", BLOG, None, note, ""
    yield "two-factor split, synthetic: bandwidth factor", "1.45", token / k.tpot["mtp"] / base, "1", BLOG, None, \
        note, ""
    yield "total gain, synthetic", "2.85", k.decode["mtp"] / k.decode["baseline"], "1", BLOG, None, "", ""
    token = k.c * k.step_fp8 / k.a_gsm
    base = effective_bandwidth(k.step, k.gsm_base["tpot"])
    yield "two-factor split, GSM8K: bytes a token", "2.489", token, "GB", BLOG, 0.001, note + "; rounded inputs", ""
    yield "two-factor split, GSM8K: bytes factor", "1.35", k.step / token, "1", BLOG, None, note, ""
    yield "two-factor split, GSM8K: bandwidth", "134.1", token / k.gsm["tpot"], "GB/s", BLOG, None, note, ""
    yield "two-factor split, GSM8K: baseline bandwidth", "126.8", base, "GB/s", BLOG, None, SIMPLE, ""
    yield "two-factor split, GSM8K: bandwidth factor", "1.06", token / k.gsm["tpot"] / base, "1", BLOG, None, note, ""
    for name, metric, change in (("TPOT", "tpot", "-29.8"), ("decode throughput", "decode", "42.5"),
                                 ("mean latency", "mean_latency", "-24.5"), ("P50 latency", "p50_latency", "-27"),
                                 ("P95 latency", "p95_latency", "-23")):
        yield f"change on GSM8K: {name}", change, k.gsm[metric] / k.gsm_base[metric] - 1, "%", BLOG, None, "", ""
    prompts = [catalog.result(f"same-prompt-{how}").metrics["decode"] for how in ("sampled", "greedy")]
    yield "sampled over greedy, one code prompt", "-15.6", prompts[0] / prompts[1] - 1, "%", RECIPE, None, "", ""
    yield "total gain, GSM8K", "1.43", k.gsm["decode"] / k.gsm_base["decode"], "1", BLOG, None, "", ""


def _context(k: Known) -> Iterator[tuple]:
    yield "KV bytes a token", "8064", k.kv * 1, "B/token", BLOG, None, "7 MLA layers * (512 + 64) * 2 B", ""
    yield "KV bytes a token, in KiB", "7.88", k.kv * 1, "KiB/token", BLOG, None, "", ""
    reason = "K = 1000 or 1024: the published table counts a K as 1000 tokens; the model's limits are powers of 2"
    for kilo, rows in ((1000, (("2", "16", "0.5"), ("32", "258", "7.7"), ("256", "2064", "61.5"))),
                       (1024, (("2", "16.5", "0.5"), ("32", "264", "7.9"), ("256", "2114", "63.0")))):
        for thousands, megabytes, share in rows:
            tokens = spec(int(thousands) * kilo, "token", f"K = {kilo}")
            read = k.kv * tokens
            yield f"KV read at {thousands}K, K = {kilo}", megabytes, read, "MB", BLOG, None, "", reason
            yield f"KV read at {thousands}K, K = {kilo}, share of the step", share, read / k.step, "%", BLOG, \
                0.1 if thousands == "2" else None, SIMPLE, reason


def _accuracy() -> Iterator[tuple]:
    base, both = (catalog.result(r).metrics["accuracy"] for r in ("gsm8k-baseline", "gsm8k-all"))
    asked = catalog.result("gsm8k-all-counts").metrics["questions"]
    rights = [apply(lambda p, n: correct_of(100 * p, n), "question", "round(accuracy * questions)", p, asked)
              for p in (base, both)]
    yield "right answers, baseline", "1278", rights[0], "question", BLOG, None, "", ""
    yield "right answers, all three", "1277", rights[1], "question", BLOG, None, "", ""
    yield "the accuracy change", "0.0758", (rights[0] - rights[1]) / asked, "%", BLOG, None, \
        "one question of 1319; printed as -0.08 points", ""
    for name, published, side in (("low", "95.8", 0), ("high", "97.7", 1)):
        yield f"Wilson interval of the baseline's accuracy, {name}", published, apply(
            lambda r, n, side=side: wilson(int(r), int(n))[side], "1", "Wilson, 95%", rights[0], asked), "%", BLOG, \
            None, "", ""
    pairs = catalog.result("gsm8k-pairs").metrics
    only = pairs["only_baseline_right"], pairs["only_optimised_right"]
    p = apply(lambda a, b: mcnemar_exact(int(a), int(b)), "1", "binomial, two-sided", *only)
    yield "exact McNemar p", "1.0", p, "1", RECIPE, None, "", ""
    for name, published, place in (("difference", "0.08", 0), ("low", "-0.70", 1), ("high", "0.85", 2)):
        yield f"paired accuracy {name}", published, apply(
            lambda a, b, n, place=place: paired_difference(int(a), int(b), int(n))[place], "1",
            "(b - c)/n and its 95% normal interval", *only, asked), "%", RECIPE, None, "baseline minus all three", ""
    counts = catalog.result("gsm8k-all-counts").metrics
    yield "aggregate decode throughput, all three", "53.892", counts["decode_tokens"] / counts["decode_time"], \
        "tok/s", RECIPE, None, "sum of tokens after the first over the sum of their times", ""
    yield "decode tokens, all three", "799941", counts["completion_tokens"] - counts["questions"], "token", RECIPE, \
        None, "completion tokens without the first of each request", ""


def _capacity(k: Known) -> Iterator[tuple]:
    ideal = weights_bytes(k.total, 4) * bytes_each(1)
    yield "ideal 4-bit weights", "62", ideal, "GB", BLOG, None, "no scales, nothing wider than 4 bits", ""
    yield "ideal room beside them", "66", room(k.machine.memory, ideal), "GB", BLOG, None, \
        "ideal, not real headroom", ""
    for arm, metrics, published in (("baseline", k.gsm_base, "15.21"), ("all three", k.gsm, "11.49")):
        total = latency(metrics["ttft"], metrics["tpot"], metrics["mean_output"].value)
        yield f"end-to-end latency, GSM8K, {arm}", published, total, "s", BLOG, 0.05, \
            "TTFT + TPOT * (mean output - 1), no queueing; means of products are not products of means", ""
