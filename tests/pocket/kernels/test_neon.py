"""The NEON variant, cross-compiled and run under qemu-user: kernels against NumPy, the model against this machine's.

Its speed is not measured here: an emulator has none. Nor does one on x86 show what Arm's weaker memory order would do.
"""

import ctypes as c
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from labkit.pocket import binding, build, layout, loader, tiles
from labkit.pocket.engine import FINISH, Sampling
from labkit.pocket.options import SHIPPED_WEIGHTS, Options
from training.reference import E2M1

from . import test_gemv as gemv
from .conftest import text_logits
from .test_speculation import JIT, spec

CROSS, EMULATOR = (
    shutil.which("aarch64-linux-gnu-gcc"),
    shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static"),
)
pytestmark = pytest.mark.arm
DRIVER = Path(__file__).with_name("neon_driver.c")
# Among the first with the dot product: an instruction that came later would be refused. With BF16, all there are
CPU = {"neon": "cortex-a76", "neonbf16": "max"}
KINDS = ("jit", "generic")
NONE = np.zeros(0, np.float32)
# Of logits, relative. Rounding alone makes 2e-7; once an int8 activation is a tie that falls the other way, it is some
# 5e-3 for the rest of the text, between any two variants.
NEAR = 0.02


def cross(arguments: list[str], out: Path) -> Path:
    """Compile for Arm with the build's own flags but for those that make a library."""
    library = ("-shared", "-fPIC", "-lm", "-lpthread")
    strict = ["-Wall", "-Werror", "-Wno-unused-function"]
    arguments = [a for a in arguments if a not in library and not a.endswith("decode.c")]
    subprocess.run([CROSS, *arguments, *strict, "-lm", "-lpthread", "-o", str(out)], check=True)
    return out


@pytest.fixture(scope="module")
def variant():
    return "neon"


@pytest.fixture(scope="module")
def program(tmp_path_factory, config, variant):
    """program(data, *words) -> stdout of the driver, the engine and both kinds of experts linked statically."""
    folder, made = tmp_path_factory.mktemp(variant), []
    for moe in KINDS:
        made.append(cross([*build.units(variant, moe, config)[f"moe-{moe}"], "-c"], folder / f"{moe}.o"))
        names = [f"--redefine-sym=moe_{name}={moe}_{name}" for name in ("gate_up", "down")]
        subprocess.run([CROSS.removesuffix("gcc") + "objcopy", *names, str(made[-1])], check=True)
    engine = build.units(variant, "jit", config)["engine"]
    objects = [str(path) for path in made]
    driver = cross([*engine, f"-I{build.SOURCES}", str(DRIVER), *objects, "-static"], folder / "driver")

    def run(data: bytes, *words: str) -> bytes:
        done = subprocess.run([EMULATOR, "-cpu", CPU[variant], str(driver), *words], input=data, capture_output=True)
        assert done.returncode == 0, (done.returncode, done.stderr)
        return done.stdout

    return run


# ---------------------------------------------------------------- single kernels


@pytest.fixture(scope="module")
def kernel(program):
    """kernel(kind, rows, packed, scale, x) -> result; neon_driver.c says which kinds there are."""

    def run(kind, rows, packed, scale, x, dtype=np.float32):
        weights = np.ascontiguousarray(packed).view(np.uint8).tobytes()
        scales = np.zeros(rows * 6, np.float32)
        scales[: scale.size] = scale.ravel()
        head = np.array([kind, rows, x.shape[1], len(x), len(weights)], np.int32)
        scales = scales.tobytes() if kind < 5 or kind == 11 else b""
        data = head.tobytes() + weights + scales + x.astype(np.float32).tobytes()
        return np.frombuffer(program(data), dtype)

    return run


@pytest.mark.parametrize("what", gemv.KINDS)
def test_dense(kernel, what, variant):
    packed, scale, weight = gemv.make(what, 144, 384, 9, variant)
    kind = 11 if what == gemv.INT8 else what
    x = np.random.default_rng(1).standard_normal((6, 384)).astype(np.float32)
    got = kernel(kind, 144, packed, scale, x).reshape(6, 144)
    size = np.abs(x).astype(np.float64) @ np.abs(weight).T
    assert np.max(np.abs(got - gemv.seen(x, what, variant) @ weight.T) / size) < 3e-6
    alone = np.concatenate([kernel(kind, 144, packed, scale, x[i : i + 1]) for i in range(6)]).reshape(6, 144)
    for m in range(2, 7):
        assert np.array_equal(kernel(kind, 144, packed, scale, x[:m]).reshape(m, 144), alone[:m])


