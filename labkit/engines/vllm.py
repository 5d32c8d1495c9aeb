"""vLLM's own counts of drafting, from its Prometheus metrics: they are the server's since its start, so differences
around one request are that request's, as long as nobody else asks.
"""

import re
import time
from collections.abc import Mapping

from labkit.engines.dialects import rounds
from labkit.engines.http import get_text

_LINE = re.compile(r"^(vllm:\w+)(\{[^}]*\})? ([0-9.eE+-]+)$", re.MULTILINE)
_NAMES = {
    "vllm:spec_decode_num_drafts_total": "drafts",
    "vllm:spec_decode_num_draft_tokens_total": "proposed",
    "vllm:spec_decode_num_accepted_tokens_total": "accepted",
    "vllm:generation_tokens_total": "tokens",
}
_BY_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
SETTLE_S = 2.0  # the metrics are written after the last token is sent


def read(text: str) -> dict[str, float]:
    """The counts in a /metrics document, summed over engines: drafts, proposed, accepted, tokens, and pos0, pos1, ...

    A count that the server does not have is absent.
    """
    found: dict[str, float] = {}
    for name, labels, value in _LINE.findall(text):
        key = _NAMES.get(name)
        if name == _BY_POSITION:
            at = re.search(r'position="(\d+)"', labels)
            key = f"pos{at[1]}" if at else None
        if key:
            found[key] = found.get(key, 0.0) + float(value)
    return found


def counters(url: str, api_key: str | None = None) -> dict[str, float]:
    """The server's counts now. Raises Unreachable."""
    return read(get_text(url, "/metrics", api_key))


def settled(url: str, api_key: str | None, before: Mapping[str, float], n: int) -> dict[str, float]:
    """The counts once all n tokens of the request are in them, or those after SETTLE_S."""
    until = time.monotonic() + SETTLE_S
    while True:
        now = counters(url, api_key)
        if now.get("tokens", 0) - before.get("tokens", 0) >= n or time.monotonic() > until:
            return now
        time.sleep(0.05)


def spent(before: Mapping[str, float], after: Mapping[str, float], n: int) -> dict:
    """One request of n output tokens as SGLang's spec_* fields: {} without drafting, or when others asked meanwhile."""
    grew = {k: round(v - before.get(k, 0.0)) for k, v in after.items()}
    if not grew.get("proposed") or grew.get("tokens", n) != n:
        return {}
    found = rounds(n, grew.get("accepted"), grew["proposed"])
    positions = [grew[f"pos{i}"] for i in range(sum(k.startswith("pos") for k in grew)) if f"pos{i}" in grew]
    if found and positions and sum(positions) == grew["accepted"]:
        reached = [found["spec_verify_ct"], *positions, 0]
        found["spec_correct_drafts_histogram"] = [a - b for a, b in zip(reached, reached[1:], strict=False)]
    return found
