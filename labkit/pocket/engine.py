"""The pocket engine: one model in memory, one request at a time, each request one C call with the GIL released."""

import logging
import select
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from labkit import waits
from labkit.errors import BadInput
from labkit.pocket import binding
from labkit.pocket.options import Options

log = logging.getLogger("pocket")
FREE_S = 60.0  # for a request to end before anything else is done with the model: it is to be cancelled first
LONGEST_S = 24 * 3600.0  # of one request, and of the wait behind others that were started before it
READINGS = 100  # of a step's weights: a fifth of a second
FINISH = {0: None, 1: "stop", 2: "length", 3: "abort", 4: "error"}


@dataclass(frozen=True)
class Sampling:
    """How to choose tokens. temperature 0 is greedy; top_k -1 keeps all; stop_token_ids None takes the model's own."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    max_new_tokens: int = 128
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] | None = None
    seed: int | None = None

    def __post_init__(self):
        _between("temperature", self.temperature, 0.0, 100.0)
        _between("top_p", self.top_p, 0.0, 1.0, open_low=True)
        _between("min_p", self.min_p, 0.0, 1.0)
        if not _whole(self.top_k) or not (self.top_k == -1 or 1 <= self.top_k < 2**31):
            raise BadInput("top_k", self.top_k, "-1 (all) or a whole number from 1")
        if not _whole(self.max_new_tokens) or not 0 <= self.max_new_tokens < 2**31:
            raise BadInput("max_new_tokens", self.max_new_tokens, "a whole number from 0")
        if not isinstance(self.ignore_eos, bool):
            raise BadInput("ignore_eos", self.ignore_eos, "true or false")
        if self.seed is not None and (not _whole(self.seed) or not 0 <= self.seed < 2**63):
            raise BadInput("seed", self.seed, "a whole number from 0 to 2^63 - 1")
        ids = self.stop_token_ids
        if ids is not None and (len(ids) > binding.MAX_STOP or not all(_whole(i) and 0 <= i < 2**31 for i in ids)):
            raise BadInput("stop_token_ids", ids, f"at most {binding.MAX_STOP} token ids")


@dataclass(frozen=True)
class Scoring:
    """Which log-probabilities a request keeps: of its output, and with `start` of its prompt from that position on.

    top: how many of the likeliest tokens are kept at each place.
    """

    top: int = 0
    start: int | None = None


class Score(NamedTuple):
    """One token's natural log-probability, and the likeliest tokens in its place with theirs, likeliest first."""

    logprob: float
    top: list[tuple[int, float]]


