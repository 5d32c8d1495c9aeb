"""`labkit bytes --compare A B`: what a change of format, head, context or model does to bytes and floor."""


def rows(one, other) -> list[tuple[str, float, float]]:
    """(part, bytes of A, bytes of B), parts of either, largest change first; the totals last."""
    sizes = []
    for look in (one, other):
        a = look.account
        parts = {g.name: g.total_bytes for g in a.groups} | {f"{n} read": s for n, s in a.caches}
        if state := a.state_bytes + a.convolution_bytes:
            parts["state"] = state
        sizes.append(parts)
    names = dict.fromkeys([*sizes[0], *sizes[1]])
    found = [(n, sizes[0].get(n, 0.0), sizes[1].get(n, 0.0)) for n in names]
    found.sort(key=lambda row: -abs(row[2] - row[1]))
    return [*found, ("total", one.account.total_bytes, other.account.total_bytes)]


def document(one, other) -> dict:
    """Both documents and the differences, B minus A."""
    return {
        "a": one.document(),
        "b": other.document(),
        "difference": [{"name": n, "a_bytes": a, "b_bytes": b, "bytes": b - a} for n, a, b in rows(one, other)],
        "floor_ratio": other.floor.value / one.floor.value,
    }


def show(one, other) -> None:
    a, b = one.account, other.account
    print(f"A  {a.model}\nB  {b.model}\non {one.machine.name}, context {a.context} ◇ derived")
    print(f"  {'group':28} {'A MB':>11} {'B MB':>11} {'B - A':>11}  formats")
    formats = [{g.name: g.format for g in look.account.groups} for look in (one, other)]
    for name, first, second in rows(one, other):
        told = " -> ".join(dict.fromkeys(f[name] for f in formats if name in f))
        print(f"  {name:28} {first / 1e6:11.2f} {second / 1e6:11.2f} {(second - first) / 1e6:+11.2f}  {told}")
    print(f"  {'floor':28} {one.floor.to('ms').value:11.3f} {other.floor.to('ms').value:11.3f} ms")
    print(f"  B's floor is {other.floor.value / one.floor.value:.3f} times A's")
    for letter, look in (("A", one), ("B", other)):
        if look.room is not None:
            print(f"  {letter} {look.room.sentence()}")
