"""A campaign's records as tables: what a report shows of a machine that is no longer there."""

import json
import re
import tarfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from labkit.catalog import load_config
from labkit.checks.checks import configuration
from labkit.checks.observed import Observed
from labkit.engines import ladder
from labkit.engines.config import EngineConfig
from labkit.engines.sglang import profile
from labkit.errors import BadInput
from labkit.evidence import Evidence, measured
from labkit.measure import estimates, machine
from labkit.measure.results import Result, cost, results_of, speedup
from labkit.records import Run, read_run
from labkit.roofline.simple import simple

RUNGS = ("baseline", "kernels", "fp8-head")
_HEAD_CHECK = r"lm_head check: relative error ([\d.]+), top-1 agreement ([\d.]+), M=1 and M=4 same tokens ([\d.]+)"
WITHIN = 0.03  # how near a prediction from bytes must come where bytes bind


@dataclass(frozen=True)
class Record:
    """A campaign on disk: one run per load, profiles by stop, logs by stop."""

    folder: Path
    runs: dict[str, Run]
    profiles: dict[str, dict] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)

    @cached_property
    def results(self) -> dict[str, dict[str, Result]]:
        """Measured arms by load and name."""
        return {load: results_of(run) for load, run in self.runs.items()}

    @property
    def gpu(self) -> dict:
        return next(iter(self.runs.values())).meta.get("gpu", {})

    @property
    def kernels(self) -> dict:
        """What one kernel of a CUDA graph cost on this kind of GPU (labkit.engines.sglang.gpu.kernel_costs): the
        campaign's own probe, or a later one beside its records. Raises BadInput when there is none."""
        if found := self.gpu.get("kernels"):
            return found
        if (self.folder / "kernels.json").exists():
            return json.loads((self.folder / "kernels.json").read_text())["kernels"]
        raise BadInput("campaign", str(self.folder), "a record with the cost of one kernel (kernels.json)")

    @property
    def bandwidth(self) -> Evidence:
        """What the GPU's memory sustained: a large copy, bytes read plus written, B/s."""
        copy = self.gpu.get("copy")
        if not copy:
            raise BadInput("campaign", str(self.folder), "a record with a copy bandwidth")
        return measured(copy["median"], "B/s", f"device copy on {copy['device']}", low=copy["low"], high=copy["high"])


def read(folder: str | Path) -> Record:
    """Read what the campaign wrote (run folders, profile.json, logs.tar.gz). Raises BadInput without a run."""
    folder = Path(folder)
    runs = {p.parent.name: read_run(p.parent) for p in sorted(folder.glob("*/run.json"))}
    runs = {name: run for name, run in runs.items() if str(run.meta.get("label", "")).startswith("campaign")}
    if not runs:
        raise BadInput("campaign", str(folder), "a folder of run directories")
    profiles = json.loads((folder / "profile.json").read_text()) if (folder / "profile.json").exists() else {}
    logs = {}
    if (folder / "logs.tar.gz").exists():
        with tarfile.open(folder / "logs.tar.gz") as tar:
            for member in tar.getmembers():
                if member.isfile() and member.name.endswith(".log") and "engine" in member.name:
                    text = tar.extractfile(member).read().decode(errors="replace")
                    logs[Path(member.name).parent.name] = text
    return Record(folder, runs, profiles, logs)


def arms_table(record: Record, load: str) -> pd.DataFrame:
    """TPOT, round time and TTFT with intervals, accept length, and the TPOT of every start; ms.

    * marks a start whose own requests differ by more than 5%; it is left out unless all starts are such.
    """
    rows = []
    for name, r in record.results[load].items():
        found, out = r.estimates, estimates.disturbed_starts(r.rows)
        starts = {k: [x for x in estimates.good(r.rows) if x.get("start", 0) == k] for k in _starts(r)}
        times = {k: estimates.estimate([{**x, "start": None} for x in mine]).tpot.value for k, mine in starts.items()}
        rows.append(
            {
                "arm": name,
                "TPOT ms": found.tpot.value * 1e3,
                **{n: 1e3 * v for n in ("low", "high") if (v := getattr(found.tpot, n)) is not None},
                "a": found.accept.value if found.accept else None,
                "round ms": found.round.value * 1e3,
                "TTFT ms": found.ttft.value * 1e3,
                "requests": found.requests,
                "by start, ms": ", ".join(f"{t * 1e3:.2f}" + ("*" if ("", k) in out else "") for k, t in times.items()),
                "between starts": (max(times.values()) - min(times.values())) / found.tpot.value,
            }
        )
    return pd.DataFrame(rows).set_index("arm")


def _starts(r: Result) -> list[int]:
    return sorted({row.get("start", 0) for row in estimates.good(r.rows)})


