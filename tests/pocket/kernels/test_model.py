"""The C model against the NumPy reference: every half layer on the same input, then logits and drafts."""

import ctypes as c
from functools import lru_cache

import ml_dtypes
import numpy as np
import pytest

from labkit.pocket.options import SHIPPED_WEIGHTS
from training.reference import LayerState, Reference, rms

from .conftest import VARIANTS, f32p, i32p, ptr, text_logits

LAYERS, MAX_TOKENS, HIDDEN, VOCAB = 12, 32, 384, 6144


class RoundedCache(Reference):
    """The reference with attention reading its past from bfloat16, as the engine does."""

    def _expand(self, p, latent, rope):
        return super()._expand(p, *(x.astype(ml_dtypes.bfloat16).astype(np.float32) for x in (latent, rope)))


@pytest.fixture(scope="module")
def reference():
    return RoundedCache(SHIPPED_WEIGHTS, w4a8=True)


@pytest.fixture(scope="module")
def text(prompts):
    return prompts[0][:16]


@lru_cache
def wanted_logits(ids: tuple[int, ...], fp8_head: bool) -> np.ndarray:
    return RoundedCache(SHIPPED_WEIGHTS, w4a8=True, fp8_head=fp8_head).logits(ids)


def relative(got, want):
    return float(np.sqrt(((got - want) ** 2).mean() / (want**2).mean()))


# What a half layer's output may be off by, relative: FP32 activations differ by the order of sums alone (and by int8
# ties that flip in the experts); bfloat16 ones by 2^-9 a product, three in a row in absorbed attention; W8A8 by its
# rounding of activations and small weights.
NEAR = {"fp32": (5e-4, 4e-3), "pairs": (1e-2, 6e-3), "int8": (2.5e-2, 2.5e-2)}


@pytest.mark.parametrize("dense", ["fp8", "int8"])
@pytest.mark.parametrize("variant_name", VARIANTS)
def test_layer_by_layer(engines, reference, text, variant_name, dense):
    """Each half layer of the reference gets what the C one got, so errors cannot hide behind earlier ones."""
    engine = engines(kernel_variant=variant_name, moe_runner_backend="jit", dense_dtype=dense)
    attention, feed_forward = NEAR["int8" if dense == "int8" else "pairs" if variant_name == "avx512bf16" else "fp32"]
    taps = np.zeros((2 * LAYERS, MAX_TOKENS, HIDDEN), np.float32)
    ids = np.asarray(text, np.int32)
    engine._kernels.library.inspect_layers(c.c_void_p(engine._model.handle), ptr(ids, i32p), len(ids), ptr(taps, f32p))
    taps = taps[:, : len(ids)]
    x = reference.w["model.word_embeddings.weight"][ids]
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        h = rms(x, reference.w[prefix + "input_layernorm.weight"])
        if (layer + 1) % 6 == 0:
            added = reference._mla(prefix + "attention.", h, np.arange(len(ids)), LayerState())
        else:
            added = reference._kda(prefix + "attention.", h, LayerState())
        assert relative(taps[2 * layer] - x, added) < attention, f"attention of layer {layer}"
        x = taps[2 * layer]
        added = reference.feed_forward(layer, x)
        assert relative(taps[2 * layer + 1] - x, added) < feed_forward, f"feed-forward of layer {layer}"
        x = taps[2 * layer + 1]


@pytest.mark.parametrize(
    ("options", "fp8_head"),
    [
        ({"dense_dtype": "fp8"}, False),
        ({"moe_runner_backend": "jit", "dense_dtype": "fp8"}, False),
        ({"moe_runner_backend": "jit", "dense_dtype": "fp8", "fp8_lm_head": True}, True),
        ({"moe_runner_backend": "jit", "dense_dtype": "bf16"}, False),
        ({"moe_runner_backend": "jit", "dense_dtype": "int8"}, False),
        ({"moe_runner_backend": "jit", "dense_dtype": "fp8", "threads": 2}, False),
    ],
)
def test_logits(engines, text, options, fp8_head):
    got, want = text_logits(engines(**options), text, 1), wanted_logits(tuple(text), fp8_head)
    assert relative(got, want) < (0.05 if options["dense_dtype"] == "int8" else 0.02)
    clear = np.sort(want, -1)[:, -1] - np.sort(want, -1)[:, -2] > 0.3
    assert np.array_equal(got.argmax(-1)[clear], want.argmax(-1)[clear]) and clear.sum() > 5


def test_drafts(engines, reference, text):
    engine = engines(moe_runner_backend="jit", speculative_algorithm="NEXTN", dense_dtype="fp8")
    want, ids = reference.draft_logits(text, 3), np.asarray(text, np.int32)
    for n in (1, 2, 9, len(text) - 3):
        got = np.empty((3, VOCAB), np.float32)
        engine._kernels.library.inspect_draft(c.c_void_p(engine._model.handle), ptr(ids, i32p), n, 3, ptr(got, f32p))
        for s in range(3):
            assert relative(got[s], want[s][n - 1]) < 0.03, (n, s)


@pytest.mark.parametrize("variant_name", VARIANTS)
@pytest.mark.parametrize("dense", ["fp8", "int8"])
def test_chunks_give_the_same_bits(engines, prompts, variant_name, dense):
    engine = engines(kernel_variant=variant_name, moe_runner_backend="jit", dense_dtype=dense)
    ids = prompts[1][:64]  # two of the longest chunk and what is left over
    alone = text_logits(engine, ids, 1)
    for chunk in (2, 3, 4, 7, 31):
        assert np.array_equal(text_logits(engine, ids, chunk), alone), chunk


@pytest.mark.parametrize("dense", ["fp8", "int8"])
@pytest.mark.parametrize("other", [{"moe_runner_backend": "generic"}, {"threads": 2}, {"dense_dtype": "bf16"}])
def test_settings_that_promise_the_same_bits(engines, prompts, other, dense):
    """jit and generic, one thread and two, FP8 and BF16 dense weights: other speed, same numbers."""
    if "dense_dtype" in other and dense == "int8":
        pytest.skip("INT8 weights are other numbers")
    base = {"moe_runner_backend": "jit", "dense_dtype": dense}
    plain = text_logits(engines(**base), prompts[2][:40], 4)
    assert np.array_equal(text_logits(engines(**{**base, **other}), prompts[2][:40], 4), plain)


@pytest.mark.parametrize("variant_name", VARIANTS)
def test_a_tree_scores_each_node_as_its_path_alone_would(engines, prompts, variant_name):
    """Branching KDA states, convolutions and cache entries: every node bitwise as if its path were the text."""
    engine, ids = engines(kernel_variant=variant_name, moe_runner_backend="jit"), prompts[3][:9]
    parent = np.array([-1, 0, 0, 1, 1, 2, 3, 6, 5, 6], np.int32)
    token = np.random.default_rng(2).integers(2, VOCAB, len(parent)).astype(np.int32)
    got, past = np.empty((len(parent), VOCAB), np.float32), np.asarray(ids, np.int32)
    engine._kernels.library.inspect_verify(
        c.c_void_p(engine._model.handle),
        ptr(past, i32p),
        len(past),
        ptr(token, i32p),
        ptr(parent, i32p),
        len(parent),
        ptr(got, f32p),
    )
    for node in range(len(parent)):
        path, at = [], node
        while at >= 0:
            path.insert(0, int(token[at]))
            at = parent[at]
        assert np.array_equal(got[node], text_logits(engine, [*ids, *path], 1)[-1]), node
