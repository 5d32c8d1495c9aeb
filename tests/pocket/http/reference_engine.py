"""The engine's interface on the NumPy reference: real tokens of a tiny model, for tests of the HTTP server alone.

Run as a program it is the server with this engine: `python reference_engine.py [server flags]`. POCKET_TEST_STEP_S in
the environment makes every token take at least that many seconds, so that there is time to hang up on it.
"""

import os
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[3]))  # training/ is not installed

from labkit.pocket.engine import Score  # noqa: E402
from training.reference import Reference  # noqa: E402


class Generation:
    def __init__(self, model: Reference, prompt, params, ends: set[int], step_s: float, scoring, restrict):
        self._tokens: list[int] = []
        self._scoring, self._restrict = scoring, restrict
        self._prompt_scores: list[Score] = []
        self._output_scores: list[Score] = []
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._cancelled, self._finished = threading.Event(), threading.Event()
        self._reason, self._began = None, time.monotonic()
        self._arguments = (model, list(prompt), params, ends, step_s)
        self._prompt = len(prompt)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        model, prompt, params, ends, step_s = self._arguments
        rng = np.random.default_rng(params.seed)
        state = model.new_state()
        every = model.logits(prompt, state).astype(np.float64)
        if self._scoring is not None and self._scoring.start is not None:
            start = max(self._scoring.start, 1)
            self._prompt_scores = [self._score(every[i - 1], prompt[i]) for i in range(start, len(prompt))]
        logits = every[-1]
        self._reason = "length"
        while len(self._tokens) < params.max_new_tokens:
            if self._cancelled.wait(step_s):
                self._reason = "abort"
                break
            if self._restrict is not None:
                self._restrict(self._tokens, logits)
            if params.temperature == 0:
                token = int(logits.argmax())
            else:
                p = np.exp((logits - logits.max()) / params.temperature)
                token = int(rng.choice(len(p), p=p / p.sum()))
            if self._scoring is not None:
                self._output_scores.append(self._score(logits / (params.temperature or 1), token))
            self._tokens.append(token)
            self._notify()
            if token in ends:
                self._reason = "stop"
                break
            logits = model.logits([token], state)[-1].astype(np.float64)
        self._finished.set()
        self._notify()

    def _score(self, logits, token) -> Score:
        logp = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
        best = np.argsort(-logp, kind="stable")[: self._scoring.top]
        return Score(float(logp[token]), [(int(i), float(logp[i])) for i in best])

    def prompt_scores(self):
        return self._prompt_scores

    def scores(self, start, end):
        return self._output_scores[start:end]

    def _notify(self):
        try:
            os.write(self._write, b"x")
        except BlockingIOError:
            pass

    def poll(self, start=0):
        return self._tokens[start:]

    def fileno(self):
        return self._read

    def drain(self):
        try:
            while os.read(self._read, 4096):
                pass
        except BlockingIOError:
            pass

    def join(self, timeout=None):
        self._finished.wait(timeout)

    def cancel(self):
        self._cancelled.set()

    @property
    def done(self):
        return self._finished.is_set()

    @property
    def stats(self):
        return SimpleNamespace(
            prompt_tokens=self._prompt,
            completion_tokens=len(self._tokens),
            verify_ct=0,
            finish_reason=self._reason,
            correct_drafts=0,
            proposed_drafts=0,
            histogram=[],
        )

    def __del__(self):
        os.close(self._read)
        os.close(self._write)


class Engine:
    eos_token_ids = (1,)

    def __init__(self, options):
        self._model = Reference(options.model_path)
        self._step_s = float(os.environ.get("POCKET_TEST_STEP_S", "0"))

    def describe(self):
        return {"kernel_variant": "numpy", "moe_kernels": "generic"}

    def start(self, prompt, params, scoring=None, restrict=None):
        ends = set(params.stop_token_ids or ()) | (set() if params.ignore_eos else set(self.eos_token_ids))
        return Generation(self._model, prompt, params, ends, self._step_s, scoring, restrict)

    def record_experts(self, on):
        self._recording = on

    def dump_experts(self):
        return {"layers": [], "counts": [], "distinct": []}

    def close(self):
        pass


if __name__ == "__main__":
    from labkit.pocket.server import main

    sys.exit(main(engine=Engine))
