"""Notebook 01's sections on amounts: what is held, what a step reads, and how context, window and batch change it."""

import plotly.graph_objects as go

from labkit.evidence import derived, spec
from labkit.figures import bounds, decode
from labkit.figures import bytes as figures
from labkit.notebook.bytes.choice import Choice
from labkit.notebook.bytes.offers import WINDOWS
from labkit.notebook.render import Line
from labkit.roofline.floors import floor_s

Lines = list[Line]

# --- does it fit ---


def fits_figure(at: Choice) -> go.Figure:
    room = at.room()
    return figures.held(room) if room else figures.held_unknown(at.machine.name)


def fits_lines(at: Choice) -> Lines:
    room = at.room()
    if room is None:
        return [("memory", "not known", f"of {at.machine.name}: add it to catalog/*.yaml")]
    base = (spec(room.context, "token", at.base.source),)
    held = derived(room.held_bytes, "B", "weights + caches + state + the engine's own memory", base)
    read = derived(room.read_bytes, "B", "one plain step", base)
    share = f"{room.read_bytes / room.held_bytes:.0%} of what is held: two different numbers"
    return [
        ("to be held", held, room.sentence().partition(":")[0]),
        ("usable", room.usable, room.how),
        ("read by one step", read, f"{share}; batch size 1" if at.batch > 1 else share),
        ("longest context that fits", f"{room.longest_context:,} tokens", "◇ derived"),
    ]


# --- what is read ---


def shares(at: Choice) -> dict[str, float]:
    """Every bar's share of the step, longest first."""
    a = at.account()
    sizes = {name: (values + scales) / a.total_bytes for name, values, scales, _ in decode.parts(a)}
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def guessed(at: Choice, said: str) -> str:
    """The reader's guess of the longest bar, compared with the account."""
    sizes = shares(at)
    biggest = next(iter(sizes))
    right = "Right, it is the longest." if said == biggest else f"The longest is {biggest}: {sizes[biggest]:.0%}."
    return f"You chose {said}: {sizes.get(said, 0):.0%} of the step. {right}"


def read_figure(at: Choice) -> go.Figure:
    return decode.account_bars(at.account())


def read_lines(at: Choice) -> Lines:
    a = at.account()
    biggest, share = next(iter(shares(at).items()))
    return [
        ("bytes of one step", a.evidence(), f"context {a.context:,} tokens"),
        ("largest part", biggest, f"{share:.0%} of the step"),
        ("lower bound on time", floor_s(a.evidence(), at.machine.bandwidth), f"on {at.machine.name}"),
    ]


def accounts_figure(at: Choice) -> go.Figure:
    return figures.two_accounts(at.simple(), at.account())


def accounts_lines(at: Choice) -> Lines:
    short, full = at.simple_step(), at.account().evidence()
    return [
        ("simple account", short, ""),
        ("per-tensor account", full, ""),
        ("simple below per-tensor", (1 - short / full).to("%"), ""),
    ]


# --- context, window, changes, batch ---


def context_figure(at: Choice) -> go.Figure:
    cross, room = at.crossover(), at.room()
    last = max(at.longest, 1.2 * cross if cross and cross < 8 * at.longest else 0)
    accounts = [at.account(context=int(last * i / 40)) for i in range(41)]
    full = None if room is None or room.longest_context >= at.longest else room.longest_context
    return figures.against_context(accounts, cross, at.machine.bandwidth, at.context, full)


def context_lines(at: Choice) -> Lines:
    a, cross = at.account(), at.crossover()
    kv = derived(a.kv_bytes, "B", "context * KV per token", (spec(a.context, "token", at.base.source),))
    return [
        ("KV read per step", kv, f"{a.kv_bytes / a.total_bytes:.1%} of the step"),
        ("KV equals the weights at", f"{cross:,.0f} tokens" if cross else "no length", "◇ derived"),
    ]


def window_figure(at: Choice) -> go.Figure:
    verifies = [at.account(positions=m) for m in range(1, WINDOWS + 1)]
    return figures.against_window(verifies, at.rounds(), at.shape.experts, at.top_k, at.window)


def window_lines(at: Choice) -> Lines:
    m, verify = at.window, at.account(positions=at.window)
    most = min(at.shape.experts, m * at.top_k)
    distinct = (
        "distinct experts per layer",
        f"{verify.distinct_experts:.1f} of {at.shape.experts}",
        f"◇ derived; {most} if none were chosen twice",
    )
    ratio = f"{verify.total_bytes / at.account().total_bytes:.2f} plain steps"
    lines: Lines = [*([distinct] if at.shape.experts else []), ("bytes of the step", verify.evidence(), ratio)]
    if at.shape.nextn and m > 1:
        lines.append(
            (
                "bytes per round, drafts included",
                f"{at.rounds()[m - 2].c:.2f} plain steps",
                f"◇ derived; the accept length must exceed it, and cannot exceed {m}",
            )
        )
    return lines


def change_figure(at: Choice) -> go.Figure:
    return figures.changes(at.changes(), at.machine.bandwidth)


def change_lines(at: Choice) -> Lines:
    (_, base), *others = at.changes()
    best, account = min(others, key=lambda row: row[1].total_bytes)
    less = 1 - account.total_bytes / base.total_bytes
    return [("the largest single saving", best, f"{less:.0%} of the step's bytes, and so of the lower bound")]


def batch_figure(at: Choice) -> go.Figure:
    return bounds.batches(at.batches(), batch_end(at), at.batch)


def batch_lines(at: Choice) -> Lines:
    first, last = at.batches()[0], at.batches()[-1]
    gain = f"x{last.tokens_per_s / first.tokens_per_s:.1f}, not x{last.batch}"
    lines: Lines = [(f"batch {last.batch} over batch 1", gain, f"◇ {last.label}")]
    turn = next((p.batch for p in at.batches() if p.bound == "compute"), None)
    peak = at.peak()
    if peak is None:
        lines.append(("compute roof", "not known", "the catalog has no peak of this machine"))
    else:
        lines.append(("compute-bound from", f"batch {turn}" if turn else "no batch shown", peak[1]))
    if ends := batch_end(at):
        lines.append(("the curve stops", ends, "◇ derived"))
    return lines


def batch_end(at: Choice) -> str:
    """Why the batch curve stops where it does; empty where it was drawn to its end."""
    largest = at.largest_batch()
    if largest == 0:
        return "memory does not hold even one sequence"
    return "" if largest is None else f"memory holds no more than batch {largest}"
