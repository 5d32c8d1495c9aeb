"""Two runs side by side: first whether they may be compared at all, then by how much they differ."""

from labkit.errors import BadInput
from labkit.measure import estimates
from labkit.records.reader import Run

# Engine settings are what a comparison is about; these must be equal for it to mean anything.
_MACHINE = ("cpu", "architecture", "cores", "usable_cores", "memory_bytes", "gpus", "governor")
_LOAD = ("workload", "prompt_tokens", "output_tokens", "seed", "count")
_INFO = (
    "version",
    "moe_runner_backend",
    "fp8_lm_head",
    "enable_fp32_lm_head",
    "dense_dtype",
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
    out = []

    def check(what: str, x: object, y: object) -> None:
        if x != y:
            out.append({"what": what, "a": x, "b": y})

    for name in _LOAD:
        check(name, a.meta["parameters"].get(name), b.meta["parameters"].get(name))
    for name in _MACHINE:
        check(f"machine: {name}", *(r.meta.get("environment", {}).get(name) for r in (a, b)))
    one, two = estimates.good(a.arm(left)), estimates.good(b.arm(right))
    check("model", *(_model(run, name) for run, name in ((a, left), (b, right))))
    infos = [run.described(name).get("server_info", {}) for run, name in ((a, left), (b, right))]
    check("engine", *(i.get("engine") for i in infos))
    prompts = [sorted({r["prompt_sha256"] for r in rows}) for rows in (one, two)]
    if prompts[0] != prompts[1]:
        shared = len(set(prompts[0]) & set(prompts[1]))
        out.append(
            {
                "what": "prompts",
                "a": f"{len(prompts[0])} distinct",
                "b": f"{len(prompts[1])} distinct, {shared} shared",
            }
        )
    return out


def changes(a: Run, b: Run, left: str, right: str) -> list[dict]:
    """What was changed on purpose: resolved engine settings and versions that differ, {"what", "a", "b"}."""
    one, two = (run.described(name).get("server_info", {}) for run, name in ((a, left), (b, right)))
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
