"""Two runs side by side: first whether they may be compared at all, then by how much they differ."""

from urllib.parse import urlsplit

from labkit.engines.identify import UNKNOWN, identify
from labkit.errors import BadInput
from labkit.measure import estimates
from labkit.records.reader import Run

# Engine settings are what a comparison is about; these must be equal for it to mean anything.
_MACHINE = ("cpu", "architecture", "cores", "usable_cores", "memory_bytes", "gpus", "governor")
_LOAD = ("workload", "prompt_tokens", "output_tokens", "seed", "count")
_ALSO_LOAD = ("sampling", "shots", "chat_template")  # of runs that have them
# How weights are stored is another model as far as bytes go; the LM head's format is a step of the ladder.
_QUANTISATION = ("quantization", "dense_dtype", "kv_cache_dtype", "load_format", "mamba_ssm_dtype")
_INFO = (
    "moe_runner_backend",
    "fp8_lm_head",
    "enable_fp32_lm_head",
    "kernel_variant",
    "threads",
    "attention_backend",
    "fp8_gemm_runner_backend",
    "speculative_algorithm",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "simulate_acc_len",
    "context_length",
    "random_seed",
)
# Without these nobody can say whether the two are alike.
_NEEDED = ("model", "engine", "engine version", "machine: cpu")


def pairs(a: Run, b: Run, arm: str | None = None) -> list[tuple[str, str]]:
    """Which arm of `a` stands against which of `b`: `arm` ("X" or "X:Y"), else the common names, else the only ones."""
    if arm is not None:
        left, _, right = arm.partition(":")
        for run, name in ((a, left), (b, right or left)):
            run.arm(name)  # raises BadInput for an unknown name
        return [(left, right or left)]
    common = [n for n in a.arms if n in b.arms]
    if common:
        return [(n, n) for n in common]
    if len(a.arms) == len(b.arms) == 1:
        return [(a.arms[0], b.arms[0])]
    raise BadInput("arms", f"{a.arms} and {b.arms}", "runs with an arm in common, or --arm A:B")


def conditions(a: Run, b: Run, left: str, right: str) -> list[dict]:
    """Conditions that differ between the two arms: {"what", "a", "b"}. Empty when they may be compared."""
    return [{"what": what, "a": x, "b": y} for what, x, y in _conditions(a, b, left, right) if x != y]


def unknown(a: Run, b: Run, left: str, right: str) -> list[str]:
    """Conditions that neither record tells, so that nobody can say whether they are equal."""
    found = _conditions(a, b, left, right)
    return [what for what, x, y in found if what in _NEEDED and x in (None, UNKNOWN) and y in (None, UNKNOWN)]


def _conditions(a: Run, b: Run, left: str, right: str) -> list[tuple[str, object, object]]:
    """(what, in a, in b) of everything that must be equal before TPOT or U may stand side by side."""
    out: list[tuple[str, object, object]] = []

    def check(what: str, of) -> None:
        out.append((what, of(a, left), of(b, right)))

    for name in (*_LOAD, *_ALSO_LOAD):
        check(name, lambda run, _, n=name: run.meta["parameters"].get(n))
    for name in _MACHINE:
        check(f"machine: {name}", lambda run, _, n=name: run.meta.get("environment", {}).get(n))
    check("machine: server", _host)
    check("model", _model)
    check("engine", lambda run, arm: identify(_info(run, arm)).engine)
    check("engine version", lambda run, arm: _info(run, arm).get("version"))
    for name in _QUANTISATION:
        check(f"quantisation: {name}", lambda run, arm, n=name: _info(run, arm).get(n))
    check("byte model", _byte_model)
    one, two = estimates.good(a.arm(left)), estimates.good(b.arm(right))
    return out + _prompts(one, two)


