"""labkit catalog: machines, models and published results, with sources."""

import argparse
import json

HELP = "machines, models and published results, with their sources"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sources", action="store_true", help="also the list of sources with dates")
    parser.add_argument("--architectures", action="store_true", help="the architectures whose bytes the lab can count")
    parser.add_argument("--example", action="store_true", help="print a YAML file to start your own catalog/ from")


def main(args: argparse.Namespace) -> int:
    from labkit import catalog

    if args.example:
        print((catalog.DATA / "example.yaml").read_text(), end="")
        return 0
    if args.architectures:
        return _architectures(args.json)
    known = catalog.catalog()
    if args.json:
        print(json.dumps(_document(known), indent=1, ensure_ascii=False))
    else:
        _print(known, args.sources)
    return 0


def _architectures(as_json: bool) -> int:
    from labkit.roofline.architectures import FAMILIES

    if as_json:
        print(json.dumps({"families": FAMILIES}, indent=1))
    for family, names in () if as_json else FAMILIES.items():
        print(f"{family:16} {', '.join(names)}")
    return 0


def _document(known) -> dict:
    return {
        "machines": [
            {
                "id": m.id,
                "name": m.name,
                "bandwidth": m.bandwidth.as_dict(),
                "source": m.source,
                "note": m.note,
                "memory": m.memory and m.memory.as_dict(),
                "sustained": m.sustained and m.sustained.as_dict(),
                "peaks": [{**p.flops.as_dict(), "precision": p.precision, "sparse": p.sparse} for p in m.peaks],
            }
            for m in known.machines.values()
        ],
        "models": [
            {
                "id": m.id,
                "name": m.name,
                "architecture": m.config.architecture,
                "source": m.source,
                "published": {k: v.as_dict() for k, v in m.published.items()},
                "note": m.note,
                "config": m.config.fields,
            }
            for m in known.models.values()
        ],
        "results": [
            {
                "id": r.id,
                "title": r.title,
                "model": r.model,
                "machine": r.machine,
                "rung": r.rung,
                "load": r.load,
                "source": r.source,
                "note": r.note,
                "metrics": {k: v.as_dict() for k, v in r.metrics.items()},
            }
            for r in known.results.values()
        ],
        "recipes": list(known.recipes),
        "sources": [{"id": s.id, "title": s.title, "date": s.date, "url": s.url} for s in known.sources.values()],
    }


def _print(known, sources: bool) -> None:
    print("Machines")
    for m in known.machines.values():
        print(f"  {m.id:18} {m.name:32} {m.bandwidth}" + (f", sustained {m.sustained}" if m.sustained else ""))
    print(f"  {'this':18} {'the machine that runs the lab':32} measured when asked for (labkit doctor)")
    print("\nModels")
    for m in known.models.values():
        stated = ", ".join(
            f"{k.replace('_', ' ')} {v:.4g}"
            if v.unit != "param"
            else f"{k.replace('_', ' ')} {v.value / 1e9:.4g}e9 ({v.badge()})"
            for k, v in m.published.items()
        )
        print(f"  {m.id:20} {m.config.architecture:26} {stated}")
    print("\nPublished results □ reported")
    for r in known.results.values():
        print(f"  {r.id:22} {r.title}")
        print(f"  {'':22} " + ", ".join(f"{k.replace('_', ' ')} {v.quantity('g')}" for k, v in r.metrics.items()))
    print("\nPublished recipes □ reported")
    for r in known.recipes:
        print(f"  {r['id']:22} {r['title']}: {' '.join(r.get('flags', r.get('proof', [])))}")
    if sources:
        print("\nSources")
        for s in known.sources.values():
            print(f"  {s.id:20} {s}{' ' + s.url if s.url else ''}")
