import pytest
import shapes

from labkit import catalog
from labkit.catalog import Machine
from labkit.errors import BadInput
from labkit.evidence import spec
from labkit.roofline.account import per_tensor
from labkit.roofline.capacity import capacity, largest_batch, usable_memory
from labkit.roofline.sizes import checkpoint_bytes, kv_bytes_per_token

LING, SPARK = catalog.model("ling-3.0-flash").config, catalog.machine("dgx-spark")


def box(memory_bytes):
    return Machine("box", "a box", spec(100, "GB/s", "x"), "x", usable=spec(memory_bytes, "B", "measured by hand"))


def test_every_part_by_hand():
    found = capacity(LING, SPARK, context=32768, drafts=3)
    parts = dict(found.parts)
    assert parts["weights"] == checkpoint_bytes(LING)
    assert parts["KV cache"] == 32768 * 7 * 576 * 2 and parts["NEXTN layer's cache"] == 32768 * 576 * 2
    state = 35 * 32 * 128 * 128 * 4 + 35 * 3 * 4096 * 3 * 2
    assert parts["linear-attention state"] == 4 * state, "one for each position of the verify step"
    assert found.fits and found.usable.si == 87e9 and found.held_bytes == sum(parts.values())
    assert "recipe" in found.how.lower()


def test_what_is_held_is_not_what_is_read():
    found = capacity(LING, SPARK, context=32768)
    assert found.read_bytes == per_tensor(LING, context=32768).total_bytes
    assert found.held_bytes > 12 * found.read_bytes


def test_the_longest_context_is_the_last_that_fits():
    config = shapes.QWEN | {"max_position_embeddings": 100_000}
    weights, each = checkpoint_bytes(config), kv_bytes_per_token(config)
    machine = box(weights + 1000 * each + 1)
    found = capacity(config, machine, context=10, graphs=0)
    assert found.longest_context == 1000 and found.fits
    assert capacity(config, machine, context=1000, graphs=0).fits
    assert not capacity(config, machine, context=1001, graphs=0).fits
    over = capacity(config, machine, context=5000, graphs=0)
    assert "does not fit" in over.sentence() and "1,000 tokens would fit" in over.sentence()
    assert "the weights alone" in capacity(config, box(weights - 1), context=0, graphs=0).sentence()
    assert "the model's 100,000 tokens" in capacity(config, box(1e12), context=0).sentence()


def test_a_window_is_held_only_as_far_as_it_reaches():
    machine, config = box(1e12), shapes.GPT_OSS
    short, long = (dict(capacity(config, machine, context=n).parts)["KV cache"] for n in (30, 1030))
    assert long - short == 1000 * 2 * 28 * 2, "the two full layers grow, the three windowed ones do not"


def test_batches_stop_where_memory_ends():
    batches = (1, 2, 4, 8, 64, 256)
    assert largest_batch(LING, SPARK, batches, context=32768) < 256
    assert largest_batch(LING, SPARK, batches, context=0) > largest_batch(LING, SPARK, batches, context=200_000)
    unknown = Machine("x", "x", spec(1, "GB/s", "x"), "x")
    assert largest_batch(LING, unknown, batches, context=0) is None and capacity(LING, unknown, context=0) is None


def test_memory_without_a_known_share_is_an_assumption_and_says_so():
    usable, how = usable_memory(catalog.machine("rtx-4090"))
    assert usable.si == pytest.approx(0.9 * 24e9) and how.startswith("assumed: 90%")
    with pytest.raises(BadInput, match="batch"):
        capacity(LING, SPARK, context=0, batch=0)