def _prompts(one: list, two: list) -> list[tuple[str, object, object]]:
    """Prompts, how they were sampled, and how long they were when the engine read them."""
    asked = [{r.get("asked_sha256") or r["prompt_sha256"] for r in rows} for rows in (one, two)]
    sent = [{r["prompt_sha256"] for r in rows} for rows in (one, two)]
    shown = (f"{len(asked[0])} distinct", f"{len(asked[1])} distinct, {len(asked[0] & asked[1])} shared")
    out = [("prompts", *(shown if asked[0] != asked[1] else (None, None)))]
    # The same prompts under other digests were sampled otherwise.
    heat = [sorted({str(r.get("temperature")) for r in rows}) for rows in (one, two)]
    if asked[0] == asked[1] and sent[0] != sent[1]:
        other = ", another seed or filter" if heat[0] == heat[1] else ""
        out.append(
            (
                "sampling of requests",
                *(f"temperature {', '.join(h)}{o}" for h, o in zip(heat, ("", other), strict=True)),
            )
        )
    read = [sorted({r["prompt_tokens"] for r in rows}) for rows in (one, two)]
    if asked[0] == asked[1]:
        out.append(("context: prompt tokens read", _range(read[0]), _range(read[1])))
    return out


def _range(values: list[int]) -> str | None:
    return None if not values else str(values[0]) if len(values) == 1 else f"{values[0]} to {values[-1]}"


def _info(run: Run, arm: str) -> dict:
    return run.described(arm).get("server_info") or {}


def _host(run: Run, arm: str) -> str | None:
    """Where an attached server runs: its machine is not the one that `environment` describes."""
    url = (run.described(arm).get("engine") or {}).get("url")
    host = urlsplit(url).hostname if url else None
    return "this machine" if host in (None, "127.0.0.1", "localhost", "::1") else host


def _byte_model(run: Run, arm: str) -> str | None:
    """By which account a ladder's bytes were counted."""
    arms = (run.meta.get("summary") or {}).get("ladder") or []
    account = next((x.get("account") for x in arms if x.get("arm") == arm), None)
    return (account or {}).get("byte_model")


def changes(a: Run, b: Run, left: str, right: str) -> list[dict]:
    """What was changed on purpose: resolved engine settings that differ, {"what", "a", "b"}."""
    one, two = (_info(run, name) for run, name in ((a, left), (b, right)))
    out = [{"what": n, "a": one.get(n), "b": two.get(n)} for n in _INFO if one.get(n) != two.get(n)]
    commits = [(run.meta.get("git") or {}).get("commit") for run in (a, b)]
    if commits[0] != commits[1]:
        out.append({"what": "lab commit", "a": commits[0], "b": commits[1]})
    return out


def compare(a: Run, b: Run, left: str, right: str, *, seed: int = 0) -> dict:
    """TPOT, TTFT and accept length of both arms, and B's times over A's with interval (above 1: B is slower).

    The two were measured apart, so their samples make no pairs. Raises NoSamples.
    """
    one, two = a.arm(left), b.arm(right)
    out = {"a": left, "b": right}
    sides = [estimates.summarise(rows, seed=seed) for rows in (one, two)]
    for name in ("tpot_s", "ttft_s", "accept_length"):
        out[name] = {"a": sides[0][name], "b": sides[1][name]}
    slower = estimates.compare(one, two, seed=seed, together=False)
    out["tpot_s"]["ratio"], out["ttft_s"]["ratio"] = slower.speedup.as_dict(), slower.ttft.as_dict()
    return out


def verdict(ratio: dict) -> str:
    """What B's times over A's say: slower, faster, or no clear difference."""
    if ratio["low"] is None:
        return "no interval: fewer than 3 repeats"
    return "slower" if ratio["low"] > 1 else "faster" if ratio["high"] < 1 else "no clear difference"


def regressed(ratio: dict, limit: float) -> bool:
    """Slower by more than `limit` (a share), and by more than chance: the interval excludes 1. Without an interval
    (fewer than 3 repeats) the median decides."""
    return ratio["median"] > 1 + limit and (ratio["low"] is None or ratio["low"] > 1)


def _model(run: Run, arm: str) -> object:
    described = run.described(arm)
    info = described.get("server_info", {})
    # Weights by checksum where the engine names one: the same model may lie in different folders.
    return (
        info.get("weights_sha256")
        or info.get("served_model_name")
        or info.get("model_path")
        or (described.get("engine") or {}).get("model")
    )
