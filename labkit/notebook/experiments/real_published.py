"""What was published about the same changes on two loads, as the notebook on the real load shows it."""

from collections.abc import Sequence
from dataclasses import dataclass

from labkit import catalog
from labkit.evidence import Evidence, derived
from labkit.measure import machine
from labkit.measure.gain import Split
from labkit.notebook.render import Line
from labkit.roofline.predictions import two_factor_split

SYNTHETIC, REAL = "DGX Spark, synthetic", "DGX Spark, GSM8K"


@dataclass(frozen=True)
class Published:
    """Times per token of three arms on the synthetic load, of two on GSM8K; a on both, and the one c.

    The arm between the first and the last was not published for GSM8K.
    """

    made: tuple[Evidence, Evidence, Evidence]
    real: tuple[Evidence, Evidence]
    a: Evidence
    a_real: Evidence
    c: Evidence

    @property
    def residual(self) -> Evidence:
        """Times by which the synthetic result beats the arm before times a / c."""
        return (self.made[1] / self.made[2]) / (self.a / self.c)

    @property
    def residual_real(self) -> Evidence:
        """What is left of GSM8K's gain beside a / c, for the changes before the last and everything else."""
        return (self.real[0] / self.real[1]) / (self.a_real / self.c)

    def gains(self, parts: Sequence[str]) -> dict[str, list[tuple[str, Evidence]]]:
        """Speed-ups by load and part; parts as the figure names them."""
        base, middle, last = self.made
        own = [base / middle, middle / last, base / last] if len(parts) > 2 else [base / last]
        return {
            SYNTHETIC: list(zip(parts, own, strict=True)),
            REAL: [(parts[-1], self.real[0] / self.real[1])],
        }

    def splits(self) -> list[tuple[str, Split]]:
        """Both gains in two factors, by the simple account and with the published c as a ratio of bytes."""
        model = catalog.model("ling-3.0-flash")
        base, step = (_simple_bytes(model, bits) for bits in (16, 8))
        out = []
        for name, times, a in ((SYNTHETIC, (self.made[0], self.made[2]), self.a), (REAL, self.real, self.a_real)):
            found = two_factor_split(
                self.c.value,
                a=a.value,
                step_bytes=step,
                base_bytes=base,
                tpot=times[1].si,
                base_tpot=times[0].si,
            )
            inputs = (*times, a, self.c)
            formula = "simple account, c taken as a ratio of bytes"
            factors = (found.bytes_factor, found.bandwidth_factor)
            out.append((name, Split(*(derived(v, "1", formula, inputs) for v in factors))))
        return out

    def lines(self) -> list[Line]:
        """The published gains, their factors and what they leave open."""
        own, real = self.made[0] / self.made[2], self.real[0] / self.real[1]
        splits = dict(self.splits())
        return [
            (f"{SYNTHETIC}: all changes", own, "greedy, 32K tokens in and 2K out"),
            (f"{REAL}: all changes", real, "sampled chains of thought; the same machine and changes"),
            (f"{SYNTHETIC}: a / c", self.a / self.c, f"a = {self.a.value:.2f}, c = {self.c.value:.2f}"),
            (f"{REAL}: a / c", self.a_real / self.c, f"a = {self.a_real.value:.2f}, the same c"),
            *(
                (
                    f"{name}: fewer bytes x more bandwidth",
                    f"{s.fewer_bytes.value:.2f} x {s.more_bandwidth.value:.2f}",
                    f"with c = {self.c.value:.2f} as a ratio of bytes; another c splits the same gain otherwise",
                )
                for name, s in splits.items()
            ),
            (f"{SYNTHETIC}: residual", self.residual, "faster than the arm before times a / c: not explained there"),
            (
                f"{REAL}: residual",
                self.residual_real,
                "beside a / c: the other changes and whatever else; no arm between was published",
            ),
        ]


def published(tpots: Sequence[Evidence | None], last: str | None) -> Published | None:
    """tpots: published times per token of the ladder's three arms; last: id of the published result of the last one.
    None where any of it is missing: then there is nothing to show beside."""
    if len(tpots) != 3 or None in tpots or last is None:
        return None
    metrics = catalog.result(last).metrics
    if not {"accept_length", "verify_cost_ratio"} <= set(metrics):
        return None
    # The catalog gives a in tokens; as a count per round it can be divided by c.
    a, a_real = (
        Evidence(e.value, "1", e.tier, e.source)
        for e in (metrics["accept_length"], machine.reported("gsm8k-all", "accept_length"))
    )
    return Published(
        tuple(tpots),
        (machine.reported("gsm8k-baseline", "tpot"), machine.reported("gsm8k-all", "tpot")),
        a,
        a_real,
        metrics["verify_cost_ratio"],
    )


def _simple_bytes(model, head_bits: int) -> float:
    from labkit.roofline.simple import simple

    return simple(
        model.config, head_bits, active_parameters=model.published["active_parameters"].si, weight_bits=4
    ).total_bytes
