"""The C side as ctypes sees it: decode.c's and engine.h's structures, field for field."""

import ctypes as c
import os
import threading

import numpy as np

from labkit.pocket.layout import PARTS, SLOTS, Arena, pointer
from labkit.pocket.loader import PocketConfig
from labkit.pocket.options import Options

MAX_STOP, MAX_DEPTH, MAX_VERIFY = 64, 9, 16
RESTRICT = c.CFUNCTYPE(None, c.c_int, c.POINTER(c.c_float))
PIECES = ("kda", "mla", "dense", "moe", "mix", "head", "around")  # of inspect.h
KERNELS = ("fp8", "fp8 head", "bf16", "bf16 head", "f32", "int8", "expert gate and up", "expert down")  # of inspect.h
PHASES = ("prefill", "plain", "verify", *(f"draft {i}" for i in range(1, 9)))


class SamplingStruct(c.Structure):
    _fields_ = [
        ("temperature", c.c_float),
        ("top_p", c.c_float),
        ("min_p", c.c_float),
        ("top_k", c.c_int32),
        ("seed", c.c_uint64),
    ]


class RequestStruct(c.Structure):
    _fields_ = [
        ("prompt", c.POINTER(c.c_int32)),
        ("tokens", c.POINTER(c.c_int32)),
        ("times", c.POINTER(c.c_double)),
        ("n_prompt", c.c_int32),
        ("max_new", c.c_int32),
        ("n_stop", c.c_int32),
        ("fd", c.c_int32),
        ("stop", c.c_int32 * MAX_STOP),
        ("sampling", SamplingStruct),
        ("count", c.c_int),
        ("cancel", c.c_int),
        ("finish", c.c_int32),
        ("stop_token", c.c_int32),
        ("steps", c.c_int32),
        ("verify_ct", c.c_int32),
        ("correct", c.c_int32),
        ("proposed", c.c_int32),
        ("histogram", c.c_int32 * MAX_DEPTH),
        ("prefill_s", c.c_double),
        ("decode_s", c.c_double),
        ("cpu_s", c.c_double),
        ("logprob", c.POINTER(c.c_float)),
        ("top_logprob", c.POINTER(c.c_float)),
        ("top_id", c.POINTER(c.c_int32)),
        ("score_from", c.c_int32),
        ("n_top", c.c_int32),
        ("restrict_logits", RESTRICT),
    ]


class ProfileStruct(c.Structure):
    _fields_ = [
        ("seconds", c.c_double * (len(PHASES) * len(PARTS))),
        ("passes", c.c_int64 * len(PHASES)),
        ("tokens", c.c_int64 * len(PHASES)),
        ("experts", c.c_int64 * len(PHASES)),
        ("positions", c.c_int64 * len(PHASES)),
    ]


def _setup_struct(layers: int) -> type[c.Structure]:
    class SetupStruct(c.Structure):
        _fields_ = [
            ("arena", c.c_void_p),
            ("embedding", c.c_void_p),
            ("draft_ids", c.POINTER(c.c_int32)),
            ("gate_up", c.c_void_p),
            ("down", c.c_void_p),
            ("stride", c.c_int64),
            ("expert_bytes", c.c_int64),
            ("expert_down", c.c_int64),
            ("at", c.c_int64 * (len(SLOTS) * (layers + 2))),
            ("replicas", c.c_int32),
            ("threads", c.c_int32),
            ("context", c.c_int32),
            ("fp8_head", c.c_int32),
            ("dense", c.c_int32),
            ("jit", c.c_int32),
            ("speculative", c.c_int32),
            ("steps", c.c_int32),
            ("topk", c.c_int32),
            ("draft_tokens", c.c_int32),
            ("draft_rows", c.c_int32),
            ("bare_head", c.c_int32),
            ("simulate", c.c_float),
            ("seed", c.c_uint64),
        ]

    return SetupStruct


