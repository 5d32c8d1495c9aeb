"""labkit facts: every published derived number beside what the lab computes."""

import argparse
import json

HELP = "compare every published derived number with what the lab computes from the catalog"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", metavar="WORD", help="only rows whose name contains WORD")
    parser.add_argument("--sensitivity", action="store_true", help="how each prediction moves with each of its inputs")
    parser.add_argument("--why", action="store_true", help="also the formula, its sources and its assumptions")


def main(args: argparse.Namespace) -> int:
    """Exit code 1 when a computed value does not agree with the published one."""
    from labkit.errors import BadInput
    from labkit.roofline.facts import facts

    rows = [f for f in facts() if not args.only or args.only.lower() in f.name.lower()]
    if not rows:
        raise BadInput("only", args.only, "part of a row's name (see labkit facts)")
    influences = _sensitivities() if args.sensitivity else None
    if args.json:
        document = {"facts": [f.as_dict() for f in rows]} | ({"sensitivity": influences} if influences else {})
        print(json.dumps(document, indent=1, ensure_ascii=False))
    else:
        _print(rows, args.why)
        for name, inputs in (influences or {}).items():
            moves = ", ".join(f"{i['input']} {i['elasticity']:+.2f}" for i in inputs)
            print(f"  {name:34} % for 1 % more (◇ derived): {moves}")
    return 0 if all(f.ok for f in rows) else 1


def _print(rows: list, why: bool) -> None:
    width = max(len(f.name) for f in rows)
    print(f"{'':3} {'number':{width}}  {'published':>10}  {'computed':>12} {'unit':8} tier; where it was published")
    for f in rows:
        unit = "" if f.published.unit == "1" else f.published.unit
        value = f"{f.value:12.5g}"
        where = _short(f.published.source) + (" (derived there)" if f.published.derived_there else "")
        print(
            f"{'ok' if f.ok else '!!':3} {f.name:{width}}  {f.published.figure:>10}  {value} {unit:8} "
            f"{f.computed.badge()}; {where}"
        )
        if why:
            for label, text in (
                ("=", f.computed.formula),
                ("assumes", f.published.assumptions),
                ("from", f.computed.source),
            ):
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
    print("\nPublished in:")
    for source in dict.fromkeys(f.published.source for f in rows):
        print(f"  {source}")
    good = sum(f.ok for f in rows)
    print(
        f"\n{good} of {len(rows)} agree within half a unit of the last printed digit (wider only where the published "
        "figure came from rounded inputs)."
    )


def _also(f) -> str:
    """The other figure, where it has no row of its own."""
    return "" if f.also is None else f" (the other: {f.also.to(f.published.unit).quantity('.5g')})"


def _sensitivities() -> dict[str, list[dict]]:
    from labkit.roofline.sensitivities import sensitivities

    return {
        name: [{"input": i.name, "elasticity": i.elasticity, "low": i.low, "high": i.high} for i in inputs]
        for name, inputs in sensitivities().items()
    }


def _short(source: str) -> str:
    """The first words of a source's title; the whole titles stand below the table."""
    return source.partition(",")[0].partition(":")[0].partition(" (")[0]