def accounts_table(record: Record, load: str, model: str = "ling-3.0-flash") -> pd.DataFrame:
    """Each rung against both byte accounts and the copy bandwidth: GB a step, GB/s reached, share of copy, floor."""
    rows, bandwidth, arms = [], record.bandwidth.value, record.results[load]
    for name in (n for n in RUNGS if n in arms):
        config, seconds = arms[name].arm.config, arms[name].tpot.value
        whole = machine.account(config, context=arms[name].context, model=model).total_bytes
        short = simple(load_config(model), head_bits=8 if machine.head_of(config) == "fp8" else 16).total_bytes
        rows.append(
            {
                "rung": name,
                "TPOT ms": seconds * 1e3,
                "per tensor GB": whole / 1e9,
                "simple GB": short / 1e9,
                "per tensor GB/s": whole / seconds / 1e9,
                "simple GB/s": short / seconds / 1e9,
                "share of copy": whole / seconds / bandwidth,
                "floor ms": whole / bandwidth * 1e3,
            }
        )
    return pd.DataFrame(rows).set_index("rung")


def head_step(record: Record, load: str, model: str = "ling-3.0-flash") -> dict:
    """What the FP8 head saved and what bytes alone predict, s: measured, predicted at copy speed and at the speed
    that the step before reached; error of each predicted TPOT."""
    pair = [record.results[load][name] for name in ("kernels", "fp8-head")]
    before, after = (r.tpot.value for r in pair)
    with_bf16, with_fp8 = (machine.account(r.arm.config, context=r.context, model=model).total_bytes for r in pair)
    saved = with_bf16 - with_fp8
    at_copy = before - saved / record.bandwidth.value
    at_step = before * (1 - saved / with_bf16)
    return {
        "before_s": before,
        "after_s": after,
        "saved_bytes": saved,
        "saved_s": before - after,
        "predicted_at_copy_s": at_copy,
        "error_at_copy": at_copy / after - 1,
        "predicted_at_step_s": at_step,
        "error_at_step": at_step / after - 1,
    }


def speculation_table(record: Record, load: str, plain: str, reference: str) -> pd.DataFrame:
    """S = a/c at every simulated accept length, predicted with the c of the reference arm.

    For one arm S = a/c is true by definition. It is a law only if c stays the same while a changes, so c is taken at
    one accept length and used to predict S at the others.
    """
    arms = record.results[load]
    at_reference = cost(arms[reference], arms[plain]).value
    rows = []
    for name in (n for n in arms if n.startswith("mtp a=")):
        c, s = cost(arms[name], arms[plain]), speedup(arms[name], arms[plain])
        a = arms[name].accept.value
        rows.append(
            {
                "arm": name,
                "a": a,
                "c": c.value,
                "c low": c.low,
                "c high": c.high,
                "S measured": s.value,
                "S low": s.low,
                "S high": s.high,
                "S predicted": a / at_reference,
                "error": a / at_reference / s.value - 1,
            }
        )
    return pd.DataFrame(rows).sort_values("a").set_index("arm")


def rounds_table(record: Record, load: str) -> pd.DataFrame:
    """Every pass of the engine as it arrived, ms: quantiles of the time between streamed chunks, by arm and start.

    One chunk is one step, or one draft-and-verify round. The 5% quantile is a pass that nothing else delayed.
    """
    rows = {}
    for arm in record.runs[load].arms:
        mine = [r for r in estimates.good(record.runs[load].rows) if r["arm"] == arm]
        for start in sorted({r.get("start", 0) for r in mine}):
            gaps = np.concatenate([np.diff(r["chunk_times"]) for r in mine if r.get("start", 0) == start]) * 1e3
            rows[arm, start] = {"passes": len(gaps), **{f"{q}%": np.percentile(gaps, q) for q in (5, 25, 50, 75, 95)}}
    return pd.DataFrame(rows).T


def profile_table(record: Record) -> pd.DataFrame:
    """Milliseconds of kernel time in one pass by group of kernels, mean over visits; one column a profiled server."""
    table = pd.DataFrame(
        {
            server: pd.DataFrame([profile.grouped(g["by_name"]) for g in got]).fillna(0.0).mean() * 1e3
            for server, got in _profiled(record).items()
        }
    ).fillna(0.0)
    ladder = [n for n in RUNGS if n in table]
    ladder += [n for n in table if n not in ladder]
    return table.loc[table.max(axis=1).sort_values(ascending=False).index, ladder]


def kernels_table(record: Record, pattern: str = "") -> pd.DataFrame:
    """Kernels in one pass by group, those alone whose name has `pattern` (a regular expression), mean over visits."""
    columns = {}
    for server, got in _profiled(record).items():
        counts = [
            pd.Series({n: e["count"] for n, e in g["by_name"].items() if re.search(pattern, n, re.IGNORECASE)})
            for g in got
        ]
        columns[server] = pd.DataFrame([c.groupby(profile.group).sum() for c in counts]).fillna(0.0).mean()
    return pd.DataFrame(columns).fillna(0.0)