def declare(library: c.CDLL) -> c.CDLL:
    """Give the functions of a built decode.c their types."""
    request = c.POINTER(RequestStruct)
    for name, result, arguments in (
        ("engine_new", c.c_void_p, [c.c_void_p]),
        ("engine_free", None, [c.c_void_p]),
        ("generate", None, [c.c_void_p, request]),
        ("request_count", c.c_int, [request]),
        ("request_cancel", None, [request]),
        ("record_experts", None, [c.c_void_p, c.c_int]),
        ("expert_record", c.POINTER(c.c_int64), [c.c_void_p]),
        ("profile_parts", None, [c.c_void_p, c.c_int]),
        ("part_profile", c.POINTER(ProfileStruct), [c.c_void_p]),
        ("inspect_piece", None, [c.c_void_p, c.c_int, c.POINTER(c.c_int32), *[c.c_int] * 3, c.c_int64]),
        ("inspect_text", None, [c.c_void_p, c.POINTER(c.c_int32), c.c_int, c.c_int, *[c.POINTER(c.c_float)] * 2]),
        ("inspect_fp8_x", c.c_float, []),
        ("inspect_stream", c.c_double, [c.c_void_p, c.c_int64, c.c_int]),
        ("inspect_products", c.c_double, [c.c_void_p, c.c_int, c.c_void_p, c.POINTER(c.c_int64), *[c.c_int] * 4]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class Signal:
    """A descriptor that C writes to and a reader waits on: an eventfd, or a pipe where there is none."""

    def __init__(self):
        if hasattr(os, "eventfd"):
            self.read_fd = self.write_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self.read_fd, self.write_fd = os.pipe()
            os.set_blocking(self.read_fd, False)
            os.set_blocking(self.write_fd, False)

    def notify(self) -> None:
        try:
            os.write(self.write_fd, (1).to_bytes(8, "little"))
        except BlockingIOError:
            pass

    def drain(self) -> None:
        try:
            while len(os.read(self.read_fd, 8)) == 8 and self.read_fd != self.write_fd:
                pass
        except BlockingIOError:
            pass

    def __del__(self):
        for fd in {self.read_fd, self.write_fd}:
            os.close(fd)


class Request:
    """One request's shared memory, alive as long as anybody looks at it.

    scoring: an engine.Scoring or None. restrict(count, logits [vocabulary]): called before each output token.
    """

    def __init__(self, ids: list[int], sampling, stop: tuple[int, ...], budget: int, seed: int, scoring, restrict):
        self.prompt = np.asarray(ids, np.int32)
        self.tokens, self.times = np.zeros(max(budget, 1), np.int32), np.zeros(max(budget, 1))
        self.finished, self.signal = threading.Event(), Signal()
        self.struct = RequestStruct(
            pointer(self.prompt, c.c_int32),
            pointer(self.tokens, c.c_int32),
            pointer(self.times, c.c_double),
            len(ids),
            budget,
            len(stop),
            self.signal.write_fd,
            (c.c_int32 * MAX_STOP)(*stop),
            SamplingStruct(sampling.temperature, sampling.top_p, sampling.min_p, sampling.top_k, seed),
        )
        self.struct.stop_token = -1
        if scoring is not None:
            first = len(ids) if scoring.start is None else max(scoring.start, 1)
            rows = len(ids) - first + max(budget, 1)
            self.logprob = np.zeros(rows, np.float32)
            self.top_logprob = np.zeros((rows, scoring.top), np.float32)
            self.top_id = np.zeros((rows, scoring.top), np.int32)
            self.struct.logprob = pointer(self.logprob, c.c_float)
            self.struct.top_logprob = pointer(self.top_logprob, c.c_float)
            self.struct.top_id = pointer(self.top_id, c.c_int32)
            self.struct.score_from, self.struct.n_top = first, scoring.top
        if restrict is not None:
            self.struct.restrict_logits = self._restrict = RESTRICT(restrict)
        self.pointer = c.byref(self.struct)

    def release(self) -> None:
        """Let go of the callback, which knows this request: a cycle would keep its descriptors until a collection."""
        self.struct.restrict_logits, self._restrict = RESTRICT(), None


class Model:
    """A built engine over a packed arena."""

    def __init__(self, library: c.CDLL, moe: c.CDLL, arena: Arena, config: PocketConfig, options: Options):
        self.library, self.config, self._moe = library, config, moe
        kind = _setup_struct(config.num_hidden_layers)
        table = arena.offsets().ravel()
        self._ids = arena.draft_ids
        speculative = options.speculative
        setup = kind(
            arena.address,
            arena.embedding_address,
            pointer(self._ids, c.c_int32) if self._ids is not None else None,
            c.cast(moe.moe_gate_up, c.c_void_p),
            c.cast(moe.moe_down, c.c_void_p),
            arena.stride,
            arena.expert_bytes,
            arena.expert_down,
            (c.c_int64 * len(table))(*table.tolist()),
            arena.replicas,
            options.threads,
            options.context_length,
            options.fp8_lm_head,
            ("fp8", "bf16", "int8").index(options.dense_dtype),
            options.runs_jit,
            speculative,
            options.speculative_num_steps or 0,
            options.speculative_eagle_topk or 0,
            options.speculative_num_draft_tokens or 0,
            arena.draft_vocab or config.vocab_size,
            "bare-head" in options.faults,
            options.simulate_acc_len,
            options.random_seed,
        )
        self.handle = library.engine_new(c.byref(setup))
        if not self.handle:
            raise MemoryError("the engine's state could not be allocated")

    def generate(self, request: Request) -> None:
        self.library.generate(self.handle, request.pointer)

    def stream(self, size: int, rounds: int) -> float:
        return self.library.inspect_stream(self.handle, size, rounds)

    def record_experts(self, on: bool) -> None:
        self.library.record_experts(self.handle, on)

    def dump_experts(self) -> dict:
        n, experts = self.config.num_hidden_layers + 1, self.config.num_experts
        raw = np.ctypeslib.as_array(
            self.library.expert_record(self.handle), (n * (experts + 2 * (MAX_VERIFY + 1)),)
        ).copy()
        counts = raw[: n * experts].reshape(n, experts)
        passes, distinct = raw[n * experts :].reshape(2, n, MAX_VERIFY + 1)
        layers = [i for i in range(n) if self.config.is_moe(i)]
        return {
            "layers": layers,
            "counts": counts[layers].tolist(),
            "distinct": [
                {m: [int(passes[i, m]), int(distinct[i, m])] for m in range(MAX_VERIFY + 1) if passes[i, m]}
                for i in layers
            ],
        }

    def time_parts(self, on: bool) -> None:
        self.library.profile_parts(self.handle, on)

    def part_times(self) -> dict:
        p = self.library.part_profile(self.handle).contents
        return {
            phase: {
                "passes": p.passes[i],
                "tokens": p.tokens[i],
                "experts": p.experts[i],
                "positions": p.positions[i],
                "seconds": dict(zip(PARTS, p.seconds[i * len(PARTS) : (i + 1) * len(PARTS)], strict=True)),
            }
            for i, phase in enumerate(PHASES)
            if p.passes[i]
        }

    def text_experts(self, ids, tokens: int) -> float:
        n = len(ids) // tokens * tokens
        text, c_ = np.ascontiguousarray(ids[:n], np.int32), self.config
        logits, hidden = np.empty((n, c_.vocab_size), np.float32), np.empty((n, c_.hidden_size), np.float32)
        self.library.profile_parts(self.handle, 1)
        self.library.inspect_text(
            self.handle, pointer(text, c.c_int32), n, tokens, pointer(logits, c.c_float), pointer(hidden, c.c_float)
        )
        self.library.profile_parts(self.handle, 0)
        found = sum(self.library.part_profile(self.handle).contents.experts)
        return found / (n // tokens) / sum(map(c_.is_moe, range(c_.num_hidden_layers)))

    def products(self, kernel: str, address: int, at: np.ndarray, tiles: int, k: int, tokens: int) -> float:
        number = KERNELS.index(kernel)
        return self.library.inspect_products(
            self.handle, number, address, pointer(at, c.c_int64), len(at), tiles, k, tokens
        )

    def piece(self, name: str, ids, past: int, rounds: int, between: int) -> dict:
        ids, number = np.ascontiguousarray(ids, np.int32), PIECES.index(name)
        self.library.profile_parts(self.handle, 1)
        self.library.inspect_piece(self.handle, number, pointer(ids, c.c_int32), len(ids), past, rounds, between)
        self.library.profile_parts(self.handle, 0)
        return self.part_times()["plain"]

    def close(self) -> None:
        if self.handle:
            self.library.engine_free(self.handle)
            self.handle = None
