"""The engine times its own parts: off unless asked, nothing lost, nothing counted twice, the text unchanged."""

import subprocess
import sys

import numpy as np
import pytest

from labkit.pocket import pieces
from labkit.pocket.engine import Sampling
from labkit.pocket.layout import PARTS

GREEDY = Sampling(temperature=0, max_new_tokens=33, ignore_eos=True)
MTP = {"moe_runner_backend": "jit", "fp8_lm_head": True, "speculative_algorithm": "NEXTN"}
PLAIN = {"moe_runner_backend": "jit", "fp8_lm_head": True}


def timed(engine, ids):
    engine.time_parts(True)
    generation = engine.start(ids, GREEDY)
    stats = generation.join(60)
    engine.time_parts(False)
    return generation.poll(), stats, engine.part_times()


@pytest.mark.parametrize("options", [PLAIN, MTP, {**MTP, "threads": 2}])
def test_parts_add_up_to_the_request(engines, prompts, options):
    engine = engines(**options)
    want = engine.start(prompts[0], GREEDY)
    want.join(60)
    text, stats, phases = timed(engine, prompts[0])
    assert text == want.poll()
    spent = sum(sum(p["seconds"].values()) for p in phases.values())
    assert spent == pytest.approx(stats.prefill_s + stats.decode_s, rel=0.02)
    passes = phases["verify" if stats.verify_ct else "plain"]["passes"]
    assert passes == (stats.verify_ct or 32)
    assert all(set(p["seconds"]) == set(PARTS) for p in phases.values())


def test_phases_say_what_was_read(engines, prompts):
    _, _, plain = timed(engines(**PLAIN), prompts[0])
    assert plain["plain"]["experts"] == 80 * 32 and plain["plain"]["tokens"] == 32
    past = len(prompts[0])
    assert plain["plain"]["positions"] == 2 * sum(past + i + 1 for i in range(32))
    _, stats, drafted = timed(engines(**MTP), prompts[0])
    assert {"verify", "draft 1", "draft 2", "draft 3"} <= set(drafted)
    assert all(drafted[f"draft {i}"]["passes"] == stats.verify_ct for i in (1, 2, 3))
    assert 80 <= drafted["verify"]["experts"] / stats.verify_ct <= 240
    assert drafted["draft 2"]["seconds"]["kda_state"] == 0 < drafted["draft 2"]["seconds"]["head"]


@pytest.mark.parametrize("piece", ["kda", "moe", "mix", "head", "around"])
def test_a_piece_may_be_the_first_that_an_engine_does(piece):
    """In a process of its own: what went wrong here once ended the process."""
    code = "import sys; from labkit.pocket.engine import Engine; from labkit.pocket.options import Options\n"
    code += f"with Engine(Options(**{MTP})) as e: print(e.piece('{piece}', [5, 6, 7], 40, 2, 1 << 20)['passes'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.strip() == "2", done.stderr


def test_off_it_counts_no_time(engines, prompts):
    engine = engines(**PLAIN)
    _, _, before = timed(engine, prompts[0])
    engine.start(prompts[0], GREEDY).join(60)
    assert {k: v["seconds"] for k, v in engine.part_times().items()} == {k: v["seconds"] for k, v in before.items()}


def test_bytes_by_part_are_the_engines_own_account(engines):
    engine = engines(**MTP)
    bytes_, facts = engine.part_bytes(), engine.describe()
    assert sum(bytes_["step"].values()) + 80 * bytes_["one"]["expert"] == facts["bytes_per_step"]
    assert sum(bytes_["draft"].values()) + 8 * bytes_["one"]["expert"] == facts["draft_step_bytes"]


@pytest.mark.parametrize(
    ("piece", "parts"),
    [
        ("kda", {"kda_projections", "kda_input", "kda_state"}),
        ("mla", {"mla_projections", "mla_attention"}),
        ("dense", {"mlp"}),
        ("moe", {"router", "mlp", "experts"}),
        ("mix", {"nextn_mix"}),
        ("head", {"head", "sampling"}),
        ("around", set()),
    ],
)
def test_a_piece_runs_its_parts_and_no_others(engines, piece, parts):
    engine = engines(**MTP)
    between = engine.describe()["bytes_per_step"]
    for tokens in (1, 4):
        found = engine.piece(piece, [5] * tokens, 100, 3, between)
        assert found["passes"] == 3 and found["tokens"] == 3 * tokens
        busy = {p for p, s in found["seconds"].items() if s > 0}
        entered = (
            {"mla_projections"} if piece == "mix" and tokens > 1 else set()
        )  # of tokens that nothing is drafted from
        assert parts | entered <= busy <= parts | entered | {"rest", "sampling"}
        assert found["experts"] == (3 * 80 if piece == "moe" else 0)  # in each layer equal tokens share their eight
        assert found["positions"] == (3 * 2 * (100 + tokens) if piece == "mla" else 0)  # both layers that attend


def test_different_tokens_choose_more_experts(engines):
    engine = engines(**MTP)
    one, two, four = (engine.piece("moe", ids, 64, 1)["experts"] for ids in ([5] * 4, [5, 12, 5, 12], [5, 12, 19, 26]))
    assert one == 80 < two < four <= 240


def test_probing_a_piece_leaves_a_request_as_it_was(engines, prompts):
    engine = engines(**MTP)
    want = engine.start(prompts[0], GREEDY)
    want.join(60)
    for piece in ("kda", "mla", "moe", "mix", "head", "around"):
        engine.piece(piece, [5, 12, 19], 100, 2, 1 << 20)
    again = engine.start(prompts[0], GREEDY)
    again.join(60)
    assert again.poll() == want.poll()


def test_products_of_every_shape_of_a_pass_can_be_timed(engines):
    engine = engines(**MTP)
    memory = np.full(4 << 20, 0x38, np.uint8)
    for parts in pieces.matrices(engine.config, engine.options).values():
        for matrix in (m for ms in parts.values() for m in ms):
            for tokens in (1, 4, 9):
                assert 0 < engine.products(matrix.kernel, memory, [0, 0], matrix.tiles, matrix.k, tokens) < 10


def test_matrices_are_the_bytes_that_a_pass_reads(engines):
    engine = engines(**MTP)
    held, shapes = engine.part_bytes(), pieces.matrices(engine.config, engine.options)
    for kind, draft in (("step", False), ("draft", True)):
        runs = pieces.layers(engine.config, draft)
        for part in ("kda_projections", "mla_projections", "mlp", "router", "nextn_mix", "head"):
            own = sum(runs[p] * m.count * m.bytes for p, parts in shapes.items() for m in parts.get(part, []))
            assert own == pytest.approx(held[kind][part], rel=0.06)  # scales and small vectors are the rest
    expert = sum(m.bytes for m in shapes["moe"]["experts"])
    assert expert == held["one"]["expert"]


def test_a_texts_experts_grow_with_the_tokens_of_a_pass(engines, prompts):
    engine = engines(**MTP)
    one, two, eight = (engine.text_experts(prompts[0], m) for m in (1, 2, 8))
    assert one == 8 < two < eight <= 24
