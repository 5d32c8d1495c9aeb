"""labkit bytes: what one decode step reads, what must be held, and the floor, for a model on a machine."""

import argparse
import json

HELP = "what one decode step reads and what must be held: two byte accounts, a lower bound, whether it fits"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", help="a catalog id, a path to a config.json, its folder or a GGUF file, or an http(s) address of one"
    )
    parser.add_argument("--compare", nargs=2, metavar=("A", "B"), help="two models side by side instead of --model")
    parser.add_argument("--machine", default="dgx-spark", help="a catalog id, or `this` (default: dgx-spark)")
    parser.add_argument("--context", type=int, default=32768, help="tokens of context read (default: 32768)")
    parser.add_argument("--batch", type=int, default=1, help="sequences to be held in memory (default: 1)")
    parser.add_argument("--head", choices=("bf16", "fp8", "fp32"), help="format of the LM head (default: the config's)")
    parser.add_argument("--experts", metavar="FORMAT", help="format of the routed experts, e.g. mxfp4, int4-g128, bf16")
    parser.add_argument("--dense", metavar="FORMAT", help="format of the dense projections, e.g. fp8-block128, bf16")
    parser.add_argument("--kv", metavar="FORMAT", help="format of the KV cache, e.g. bf16, fp8-tensor")
    parser.add_argument("--positions", type=int, default=1, help="positions per step: 1 plain, m for a verify step")
    parser.add_argument("--drafts", type=int, help="also the bytes of a draft-and-verify round with this many drafts")
    parser.add_argument(
        "--tpot-ms", type=float, help="a measured TPOT: also print the bandwidth and utilisation that it implies"
    )
    parser.add_argument("--sensitivity", action="store_true", help="how the floor moves with each of its inputs")
    parser.add_argument("--no-headers", action="store_true", help="do not read the weight files' headers")


def main(args: argparse.Namespace) -> int:
    from labkit.cli import _bytes_compare, _bytes_text
    from labkit.errors import BadInput
    from labkit.measure import machine as machines

    if (args.model is None) == (args.compare is None):
        raise BadInput("model", args.model, "either --model M or --compare A B")
    machine = machines.find(args.machine)
    if args.compare:
        found = [look(args, machine, model) for model in args.compare]
        if args.json:
            print(json.dumps(_bytes_compare.document(*found), indent=1, ensure_ascii=False))
        else:
            _bytes_compare.show(*found)
        return 0
    found = look(args, machine, args.model)
    if args.json:
        print(json.dumps(found.document(), indent=1, ensure_ascii=False))
    else:
        _bytes_text.show(found)
    return 0


def look(args: argparse.Namespace, machine, model: str) -> "Look":
    """All that the command says of one model. Raises BadInput."""
    from labkit import catalog
    from labkit.roofline import stored
    from labkit.roofline.account import per_tensor
    from labkit.roofline.capacity import capacity
    from labkit.roofline.predictions import round_bytes
    from labkit.roofline.quantization import quantization_of
    from labkit.roofline.simple import simple

    config, headers = stored.open_model(model, catalog.load_config, read=not args.no_headers)
    quant, held = stored.quantization_of(config, headers) if headers else (quantization_of(config), None)
    quant = quant.with_formats(experts=args.experts, dense=args.dense, kv=args.kv)
    account = per_tensor(config, context=args.context, quant=quant, head=args.head, positions=args.positions)
    short = simple(config, account.quant.head.bits, weight_bits=None if args.experts is None else quant.experts.bits)
    cycle = None
    if args.drafts is not None:
        cycle = round_bytes(config, context=args.context, drafts=args.drafts, quant=quant, head=args.head)
    room = capacity(
        config, machine, context=args.context, batch=args.batch, drafts=args.drafts or 0, quant=account.quant
    )
    given = None if args.tpot_ms is None else _given(args.tpot_ms)
    return Look(config, machine, account, short, cycle, room, given, held, args.sensitivity)


def _given(tpot_ms: float):
    from labkit.errors import BadInput
    from labkit.evidence import reported

    if not 0 < tpot_ms < float("inf"):
        raise BadInput("tpot-ms", tpot_ms, "a positive number of milliseconds")
    # Typed in, so not a measurement of this lab's, whoever made it.
    return reported(tpot_ms, "ms", "given on the command line")


