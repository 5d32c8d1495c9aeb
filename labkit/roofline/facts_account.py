"""The per-tensor account of Ling-3.0-flash and what follows from it, beside the design's figures."""

from collections.abc import Iterator

from labkit import catalog
from labkit.evidence import Evidence, derived, spec
from labkit.roofline.account import Account, checkpoint_bytes, per_tensor, simple
from labkit.roofline.architectures import shape_of
from labkit.roofline.facts_published import UTILISATION
from labkit.roofline.floors import effective_bandwidth, floor_s, utilisation
from labkit.roofline.predictions import round_bytes

ACCOUNT = "per-tensor account [10]"
LONG = 32768 + 1024   # the middle of the synthetic load's output
SHORT = 1200


def account_facts() -> Iterator[tuple]:
    """Rows: name, published text, computed, unit, source, tolerance or None, assumptions, reason."""
    model, machine = catalog.model("ling-3.0-flash"), catalog.machine("dgx-spark")
    source = spec(LONG, "token", model.source)
    yield from _parameters(model)
    yield from _groups(model)
    step = per_tensor(model.config, context=LONG)
    yield from _bandwidth(model, machine.bandwidth, step)
    yield from _rounds(model, source)


def _config(model: catalog.Model) -> Evidence:
    return spec(model.config.fields["hidden_size"], "param", model.source)


def _parameters(model: catalog.Model) -> Iterator[tuple]:
    shape, config = shape_of(model.config), (_config(model),)
    other = shape_of({**model.config.fields, "intermediate_size": 6912,
                      "gated_attention_proj_granularity_type": "element_wise"}).total_parameters
    total = derived(shape.total_parameters, "param", "sum of tensors", config)
    yield "parameters, Ling-3.0-flash", "124.41e9", total, "param", ACCOUNT, None, \
        "dense intermediate 6144 and a head-wise MLA gate", \
        "6144 or 6912: a configuration in circulation has dense intermediate 6912 and an element-wise gate; it gives " \
        f"{other / 1e9:.2f}e9"
    yield "active parameters, Ling-3.0-flash", "5.10e9", derived(
        shape.active_parameters, "param", "dense tensors + 8 experts a layer + head", config), "param", ACCOUNT, None, \
        "embedding counted as one row", ""
    yield "NEXTN layer parameters", "3.07e9", derived(shape.nextn_parameters, "param", "sum of its tensors", config), \
        "param", ACCOUNT, None, "", ""
    yield "checkpoint", "70.4", derived(checkpoint_bytes(model.config), "B", "all tensors in their formats", config), \
        "GB", "file list [8]", None, "NEXTN layer included, kv_b in FP8 on disk", \
        "70.42 or 70.45 GB: kv_b stored as FP8 or as BF16; both are 70.4 as listed"


def _groups(model: catalog.Model) -> Iterator[tuple]:
    account, config = per_tensor(model.config, context=32768), (_config(model),)

    def line(name: str, part: str = "payload") -> Evidence:
        g = account.group(name)
        value = {"payload": g.payload_bytes, "scale": g.scale_bytes, "total": g.total_bytes}[part]
        return derived(value, "B", f"{name}, {part} bytes", config)

    published = (
        ("KDA projections", "payload", "1835"), ("routed experts", "payload", "944"), ("routed experts", "scale", "59"),
        ("head", "payload", "805"), ("KDA output projection", "payload", "367"), ("MLA", "total", "254"),
        ("shared experts", "payload", "236"), ("router", "payload", "210"), ("dense MLP", "payload", "94"))
    for name, part, figure in published:
        yield f"a plain step: {name}, {part}", figure, line(name, part), "MB", ACCOUNT, None, \
            "kv_b read as BF16" if name == "MLA" else "", ""
    small = account.group("KDA small parts").total_bytes + account.group("norms").total_bytes
    yield "a plain step: small KDA parts and norms", "10", derived(small, "B", "their bytes", config), "MB", ACCOUNT, \
        None, "", ""
    weights = derived(account.weight_bytes, "B", "all groups", config)
    yield "a plain step: weights", "4814", weights, "MB", ACCOUNT, None, "", ""
    for name, part, share in (("KDA projections", "payload", "38.1"), ("routed experts", "total", "20.8"),
                              ("head", "total", "16.7"), ("KDA output projection", "total", "7.6"),
                              ("MLA", "total", "5.3"), ("shared experts", "total", "4.9"), ("router", "total", "4.4"),
                              ("dense MLP", "total", "2.0")):
        yield f"share of the weights: {name}", share, line(name, part) / weights, "%", ACCOUNT, None, "", ""
    yield "KDA state, read and written", "147", derived(account.state_bytes, "B", "2 * state in FP32", config), "MB", \
        ACCOUNT, None, "one state a round; without the convolutions' 5 MB", ""
    for thousands, figure in ((32, "264"), (256, "2114")):
        read = per_tensor(model.config, context=thousands * 1024).kv_bytes
        yield f"KV at {thousands}K", figure, derived(read, "B", "context * KV a token", config), "MB", ACCOUNT, None, \
            "K = 1024", ""


