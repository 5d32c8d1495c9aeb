"""The NumPy reference against PyTorch (recorded), against ml_dtypes' number formats, and against itself."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from training import reference
from training.reference import DraftState, Reference

IDS = np.random.default_rng(3).integers(0, 320, 30)


@pytest.fixture(scope="module")
def recorded():
    return np.load(Path(__file__).with_name("torch_logits.npz"))


@pytest.mark.parametrize("w4a8, name", [(False, ""), (True, "int8_")])
def test_logits_are_pytorchs(weights, recorded, w4a8, name):
    """Both compute in FP32; what is left is the order of summation. A wrong form of anything shows as 0.01 to 1."""
    model = Reference(weights, w4a8=w4a8, dtype=np.float64)
    tokens = recorded["tokens"]
    main = model.logits(tokens)
    assert recorded[f"{name}main"].std() > 0.5
    np.testing.assert_allclose(main, recorded[f"{name}main"], atol=2e-4)
    for s, draft in enumerate(model.draft_logits(tokens, 3), start=1):
        np.testing.assert_allclose(draft, recorded[f"{name}draft{s}"], atol=2e-4)


def test_activation_rounding_changes_the_logits_a_little(recorded):
    """So that the test above could tell w4a8 from none."""
    change = np.abs(recorded["int8_main"] - recorded["main"])
    assert 1e-3 < np.median(change) < 0.2


@given(st.data())
def test_mxfp4_is_the_standard_one(data):
    codes = data.draw(hnp.arrays(np.uint8, (3, 32)))
    scales = data.draw(hnp.arrays(np.uint8, (3, 2), elements=st.integers(90, 160)))
    low, high = (half.view(ml_dtypes.float4_e2m1fn).astype(np.float32) for half in (codes & 15, codes >> 4))
    values = np.stack([low, high], -1).reshape(3, 2, 32)
    expected = values * scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)[..., None]
    np.testing.assert_array_equal(reference.dequantise_mxfp4(codes, scales), expected.reshape(3, 64))


def test_blocks_take_their_own_scale():
    codes = np.ones((130, 257), np.float32).astype(ml_dtypes.float8_e4m3fn)
    scale = np.arange(6, dtype=np.float32).reshape(2, 3)
    wide = reference.dequantise_blocks(codes, scale)
    assert wide.shape == (130, 257)
    assert [wide[0, 0], wide[127, 128], wide[0, 256], wide[128, 0], wide[129, 255]] == [0, 1, 2, 3, 4]


@given(hnp.arrays(np.float32, (2, 64), elements=st.floats(-1e4, 1e4, width=32)))
def test_activation_rounding_is_within_half_a_step(x):
    groups = x.reshape(-1, 32)
    step = np.abs(groups).max(-1, keepdims=True) / 127
    error = np.abs(reference.quantise_activations(x).reshape(-1, 32) - groups)
    assert (error <= step * 0.5001 + 1e-30).all()


def test_rounding_goes_to_even():
    x = np.zeros((1, 32), np.float32)
    x[0, :5] = [127, 0.5, 1.5, 2.5, -0.5]
    assert reference.quantise_activations(x)[0, :5].tolist() == [127, 0, 2, 2, 0]


def test_fp8_head_is_near_and_keeps_the_largest(weights):
    head = weights["lm_head.weight"]
    codes, scale = reference.quantise_head(head)
    again = codes.astype(np.float32) * scale[:, None]
    np.testing.assert_allclose(again, head, rtol=2**-4, atol=float(scale.max()) * 2**-9)
    np.testing.assert_allclose(np.abs(again).max(1), np.abs(head).max(1), rtol=1e-6)


@settings(max_examples=10)
@given(cut=st.lists(st.integers(0, 30), max_size=4))
def test_pieces_give_what_the_whole_gives(weights, cut):
    model = Reference(weights)
    state, ends = model.new_state(), sorted({*cut, 0, 30})
    pieces = [model.logits(IDS[a:b], state) for a, b in zip(ends, ends[1:], strict=False)]
    np.testing.assert_allclose(np.concatenate(pieces), model.logits(IDS), atol=1e-4)


@settings(max_examples=10)
@given(st.integers(1, 29), st.integers(0, 319))
def test_nothing_sees_the_future(weights, at, token):
    model = Reference(weights)
    changed = IDS.copy()
    changed[at] = token
    np.testing.assert_allclose(model.logits(changed)[:at], model.logits(IDS)[:at], atol=1e-4)
    if token != IDS[at]:
        assert np.abs(model.logits(changed)[at:] - model.logits(IDS)[at:]).max() > 1e-3


def test_drafting_as_an_engine_does_it_gives_the_teacher_forced_rows(weights):
    """Position by position, later steps dropped again after each, as between two verify passes."""
    model, ids = Reference(weights), IDS[:12]
    hidden, whole = model.hidden(ids), model.draft_logits(ids, 3)
    draft = DraftState()
    for t in range(len(ids) - 3):
        h, own = hidden[t : t + 1], []
        for s in range(1, 4):
            h = model.draft_hidden(ids[t + s : t + s + 1], h, draft, step=s, own=own if s > 1 else None)
            np.testing.assert_allclose(model.head(h)[0], whole[s - 1][t], atol=1e-4)
    assert draft.length == len(ids) - 3


def test_taps_name_every_half_layer(weights):
    taps = {}
    model = Reference(weights)
    model.hidden(IDS[:5], taps=taps)
    layers = model.config["num_hidden_layers"]
    assert {f"layer.{i}" for i in range(layers)} | {f"layer.{i}.attention" for i in range(layers)} <= taps.keys()
    assert taps["final"].shape == (5, 64) and taps["layer.1.experts"].shape == (5, 2)


def test_float32_is_close_to_float64(weights):
    small, wide = Reference(weights).logits(IDS), Reference(weights, dtype=np.float64).logits(IDS)
    assert small.dtype == np.float32 and wide.dtype == np.float64
    np.testing.assert_allclose(small, wide, atol=1e-4)
