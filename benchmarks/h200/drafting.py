"""What drafting cost and brought in a campaign's records: c and S by attention backend, draft steps and load."""

import numpy as np
import pandas as pd

from benchmarks.h200.tables import Record, kernels_table, profile_table
from labkit.catalog import load_config
from labkit.evidence import Evidence, derived
from labkit.measure.results import cost, speedup
from labkit.roofline.account import Account
from labkit.roofline.predictions import round_bytes

HEAD, PLAIN, DRAFTS, SLOW = "fp8-head", "fa3", "mtp a=3.9", "mtp-flashinfer a=3.9"
STEPS = (
    (1, "mtp-1-step a=1.9"),
    (2, "mtp-2-steps a=2.9"),
    (3, DRAFTS),
    (4, "mtp-4-steps a=3.9"),
    (5, "mtp-5-steps a=3.9"),
)
# Which kernels read what of the byte account. Everything else that runs reads next to nothing.
READS = {
    "expert products": ("routed experts",),
    "projections": (
        "KDA projections",
        "KDA output projection",
        "MLA",
        "shared experts",
        "dense MLP",
        "NEXTN projection",
    ),
    "head and sampling": ("head",),
    "router": ("router",),
    "norms": ("norms",),
    "KDA": ("KDA small parts",),
}
# Kernels that read weights, state or KV; the others of a group prepare, quantise and combine.
READERS = r"deep_gemm|nvjet|humming<|cutlass_3x_gemm|router_gate|delta_rule|FlashAttnFwdSm90"


def plain_of(arm: str) -> str:
    """The arm without drafting and of the same attention backend."""
    return HEAD if arm.startswith("mtp-flashinfer") else PLAIN


def drafting_table(record: Record, model: str = "ling-3.0-flash") -> pd.DataFrame:
    """Every drafting arm with accept lengths that were simulated: a, c over the plain step of its own backend with its
    interval, c by bytes alone, S over the FP8 head's rung and over the baseline with their intervals."""
    rows = []
    for load, arms in record.results.items():
        for name in (n for n in arms if n.startswith("mtp") and " a=" in n):
            arm, drafts = arms[name], arms[name].arm.config.speculative.steps
            c = cost(arm, arms[plain_of(name)])
            over = {"fp8-head": speedup(arm, arms[HEAD]), "baseline": speedup(arm, arms["baseline"])}
            rows.append(
                {
                    "load": load,
                    "arm": name,
                    "attention": arm.arm.config.attention_backend,
                    "steps": drafts,
                    "TPOT ms": arm.tpot.value * 1e3,
                    "a (simulated)": arm.accept.value,
                    "c": c.value,
                    "c interval": _interval(c),
                    "c by bytes": by_bytes(arm.context, drafts, model),
                    **{f"S over {n}": s.value for n, s in over.items()},
                    **{f"interval over {n}": _interval(s) for n, s in over.items()},
                }
            )
    return pd.DataFrame(rows).sort_values(["load", "steps", "attention", "arm"]).set_index(["load", "arm"])


def by_bytes(context: int, drafts: int, model: str = "ling-3.0-flash") -> float:
    """c if time followed bytes alone (FP8 head)."""
    return round_bytes(load_config(model), context=context, drafts=drafts, head="fp8").c


def cost_by_steps(record: Record, load: str, model: str = "ling-3.0-flash") -> tuple[list, list]:
    """(n, c) measured with FA3 and (n, c) by bytes alone, n = draft steps + 1 tokens that a round verifies."""
    arms = record.results[load]
    seen = [(n + 1, cost(arms[name], arms[PLAIN])) for n, name in STEPS]
    plain = arms[PLAIN]
    told = [
        (n + 1, derived(by_bytes(plain.context, n, model), "1", "round bytes / step bytes", (plain.tpot,)))
        for n, _ in STEPS
    ]
    return seen, told