class Look:
    """One model on one machine: its accounts, whether it fits, and what follows. `document` is the JSON."""

    def __init__(self, config, machine, account, short, cycle, room, given, held, sensitive):
        from labkit.roofline.architectures import shape_of
        from labkit.roofline.floors import floor_s
        from labkit.roofline.quantization import unmatched

        self.config, self.machine, self.account, self.short = config, machine, account, short
        self.cycle, self.room, self.given, self.held = cycle, room, given, held
        self.shape = shape_of(config)
        self.floor = floor_s(account.evidence(), machine.bandwidth)
        self.notes = (*self.shape.notes, *unmatched(config), *(held.notes if held else ()))
        self.influences = self._influences() if sensitive else None

    def _influences(self):
        from labkit.roofline.sensitivities import floor_inputs

        return floor_inputs(self.account, self.machine.bandwidth.si)

    def against(self):
        """What a given time means in both accounts: (key, evidence) pairs."""
        from labkit.evidence import derived
        from labkit.roofline.floors import effective_bandwidth, utilisation

        step = self.account.evidence()
        simple_step = derived(self.short.total_bytes, "B", "simple account", step.inputs)
        for name, size in (("per_tensor", step), ("simple", simple_step)):
            yield f"{name}_bandwidth", effective_bandwidth(size, self.given)
            yield f"{name}_utilisation", utilisation(size, self.given, self.machine.bandwidth)

    def verdict(self) -> str | None:
        """Whether the given time is possible at all, by the per-tensor account."""
        if self.given is None:
            return None
        share = dict(self.against())["per_tensor_utilisation"].value
        if share > 1:
            return (
                f"impossible: {share:.0%} of the bandwidth (no engine can read {self.account.total_bytes / 1e9:.2f} "
                + (f"GB in {self.given.quantity('g')}; the floor is {self.floor.to('ms').quantity('.3g')})")
            )
        return f"possible: {share:.0%} of the bandwidth"

    def document(self) -> dict:
        from labkit.roofline.sizes import index_bytes_per_token, kv_bytes_per_token

        a, shape, quant = self.account, self.shape, self.account.quant
        document = {
            "model": a.model,
            "architecture": shape.architecture,
            "machine": self.machine.id,
            "context": a.context,
            "positions": a.positions,
            "bandwidth": self.machine.bandwidth.as_dict(),
            "total_parameters": shape.total_parameters,
            "active_parameters": shape.active_parameters,
            "active_parameters_with_embedding": shape.active_with_embedding,
            "nextn_parameters": shape.nextn_parameters,
            "nextn_layers": shape.nextn_layers,
            "simple": {
                "total_bytes": self.short.total_bytes,
                "weight_bytes": self.short.weight_bytes,
                "head_bytes": self.short.head_bytes,
                "active_parameters": self.short.active_parameters,
                "weight_bits": self.short.weight_bits,
                "floor_s": self.short.total_bytes / self.machine.bandwidth.si,
            },
            "per_tensor": a.as_dict(),
            "kv_bytes": a.kv_bytes,
            "kv_bytes_per_token": kv_bytes_per_token(self.config, quant),
            "index_bytes_per_token": index_bytes_per_token(self.config, quant),
            "state_bytes": a.state_bytes,
            "floor": self.floor.as_dict(),
            "simple_over_per_tensor": self.short.total_bytes / a.total_bytes,
            "capacity": self.room and self.room.as_dict(),
            "notes": list(self.notes),
        }
        if self.cycle is not None:
            document["round"] = {
                "drafts": self.cycle.drafts,
                "total_bytes": self.cycle.total_bytes,
                "c": self.cycle.c,
                "verify_bytes": self.cycle.verify.total_bytes,
                "draft_bytes": self.cycle.draft.total_bytes,
                "distinct_experts": self.cycle.verify.distinct_experts,
            }
        if self.given is not None:
            document["at_tpot"] = {key: value.as_dict() for key, value in self.against()} | {"verdict": self.verdict()}
        if self.held is not None:
            document["headers"] = self.held.as_dict()
        if self.influences is not None:
            document["sensitivity"] = [
                {"input": i.name, "elasticity": i.elasticity, "low_s": i.low, "high_s": i.high} for i in self.influences
            ]
        return document
