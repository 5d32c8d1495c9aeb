"""Speculation changes nothing but speed: the same tokens, greedy and sampled, whatever the tree."""

import json

import numpy as np
import pytest

from labkit.pocket.engine import Sampling
from labkit.pocket.options import SHIPPED_WEIGHTS
from training import draft_vocab

GRID = [
    (1, 1, 2),
    (2, 1, 3),
    (3, 1, 4),
    (5, 1, 6),
    (8, 1, 9),
    (1, 2, 3),
    (2, 2, 4),
    (3, 2, 8),
    (3, 4, 16),
    (5, 4, 16),
    (8, 4, 16),
    (8, 2, 5),
]
FEW = [(3, 1, 4), (3, 2, 8), (5, 4, 16)]
JIT = {"moe_runner_backend": "jit"}


def spec(steps, topk, drafts):
    return {
        **JIT,
        "speculative_algorithm": "NEXTN",
        "speculative_num_steps": steps,
        "speculative_eagle_topk": topk,
        "speculative_num_draft_tokens": drafts,
    }


def texts(engine, prompts, **sampling):
    sampling = {"temperature": 0, "max_new_tokens": 48, **sampling}
    out = []
    for i, ids in enumerate(prompts):
        generation = engine.start(ids, Sampling(seed=i, **sampling))
        stats = generation.join(120)
        out.append((generation.poll(), stats.finish_reason, stats.stop_token))
    return out


@pytest.mark.parametrize("shape", FEW)
def test_greedy_is_lossless(engines, prompts, shape):
    some = [*prompts[:4], [5], prompts[0][:33]]
    assert texts(engines(**spec(*shape)), some) == texts(engines(**JIT), some)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("shape", GRID)
def test_greedy_is_lossless_200_prompts(engines, prompts, shape):
    """Half of them held-out problems, half random ids, on which nearly every draft is wrong."""
    rng = np.random.default_rng(0)
    some = [*prompts[:100], *(rng.integers(2, 6144, rng.integers(1, 60)).tolist() for _ in range(100))]
    assert texts(engines(**spec(*shape)), some) == texts(engines(**JIT), some)


@pytest.mark.parametrize("shape", FEW)
def test_sampling_is_lossless_draw_by_draw(engines, prompts, shape):
    """A token's random number depends on the seed and its place only, so even sampled texts are the same."""
    hot = {"temperature": 1.3, "top_p": 0.97, "top_k": 200}
    some = prompts[:3]
    plain = texts(engines(**JIT), some, **hot)
    assert texts(engines(**spec(*shape)), some, **hot) == plain
    assert plain != texts(engines(**JIT), some)


@pytest.mark.parametrize(
    "sampling", [{"temperature": 1.5}, {"temperature": 1.2, "top_p": 0.9}, {"temperature": 2.0, "top_k": 8}]
)
def test_sampled_distribution_is_the_same(engines, prompts, sampling):
    """Chi-square of the third and fourth token over many seeds, other seeds for the tree than for plain decode."""
    counts = []
    for engine, first in ((engines(**JIT), 0), (engines(**spec(3, 2, 8)), 10_000)):
        seen: dict = {}
        for seed in range(first, first + 200):
            generation = engine.start(
                prompts[0][:5], Sampling(max_new_tokens=4, ignore_eos=True, seed=seed, **sampling)
            )
            generation.join(240)
            key = generation.poll()[2] % 16, generation.poll()[3] % 4  # pooled, so that cells are full enough
            seen[key] = seen.get(key, 0) + 1
        counts.append(seen)
    keys = sorted(set(counts[0]) | set(counts[1]))
    a, b = (np.array([seen.get(k, 0) for k in keys], float) for seen in counts)
    full = a + b >= 10
    a, b = np.append(a[full], a[~full].sum()), np.append(b[full], b[~full].sum())
    live = a + b > 0
    chi2, dof = ((a - b)[live] ** 2 / (a + b)[live]).sum(), live.sum() - 1
    assert dof > 3 and chi2 < dof + 5 * np.sqrt(2 * dof), (chi2, dof)


@pytest.mark.parametrize("shape", [(3, 1, 4), (3, 2, 8)])
def test_counts_add_up(engines, prompts, shape):
    engine = engines(**spec(*shape))
    stats = engine.start(prompts[0], Sampling(temperature=0, max_new_tokens=100, ignore_eos=True)).join(240)
    assert sum(stats.histogram) == stats.verify_ct and len(stats.histogram) == shape[0] + 1
    assert sum(i * n for i, n in enumerate(stats.histogram)) == stats.correct_drafts
    assert stats.proposed_drafts == stats.verify_ct * (shape[2] - 1)
    # The prefill makes one token, every pass its right drafts and one more; the last pass may be cut by the limit.
    assert 0 <= 1 + stats.correct_drafts + stats.verify_ct - stats.completion_tokens <= 1
    assert stats.completion_tokens == 100 and stats.finish_reason == "length"


