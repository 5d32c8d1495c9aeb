"""`labkit bytes` for people: the accounts as tables, then whether it fits and what the notes say."""


def show(look) -> None:
    account, machine = look.account, look.machine
    print(f"{account.model}: {account.what}, context {account.context}, on {machine.name}")
    shape = look.shape
    print(
        f"  {shape.total_parameters / 1e9:.4g}e9 parameters, {shape.active_parameters / 1e9:.4g}e9 active "
        f"({shape.active_with_embedding / 1e9:.4g}e9 with the embedding table) ◇ counted, {shape.architecture}"
    )
    print(f"  bandwidth {machine.bandwidth}; source {machine.source}")
    for name, value in (("sustained by a read loop", machine.sustained), ("reached by decoding", machine.decode)):
        if value is not None and machine.id != "this":
            print(f"  {name} {value}; source {value.source}")
    print(f"\nPer tensor ◇ derived from {account.source}")
    print(f"  {'group':28} {'payload MB':>11} {'scales MB':>10} {'share':>6}  format")
    for g in account.groups:
        print(
            f"  {g.name:28} {g.payload_bytes / 1e6:11.2f} {g.scale_bytes / 1e6:10.2f} "
            f"{g.total_bytes / account.total_bytes:6.1%}  {g.format}"
        )
    kv = account.quant.kv.name
    caches = [(f"{name} read", size, kv if name == "KV" else "fp8") for name, size in account.caches]
    caches += [
        ("state read + write", account.state_bytes, account.quant.state.name),
        ("convolution memory", account.convolution_bytes, account.quant.convolution.name),
    ]
    for name, size, form in caches:
        if size:
            print(f"  {name:28} {size / 1e6:11.2f} {'':10} {size / account.total_bytes:6.1%}  {form}")
    print(f"  {'total':28} {account.total_bytes / 1e6:11.2f}   floor {look.floor}")
    _simple(look)
    _round(look)
    if look.influences is not None:
        print("\nThe floor for 1 % more of each input ◇ derived")
        for i in look.influences:
            print(f"  {i.name:28} {i.elasticity:+.2f} %   (±10 %: {i.low * 1e3:.3g} to {i.high * 1e3:.3g} ms)")
    if look.given is not None:
        print(f"\nAt a TPOT of {look.given}: {look.verdict()}")
        for key, value in look.against():
            print(f"  {key.replace('_', ' '):28} {value.to('%') if key.endswith('utilisation') else value}")
    _room(look.room)
    if look.held is not None:
        print(f"\nWeight files' headers: {look.held.sentence()}")
        for line in look.held.lines():
            print(f"  {line}")
    for note in look.notes:
        print(f"note: {note}")


def _simple(look) -> None:
    short, account = look.short, look.account
    print(
        f"\nSimple ◇ derived: {short.active_parameters / 1e9:.3f}e9 active parameters at {short.weight_bits:g} bits "
        f"+ head at {short.head_bits:g} bits"
    )
    print(
        f"  {'total':28} {short.total_bytes / 1e6:11.2f}   {short.total_bytes / account.total_bytes - 1:+.0%} "
        "against the per-tensor account"
    )


def _round(look) -> None:
    cycle = look.cycle
    if cycle is None:
        return
    distinct = f" ({cycle.verify.distinct_experts:.1f} distinct experts per layer)" if look.shape.experts else ""
    print(
        f"\nRound of {cycle.drafts} drafts ◇ derived: {cycle.total_bytes / 1e6:.1f} MB = verify "
        f"{cycle.verify.total_bytes / 1e6:.1f}{distinct} + {cycle.drafts} x draft {cycle.draft.total_bytes / 1e6:.1f}; "
        f"c from bytes {cycle.c:.2f}"
    )


def _room(room) -> None:
    if room is None:
        print("\nMemory: this machine's is not known")
        return
    read = f"{room.read_bytes / 1e9:.2f} GB read per step"
    print(f"\nTo be held in memory for {room.batch} x {room.context:,} tokens ◇ derived ({read})")
    for name, size in room.parts:
        print(f"  {name:28} {size / 1e9:11.3f} GB")
    print(f"  {room.sentence()}\n  usable: {room.how}")
