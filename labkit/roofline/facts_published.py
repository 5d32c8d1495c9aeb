"""What was published about Ling-3.0-flash on a DGX Spark, recomputed: the simple formula and its predictions.

Each function yields (name, evidence); the figure of the same name stands in the catalog's published.yaml.
"""

from collections.abc import Iterator

from labkit import catalog
from labkit.evidence import Evidence, apply, spec
from labkit.roofline.floors import effective_bandwidth, intensity, ridge, utilisation
from labkit.roofline.predictions import latency, next_rung, room, saving, weights_bytes
from labkit.roofline.proportions import correct_of, mcnemar_exact, paired_difference, wilson
from labkit.roofline.sizes import kv_bytes_per_token
from labkit.roofline.speculation import (
    c_at_bandwidth,
    c_from_times,
    expected_distinct_experts,
    fallback_tpot,
    predicted_tpot,
    speedup,
)

Row = tuple[str, Evidence] | tuple[str, Evidence, Evidence]


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
        self.tpot, self.decode = catalog.ladder("synthetic", "tpot"), catalog.ladder("synthetic", "decode")
        mtp, self.gsm, self.gsm_base = (
            catalog.result(r).metrics for r in ("synthetic-mtp", "gsm8k-all", "gsm8k-baseline")
        )
        self.a, self.c, self.a_gsm = mtp["accept_length"], mtp["verify_cost_ratio"], self.gsm["accept_length"]
        self.kv = spec(kv_bytes_per_token(self.model.config), "B/token", self.model.source)


def bytes_each(width: float) -> Evidence:
    """The width of one parameter in bytes."""
    return spec(width, "B/param", "number format")


def published_facts() -> Iterator[Row]:
    """All rows that rest on the simple account and on published measurements."""
    k = Known()
    yield from _bytes(k)
    yield from _rungs(k)
    yield from _speculation(k)
    yield from _split(k)
    yield from _context(k)
    yield from _accuracy()
    yield from _capacity(k)


def _bytes(k: Known) -> Iterator[Row]:
    yield "head parameters", k.head
    yield "head bytes, BF16", k.head_bf16
    yield "head bytes, FP8", k.head_fp8
    yield "head share of the step, BF16", k.head_bf16 / k.step
    yield "head share of the step, FP8", k.head_fp8 / k.step_fp8
    yield "simple step, BF16 head", k.step
    yield "simple step, FP8 head", k.step_fp8
    yield "effective bandwidth, baseline", effective_bandwidth(k.step, k.tpot["baseline"])
    used = utilisation(k.step, k.tpot["baseline"], k.nominal)
    yield "utilisation, baseline, simple account", used
    yield "headroom left, baseline, simple account", 1 - used
    yield "effective bandwidth with Humming", effective_bandwidth(k.step, k.tpot["kernels"])
    yield "arithmetic intensity", intensity(k.active * spec(1, "FLOP/param", "two FLOP are one multiply-add"), k.step)
    sparse = k.machine.peaks[0].flops
    yield "ridge point, sparse peak", ridge(sparse, k.nominal)
    yield "ridge point, assumed dense half", ridge(sparse / 2, k.nominal)


def _rungs(k: Known) -> Iterator[Row]:
    saved = saving(k.tpot["baseline"], k.step, k.head_fp8)
    yield "FP8 head from the baseline: saving", saved
    yield "FP8 head from the baseline: TPOT", k.tpot["baseline"] - saved
    after = next_rung(k.tpot["kernels"], k.step, k.step_fp8)
    yield "FP8 head from the Humming rung: TPOT", after
    yield "that prediction against the reported TPOT", 1 - after / k.tpot["fp8-head"]
    yield "reported step from Humming to FP8 head", k.tpot["kernels"] - k.tpot["fp8-head"]
    for rung in list(k.decode)[1:]:
        yield f"{rung} over the baseline, synthetic", k.decode[rung] / k.decode["baseline"] - 1
    yield "FP8 head over Humming", k.decode["fp8-head"] / k.decode["kernels"] - 1


def _speculation(k: Known) -> Iterator[Row]:
    fields = k.model.config.fields
    n, top = (spec(fields[f], "expert", k.model.source) for f in ("num_experts", "num_experts_per_tok"))
    m = spec(4, "position", "three drafts and the token before them")
    distinct = apply(lambda *x: expected_distinct_experts(*map(int, x)), "expert", "N * (1 - (1 - k/N)^m)", n, top, m)
    yield "expected distinct experts, 4 positions", distinct
    yield "experts of one token", top / n
    yield "MTP speed-up, synthetic", speedup(k.a, k.c)
    yield "MTP TPOT, synthetic, predicted", predicted_tpot(k.tpot["fp8-head"], k.a, k.c)
    yield "c that would close it, by time", c_from_times(k.tpot["mtp"], k.a, k.tpot["fp8-head"])
    yield (
        "c that would close it, byte style",
        c_at_bandwidth(effective_bandwidth(k.step, k.tpot["baseline"]), k.tpot["mtp"], k.a, k.step_fp8),
    )
    yield "MTP factor, GSM8K", speedup(k.a_gsm, k.c)
    low, high = k.c - 0.3, k.c + 0.3
    yield "S at a = 3.90 with c = 2.56", speedup(k.a, high)
    yield "S at a = 3.90 with c = 1.96", speedup(k.a, low)
    fallen = fallback_tpot(k.tpot["fp8-head"], k.c)
    yield "silent fallback, estimate", fallen
    printed = apply(lambda s: round(s * 1e3) / 1e3, "s", "rounded to whole milliseconds", fallen)
    share = k.decode["baseline"]
    yield "silent fallback, estimate, throughput", 1 / printed, 1 / fallen
    yield "silent fallback, share of the baseline", (1 / printed) / share, (1 / fallen) / share
    measured = catalog.result("fallback").metrics["decode"]
    yield "silent fallback, reported by its author", measured * 1
    yield "silent fallback, reported, TPOT", 1 / measured
    yield "the estimate below that measurement", 1 - (1 / fallen) / measured
    yield "c in the broken run, synthetic mid rung", c_from_times(1 / measured, 1, k.tpot["fp8-head"])
    mid = k.gsm_base["tpot"] * (k.tpot["fp8-head"] / k.tpot["baseline"])
    yield "GSM8K mid rung, scaled", mid
    yield "c in the broken run, scaled mid rung", c_from_times(1 / measured, 1, mid)
    yield "silent fallback, estimate scaled to GSM8K", fallback_tpot(mid, k.c)
    yield "the same as throughput", 1 / fallback_tpot(mid, k.c)
    yield "round time, synthetic", k.tpot["mtp"] * k.a
    yield "round time, GSM8K", k.gsm["tpot"] * k.a_gsm
    yield "c on GSM8K, scaled mid rung", c_from_times(k.gsm["tpot"], k.a_gsm, mid)