def gaps_table(record: Record, load: str = "1k") -> pd.DataFrame:
    """How much of a pass no kernel runs: the pass as measured without the profiler, less the busy time under it; ms.

    The profiler's own span is no guide: it slows the CPU, and so every wait for it. Kernels overlap, so their sum can
    exceed the busy time.
    """
    arms, rows = record.results[load], {}
    for server, got in _profiled(record).items():
        arm = arms.get(f"{server} a=3.9") or arms[server]
        seconds = arm.estimates.round.value
        busy = float(np.mean([g["busy_s"] for g in got]))
        rows[server] = {
            "pass ms": seconds * 1e3,
            "kernels": np.mean([g["kernels_per_step"] for g in got]),
            "busy ms": busy * 1e3,
            "sum of kernels ms": np.mean([sum(e["time_s"] for e in g["by_name"].values()) for g in got]) * 1e3,
            "gap ms": (seconds - busy) * 1e3,
            "gap share": 1 - busy / seconds,
        }
    return pd.DataFrame(rows).T


def _profiled(record: Record) -> dict[str, list[dict]]:
    """Profiles by server; several visits may each have one."""
    out: dict[str, list[dict]] = {}
    for label, got in record.profiles.items():
        out.setdefault(label.split("-", 1)[1], []).append(got)
    return out


def clock_table(record: Record) -> pd.DataFrame:
    """This client's TPOT against the server's own decode throughput, by load and arm: largest relative difference."""
    rows = []
    for load, run in record.runs.items():
        for arm in run.arms:
            pairs = [
                (r["tpot_s"], 1 / r["server_decode_tok_s"])
                for r in estimates.good(run.rows)
                if r["arm"] == arm and r.get("server_decode_tok_s")
            ]
            if pairs:
                ratios = pd.Series([mine / theirs - 1 for mine, theirs in pairs])
                rows.append(
                    {
                        "load": load,
                        "arm": arm,
                        "requests": len(pairs),
                        "median": ratios.median(),
                        "largest": ratios.loc[ratios.abs().idxmax()],
                    }
                )
    return pd.DataFrame(rows)


def checks_table(record: Record, load: str = "1k") -> pd.DataFrame:
    """Configuration checks on each arm's recorded server description and the log of its first stop."""
    rows, seen = [], set()
    for arm in record.runs[load].meta["arms"]:
        server = arm["name"].split(" ")[0]
        if server in seen:
            continue
        seen.add(server)
        told = arm["engine"]
        config = EngineConfig.of_record(told)
        plain, *changes = [s for s in ladder.shipped("sglang") if s.expect != ladder.FAULT]
        has = [s.name for s in changes if _holds(told, *next(iter(s.set.items())))]
        expect = has or [plain.name]
        log = next((text for stop, text in record.logs.items() if stop.split("-", 1)[-1] == server), None)
        env = {k: v for k, v in arm["launch"]["env"].items() if k.startswith(("SGL", "LABKIT_SIMULATE"))}
        rows_of = [r for r in record.runs[load].rows if r["arm"].split(" ")[0] == server and r["status"] != "warmup"]
        mine = tuple([r for r in rows_of if r["arm"] == server] or rows_of)
        for check in configuration(Observed(arm["server_info"], log, mine, env), expect, config):
            rows.append({"server": server, **check.as_dict()})
    return pd.DataFrame(rows)


def _holds(told: dict, field: str, value: object) -> bool:
    """Whether a recorded configuration has an arm's change; any drafting counts."""
    return told.get(field) is not None if isinstance(value, dict) else told.get(field) == value


def head_checks(record: Record) -> pd.DataFrame:
    """The FP8 head against FP32 on the GPU, as the plugin logged it at each load: relative error, top-1 agreement, and
    the share of hidden states for which one and four tokens at once gave the same token."""
    found = {stop: re.search(_HEAD_CHECK, text) for stop, text in record.logs.items()}
    names = ["relative error", "top-1 agreement", "M=1 and M=4 same"]
    return pd.DataFrame({s: dict(zip(names, map(float, m.groups()), strict=True)) for s, m in found.items() if m}).T


def starts_table(record: Record) -> pd.DataFrame:
    """Seconds from go to ready of each server start, and whether kernel caches were warm."""
    rows = {}
    for run in record.runs.values():
        for arm in run.meta["arms"]:
            for start in arm["starts"]:
                warm = [n for n, w in start["kernel_caches_before"].items() if w]
                rows[arm["name"].split(" ")[0], start["start"]] = {
                    "seconds": start["start_seconds"],
                    "warm caches": ", ".join(warm) or "none",
                    "GPU clock MHz": start["gpu"].get("clocks.sm"),
                    "GPU C": start["gpu"].get("temperature.gpu"),
                }
    return pd.DataFrame(rows).T