@pytest.mark.parametrize(("product", "rows", "k"), [("gate_up", 256, 384), ("down", 384, 128)])
def test_experts(kernel, product, rows, k):
    """jit and generic: the plain formula, the same bits whatever the number of tokens, and the same as each other."""
    rng = np.random.default_rng(3)
    codes, scales = rng.integers(0, 256, (rows, k // 2), np.uint8), rng.integers(118, 124, (rows, k // 32), np.uint8)
    x = rng.standard_normal((6, k)).astype(np.float32)
    q = kernel(7, rows, tiles.mxfp4_tiles(codes, scales), NONE, x, np.int8).reshape(6, k)
    step = np.abs(x).reshape(6, -1, 32).max(-1) / 127
    assert np.max(np.abs(q.reshape(6, -1, 32) * step[..., None] - x.reshape(6, -1, 32)) / step[..., None]) < 0.5001
    weight = E2M1[np.stack([codes & 15, codes >> 4], -1)].reshape(rows, k) * np.repeat(
        2.0 ** (scales.astype(int) - 127), 32, 1
    )
    want = (q.reshape(6, -1, 32) * step[..., None]).reshape(6, k) @ weight.T
    kinds = {"jit": (5, tiles.mxfp4_tiles), "generic": (9, tiles.mxfp4_rows)}
    whole = {}
    for moe, (kind, pack) in kinds.items():
        kind, packed = kind + (product == "down"), pack(codes, scales)
        got = whole[moe] = kernel(kind, rows, packed, NONE, x).reshape(6, rows)
        assert np.allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max()), moe
        alone = np.concatenate([kernel(kind, rows, packed, NONE, x[i : i + 1]) for i in range(6)]).reshape(6, rows)
        for m in range(2, 7):
            assert np.array_equal(kernel(kind, rows, packed, NONE, x[:m]).reshape(m, rows), alone[:m]), (moe, m)
    assert np.array_equal(whole["jit"], whole["generic"])


@pytest.mark.parametrize("kind", [5, 9])
def test_largest_products_of_experts(kernel, kind):
    """All weights +6 or -6 against activations at their limit."""
    pack = tiles.mxfp4_tiles if kind == 5 else tiles.mxfp4_rows
    for code, value in ((0x77, 6), (0xFF, -6)):
        packed = pack(np.full((256, 192), code, np.uint8), np.full((256, 12), 127, np.uint8))
        for sign in (1, -1):
            got = kernel(kind, 256, packed, NONE, np.full((2, 384), sign, np.float32))
            assert np.allclose(got, 384 * value * sign, rtol=1e-5)


def test_exp(kernel):
    x = np.linspace(-86, 86, 384, dtype=np.float32)[None]
    y = kernel(8, 16, np.zeros(4, np.uint8), NONE, x)
    assert np.max(np.abs(y / np.exp(x[0].astype(np.float64)) - 1)) < 4e-7


# ---------------------------------------------------------------- the model


class Recorder:
    """Stands in for a built library: keeps the Setup that binding.Model fills, field for field."""

    moe_gate_up = moe_down = c.c_void_p(0)

    def engine_new(self, setup) -> int:
        self.setup = setup._obj
        return 1


class ArmModel:
    """The shipped model, packed once (one copy) into a file, and the driver that runs it."""

    def __init__(self, program, folder: Path, variant: str, **options):
        self.options = Options(context_length=512, **{"dense_dtype": build.FASTEST_DENSE[variant], **options})
        weights = loader.load(SHIPPED_WEIGHTS)
        self.config, self.jit = weights.config, self.options.runs_jit
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(layout.Arena, "_replicas", lambda arena: (1, "speed does not matter here"))
            arena = layout.pack(weights, self.options, jit=self.jit)
        recorder = Recorder()
        binding.Model(recorder, recorder, arena, self.config, self.options)
        self.setup, self.path, self.program = bytes(recorder.setup), folder / "model.bin", program
        ids = b"" if arena.draft_ids is None else arena.draft_ids.tobytes()
        size = arena.stride + self.config.vocab_size * self.config.hidden_size * 2
        self.path.write_bytes(arena._bytes[:size].tobytes() + ids)
        arena.close()

    def _run(self, ids: list[int], chunk: int, request: bytes) -> bytes:
        head = [len(self.setup), c.sizeof(binding.RequestStruct), not self.jit, len(ids), chunk]
        data = np.array(head, np.int32).tobytes() + self.setup + np.array(ids, np.int32).tobytes() + request
        return self.program(data, str(self.path))

    def logits(self, ids: list[int], chunk: int) -> np.ndarray:
        return np.frombuffer(self._run(ids, chunk, b""), np.float32).reshape(len(ids), -1)

    def answer(self, ids: list[int], sampling: Sampling) -> tuple[list[int], binding.RequestStruct]:
        request = binding.Request(ids, sampling, (), sampling.max_new_tokens, 0, None, None)
        out = self._run(ids, 0, bytes(request.struct))
        size = c.sizeof(binding.RequestStruct)
        return np.frombuffer(out[size:], np.int32).tolist(), binding.RequestStruct.from_buffer_copy(out[:size])


@pytest.fixture(scope="module")
def arm(program, tmp_path_factory, variant):
    """arm(**options) -> ArmModel"""
    made = {}

    def get(**options):
        key = tuple(sorted(options.items()))
        if key not in made:
            made[key] = ArmModel(program, tmp_path_factory.mktemp("model"), variant, **options)
        return made[key]

    yield get
    for model in made.values():
        model.path.unlink()


def relative(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.sqrt(((got - want) ** 2).mean() / (want**2).mean()))


def greedy(tokens: int) -> Sampling:
    return Sampling(temperature=0, max_new_tokens=tokens, ignore_eos=True)


def here(engines, ids, sampling, **options):
    """This machine's own variant -> tokens, Stats."""
    generation = engines(**options).start(ids, sampling)
    stats = generation.join(240)
    return generation.poll(), stats


def test_logits(arm, engines, prompts):
    """Near those of this machine's own variant, and the same bits in chunks."""
    ids = prompts[0][:9]
    got, want = arm(**JIT).logits(ids, 1), text_logits(engines(**JIT), ids, 1)
    assert relative(got, want) < NEAR and np.array_equal(got.argmax(-1), want.argmax(-1))
    assert np.array_equal(arm(**JIT).logits(ids, 4), got)


def test_speculation(arm, engines, prompts):
    """Plain and NEXTN give the same tokens, which are this machine's too, and as many drafts are right as here."""
    ids, sampling = prompts[12][:10], greedy(12)  # no choice is close; drafts are right thrice, twice and not at all
    plain, facts = arm(**JIT).answer(ids, sampling)
    assert len(plain) == 12 and FINISH[facts.finish] == "length" and facts.verify_ct == 0
    assert plain == here(engines, ids, sampling, **JIT)[0]
    drafted, facts = arm(**spec(3, 1, 4)).answer(ids, sampling)
    wanted, stats = here(engines, ids, sampling, **spec(3, 1, 4))
    assert drafted == plain == wanted
    assert list(facts.histogram[:4]) == stats.histogram and facts.correct == stats.correct_drafts > 0


@pytest.mark.slow
@pytest.mark.parametrize("other", [{"moe_runner_backend": "generic"}, {"threads": 2}, {"dense_dtype": "bf16"}])
def test_settings_that_promise_the_same_bits(arm, prompts, other):
    ids, base = prompts[1][:12], {**JIT, "dense_dtype": "fp8"}
    assert np.array_equal(arm(**{**base, **other}).logits(ids, 4), arm(**base).logits(ids, 4))


@pytest.mark.slow
def test_fp8_head(arm, engines, prompts):
    options, ids = {**JIT, "fp8_lm_head": True}, prompts[1][:12]
    got, want = arm(**options).logits(ids, 4), text_logits(engines(**options), ids, 4)
    assert relative(got, want) < NEAR


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "options",
    [
        spec(3, 1, 4),
        spec(3, 2, 8),
        spec(5, 4, 16),
        {**spec(3, 1, 4), "threads": 2},
        {**spec(3, 1, 4), "speculative_token_map": "2048"},
    ],
)
def test_speculation_in_trees(arm, prompts, options):
    """A problem, on which drafts are often right, and random ids, on which they are wrong."""
    for ids in (prompts[2][:16], np.random.default_rng(4).integers(2, 6144, 8).tolist()):
        plain, _ = arm(**JIT).answer(ids, greedy(16))
        drafted, facts = arm(**options).answer(ids, greedy(16))
        assert drafted == plain and facts.verify_ct > 0
