"""The reader's choice as text that brings it back: a query for a link to this notebook, and a command line."""

import json
import shlex
from urllib.parse import parse_qsl, urlencode

from labkit.errors import BadInput
from labkit.notebook.bytes.choice import Choice
from labkit.notebook.bytes.offers import PASTED, POSITIONS

COSTS = ("verify_cost", "draft_cost")
NAME = "bytes"  # of the query's own part: ?bytes=...
LONGEST = 6000  # characters of a pasted config that a link may carry


def query(at: Choice) -> str:
    """`name=value&...` of every setting, with a pasted config where it is short enough."""
    pairs = {**at.values}
    if at.values["model"] == PASTED:
        text = json.dumps(at.pasted.fields, separators=(",", ":"))
        pairs = {**({"config": text} if len(text) <= LONGEST else {}), **pairs}
    return urlencode(pairs)


def apply(at: Choice, text: str) -> None:
    """Bring a query's settings back. Raises BadInput for a name or a value that does not fit; then nothing changes."""
    pairs = dict(parse_qsl(text, keep_blank_values=True))
    known = [s.name for s in at.settings]
    if unknown := [name for name in pairs if name not in (*known, "config")]:
        raise BadInput("link", unknown[0], "one of the settings " + ", ".join(known))
    state = at.state()
    try:
        if "config" in pairs:
            at.paste(pairs.pop("config"))
        # The model first and the machine second: both bring other settings into their ranges.
        for name in sorted(pairs, key=lambda n: (n != "model", n != "machine")):
            at.choose(name, pairs[name])
    except BadInput:
        at.restore(state)
        raise


def command(at: Choice) -> str:
    """`papermill` with these settings, for a terminal in the lab's folder."""
    values = {n: v for n, v in at.values.items() if n not in COSTS and not n.startswith("accept_")}
    values |= {n: at.values[n] for n in COSTS if n in at.typed}
    if not values["bandwidth"]:
        del values["bandwidth"]
    given = [word for n, v in values.items() if v != PASTED for word in ("-p", n, str(v))]
    acceptance = [at.values[f"accept_{i}"] for i in range(1, POSITIONS + 1)]
    given += ["-y", f"acceptance: {acceptance}"]
    if at.values["model"] == PASTED:
        given += ["-y", "config: " + json.dumps(json.dumps(at.pasted.fields, separators=(",", ":")))]
    return shlex.join(["papermill", "notebooks/01_bytes.ipynb", "01_bytes.ipynb", *given])