def _split(k: Known) -> Iterator[Row]:
    base = effective_bandwidth(k.step, k.tpot["baseline"])
    token = k.c * k.step_fp8 / k.a
    yield "two-factor split, synthetic: bytes per token", token
    yield "two-factor split, synthetic: bytes factor", k.step / token
    yield "two-factor split, synthetic: bandwidth", token / k.tpot["mtp"]
    yield "two-factor split, synthetic: bandwidth factor", token / k.tpot["mtp"] / base
    yield "total gain, synthetic", k.decode["mtp"] / k.decode["baseline"]
    token = k.c * k.step_fp8 / k.a_gsm
    base = effective_bandwidth(k.step, k.gsm_base["tpot"])
    yield "two-factor split, GSM8K: bytes per token", token
    yield "two-factor split, GSM8K: bytes factor", k.step / token
    yield "two-factor split, GSM8K: bandwidth", token / k.gsm["tpot"]
    yield "two-factor split, GSM8K: baseline bandwidth", base
    yield "two-factor split, GSM8K: bandwidth factor", token / k.gsm["tpot"] / base
    for name, metric in (
        ("TPOT", "tpot"),
        ("decode throughput", "decode"),
        ("mean latency", "mean_latency"),
        ("P50 latency", "p50_latency"),
        ("P95 latency", "p95_latency"),
    ):
        yield f"change on GSM8K: {name}", k.gsm[metric] / k.gsm_base[metric] - 1
    prompts = [catalog.result(f"same-prompt-{how}").metrics["decode"] for how in ("sampled", "greedy")]
    yield "sampled over greedy, one code prompt", prompts[0] / prompts[1] - 1
    yield "total gain, GSM8K", k.gsm["decode"] / k.gsm_base["decode"]


def _context(k: Known) -> Iterator[Row]:
    yield "KV bytes per token", k.kv * 1
    yield "KV bytes per token, in KiB", k.kv * 1
    for kilo in (1000, 1024):
        for thousands in (2, 32, 256):
            read = k.kv * spec(thousands * kilo, "token", f"K = {kilo}")
            yield f"KV read at {thousands}K, K = {kilo}", read
            yield f"KV read at {thousands}K, K = {kilo}, share of the step", read / k.step


def _accuracy() -> Iterator[Row]:
    base, both = (catalog.result(r).metrics["accuracy"] for r in ("gsm8k-baseline", "gsm8k-all"))
    asked = catalog.result("gsm8k-all-counts").metrics["questions"]
    rights = [
        apply(lambda p, n: correct_of(100 * p, n), "question", "round(accuracy * questions)", p, asked)
        for p in (base, both)
    ]
    yield "right answers, baseline", rights[0]
    yield "right answers, all three", rights[1]
    yield "the accuracy change", (rights[1] - rights[0]) / asked * spec(100, "point", "percentage points in the whole")
    for side, name in enumerate(("low", "high")):
        yield (
            f"Wilson interval of the baseline's accuracy, {name}",
            apply(lambda r, n, side=side: wilson(int(r), int(n))[side], "1", "Wilson, 95%", rights[0], asked),
        )
    pairs = catalog.result("gsm8k-pairs").metrics
    only = pairs["only_baseline_right"], pairs["only_optimised_right"]
    p = apply(lambda a, b: mcnemar_exact(int(a), int(b)), "1", "binomial, two-sided", *only)
    yield "exact McNemar p", p
    for place, name in enumerate(("difference", "low", "high")):
        yield (
            f"paired accuracy {name}",
            apply(
                lambda a, b, n, place=place: 100 * paired_difference(int(a), int(b), int(n))[place],
                "point",
                "(b - c)/n in percentage points and its 95% normal interval",
                *only,
                asked,
            ),
        )
    counts = catalog.result("gsm8k-all-counts").metrics
    yield "aggregate decode throughput, all three", counts["decode_tokens"] / counts["decode_time"]
    yield "decode tokens, all three", counts["completion_tokens"] - counts["questions"]


def _capacity(k: Known) -> Iterator[Row]:
    ideal = weights_bytes(k.total, 4) * bytes_each(1)
    yield "ideal 4-bit weights", ideal
    yield "ideal room beside them", room(k.machine.memory, ideal)
    for arm, metrics in (("baseline", k.gsm_base), ("all three", k.gsm)):
        total = latency(metrics["ttft"], metrics["tpot"], metrics["mean_output"].value)
        yield f"end-to-end latency, GSM8K, {arm}", total
