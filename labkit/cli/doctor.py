"""`labkit doctor`: can this machine run the lab, and what does its memory sustain?"""

import json
import sys
from dataclasses import asdict

HELP = "this machine, its engines, its sustained memory bandwidth, and what is missing and why it matters"


def add_arguments(parser) -> None:
    """--fresh measures the bandwidth again, and the better of this figure and today's is kept and shown."""
    parser.add_argument("--threads", type=int, default=1, help="reader threads (default 1, as for the pocket engine)")
    parser.add_argument("--all-threads", action="store_true", help="also measure with 2, 4, 8, ... and all threads")
    parser.add_argument(
        "--rates",
        action="store_true",
        help="also the FLOP/s that each of the pocket engine's kernels sustains (some ten seconds)",
    )
    parser.add_argument("--yaml", action="store_true", help="print an entry for your catalog/*.yaml instead")
    parser.add_argument(
        "--context", type=int, default=32768, help="context length at which models should fit (default: 32768)"
    )
    parser.add_argument("--fresh", action="store_true", help="measure the bandwidth again; the better figure is kept")


def main(args) -> int:
    """Exit code 0 when the pocket engine can run here, 1 when something it needs is missing."""
    from labkit.engines.sglang import gpu
    from labkit.measure import lacks as missing
    from labkit.measure import power, probe
    from labkit.records import environment

    machine, engines = environment.machine(), _engines()
    lacks = missing.found(machine, environment.changing())
    bandwidth = probe.bandwidth(args.threads, fresh=args.fresh)
    room, models = _fits(args.context)
    if args.yaml:
        print(_entry(machine, bandwidth), end="")
        return 0
    by_threads = _by_threads(args.fresh) if args.all_threads else []
    card, card_source = gpu.sustained()
    kernels = _rates(args.threads, args.fresh) if args.rates else {}
    compiler = environment.compiler()
    if args.json:
        document = {"machine": machine, "compiler": compiler, "engines": engines, "python": sys.version.split()[0]}
        document["memory_bandwidth"] = {
            "value": bandwidth.value,
            "low": bandwidth.low,
            "high": bandwidth.high,
            "unit": bandwidth.unit,
            "tier": str(bandwidth.tier),
            "source": bandwidth.source,
        }
        document["gpu_memory_bandwidth"] = card.as_dict() if card else {"value": None, "source": card_source}
        if by_threads:
            document["memory_bandwidth_by_threads"] = [
                {"threads": n, "value": b.value, "unit": b.unit} for n, b in by_threads
            ]
        if args.rates:
            document["kernels_flop_s"] = kernels
        document["power_meters"] = power.described()
        document["capacity"] = {"usable": room.as_dict(), "context": args.context, "models": models}
        document["missing"] = [asdict(lack) for lack in lacks]
        print(json.dumps(document, indent=1))
    else:
        print(f"machine    {machine['cpu']}, {machine['usable_cores']} cores, {machine['memory_bytes'] / 1e9:.0f} GB")
        print(f"system     {machine['system']}, Python {sys.version.split()[0]}")
        print(f"compiler   {compiler or 'none: install gcc or clang, or `pip install ziglang`'}")
        print(f"GPU        {', '.join(g['name'] for g in machine['gpus']) or 'none found'}")
        for name, state in engines.items():
            print(f"{name:10} {state}")
        print(f"memory     {bandwidth}\n           {bandwidth.source}")
        for threads, found in by_threads:
            print(f"           {threads} thread(s): {found}")
        for i, (name, by) in enumerate(kernels.items()):
            shown = ", ".join(f"{by[m] / 1e9:.0f} with {m}" for m in (1, 4, 8))
            print(f"{'' if i else 'arithmetic':10} {name}: GFLOP/s on cached operands {shown} token(s) at once")
        if card is not None or machine["gpus"]:
            print(f"GPU memory {card or card_source}" + (f"\n           {card_source}" if card else ""))
        print(f"power      {power.described()}")
        print(f"capacity   {room.quantity('.4g')} usable: {room.source}")
        for word, fits in (("fits", True), ("too large", False)):
            named = [f"{m['id']} ({m['held_bytes'] / 1e9:.1f} GB)" for m in models if m["fits"] is fits]
            if named:
                print(f"           {word} with {args.context:,} tokens: {', '.join(named)}")
        print("missing    " + ("\n           ".join(lack.line() for lack in lacks) or "nothing that the lab could use"))
    return 1 if any(lack.stops for lack in lacks) else 0


