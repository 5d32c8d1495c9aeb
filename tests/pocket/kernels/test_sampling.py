"""Sampling in C: the right tokens are kept, and they come as often as their probabilities say."""

import ctypes as c

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.pocket import build
from labkit.pocket.binding import SamplingStruct

from .conftest import f32p, ptr

VOCAB = 6144


def kept(logits, temperature, top_k, top_p, min_p):
    """The distribution that SGLang's definition leaves: {token: probability}."""
    z = logits.astype(np.float64) / temperature
    p = np.exp(z - z.max())
    p /= p.sum()
    order = np.lexsort((np.arange(len(p)), -p))
    before = np.cumsum(p[order]) - p[order]
    keep = (before <= top_p) & (p[order] >= min_p * p.max())
    if top_k > 0:
        keep &= np.arange(len(p)) < top_k
    ids = order[keep]
    return ids, p[ids] / p[ids].sum()


def draw(library, logits, temperature=1.0, top_k=-1, top_p=1.0, min_p=0.0, seed=0, index=0):
    params = SamplingStruct(temperature, top_p, min_p, top_k, seed)
    return library.inspect_sample(ptr(logits, f32p), c.byref(params), c.c_uint64(index))


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"),
    [
        (1.0, -1, 1.0, 0.0),
        (0.6, 29, 0.95, 0.0),
        (1.5, -1, 0.8, 0.0),
        (0.9, 5, 1.0, 0.0),
        (1.0, -1, 1.0, 0.05),
        (2.0, 50, 0.9, 0.01),
    ],
)
def test_draws_follow_the_distribution(kernels, temperature, top_k, top_p, min_p):
    """Chi-square over 6000 draws: each kept token expected at least 5 times, the rest pooled."""
    library = kernels(build.available_variants()[0]).library
    rng = np.random.default_rng(4)
    logits = rng.standard_normal(VOCAB).astype(np.float32)
    logits[rng.choice(VOCAB, 30, replace=False)] += rng.uniform(5, 9, 30).astype(np.float32)
    ids, p = kept(logits, temperature, top_k, top_p, min_p)
    n = 6000
    drawn = np.array([draw(library, logits, temperature, top_k, top_p, min_p, seed=17, index=i) for i in range(n)])
    assert set(drawn) <= set(ids)
    count = np.bincount(drawn, minlength=VOCAB)[ids]
    often = p * n >= 5
    got, want = count[often].astype(float), p[often] * n
    if (~often).any():
        got, want = np.append(got, count[~often].sum()), np.append(want, p[~often].sum() * n)
    chi2, dof = ((got - want) ** 2 / want).sum(), len(want) - 1
    assert dof == 0 or chi2 < dof + 5 * np.sqrt(2 * dof), (chi2, dof)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    temperature=st.floats(0.2, 3),
    top_k=st.sampled_from([-1, 1, 2, 40, 7000]),
    top_p=st.floats(0.05, 1),
    min_p=st.sampled_from([0.0, 0.02, 0.5]),
    spread=st.floats(0.1, 8),
)
def test_only_kept_tokens_come(kernels, seed, temperature, top_k, top_p, min_p, spread):
    library = kernels(build.available_variants()[0]).library
    logits = (np.random.default_rng(seed).standard_normal(VOCAB) * spread).astype(np.float32)
    # The cut falls between float sums: a token on the edge may be kept by one arithmetic and not by the other.
    ids, _ = kept(logits, temperature, top_k, min(top_p + 1e-4, 1.0), max(min_p - 1e-6, 0))
    for index in range(20):
        assert draw(library, logits, temperature, top_k, top_p, min_p, seed, index) in ids


def test_the_draw_depends_on_seed_and_place_only(kernels):
    library = kernels(build.available_variants()[0]).library
    logits = np.random.default_rng(1).standard_normal(VOCAB).astype(np.float32)
    first = [draw(library, logits, seed=5, index=i) for i in range(50)]
    assert first == [draw(library, logits, seed=5, index=i) for i in range(50)]
    assert len(set(first)) > 40
    assert first != [draw(library, logits, seed=6, index=i) for i in range(50)]


def test_greedy_takes_the_lowest_of_equals(kernels):
    for variant in build.available_variants():
        library = kernels(variant).library
        logits = np.zeros(VOCAB, np.float32)
        logits[[77, 4000]] = 3
        assert draw(library, logits, temperature=0) == 77


def test_exp_is_exact_to_an_ulp_or_so(kernels, variant):
    x = np.concatenate([np.linspace(-87, 87, 9984), [0.0, -0.0, -100.0, -1e30] * 4]).astype(np.float32)
    y = np.empty_like(x)
    kernels(variant).library.inspect_exp(ptr(x, f32p), ptr(y, f32p), len(x))
    want = np.exp(x.astype(np.float64))
    near = x > -86
    assert np.max(np.abs(y[near] / want[near] - 1)) < 4e-7
    assert np.all(y[x < -88] == 0)
