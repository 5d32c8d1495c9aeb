"""How every prediction of the lab moves with each of its inputs, at the published setting."""

from collections.abc import Callable

from labkit import catalog
from labkit.roofline import floors, predictions, speculation
from labkit.roofline.account import Account, per_tensor
from labkit.roofline.predictions import Influence, sensitivity
from labkit.roofline.simple import simple

CONTEXT = 33792  # tokens: the middle of the synthetic load's output


def _predictions() -> dict[str, tuple[Callable[..., float], dict[str, float]]]:
    """name: (formula, inputs in SI), at Ling-3.0-flash on a DGX Spark."""
    ling, spark = catalog.model("ling-3.0-flash"), catalog.machine("dgx-spark")
    tpot = {rung: e.si for rung, e in catalog.ladder("synthetic", "tpot").items()}
    mtp, gsm = catalog.result("synthetic-mtp").metrics, catalog.result("gsm8k-all").metrics
    a, c, speed = mtp["accept_length"].si, mtp["verify_cost_ratio"].si, spark.bandwidth.si
    step = per_tensor(ling.config, context=CONTEXT).total_bytes
    bf16, fp8 = (simple(ling.config, bits).total_bytes for bits in (16, 8))
    return {
        "floor of a step": (floors.floor_s, {"step_bytes": step, "bandwidth": speed}),
        "utilisation": (floors.utilisation, {"step_bytes": step, "tpot": tpot["baseline"], "bandwidth": speed}),
        "next rung, FP8 head": (
            predictions.next_rung,
            {"tpot": tpot["kernels"], "bytes_before": bf16, "bytes_after": fp8},
        ),
        "counterfactual saving, FP8 head": (
            predictions.saving,
            {"tpot": tpot["baseline"], "step_bytes": bf16, "bytes_saved": bf16 - fp8},
        ),
        "TPOT with speculation": (speculation.predicted_tpot, {"tpot_plain": tpot["fp8-head"], "a": a, "c": c}),
        "c from times": (
            speculation.c_from_times,
            {"tpot_speculative": tpot["mtp"], "a": a, "tpot_plain": tpot["fp8-head"]},
        ),
        "silent fallback": (speculation.fallback_tpot, {"tpot_plain": tpot["fp8-head"], "c": c}),
        "room beside 4-bit weights": (
            lambda memory, parameters: predictions.room(memory, predictions.weights_bytes(parameters, 4)),
            {"memory": spark.memory.si, "parameters": ling.published["total_parameters"].si},
        ),
        "end-to-end latency, GSM8K": (
            predictions.latency,
            {"ttft": gsm["ttft"].si, "tpot": gsm["tpot"].si, "output_tokens": gsm["mean_output"].si},
        ),
    }


def floor_inputs(account: Account, bandwidth: float, swing: float = 0.1) -> list[Influence]:
    """What the floor of this account moves with: the bandwidth (B/s) and the bytes of each part, strongest first."""
    caches = {f"{name} read": size for name, size in account.caches}
    parts = {g.name: g.total_bytes for g in account.groups} | caches
    parts["state"] = account.state_bytes + account.convolution_bytes

    def floor(bandwidth: float, **sizes: float) -> float:
        return sum(sizes.values()) / bandwidth

    return sensitivity(floor, {"bandwidth": bandwidth} | {k: v for k, v in parts.items() if v}, swing)


def sensitivities(swing: float = 0.1) -> dict[str, list[Influence]]:
    """Each prediction's inputs, strongest first, and its values at input x (1 -+ swing)."""
    return {name: sensitivity(formula, inputs, swing) for name, (formula, inputs) in _predictions().items()}
