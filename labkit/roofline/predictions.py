"""What the accounts predict: the next rung, the counterfactual, c from bytes, the split of a gain, capacity, batches.

Each is a formula with its assumptions in the docstring; a prediction that misses is a finding, not an error to hide.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from labkit.catalog.config import ModelConfig
from labkit.errors import BadInput
from labkit.evidence import Number, positive
from labkit.roofline.account import Account, draft_pass, per_tensor
from labkit.roofline.architectures import shape_of
from labkit.roofline.quantization import Quantization, quantization_of
from labkit.roofline.sizes import cache_bytes


def next_rung(tpot: Number, bytes_before: Number, bytes_after: Number) -> Number:
    """Seconds per token after a change of bytes alone: the measured TPOT of the rung before, scaled by the bytes.

    Assumes that the bandwidth reached stays the same.
    """
    positive(tpot=tpot, bytes_before=bytes_before, bytes_after=bytes_after)
    return tpot * (bytes_after / bytes_before)


def saving(tpot: Number, step_bytes: Number, bytes_saved: Number) -> Number:
    """Seconds that leaving out `bytes_saved` saves at the effective bandwidth of a measured step (counterfactual)."""
    positive(tpot=tpot, step_bytes=step_bytes)
    return bytes_saved / (step_bytes / tpot)


@dataclass(frozen=True)
class RoundBytes:
    """A draft-and-verify round by bytes: `drafts` draft passes and one verify step of drafts + 1 positions."""

    plain: Account
    verify: Account
    draft: Account
    drafts: int

    @property
    def total_bytes(self) -> float:
        return self.verify.total_bytes + self.drafts * self.draft.total_bytes

    @property
    def c(self) -> float:
        """The round's bytes over the plain step's: what c would be if time followed bytes alone."""
        return self.total_bytes / self.plain.total_bytes


def round_bytes(
    config: "dict | ModelConfig",
    *,
    context: int,
    drafts: int,
    quant: Quantization | None = None,
    head: str | None = None,
    distinct_experts: float | None = None,
    draft_kv: bool = True,
) -> RoundBytes:
    """The bytes of a round with `drafts` drafts (so drafts + 1 positions to verify), topk 1.

    The state is counted once per round; an engine that keeps a state for each position writes more. draft_kv=False
    leaves out the NEXTN layer's own KV, as some published accounts do.
    """
    if isinstance(drafts, bool) or not isinstance(drafts, int) or drafts < 1:
        raise BadInput("drafts", drafts, "an integer of at least 1")
    common = {"context": context, "quant": quant, "head": head}
    return RoundBytes(
        per_tensor(config, **common),
        per_tensor(config, **common, positions=drafts + 1, distinct_experts=distinct_experts),
        draft_pass(config, **common, own_kv=draft_kv),
        drafts,
    )


@dataclass(frozen=True)
class Split:
    """A gain in time as bytes factor x bandwidth factor, for one assumed c. Their product does not depend on c."""

    c: float
    bytes_per_token: float
    bytes_factor: float
    bandwidth: float
    bandwidth_factor: float


def two_factor_split(
    c: float, *, a: float, step_bytes: float, base_bytes: float, tpot: float, base_tpot: float
) -> Split:
    """Split base_tpot / tpot into fewer bytes per token and more bandwidth.

    step_bytes: a plain step of the fast configuration; base_bytes: of the base. c is an input here, taken as the ratio
    of bytes: another c gives another split of the same gain, so the split alone proves nothing.
    """
    positive(c=c, a=a, step_bytes=step_bytes, base_bytes=base_bytes, tpot=tpot, base_tpot=base_tpot)
    per_token = c * step_bytes / a
    bandwidth = per_token / tpot
    return Split(c, per_token, base_bytes / per_token, bandwidth, bandwidth / (base_bytes / base_tpot))


def split_curve(cs: Sequence[float], **known: float) -> list[Split]:
    """two_factor_split over several c: the curve that shows that the split is not unique."""
    return [two_factor_split(c, **known) for c in cs]


def weights_bytes(total_parameters: Number, bits: float) -> Number:
    """Bytes of all weights at one width: the ideal, without scales, padding, and parts that stay wider."""
    positive(total_parameters=total_parameters, bits=bits)
    return total_parameters * (bits / 8)


def room(memory: Number, weights: Number) -> Number:
    """Bytes that ideally remain beside the weights (negative when they do not fit); the system takes its part too."""
    return memory - weights


def context_crossover(
    config: "dict | ModelConfig", quant: Quantization | None = None, head: str | None = None
) -> float:
    """Context length at which the KV read of a step equals its weights (in tokens, not rounded).

    The KV grows in pieces: a layer whose window is full adds nothing further. BadInput where KV never gets there.
    """
    quant = quant or quantization_of(config)
    shape, target = shape_of(config), per_tensor(config, context=0, quant=quant, head=head).weight_bytes
    start, read = 0.0, 0.0
    for end in sorted({inf if c.window is None else c.window for c in shape.caches}):
        slope = sum(cache_bytes(c, quant, 1) for c in shape.caches if c.window is None or c.window >= end)
        if slope and read + slope * (end - start) >= target:
            return start + (target - read) / slope
        read, start = read + slope * (end - start), end
    raise BadInput("context_crossover", ModelConfig.of(config).name, "a model whose KV can outgrow its weights")


def latency(ttft: Number, tpot: Number, output_tokens: float, queueing: Number | None = None) -> Number:
    """Seconds from request to last token: TTFT + TPOT * (output tokens - 1) + queueing.

    The first token is in TTFT; summaries that multiply by all output tokens count one TPOT more.
    """
    if not output_tokens >= 1:
        raise BadInput("output_tokens", output_tokens, "at least 1")
    total = ttft + tpot * (output_tokens - 1)
    return total if queueing is None else total + queueing


@dataclass(frozen=True)
class Influence:
    """How a prediction moves with one input. elasticity: percent of change for one percent of the input, near it."""

    name: str
    elasticity: float
    low: float
    high: float


def sensitivity(prediction: Callable[..., float], inputs: Mapping[str, float], swing: float = 0.1) -> list[Influence]:
    """Elasticity of a prediction in each input and its values at input x (1 -+ swing), strongest first.

    Inputs move one at a time; interactions are not shown.
    """
    if not 0 < swing < 1:
        raise BadInput("swing", swing, "a share between 0 and 1")
    centre = prediction(**inputs)
    if centre == 0:
        raise BadInput("prediction", 0, "one that is not zero at the given inputs")
    found = []
    for name, value in inputs.items():
        low, high = (prediction(**{**inputs, name: value * (1 + s)}) for s in (-swing, swing))
        near = [prediction(**{**inputs, name: value * (1 + s)}) for s in (-1e-4, 1e-4)]
        found.append(Influence(name, (near[1] - near[0]) / centre / 2e-4, low, high))
    return sorted(found, key=lambda i: -abs(i.elasticity))


@dataclass(frozen=True)
class BatchPoint:
    """One point of the batch axis. All of it is analytical: `label` must stand wherever it is shown.

    compute_s: time of the arithmetic at the machine's dense peak, None where that is not known. fits: whether the
    memory holds it, None where the memory is not known.
    """

    batch: int
    distinct_experts: float
    step_bytes: float
    memory_s: float
    compute_s: float | None
    label: str = "analytical, not measured"
    fits: bool | None = None

    @property
    def bound(self) -> str:
        """What sets the pace: memory or compute."""
        return "compute" if (self.compute_s or 0.0) > self.memory_s else "memory"

    @property
    def step_s(self) -> float:
        return max(self.memory_s, self.compute_s or 0.0)

    @property
    def tokens_per_s(self) -> float:
        return self.batch / self.step_s


def batch_axis(
    config: "dict | ModelConfig",
    batches: Sequence[int],
    *,
    context: int,
    bandwidth: float,
    peak_flops: float | None = None,
    quant: Quantization | None = None,
    head: str | None = None,
) -> list[BatchPoint]:
    """Floors of a step for several batch sizes: weights are read once, experts as many as the batch touches (expected,
    independent choices), KV and state once per sequence. bandwidth in B/s, peak_flops in FLOP/s."""
    positive(bandwidth=bandwidth)
    active = shape_of(config).active_parameters
    points = []
    for b in batches:
        account = per_tensor(config, context=context, quant=quant, head=head, positions=b)
        account = replace(
            account,
            kv_bytes=b * account.kv_bytes,
            state_bytes=b * account.state_bytes,
            convolution_bytes=b * account.convolution_bytes,
        )
        compute = None if peak_flops is None else 2 * active * b / peak_flops
        points.append(
            BatchPoint(b, account.distinct_experts, account.total_bytes, account.total_bytes / bandwidth, compute)
        )
    return points
