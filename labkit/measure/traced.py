"""A few decode passes of a live SGLang under its own profiler: kernel times by part, on the spot.

The engine writes its trace (tens of MB) into a folder that it and the lab both see, so both run on one machine.
"""

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from labkit.engines.sglang import profile
from labkit.errors import LabError
from labkit.measure import client

STEPS = 12  # passes in a trace
BEGIN = 32  # tokens after which the profiler starts: prefill and the first, slower passes are over
TOKENS = 192  # enough that a round of several tokens still has STEPS passes left
TRACE_S = 60.0  # for writing the trace
SETTLED_S = 1.0  # a trace that did not grow for so long is whole


def capture(
    url: str,
    folder: Path,
    *,
    input_ids: Sequence[int] | None = None,
    text: str | None = None,
    api_key: str | None = None,
    steps: int = STEPS,
    trace_s: float = TRACE_S,
) -> dict:
    """What `profile.summarise` tells of `steps` decode passes, seconds; one greedy request serves for it.

    Raises LabError when the engine has no profiler or no whole trace appears in `folder` within `trace_s`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    began, body = time.time(), {"output_dir": str(folder.resolve()), "num_steps": steps, "activities": ["GPU"]}
    asked: list[threading.Thread] = []
    said: list[str] = []

    def ask() -> None:
        try:
            status, answer = client.request(
                url, "POST", "/start_profile", json.dumps(body).encode(), api_key=api_key, timeout_s=30
            )
            if status != 200:
                said.append(f"HTTP {status} {answer[:200].decode(errors='replace')}")
        except client.RequestError as e:
            said.append(str(e))

    def on_chunk(_: float, tokens: int) -> None:
        if tokens >= BEGIN and not asked:
            asked.append(threading.Thread(target=ask, daemon=True))
            asked[0].start()

    sampling = {"temperature": 0.0, "ignore_eos": True, "max_new_tokens": TOKENS}
    client.generate(
        url, input_ids=input_ids, text=text, api_key=api_key, on_chunk=on_chunk, sampling=sampling, timeout_s=300.0
    )
    if asked:
        asked[0].join(35)
    if said or not asked:
        raise LabError(f"profile: /start_profile of {url}: {said[0] if said else 'the answer was too short to ask'}")
    return profile.summarise(profile.read_trace(_whole(folder, began, trace_s)), steps)


def _whole(folder: Path, began: float, trace_s: float) -> Path:
    """The trace once it no longer grows."""
    end, last, since = time.monotonic() + trace_s, -1, time.monotonic()
    while time.monotonic() < end:
        trace = profile.newest(folder, began)
        size = trace.stat().st_size if trace else -1
        if size != last:
            last, since = size, time.monotonic()
        elif trace and size > 0 and time.monotonic() - since >= SETTLED_S:
            return trace
        time.sleep(0.1)
    raise LabError(f"profile: no whole trace in {folder} after {trace_s:.0f} s; the engine must run on this machine")
