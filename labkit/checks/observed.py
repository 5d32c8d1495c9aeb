"""What can be seen of a running server: its own description, its log, and a few requests of ours."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from labkit.checks.log import Log
from labkit.engines import survey
from labkit.engines.identify import Identity, identify
from labkit.errors import BadInput
from labkit.measure import session
from labkit.workloads import Prompt

PROBE_TOKENS = 96
SEEDS = 3
# Plain text works on every server with a tokenizer; ids on those without one.
_TEXTS = (
    "Count slowly from one: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15",
    "The days of the week are Monday, Tuesday, Wednesday, Thursday, Friday, Saturday and",
    "def add(a, b):\n    return a + b\n\ndef subtract(a, b):\n    return",
)


@dataclass(frozen=True)
class Observed:
    """The evidence of a check.

    info   the server's description, allow-listed (keys never get here)
    log    its log as text, None when nobody has it
    rows   probing requests as measured rows, () when none were made
    env    environment variables that the server was given, as far as they are known
    """

    info: dict
    log: str | None = None
    rows: tuple[dict, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    who: Identity | None = None

    @cached_property
    def identity(self) -> Identity:
        """Who serves, by several signs; where nobody looked further, by the description."""
        return self.who or identify(self.info)

    @cached_property
    def proof(self) -> Log | None:
        """The log, to be asked; None when nobody has it."""
        return Log(self.log) if self.log is not None else None

    @property
    def dummy(self) -> bool:
        """Weights that were made up: no draft would be accepted, whatever is right or wrong."""
        return self.info.get("load_format") == "dummy"

    @property
    def good(self) -> list[dict]:
        """Probing requests that came back whole."""
        return [r for r in self.rows if r["status"] == "ok"]

    @property
    def simulated(self) -> bool:
        """Whether accept lengths are made up, by the description, the environment or the log."""
        told = self.info.get("simulate_acc_len")
        by_env = self.env.get("SGLANG_SIMULATE_ACC_LEN", "-1")
        switched = bool(
            self.env.get("LABKIT_SIMULATE_ACC_LEN_FILE")
        )  # labkit's plugin takes it from a file while serving
        in_log = self.proof is not None and self.proof.simulated
        return (isinstance(told, (int, float)) and told > 0) or _positive(by_env) or switched or in_log


def observe(
    url: str,
    *,
    api_key: str | None = None,
    log_path: str | Path | None = None,
    env: dict[str, str] | None = None,
    requests: int = 3,
    temperature: float | None = None,
) -> Observed:
    """Ask a running server. `requests` probing generations of 96 greedy tokens (0 = send none).

    temperature: also ask one prompt at this temperature with SEEDS seeds, to see whether it is applied.

    Raises Unreachable for a server that cannot be measured, BadInput for a log that cannot be read.
    """
    found = survey.look(url, api_key)
    info = found.info
    log = None
    if log_path is not None:
        try:
            log = Path(log_path).read_text(encoding="utf-8", errors="replace")
        except OSError as e:
            raise BadInput("log", str(log_path), f"a readable file ({e.strerror})") from None
    arm = session.Side.of("probe", url, info, found.dialect, api_key)
    asked = prompts(info, requests) if requests else []
    if temperature is not None:
        asked += [_sampled(prompts(info, 1)[0], temperature, seed) for seed in range(1, SEEDS + 1)]
    rows = tuple(session.sample(arm, p, repeat=0, index=i) for i, p in enumerate(asked))
    return Observed(info, log, rows, dict(env or {}), found.identity)


def describe(url: str, api_key: str | None = None) -> dict:
    """What a server says of itself, allow-listed. Raises Unreachable."""
    return survey.look(url, api_key).info


def first_position(rows: Sequence[dict]) -> float | None:
    """Share of verify steps whose first draft was accepted, from the histograms; None without them."""
    histograms = [r["histogram"] for r in rows if r.get("histogram")]
    steps = sum(sum(h) for h in histograms)
    return 1 - sum(h[0] for h in histograms) / steps if steps else None


def prompts(info: dict, count: int) -> list[Prompt]:
    """Short greedy prompts of fixed length: text, or ids for a server without a tokenizer."""
    sampling = {"temperature": 0.0, "ignore_eos": True}
    without_tokenizer = "--skip-tokenizer-init" in str(info.get("launch_command", ""))
    out = []
    for i in range(count):
        text = _TEXTS[i % len(_TEXTS)]
        ids = [1000 + 17 * b for b in text.encode()] if without_tokenizer else None
        out.append(Prompt(None if ids else text, ids, sampling, PROBE_TOKENS, i, None, "probe"))
    return out


def _sampled(prompt: Prompt, temperature: float, seed: int) -> Prompt:
    sampling = {**prompt.sampling, "temperature": temperature, "sampling_seed": seed}
    return replace(prompt, sampling=sampling, seed=seed, workload="probe-sampled")


def _positive(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False