@dataclass(frozen=True)
class Stats:
    """What one request did; times in seconds. histogram[i] counts verify passes in which exactly i drafts were right.

    thread_cpu_s is the decoding thread's own CPU time over the wall time decode_s: less means that it was preempted."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish_reason: str | None = None
    stop_token: int | None = None
    verify_ct: int = 0
    correct_drafts: int = 0
    proposed_drafts: int = 0
    histogram: list[int] = field(default_factory=list)
    prefill_s: float = 0.0
    decode_s: float = 0.0
    thread_cpu_s: float = 0.0
    simulated: bool = False


class Generation:
    """A request under way. Reading progress never stops the C loop."""

    def __init__(self, request: "binding.Request", library, thread_target, simulated: bool):
        self._request, self._library, self._simulated = request, library, simulated
        self._thread = threading.Thread(target=self._run, args=(thread_target,), name="pocket-decode", daemon=True)
        self._thread.start()

    def _run(self, target):
        try:
            target()
        finally:
            self._request.release()
            self._request.finished.set()
            self._request.signal.notify()

    def poll(self, start: int = 0) -> list[int]:
        """New tokens since index `start` (0 = the first completion token)."""
        count = self._library.request_count(self._request.pointer)
        return self._request.tokens[start:count].tolist()

    def times(self, start: int = 0) -> list[float]:
        """CLOCK_MONOTONIC seconds at which each token since `start` was pushed (time.monotonic()'s clock on Linux)."""
        count = self._library.request_count(self._request.pointer)
        return self._request.times[start:count].tolist()

    def prompt_scores(self) -> list[Score]:
        """Of each prompt token from max(1, scoring.start) on (the first has no past), once there is an output token."""
        r = self._request.struct
        return self._scores(0, r.n_prompt - r.score_from)

    def scores(self, start: int, end: int) -> list[Score]:
        """Of output tokens start .. end - 1, which `poll` has shown; at the request's temperature, as SGLang does."""
        r = self._request.struct
        first = r.n_prompt - r.score_from
        return self._scores(first + start, first + end)

    def _scores(self, start: int, end: int) -> list[Score]:
        r = self._request
        logprobs, ids, tops = (a[start:end].tolist() for a in (r.logprob, r.top_id, r.top_logprob))
        return [Score(p, list(zip(i, t, strict=True))) for p, i, t in zip(logprobs, ids, tops, strict=True)]

    def fileno(self) -> int:
        """A descriptor that is readable when there are new tokens or the request has ended; `drain` makes it quiet."""
        return self._request.signal.read_fd

    def drain(self) -> None:
        self._request.signal.drain()

    def wait(self, timeout: float) -> bool:
        """Block until new tokens or the end (True), or until `timeout` seconds have passed (False)."""
        if self.done:
            return True
        ready, _, _ = select.select([self.fileno()], [], [], timeout)
        if ready:
            self.drain()
        return bool(ready)

    def join(self, timeout: float) -> "Stats":
        """Wait for the end and return the statistics; TimeoutError when it does not come in time."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"the request still runs after {timeout} s")
        return self.stats

    def cancel(self) -> None:
        """Ask the request to stop; it does so before the next pass over the weights."""
        self._library.request_cancel(self._request.pointer)

    @property
    def done(self) -> bool:
        return self._request.finished.is_set()

    @property
    def stats(self) -> Stats:
        r = self._request.struct
        steps = r.steps
        return Stats(
            prompt_tokens=r.n_prompt,
            completion_tokens=self._library.request_count(self._request.pointer),
            finish_reason=FINISH[r.finish],
            stop_token=r.stop_token if r.stop_token >= 0 else None,
            verify_ct=r.verify_ct,
            correct_drafts=r.correct,
            proposed_drafts=r.proposed,
            histogram=list(r.histogram[: steps + 1]) if steps else [],
            prefill_s=r.prefill_s,
            decode_s=r.decode_s,
            thread_cpu_s=r.cpu_s,
            simulated=self._simulated,
        )


class Engine:
    """The model of `options.model_path`, packed and ready. Requests run one after the other."""

    def __init__(self, options: Options):
        from labkit.pocket import build, layout, loader

        began = time.perf_counter()
        weights = loader.load(options.model_path)
        self.config = weights.config
        self._kernels = build.kernels(options, self.config)
        if options.dense_dtype == "auto":
            options = replace(options, dense_dtype=build.FASTEST_DENSE[self._kernels.variant])
        self.options = options
        self._arena = layout.pack(weights, options, jit=self._kernels.moe == "jit")
        self._model = binding.Model(self._kernels.library, self._kernels.moe_library, self._arena, self.config, options)
        self._busy = threading.Lock()
        self._closed = False
        self.load_s = time.perf_counter() - began
        self.provenance = weights.provenance

    def describe(self) -> dict:
        """What really runs: kernels, replicas and why, bytes of a step, compile and load seconds."""
        return {
            "kernel_variant": self._kernels.variant,
            "moe_kernels": self._kernels.moe,
            "threads": self.options.threads,
            "compiler": self._kernels.compiler,
            "compile_s": self._kernels.compile_s,
            "load_s": self.load_s,
            "dense_dtype": self.options.dense_dtype,
            "lm_head_dtype": "fp8" if self.options.fp8_lm_head else "bf16",
            "provenance": self.provenance,
            "vocab_size": self.config.vocab_size,
            "speculative_draft_vocab": self._arena.draft_vocab,
            **self._arena.describe(),
        }

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        return self.config.eos_token_ids

    def start(
        self,
        prompt_ids: Sequence[int],
        params: Sampling,
        scoring: Scoring | None = None,
        restrict: Callable[[Sequence[int], np.ndarray], None] | None = None,
    ) -> Generation:
        """Begin one request; returns at once. BadInput for an empty or too long prompt or unknown ids.

        restrict(output so far, logits [vocabulary]): called on the decoding thread before each token is chosen, to set
        what must not come to -inf; the request ends as cancelled if it raises.
        """
        if self._closed:
            raise RuntimeError("the engine is closed")
        ids = list(prompt_ids)
        limit = self.options.context_length
        if not ids:
            raise BadInput("input_ids", ids, "at least one token")
        if len(ids) >= limit:
            raise BadInput("input_ids", f"{len(ids)} tokens", f"at most {limit - 1} tokens (context_length - 1)")
        if not all(_whole(i) and 0 <= i < self.config.vocab_size for i in ids):
            raise BadInput(
                "input_ids",
                next(i for i in ids if not (_whole(i) and 0 <= i < self.config.vocab_size)),
                f"token ids from 0 to {self.config.vocab_size - 1}",
            )
        stop = params.stop_token_ids if params.stop_token_ids is not None else ()
        if not params.ignore_eos:
            stop = tuple(dict.fromkeys((*stop, *self.eos_token_ids)))
        seed = params.seed if params.seed is not None else self.options.random_seed
        budget = min(params.max_new_tokens, limit - len(ids))

        def restrict_logits(count: int, logits) -> None:
            try:
                restrict(request.tokens[:count], np.ctypeslib.as_array(logits, (self.config.vocab_size,)))
            except Exception:  # nothing can be raised through the C call
                log.exception("a request's grammar failed")
                self._kernels.library.request_cancel(request.pointer)

        request = binding.Request(ids, params, stop, budget, seed, scoring, restrict and restrict_logits)
        return Generation(
            request, self._kernels.library, lambda: self._serve(request), simulated=self.options.simulate_acc_len != -1
        )

    def _free(self, timeout_s: float = FREE_S):
        """Have the model to oneself. Raises TookTooLong."""
        return waits.holding(self._busy, "the running request to end", timeout_s)

    def _serve(self, request: "binding.Request") -> None:
        with self._free(LONGEST_S):
            self._model.generate(request)

    def record_experts(self, on: bool) -> None:
        """Start (clearing the counts) or stop counting which experts are chosen."""
        with self._free():
            self._model.record_experts(on)

    def dump_experts(self) -> dict:
        """Counts since recording began.

        {"layers": [...], "counts": [[E] of each MoE layer], "distinct": [of each MoE layer {tokens in the pass:
        [passes, distinct experts of all of them together]}]}
        """
        with self._free():
            return self._model.dump_experts()

    def time_parts(self, on: bool) -> None:
        """Start (clearing the sums) or stop timing the parts of every pass. A step takes under 2% longer meanwhile."""
        with self._free():
            self._model.time_parts(on)

    def part_times(self) -> dict:
        """What the parts took since timing began, wall seconds of the main thread, summed over passes.

        {phase: {"passes", "tokens", "experts": experts read, summed over passes and layers, "positions": cache
        positions read, likewise, "seconds": {part: s}}}; phases: "prefill", "plain", "verify", "draft 1", ...
        """
        with self._free():
            return self._model.part_times()

    def piece(self, name: str, ids: Sequence[int], past: int, rounds: int, between: int = 0) -> dict:
        """One piece of a pass (labkit.pocket.pieces), in all layers that have it, `rounds` times for the tokens `ids`
        after `past` positions: like a phase of `part_times`. Equal tokens share their experts. Each round takes the
        next copy of the weights, once `between` bytes of the one before were read."""
        with self._free():
            return self._model.piece(name, ids, past, rounds, min(between, self._arena.stride))

    def products(self, kernel: str, memory: np.ndarray, at: Sequence[int], tiles: int, k: int, tokens: int) -> float:
        """Seconds of one kernel's products (labkit.pocket.pieces), one after another: matrix i of `tiles` * 16 rows by
        `k` columns lies at memory[at[i]:], whatever is there; what follows a matrix is prefetched, so keep 8 KB."""
        with self._free():
            return self._model.products(kernel, memory.ctypes.data, np.asarray(at, np.int64), tiles, k, tokens)

    def text_experts(self, ids: Sequence[int], tokens: int) -> float:
        """Distinct experts of a layer, averaged, that passes over `tokens` tokens at once of this text use."""
        with self._free():
            return self._model.text_experts(ids, tokens)

    def part_bytes(self) -> dict[str, dict[str, float]]:
        """Bytes by part: {"step": {part: bytes}, "draft": the same of a draft pass, "one": {"expert", "position"}}."""
        return self._arena.part_bytes()

    def stream(self, size: int, rounds: int) -> float:
        """Seconds that reading `size` bytes of the arena takes, `rounds` times over, and doing nothing with them."""
        with self._free():
            return self._model.stream(min(size, self._arena.stride), rounds)

    def reading(self) -> dict:
        """How fast this engine's memory is: {"bytes": of a step's weights, "seconds": that reading them took, every
        time}. Where the system put the weights can make a quarter of that."""
        size = min(self._arena.step_bytes(), self._arena.stride)
        return {"bytes": size, "seconds": [self.stream(size, 1) for _ in range(READINGS)]}

    def close(self) -> None:
        """Free the arena and the model's state; waits for a running request (cancel it first). Raises TookTooLong."""
        with self._free():
            if not self._closed:
                self._closed = True
                self._model.close()
                self._arena.close()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *exc) -> None:
        self.close()


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _between(name: str, value: object, low: float, high: float, open_low: bool = False) -> None:
    ok = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
    if not ok or (open_low and value == low):
        raise BadInput(name, value, f"a number {'above' if open_low else 'from'} {low:g} to {high:g}")
