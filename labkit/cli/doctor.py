"""`labkit doctor`: can this machine run the lab, and what does its memory sustain?"""

import json
import sys
from dataclasses import asdict

HELP = "this machine, its engines, the memory bandwidth it sustains, and what is missing with what that costs"


def add_arguments(parser) -> None:
    """--fresh measures the bandwidth again, and the better of this figure and today's is kept and shown."""
    parser.add_argument("--threads", type=int, default=1, help="threads that read (default 1, as the pocket engine)")
    parser.add_argument("--fresh", action="store_true", help="measure the bandwidth again; the better figure is kept")


def main(args) -> int:
    """Exit code 0 when the pocket engine can run here, 1 when something it needs is missing."""
    from labkit.measure import lacks as missing
    from labkit.measure import probe
    from labkit.records import environment

    machine, engines = environment.machine(), _engines()
    lacks = missing.found(machine, environment.changing())
    bandwidth = probe.bandwidth(args.threads, fresh=args.fresh)
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
        print("missing    " + ("\n           ".join(lack.line() for lack in lacks) or "nothing that the lab could use"))
    return 1 if any(lack.stops for lack in lacks) else 0


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
    return {"pocket": pocket, "sglang": sglang}
