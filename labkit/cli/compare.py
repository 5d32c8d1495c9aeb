"""`labkit compare`: two recorded runs, refused unless they were measured under equal conditions."""

import argparse
import json
import re
import sys

HELP = "compare two recorded runs; refuses unequal conditions and says which differ"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_a", metavar="RUN_A", help="run directory: the reference")
    parser.add_argument("run_b", metavar="RUN_B", help="run directory: the run to compare with it")
    parser.add_argument("--arm", metavar="A[:B]", help="which arms (default: every name that both have)")
    parser.add_argument("--anyway", action="store_true", help="compare despite different conditions, naming them")
    parser.add_argument(
        "--fail-if-slower",
        metavar="5%",
        help="exit code 1 if B's TPOT is higher by more than this, with an interval above 1",
    )


def main(args: argparse.Namespace) -> int:
    from labkit.errors import BadInput
    from labkit.records import read_run
    from labkit.report import compare

    limit = None if args.fail_if_slower is None else _share(args.fail_if_slower)
    a, b = read_run(args.run_a), read_run(args.run_b)
    found, unequal, unknown = [], [], []
    for left, right in compare.pairs(a, b, args.arm):
        differ = compare.conditions(a, b, left, right)
        unequal += [d for d in differ if d not in unequal]
        unknown += [w for w in compare.unknown(a, b, left, right) if w not in unknown]
        if not differ or args.anyway:
            one = compare.compare(a, b, left, right)
            found.append(one | {"unequal": differ, "changes": compare.changes(a, b, left, right)})
    refused = bool(unequal) and not args.anyway
    slower = [p for p in found if limit is not None and compare.regressed(p["tpot_s"]["ratio"], limit)]
    named = "; ".join(f"{d['what']} ({d['a']} / {d['b']})" for d in unequal)
    accepted = f"equal conditions (or --anyway); these differ: {named}"
    error = BadInput("runs", f"{args.run_a} {args.run_b}", accepted) if refused else None
    if args.json:
        document = {
            "equal_conditions": not unequal,
            "differences": unequal,
            "not_recorded": unknown,
            "pairs": [] if refused else found,
            "slower": [p["b"] for p in slower],
        }
        if error:  # one document, also for a refusal
            print(json.dumps(document | {"error": str(error), "field": error.field}))
            print(f"labkit compare: {error}", file=sys.stderr)
            return 2
        print(json.dumps(document))
    if error:
        raise error
    if not args.json:
        for line in lines(found, unequal, unknown):
            print(line)
        for p in slower:
            print(
                f"slower than allowed: {p['b']} by {_percent(p['tpot_s']['ratio'])} (limit {limit:.1%})",
            )
        for p in found:
            if limit is not None and p not in slower and p["tpot_s"]["ratio"]["median"] > 1 + limit:
                said = _percent(p["tpot_s"]["ratio"])
                print(f"not counted as slower: {p['b']} by {said}, which may be chance; more repeats would tell")
    return 1 if slower else 0


def lines(found: list[dict], unequal: list[dict], unknown: list[str] = ()) -> list[str]:
    """Text for people: what differs, what was changed, then the numbers (all measured; the ratio derived)."""
    from labkit.measure.stats import text
    from labkit.report import compare

    out = [f"NOT EQUAL: {d['what']}: {d['a']} / {d['b']}" for d in unequal]
    out += [f"cannot tell whether equal: {w} is in neither record" for w in unknown]
    for p in found:
        out.append(f"{p['a']} against {p['b']}" if p["a"] != p["b"] else p["a"])
        out += [f"  changed: {d['what']}: {d['a']} -> {d['b']}" for d in p["changes"]]
        for name, word in (("tpot_s", "TPOT"), ("ttft_s", "TTFT")):
            x, y, ratio = p[name]["a"], p[name]["b"], p[name]["ratio"]
            times = f"{x['median'] * 1e3:.3f} -> {y['median'] * 1e3:.3f} ms"
            out.append(f"  {word}  {times}   x{text(ratio)}  {compare.verdict(ratio)}")
        accept = p["accept_length"]
        if accept["a"] or accept["b"]:
            out.append("  accept length  " + " -> ".join(text(v) if v else "none" for v in accept.values()))
    return out


def _percent(ratio: dict) -> str:
    ends = "" if ratio["low"] is None else f" [{ratio['low'] - 1:+.1%}, {ratio['high'] - 1:+.1%}]"
    return f"{ratio['median'] - 1:.1%}{ends}"


def _share(text: str) -> float:
    from labkit.errors import BadInput

    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%?)", text.strip())
    value = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not match or not 0 <= value < 10:
        raise BadInput("--fail-if-slower", text, "a percentage such as 5%")
    return value
