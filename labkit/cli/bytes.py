"""labkit bytes: the two byte accounts of one decode step for a model on a machine."""

import argparse
import json

HELP = "what one decode step reads: the simple account and the per-tensor one"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="a catalog id, or a path to a config.json or its folder")
    parser.add_argument("--machine", default="dgx-spark", help="a catalog id, or `this` (default: dgx-spark)")
    parser.add_argument("--context", type=int, default=32768, help="tokens of context read (default: 32768)")
    parser.add_argument("--head", choices=("bf16", "fp8", "fp32"), help="format of the LM head (default: the config's)")
    parser.add_argument("--experts", metavar="FORMAT", help="format of the routed experts, e.g. mxfp4, int4-g128, bf16")
    parser.add_argument("--dense", metavar="FORMAT", help="format of the dense projections, e.g. fp8-block128, bf16")
    parser.add_argument("--kv", metavar="FORMAT", help="format of the KV cache, e.g. bf16, fp8-tensor")
    parser.add_argument("--positions", type=int, default=1, help="positions computed at once: 1 plain, m a verify step")
    parser.add_argument("--drafts", type=int, help="also the bytes of a draft-and-verify round with this many drafts")
    parser.add_argument("--tpot-ms", type=float, help="a TPOT, to see the bandwidth and utilisation it means")


def main(args: argparse.Namespace) -> int:
    from labkit import catalog
    from labkit.measure import machine as machines
    from labkit.roofline.account import per_tensor, simple
    from labkit.roofline.predictions import round_bytes
    from labkit.roofline.quantization import recipe_of

    config, machine = catalog.load_config(args.model), machines.find(args.machine)
    recipe = recipe_of(config).with_formats(experts=args.experts, dense=args.dense, kv=args.kv)
    account = per_tensor(config, context=args.context, recipe=recipe, head=args.head, tokens=args.positions)
    short = simple(config, account.recipe.head.bits, weight_bits=recipe.experts.bits)
    cycle = (
        None
        if args.drafts is None
        else round_bytes(config, context=args.context, drafts=args.drafts, recipe=recipe, head=args.head)
    )
    given = None if args.tpot_ms is None else _given(args.tpot_ms)
    if args.json:
        print(json.dumps(_document(machine, account, short, cycle, given), indent=1, ensure_ascii=False))
    else:
        _print(machine, account, short, cycle, given)
    return 0


def _given(tpot_ms: float):
    from labkit.errors import BadInput
    from labkit.evidence import reported

    if not 0 < tpot_ms < float("inf"):
        raise BadInput("tpot-ms", tpot_ms, "a positive number of milliseconds")
    # Typed in, so not a measurement of this lab's, whoever made it.
    return reported(tpot_ms, "ms", "given on the command line")


def _document(machine, account, short, cycle, given) -> dict:
    from labkit.roofline.floors import floor_s

    step = account.evidence()
    document = {
        "model": account.model,
        "machine": machine.id,
        "context": account.context,
        "positions": account.tokens,
        "bandwidth": machine.bandwidth.as_dict(),
        "simple": {
            "total_bytes": short.total_bytes,
            "weight_bytes": short.weight_bytes,
            "head_bytes": short.head_bytes,
            "active_parameters": short.active_parameters,
            "weight_bits": short.weight_bits,
            "floor_s": short.total_bytes / machine.bandwidth.si,
        },
        "per_tensor": account.as_dict(),
        "kv_bytes": account.kv_bytes,
        "state_bytes": account.state_bytes,
        "floor": floor_s(step, machine.bandwidth).as_dict(),
        "simple_over_per_tensor": short.total_bytes / step.value,
    }
    if cycle is not None:
        document["round"] = {
            "drafts": cycle.drafts,
            "total_bytes": cycle.total_bytes,
            "c": cycle.c,
            "verify_bytes": cycle.verify.total_bytes,
            "draft_bytes": cycle.draft.total_bytes,
            "distinct_experts": cycle.verify.distinct_experts,
        }
    if given is not None:
        document["at_tpot"] = {key: value.as_dict() for key, value in _against(machine, account, short, given)}
    return document


def _against(machine, account, short, given):
    """What a given time means in both accounts: (key, evidence) pairs."""
    from labkit.evidence import derived
    from labkit.roofline.floors import effective_bandwidth, utilisation

    step = account.evidence()
    simple_step = derived(short.total_bytes, "B", "simple account", step.inputs)
    for name, size in (("per_tensor", step), ("simple", simple_step)):
        yield f"{name}_bandwidth", effective_bandwidth(size, given)
        yield f"{name}_utilisation", utilisation(size, given, machine.bandwidth)


def _print(machine, account, short, cycle, given) -> None:
    from labkit.roofline.floors import floor_s

    print(f"{account.model}: {account.what}, context {account.context}, on {machine.name}")
    print(f"  bandwidth {machine.bandwidth}; source {machine.source}")
    print(f"\nPer tensor ◇ derived from {account.source}")
    print(f"  {'group':24} {'payload MB':>11} {'scales MB':>10} {'share':>6}  format")
    for g in account.groups:
        print(
            f"  {g.name:24} {g.payload_bytes / 1e6:11.2f} {g.scale_bytes / 1e6:10.2f} "
            f"{g.total_bytes / account.total_bytes:6.1%}  {g.format}"
        )
    caches = (
        ("KV read", account.kv_bytes, account.recipe.kv),
        ("state read + write", account.state_bytes, account.recipe.state),
        ("convolution memory", account.convolution_bytes, account.recipe.convolution),
    )
    for name, size, form in caches:
        if size:
            print(f"  {name:24} {size / 1e6:11.2f} {'':10} {size / account.total_bytes:6.1%}  {form.name}")
    step = account.evidence()
    print(f"  {'total':24} {account.total_bytes / 1e6:11.2f}   floor {floor_s(step, machine.bandwidth)}")
    print(
        f"\nSimple ◇ derived: {short.active_parameters / 1e9:.3f}e9 active parameters at {short.weight_bits:g} bits "
        f"+ head at {short.head_bits:g} bits"
    )
    print(
        f"  {'total':24} {short.total_bytes / 1e6:11.2f}   {short.total_bytes / account.total_bytes - 1:+.0%} "
        "against the per-tensor account"
    )
    if cycle is not None:
        print(
            f"\nRound of {cycle.drafts} drafts ◇ derived: {cycle.total_bytes / 1e6:.1f} MB = verify "
            f"{cycle.verify.total_bytes / 1e6:.1f} ({cycle.verify.distinct_experts:.1f} distinct experts a layer) + "
            f"{cycle.drafts} x draft {cycle.draft.total_bytes / 1e6:.1f}; c from bytes {cycle.c:.2f}"
        )
    if given is not None:
        print(f"\nAt a TPOT of {given}")
        for key, value in _against(machine, account, short, given):
            print(f"  {key.replace('_', ' '):24} {value.to('%') if key.endswith('utilisation') else value}")
