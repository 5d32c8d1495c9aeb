"""labkit facts: every published derived number beside what the lab computes."""

import argparse
import json

HELP = "every published derived number beside what the lab computes from the catalog"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", metavar="WORD", help="only rows whose name contains WORD")
    parser.add_argument("--why", action="store_true", help="also the formula, its sources and its assumptions")


def main(args: argparse.Namespace) -> int:
    """Exit code 1 when a computed value does not agree with the published one."""
    from labkit.errors import BadInput
    from labkit.roofline.facts import facts

    rows = [f for f in facts() if not args.only or args.only.lower() in f.name.lower()]
    if not rows:
        raise BadInput("only", args.only, "a word from a row's name (see labkit facts)")
    if args.json:
        print(json.dumps({"facts": [f.as_dict() for f in rows]}, indent=1, ensure_ascii=False))
    else:
        _print(rows, args.why)
    return 0 if all(f.ok for f in rows) else 1


def _print(rows: list, why: bool) -> None:
    width = max(len(f.name) for f in rows)
    print(f"{'':3} {'number':{width}}  {'published':>10}  {'computed':>12} {'unit':8} tier; where it was published")
    for f in rows:
        unit = "" if f.published.unit == "1" else f.published.unit
        value = f"{f.value:12.5g}"
        print(f"{'ok' if f.ok else '!!':3} {f.name:{width}}  {f.published.figure:>10}  {value} {unit:8} "
              f"{f.computed.badge()}; {f.published.source}")
        if why:
            for label, text in (("=", f.computed.formula), ("assumes", f.published.assumptions),
                                ("from", f.computed.source)):
                if text:
                    print(f"    {'':{width}}  {label} {text}")
    reasons = dict.fromkeys(f.published.reason for f in rows if f.published.reason)
    if reasons:
        print("\nPublished figures that disagree, and why:")
        for reason in reasons:
            print(f"  {reason}")
            for f in rows:
                if f.published.reason == reason:
                    print(f"    {f.published.figure:>9} {f.published.unit:7} {f.name}{_also(f)}")
    good = sum(f.ok for f in rows)
    print(f"\n{good} of {len(rows)} agree within half a unit of the last printed digit (wider only where the published "
          "figure came from rounded inputs).")


def _also(f) -> str:
    """The other figure, where it has no row of its own."""
    return "" if f.also is None else f" (the other: {f.also.to(f.published.unit).quantity('.5g')})"
