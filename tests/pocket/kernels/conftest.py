"""The shipped model's kernels, built once for each variant that this machine can run, and engines on its weights."""

import ctypes as c

import numpy as np
import pytest

from labkit.pocket import build, loader
from labkit.pocket.engine import Engine
from labkit.pocket.options import SHIPPED_WEIGHTS, Options

VARIANTS = build.available_variants()
f32p, i32p, i8p, u8p = (c.POINTER(t) for t in (c.c_float, c.c_int32, c.c_int8, c.c_uint8))


def ptr(array: np.ndarray, kind):
    assert array.flags.c_contiguous
    return array.ctypes.data_as(kind)


@pytest.fixture(scope="session")
def config():
    return loader.PocketConfig.from_json(SHIPPED_WEIGHTS / "config.json")


@pytest.fixture(scope="session")
def kernels(config):
    """kernels(variant, moe) -> build.Kernels, from the user's cache."""
    made = {}

    def get(variant: str, moe: str = "jit"):
        if (variant, moe) not in made:
            made[variant, moe] = build.kernels(Options(kernel_variant=variant, moe_runner_backend=moe), config)
        return made[variant, moe]

    return get


@pytest.fixture(params=VARIANTS)
def variant(request):
    return request.param


@pytest.fixture(scope="session")
def engines():
    """engines(**options) -> Engine on the shipped weights, kept for the session, some 80 MB each."""
    made = {}

    def get(**options):
        key = tuple(sorted(options.items()))
        if key not in made:
            if len(made) >= 16:
                made.pop(next(iter(made))).close()
            made[key] = Engine(Options(**options))
        return made[key]

    yield get
    for engine in made.values():
        engine.close()


@pytest.fixture(scope="session")
def prompts():
    """Token ids of held-out word problems."""
    import json

    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(SHIPPED_WEIGHTS / "tokenizer.json"))
    rows = [json.loads(line) for line in (SHIPPED_WEIGHTS / "test_seen.jsonl").read_text().splitlines()]
    return [tokenizer.encode(row["prompt"]).ids for row in rows]


def text_logits(engine: Engine, ids, chunk: int) -> np.ndarray:
    """Logits [n, V] of a text, `chunk` tokens a pass."""
    ids = np.asarray(ids, np.int32)
    logits = np.empty((len(ids), engine.config.vocab_size), np.float32)
    hidden = np.empty((len(ids), engine.config.hidden_size), np.float32)
    engine._kernels.library.inspect_text(
        c.c_void_p(engine._model.handle), ptr(ids, i32p), len(ids), chunk, ptr(logits, f32p), ptr(hidden, f32p)
    )
    return logits