def lost(record: Record, load: str) -> dict:
    """What the FlashInfer backend takes from MTP at a load: both S over the FP8 head's rung, how much longer a token
    takes, and the share of the gain (S - 1) that is lost. All derived from measured times at one simulated a."""
    arms = record.results[load]
    fast, slow = (speedup(arms[n], arms[HEAD]) for n in (DRAFTS, SLOW))
    return {
        "S fa3": fast,
        "S flashinfer": slow,
        "longer": arms[SLOW].tpot.value / arms[DRAFTS].tpot.value - 1,
        "share": (fast.value - slow.value) / (fast.value - 1),
        "round fa3 ms": arms[DRAFTS].estimates.round.value * 1e3,
        "round flashinfer ms": arms[SLOW].estimates.round.value * 1e3,
    }


def parts_table(record: Record, load: str = "1k", model: str = "ling-3.0-flash") -> pd.DataFrame:
    """Kernel time by part, ms, for a plain step and a round with FA3: measured, by bytes at copy speed, and by kernels.

    By kernels: every kernel that reads weights or state takes what a product reading as many bytes took on its own,
    every other one what the smallest kernel of a graph took (labkit.engines.sglang.gpu.kernel_costs); none of it is
    fitted to these passes.
    """
    kernels = _projections(profile_table(record))
    arms, speed = record.results[load], record.bandwidth.value
    moved = round_bytes(load_config(model), context=arms[PLAIN].context, drafts=3, head="fp8")
    told = {
        PLAIN: _by_part(moved.plain),
        "mtp": _by_part(moved.verify).add(3 * _by_part(moved.draft), fill_value=0),
    }
    table = pd.DataFrame(
        {
            (server, side): column
            for server, read in told.items()
            for side, column in (
                ("● measured", kernels[server]),
                ("◇ by kernels", by_kernels(record, server, read) * 1e3),
                ("◇ by bytes", read / speed * 1e3),
            )
        }
    ).fillna(0.0)
    return table.loc[table[PLAIN, "● measured"].sort_values(ascending=False).index]


def by_kernels(record: Record, server: str, read: pd.Series) -> pd.Series:
    """Seconds by part that a server's kernels of a pass would take at the probes' costs. read: bytes by part."""
    counts, readers = (_projections(kernels_table(record, pattern)[[server]])[server] for pattern in ("", READERS))
    sizes, seconds = np.array(record.kernels["reads"]).T
    out = {}
    for part, count in counts.items():
        reading = min(readers.get(part, 0.0), count) if read.get(part, 0.0) else 0.0
        each = read[part] / reading if reading else 0.0
        # What is longer than the largest probe goes on at copy speed.
        one = float(np.interp(each, sizes, seconds)) + max(each - sizes[-1], 0.0) / record.bandwidth.value
        out[part] = reading * one + (count - reading) * record.kernels["kernel_s"]
    return pd.Series(out)


def _projections(table: pd.DataFrame) -> pd.DataFrame:
    """FP8 and BF16 products as one part, as the byte account has them."""
    both = table.reindex(["FP8 projections", "BF16 products"]).fillna(0.0)
    table = table.drop(index=both.index, errors="ignore")
    table.loc["projections"] = both.sum()
    return table


def largest_residual(parts: pd.DataFrame, server: str, side: str = "◇ by kernels") -> tuple[str, float]:
    """(part, ms): where measured time differs the most from its prediction; negative where it is shorter."""
    residual = parts[server, "● measured"] - parts[server, side]
    part = residual.abs().idxmax()
    return str(part), float(residual[part])


def _by_part(account: Account) -> pd.Series:
    """Bytes of an account by the kernels that read them."""
    parts = {g.name: g.total_bytes for g in account.groups}
    out = {part: sum(parts.get(n, 0.0) for n in names) for part, names in READS.items()}
    out["KDA"] += account.state_bytes + account.convolution_bytes
    return pd.Series({**out, "MLA": account.kv_bytes})


def _interval(e: Evidence) -> str:
    return f"{e.low:.3f} to {e.high:.3f}"
