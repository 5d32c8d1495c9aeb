"""Why an option may not pay. Each cause names the check or experiment that would decide; none is picked unproved."""

from dataclasses import dataclass, field

from labkit.measure.estimates import NOTHING_ACCEPTED


@dataclass(frozen=True)
class Cause:
    """A candidate: what may be wrong, what speaks for it in this case, and what would tell."""

    name: str
    why: str
    decide: str
    supported: bool | None = None


@dataclass(frozen=True)
class Benefit:
    """A benefit check at equal load: did the step make TPOT smaller? low, high: interval of the ratio before/after."""

    step: str
    ratio: float
    low: float
    high: float
    causes: tuple[Cause, ...] = field(default=())

    @property
    def verdict(self) -> str:
        """gain, loss or no difference shown: whole interval above, below or across 1."""
        return "gain" if self.low > 1 else "loss" if self.high < 1 else "no difference shown"


def judge(
    step: str,
    ratio: float,
    low: float,
    high: float,
    *,
    accept: float | None = None,
    c: float | None = None,
    fp8_head: bool = False,
    module_shared: bool | None = None,
    same_prompts: bool = True,
    sampled: bool = False,
    spread: float = 0.0,
    backend_seen: bool | None = None,
) -> Benefit:
    """Judge a step by TPOT before over TPOT after, with candidate causes whenever it is no clear gain.

    accept and c concern the mtp step. module_shared, backend_seen: what the configuration checks found (None: unknown).
    spread: largest relative difference between repeats of either arm.
    """
    plain = Benefit(step, ratio, low, high)
    if plain.verdict == "gain":
        return plain
    causes = [*_drafting(accept, c, fp8_head, module_shared, sampled)] if step == "mtp" else []
    if step == "kernels":
        causes.append(
            Cause(
                "another kernel runs",
                "a runner can fall back on this card while the report repeats what was asked",
                "the log's line about preparing experts",
                None if backend_seen is None else not backend_seen,
            )
        )
    if step == "fp8-head":
        causes.append(
            Cause(
                "the head is still 16-bit",
                "an environment variable that the engine does not know is ignored silently",
                "the proof line in the log, bytes of the head",
                None,
            )
        )
    causes += [
        Cause(
            "not the same load",
            "prompts or lengths differ between the arms",
            "prompt digests of the two arms",
            not same_prompts,
        ),
        Cause(
            "noise",
            f"repeats differ by {spread:.0%}",
            "more repeats, arms interleaved, servers started again",
            spread > abs(ratio - 1) if spread else None,
        ),
        Cause(
            "bytes do not bind here",
            "launches, small kernels and the CPU can take longer than the bytes",
            "the share of idle time in a profile",
            None,
        ),
    ]
    return Benefit(step, ratio, low, high, tuple(sorted(causes, key=lambda x: x.supported is not True)))


def _drafting(accept, c, fp8_head, module_shared, sampled) -> list[Cause]:
    nothing = None if accept is None else accept < NOTHING_ACCEPTED
    costly = None if accept is None or c is None else accept < c
    return [
        Cause(
            "the draft's head is a bare tensor",
            "an FP8 head shared without its scales gives a = 1.00 and no error",
            "the log's line about sharing the module; the accept length with a 16-bit head",
            _bare(fp8_head, module_shared, nothing),
        ),
        Cause(
            "the draft layer is misread",
            "a quantised draft read in another format accepts nothing either",
            "accept length by position; the draft's dtypes in the log",
            nothing if not fp8_head else None,
        ),
        Cause(
            "the round costs more than it accepts",
            "a gain needs a > c"
            + (f"; here a = {accept:.2f}, c = {c:.2f}" if accept is not None and c is not None else ""),
            "c over the number of draft tokens, fewer steps",
            costly,
        ),
        Cause(
            "drafts fit this load badly",
            "the accept length falls with sampling and with unfamiliar text",
            "the same server on a repetitive load, greedy",
            True if sampled and not nothing else None,
        ),
    ]


def _bare(fp8_head: bool, module_shared: bool | None, nothing: bool | None) -> bool | None:
    if not fp8_head or module_shared is True or nothing is False:
        return False
    # Accepting nothing fits this cause and others: only the log decides.
    return True if module_shared is False else None