def _rates(threads: int, fresh: bool) -> dict[str, dict[int, float]]:
    """FLOP/s that each kernel of the pocket engine sustains on operands in a cache, by tokens: kernels compiled for
    these shapes, both heads. Raises LabError where the engine cannot run."""
    from labkit.measure import rates
    from labkit.pocket.options import Options

    found = {}
    for fp8 in (False, True):
        options = Options(moe_runner_backend="jit", fp8_lm_head=fp8, threads=threads)
        found |= rates.of(options, fresh=fresh).operations_s()
    return found


def _by_threads(fresh: bool) -> list[tuple]:
    """(threads, bandwidth) for 1, 2, 4, ... and all cores that this process may use."""
    import os

    from labkit.measure import probe

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    counts = sorted({2**i for i in range(cores.bit_length()) if 2**i <= cores} | {cores})
    return [(n, probe.bandwidth(n, fresh=fresh)) for n in counts]


def _entry(machine: dict, bandwidth) -> str:
    """This machine as an entry for a catalog file, with what was measured now; an id to be changed."""
    import yaml

    entry = {
        "id": "my-machine",
        "name": machine["cpu"],
        "bandwidth": {"value": round(bandwidth.to("GB/s").value, 2), "unit": "GB/s"},
        "memory": {"value": round(machine["memory_bytes"] / 1e9, 1), "unit": "GB"},
        "source": f"labkit doctor: {bandwidth.source}",
        "note": "bandwidth is what a read loop sustained, not a data sheet's figure",
    }
    return yaml.safe_dump({"machines": [entry]}, sort_keys=False, allow_unicode=True, width=120)


def _fits(context: int) -> tuple:
    """(memory that an engine may fill here, the catalog's models with what each must hold): the first NVIDIA GPU's
    where there is one, else this machine's."""
    from labkit import catalog
    from labkit.catalog import Machine
    from labkit.engines.sglang import preflight
    from labkit.evidence import measured
    from labkit.measure import machine as machines
    from labkit.roofline.capacity import capacity

    card = preflight.gpu()
    _, room = machines.this_memory()
    if card is not None and not card.unified:
        room = measured(0.9 * card.memory_bytes / 1e9, "GB", f"{card.name}, nine tenths of its memory")
    elif card is not None:
        share = preflight.UNIFIED_FRACTION * card.memory_bytes / 1e9
        room = measured(min(share, room.value), "GB", f"{card.name}, shared memory: the published static part or less")
    here = Machine("this" if card is None else "card", "here", room, room.source, usable=room)
    models = []
    for model in catalog.catalog().models.values():
        held = capacity(model.config, here, context=context)
        models.append({"id": model.id, "held_bytes": held.held_bytes, "fits": held.fits})
    return room, sorted(models, key=lambda m: m["held_bytes"])


def _engines() -> dict[str, str]:
    import importlib.util

    from labkit.errors import LabError
    from labkit.pocket import build

    try:
        command = " ".join(build.find_compiler())
        pocket = f"ready: compiles with {command}, kernels for {', '.join(build.available_variants())}"
    except LabError as e:
        pocket = f"cannot run: {e}"
    found = importlib.util.find_spec("sglang") is not None
    sglang = "installed" if found else "not installed (on a GPU host: pip install -e '.[sglang]')"
    return {"pocket": pocket, "sglang": sglang, "llamacpp": _llamacpp()}


def _llamacpp() -> str:
    from labkit.engines import llamacpp
    from labkit.errors import BadInput

    try:
        return f"ready: {' '.join(llamacpp.server())}"
    except BadInput as e:
        return f"not installed ({e.accepted})"
