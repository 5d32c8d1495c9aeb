import pytest

from labkit import catalog
from labkit.errors import BadInput
from labkit.evidence import Tier, reported, spec
from labkit.roofline import floors as f
from labkit.roofline.account import per_tensor
from labkit.roofline.simple import simple

LING, SPARK = catalog.model("ling-3.0-flash"), catalog.machine("dgx-spark")


def test_plain_numbers():
    assert f.floor_s(3.355e9, 273e9) == pytest.approx(0.0122894, abs=1e-7)
    assert f.effective_bandwidth(3.355e9, 0.02771) == pytest.approx(121.08e9, rel=1e-4)
    assert f.utilisation(3.355e9, 0.02771, 273e9) == pytest.approx(0.4435, abs=1e-4)
    assert f.intensity(5.1e9, 3.355e9) == pytest.approx(3.0402, abs=1e-4)
    assert f.intensity(5.1e9, 3.355e9, positions=4) == pytest.approx(12.161, abs=1e-3)
    assert f.ridge(1e15, 273e9) == pytest.approx(3663, abs=0.1)


def test_evidence_keeps_its_tiers():
    u = f.utilisation(spec(3.355, "GB", "config"), reported(27.71, "ms", "blog"), SPARK.bandwidth)
    assert u.tier is Tier.DERIVED and u.to("%").value == pytest.approx(44.35, abs=0.01)
    assert f.intensity(spec(5.1e9, "FLOP", "x"), spec(3.355, "GB", "x")).to("FLOP/B").value == pytest.approx(
        3.04, abs=1e-3
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda x: f.floor_s(x, 1),
        lambda x: f.floor_s(1, x),
        lambda x: f.effective_bandwidth(x, 1),
        lambda x: f.effective_bandwidth(1, x),
        lambda x: f.utilisation(x, 1, 1),
        lambda x: f.utilisation(1, x, 1),
        lambda x: f.utilisation(1, 1, x),
        lambda x: f.intensity(x, 1),
        lambda x: f.intensity(1, x),
        lambda x: f.intensity(1, 1, x),
        lambda x: f.ridge(x, 1),
        lambda x: f.ridge(1, x),
        lambda x: f.compare_utilisation((WORK, x), (WORK, 1)),
        lambda x: f.compare_utilisation((WORK, 1), (WORK, x)),
    ],
)
@pytest.mark.parametrize("x", [0, -2, float("nan"), reported(0, "1", "x")])
def test_only_positive_numbers(call, x):
    with pytest.raises(BadInput, match="positive number"):
        call(x)


WORK = f.Work("per tensor", "ling-3.0-flash", "fp4", "synthetic")


def test_utilisation_is_compared_only_under_equal_conditions():
    assert f.compare_utilisation((WORK, 0.5), (WORK, 0.6)) == pytest.approx(1.2)
    for field in ("byte_model", "model", "quantization", "load"):
        other = f.Work(**{**WORK.__dict__, field: "other"})
        with pytest.raises(BadInput, match=f"{field} differ"):
            f.compare_utilisation((WORK, 0.5), (other, 0.6))
    with pytest.raises(BadInput, match="byte_model, load differ"):
        f.compare_utilisation((WORK, 0.5), (f.Work("simple", "ling-3.0-flash", "fp4", "gsm8k"), 0.6))


@pytest.mark.parametrize("rung, head", [("baseline", "bf16"), ("kernels", "bf16"), ("fp8-head", "fp8")])
def test_floors_never_lie_above_what_was_reported(rung, head):
    """Plain decoding, synthetic load: both accounts, at the context of its start, middle and end."""
    tpot = catalog.result(f"synthetic-{rung}").metrics["tpot"].si
    for context in (32768, 33792, 34816):
        floor = f.floor_s(per_tensor(LING.config, context=context, head=head).total_bytes, SPARK.bandwidth.si)
        assert floor < tpot
    assert f.floor_s(simple(LING.config, 16 if head == "bf16" else 8).total_bytes, SPARK.bandwidth.si) < tpot


def test_floors_of_speculation_and_of_the_real_load_hold_too():
    from labkit.roofline.predictions import round_bytes

    for result, context in (("synthetic-mtp", 33792), ("gsm8k-all", 1500), ("fallback", 1500)):
        metrics = catalog.result(result).metrics
        per_token = (
            round_bytes(LING.config, context=context, drafts=3, head="fp8").total_bytes / metrics["accept_length"].si
        )
        tpot = metrics["tpot"].si if "tpot" in metrics else 1 / metrics["decode"].si
        assert f.floor_s(per_token, SPARK.bandwidth.si) < tpot
    plain = per_tensor(LING.config, context=1500).total_bytes
    assert f.floor_s(plain, SPARK.bandwidth.si) < catalog.result("gsm8k-baseline").metrics["tpot"].si
