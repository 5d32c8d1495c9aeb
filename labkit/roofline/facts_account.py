"""The per-tensor account of Ling-3.0-flash and what follows from it: (name, evidence), as in facts_published.

A third element is the other figure of a disagreement, which has no row of its own.
"""

from collections.abc import Iterator

from labkit import catalog
from labkit.evidence import Evidence, derived, spec
from labkit.roofline.account import Account, per_tensor
from labkit.roofline.architectures import shape_of
from labkit.roofline.facts_published import Row
from labkit.roofline.floors import effective_bandwidth, floor_s, utilisation
from labkit.roofline.predictions import round_bytes
from labkit.roofline.simple import simple
from labkit.roofline.sizes import checkpoint_bytes

LONG = 32768 + 1024  # the middle of the synthetic load's output
SHORT = 1200


def account_facts() -> Iterator[Row]:
    """All rows that rest on the config."""
    model, machine = catalog.model("ling-3.0-flash"), catalog.machine("dgx-spark")
    source = spec(LONG, "token", model.source)
    yield from _parameters(model)
    yield from _groups(model)
    step = per_tensor(model.config, context=LONG)
    yield from _bandwidth(model, machine.bandwidth, step)
    yield from _rounds(model, source)


def _config(model: catalog.Model) -> Evidence:
    return spec(model.config.fields["hidden_size"], "param", model.source)


def _parameters(model: catalog.Model) -> Iterator[Row]:
    shape, config = shape_of(model.config), (_config(model),)
    other = shape_of(
        {**model.config.fields, "intermediate_size": 6912, "gated_attention_proj_granularity_type": "element_wise"}
    ).total_parameters
    yield (
        "parameters, Ling-3.0-flash",
        derived(shape.total_parameters, "param", "sum of tensors", config),
        derived(other, "param", "sum of tensors with 6912 and an element-wise gate", config),
    )
    yield (
        "active parameters, Ling-3.0-flash",
        derived(shape.active_parameters, "param", "dense tensors + 8 experts per layer + head", config),
    )
    yield "NEXTN layer parameters", derived(shape.nextn_parameters, "param", "sum of its tensors", config)
    wide = checkpoint_bytes(model.config, absorbed_as_read=True)
    yield (
        "checkpoint",
        derived(checkpoint_bytes(model.config), "B", "all tensors in their formats", config),
        derived(wide, "B", "the same with kv_b in BF16", config),
    )


def _groups(model: catalog.Model) -> Iterator[Row]:
    account, config = per_tensor(model.config, context=32768), (_config(model),)

    def line(name: str, part: str) -> Evidence:
        g = account.group(name)
        value = {"payload": g.payload_bytes, "scale": g.scale_bytes, "total": g.total_bytes}[part]
        return derived(value, "B", f"{name}, {part} bytes", config)

    for name, part in (
        ("KDA projections", "payload"),
        ("routed experts", "payload"),
        ("routed experts", "scale"),
        ("head", "payload"),
        ("KDA output projection", "payload"),
        ("MLA", "total"),
        ("shared experts", "payload"),
        ("router", "payload"),
        ("dense MLP", "payload"),
    ):
        yield f"a plain step: {name}, {part}", line(name, part)
    small = account.group("KDA small parts").total_bytes + account.group("norms").total_bytes
    yield "a plain step: small KDA parts and norms", derived(small, "B", "their bytes", config)
    weights = derived(account.weight_bytes, "B", "all groups", config)
    yield "a plain step: weights", weights
    for name in ("routed experts", "head", "KDA output projection", "MLA", "shared experts", "router", "dense MLP"):
        yield f"share of the weights: {name}", line(name, "total") / weights
    yield "share of the weights: KDA projections", line("KDA projections", "payload") / weights
    yield "KDA state, read and written", derived(account.state_bytes, "B", "2 * state in FP32", config)
    for thousands in (32, 256):
        read = per_tensor(model.config, context=thousands * 1024).kv_bytes
        yield f"KV at {thousands}K", derived(read, "B", "context * KV per token", config)


def _bandwidth(model: catalog.Model, nominal: Evidence, step: Account) -> Iterator[Row]:
    plain, fp8 = step.evidence(), per_tensor(model.config, context=LONG, head="fp8").evidence()
    active = model.published["active_parameters"]
    short = derived(simple(model.config, active_parameters=active.si).total_bytes, "B", "simple account", (active,))
    yield "per-tensor step at 33.8K", plain
    for name, rung, step_bytes in (
        ("baseline", "baseline", plain),
        ("Humming", "kernels", plain),
        ("FP8 head", "fp8-head", fp8),
    ):
        tpot = catalog.ladder("synthetic", "tpot")[rung]
        yield f"effective bandwidth, {name}, per tensor", effective_bandwidth(step_bytes, tpot)
        used = utilisation(step_bytes, tpot, nominal)
        yield f"utilisation, {name}, per tensor", used
        if rung != "kernels":
            yield f"headroom left, {name}, per tensor", 1 - used
    yield "floor at 273 GB/s, BF16 head", floor_s(plain, nominal)
    yield "floor at 273 GB/s, FP8 head", floor_s(fp8, nominal)
    yield "the per-tensor step above the simple one", plain / short - 1
    yield "the simple step below the per-tensor one", 1 - short / plain


def _rounds(model: catalog.Model, source: Evidence) -> Iterator[Row]:
    for context, drafts in ((LONG, 1), (LONG, 2), (LONG, 3), (LONG, 4), (LONG, 5), (SHORT, 3)):
        c, with_kv = (
            derived(
                round_bytes(model.config, context=context, drafts=drafts, head="fp8", draft_kv=own).c,
                "1",
                f"(verify + drafts * draft pass) / plain step, draft KV {'counted' if own else 'left out'}",
                (source,),
            )
            for own in (False, True)
        )
        yield f"c from bytes, {drafts + 1} positions, {context} tokens", c, with_kv
