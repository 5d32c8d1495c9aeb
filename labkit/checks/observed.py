"""What can be seen of a running server: its own description, its log, and a few requests of ours."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from labkit.engines.attach import get_json
from labkit.engines.server_info import allowed
from labkit.errors import BadInput
from labkit.measure import session
from labkit.workloads import Prompt

PROBE_TOKENS = 96
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

    @property
    def pocket(self) -> bool:
        return self.info.get("engine") == "pocket"

    @property
    def good(self) -> list[dict]:
        """Probing requests that came back whole."""
        return [r for r in self.rows if r["status"] == "ok"]

    @property
    def simulated(self) -> bool:
        """Whether accept lengths are made up, by the description, the environment or the log."""
        told = self.info.get("simulate_acc_len")
        by_env = self.env.get("SGLANG_SIMULATE_ACC_LEN", "-1")
        in_log = self.log is not None and ("SIMULATED" in self.log or "simulated accept length is now" in self.log)
        return (isinstance(told, (int, float)) and told > 0) or _positive(by_env) or in_log


def observe(
    url: str,
    *,
    api_key: str | None = None,
    log_path: str | Path | None = None,
    env: dict[str, str] | None = None,
    requests: int = 3,
) -> Observed:
    """Ask a running server. `requests` probing generations of 96 greedy tokens (0 = send none).

    Raises Unreachable when /server_info does not answer, BadInput for a log that cannot be read.
    """
    info = allowed(get_json(url, "/server_info", api_key))
    log = None
    if log_path is not None:
        try:
            log = Path(log_path).read_text(encoding="utf-8", errors="replace")
        except OSError as e:
            raise BadInput("log", str(log_path), f"a readable file ({e.strerror})") from None
    arm = session.Arm("probe", url, api_key)
    rows = tuple(_sample(arm, _prompt(info, i), i) for i in range(requests))
    return Observed(info, log, rows, dict(env or {}))


def _sample(arm: session.Arm, prompt: Prompt, index: int) -> dict:
    """One row; a flush refused because another request still runs is tried again for two seconds."""
    for _ in range(10):
        row = session.sample(arm, prompt, repeat=0, index=index)
        if row.get("flush_status") in (200, None):
            break
        time.sleep(0.2)
    return row


def first_position(rows: Sequence[dict]) -> float | None:
    """Share of verify steps whose first draft was accepted, from the histograms; None without them."""
    histograms = [r["histogram"] for r in rows if r.get("histogram")]
    steps = sum(sum(h) for h in histograms)
    return 1 - sum(h[0] for h in histograms) / steps if steps else None


def _prompt(info: dict, i: int) -> Prompt:
    sampling = {"temperature": 0.0, "ignore_eos": True}
    without_tokenizer = "--skip-tokenizer-init" in str(info.get("launch_command", ""))
    text = _TEXTS[i % len(_TEXTS)]
    ids = [1000 + 17 * b for b in text.encode()] if without_tokenizer else None
    return Prompt(None if ids else text, ids, sampling, PROBE_TOKENS, i, None, "probe")


def _positive(text: str) -> bool:
    try:
        return float(text) > 0
    except ValueError:
        return False