def test_a_trained_model_accepts_most_drafts(engines, prompts):
    stats = (
        engines(**spec(3, 1, 4))
        .start(prompts[0], Sampling(temperature=0, max_new_tokens=60, ignore_eos=True))
        .join(240)
    )
    assert stats.completion_tokens / stats.verify_ct > 2.5


@pytest.mark.parametrize("length", [1.0, 2.6, 4.0])
def test_forced_accept_length(engines, prompts, length):
    engine = engines(**spec(3, 1, 4), simulate_acc_len=length)
    stats = engine.start(prompts[0], Sampling(temperature=0, max_new_tokens=300, ignore_eos=True)).join(240)
    assert stats.simulated
    assert stats.correct_drafts / stats.verify_ct + 1 == pytest.approx(length, abs=0.15)


def test_sharing_only_the_tensor_makes_every_draft_wrong(engines, prompts):
    """The fault: the draft reads the FP8 head's bytes as bfloat16. Text is still right, no draft is."""
    good = engines(**spec(3, 1, 4), fp8_lm_head=True)
    bad = engines(**spec(3, 1, 4), fp8_lm_head=True, faults=frozenset({"bare-head"}))
    assert texts(bad, prompts[:2]) == texts(good, prompts[:2])
    stats = bad.start(prompts[0], Sampling(temperature=0, max_new_tokens=60, ignore_eos=True)).join(240)
    assert stats.correct_drafts == 0 and stats.verify_ct == 59


@pytest.mark.parametrize(
    "extra",
    [
        {"speculative_token_map": "2048"},
        {"speculative_token_map": "64"},
        {"threads": 2},
        {"fp8_lm_head": True},
        {"speculative_token_map": "64", "fp8_lm_head": True, "threads": 2},
    ],
)
def test_options_keep_it_lossless(engines, prompts, extra):
    head = {"fp8_lm_head": True} if "fp8_lm_head" in extra else {}
    assert texts(engines(**spec(3, 1, 4), **extra), prompts[:3]) == texts(engines(**JIT, **head), prompts[:3])


def test_a_reduced_vocabulary_takes_in_the_requests_own_tokens(engines):
    """32 frequent tokens make up a part of this text only; drafts are right more often than they alone could be."""
    from tokenizers import Tokenizer

    from labkit.workloads import load

    tokenizer = Tokenizer.from_file(str(SHIPPED_WEIGHTS / "tokenizer.json"))
    prompt = tokenizer.encode(load("repetitive", count=1, seed=3)[0].text).ids
    generation = engines(**spec(3, 1, 4), speculative_token_map="32").start(
        prompt, Sampling(temperature=0, max_new_tokens=150, ignore_eos=True)
    )
    stats = generation.join(240)
    frequent = set(json.loads(draft_vocab.FILE.read_text())["by_frequency"][:32])
    share = sum(token in frequent for token in generation.poll()) / 150
    alone = 1 + share + share**2 + share**3  # were frequent tokens scattered, and every one drafted right
    assert share < 0.8 and stats.completion_tokens / stats.verify_ct > alone


def test_a_draft_reads_the_whole_head_unless_asked_otherwise(engines):
    whole = engines(**spec(3, 1, 4)).describe()
    assert whole["speculative_draft_vocab"] == 6144
    reduced = engines(**spec(3, 1, 4), speculative_token_map="1024").describe()
    assert reduced["speculative_draft_vocab"] == 1024
    rows = 6144 - 1024
    assert whole["draft_step_bytes"] - reduced["draft_step_bytes"] == rows * 384 * 2


def test_expert_record(engines, prompts):
    engine = engines(**spec(3, 1, 4))
    engine.record_experts(True)
    stats = engine.start(prompts[0], Sampling(temperature=0, max_new_tokens=40, ignore_eos=True)).join(240)
    engine.record_experts(False)
    dump = engine.dump_experts()
    assert dump["layers"] == [*range(2, 12), 12]
    # Every token of every pass of the model chooses 8 experts; the NEXTN layer sees more passes.
    tokens = stats.prompt_tokens + 4 * stats.verify_ct
    assert all(sum(layer) == 8 * tokens for layer in dump["counts"][:-1])
    for layer in dump["distinct"][:-1]:
        passes, distinct = layer[4]
        assert passes == stats.verify_ct and 8 <= distinct / passes <= 24
    engine.start(prompts[0], Sampling(temperature=0, max_new_tokens=4)).join(240)
    assert engine.dump_experts() == dump