def _bandwidth(model: catalog.Model, nominal: Evidence, step: Account) -> Iterator[tuple]:
    plain, fp8 = step.evidence(), per_tensor(model.config, context=LONG, head="fp8").evidence()
    active = model.published["active_parameters"]
    short = derived(simple(model.config, active_parameters=active.si).total_bytes, "B", "simple account", (active,))
    yield "per-tensor step at 33.8K", "5.24", plain, "GB", ACCOUNT, None, "KV and state included", ""
    reason = UTILISATION
    for name, rung, step_bytes, speed, share in (("baseline", "baseline", plain, "189", "69"),
                                                 ("Humming", "kernels", plain, "207", "76"),
                                                 ("FP8 head", "fp8-head", fp8, "212", "78")):
        tpot = catalog.result(f"synthetic-{rung}").metrics["tpot"]
        note = "the FP8 head with its row scales" if rung == "fp8-head" else ""
        yield f"effective bandwidth, {name}, per tensor", speed, effective_bandwidth(step_bytes, tpot), "GB/s", \
            ACCOUNT, 1.0 if note else None, note, ""
        used = utilisation(step_bytes, tpot, nominal)
        why = reason if rung == "baseline" else ""
        yield f"utilisation, {name}, per tensor", share, used, "%", ACCOUNT, None, note, why
        if rung != "kernels":
            yield f"headroom left, {name}, per tensor", str(100 - int(share)), 1 - used, "%", ACCOUNT, None, note, why
    yield "floor at 273 GB/s, BF16 head", "19.2", floor_s(plain, nominal), "ms", ACCOUNT, None, "", ""
    yield "floor at 273 GB/s, FP8 head", "17.7", floor_s(fp8, nominal), "ms", ACCOUNT, None, "", ""
    yield "the per-tensor step above the simple one", "56", plain / short - 1, "%", ACCOUNT, None, "at 33.8K", ""
    yield "the simple step below the per-tensor one", "36", 1 - short / plain, "%", ACCOUNT, None, "at 33.8K", ""


def _rounds(model: catalog.Model, source: Evidence) -> Iterator[tuple]:
    for context, drafts, figure in ((LONG, 1, "1.31"), (LONG, 2, "1.61"), (LONG, 3, "1.91"), (LONG, 4, "2.20"),
                                    (LONG, 5, "2.50"), (SHORT, 3, "1.96")):
        c, with_kv = (round_bytes(model.config, context=context, drafts=drafts, head="fp8", draft_kv=own).c
                      for own in (False, True))
        yield f"c from bytes, {drafts + 1} positions, {context} tokens", figure, derived(
            c, "1", "(verify + drafts * draft pass) / plain step", (source,)), "1", ACCOUNT, 0.006, \
            f"independent expert choices, FP8 head; with the draft layer's own KV it is {with_kv:.2f}", \
            "with or without the draft's own KV: the published series leaves it out, though each draft must read it"
