"""The accept length to expect of a model at a draft length and load, where one is known, and from where."""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from labkit import catalog, pocket
from labkit.errors import BadInput
from labkit.measure.estimates import NOTHING_ACCEPTED

Known = tuple[float, str]  # accept length, source

PUBLISHED_DRAFT = (3, 1, 4)  # steps, topk and draft tokens of the published results
_SHAPE = ("num_hidden_layers", "hidden_size", "num_experts", "vocab_size")
_OWN_LAYER = ("NEXTN", "EAGLE")  # SGLang resolves the first to the second
_SUFFIX = re.compile(r"-(bf16|fp8|fp4|nvfp4|mxfp4|int4|int8|awq|gptq)$")  # another format of the same model
# The pocket model's texts by the lab's workloads: (greedy, sampled) as its training log names them.
_TEXTS = {
    "repetitive": ("repetitive", None),
    "code": ("code", None),
    "word-problems": ("word problems, greedy", "word problems, sampled"),
    "word-problems-sampled": (None, "word problems, sampled"),
    "word-problems-unseen": ("unseen word problems, greedy", "unseen word problems, sampled"),
}


def accept(info: Mapping, workload: str, sampled: bool) -> Known | None:
    """Accept length known for this server's drafting by the model's own layer, by its description (`/server_info`);
    None where nothing is known of this model, draft length and load."""
    model, draft = info.get("model_path"), info.get("speculative_draft_model_path")
    steps, topk, tokens = (info.get(f"speculative_{n}") for n in ("num_steps", "eagle_topk", "num_draft_tokens"))
    if str(info.get("speculative_algorithm")).upper() not in _OWN_LAYER or draft not in (None, "", model) or topk != 1:
        return None
    if info.get("engine") == "pocket":
        if not str(model).replace("\\", "/").endswith(("pocket", "pocket/weights")):  # somebody's own weights
            return None
        return _of_pocket(steps, workload, sampled)
    return _published(str(model)) if (steps, topk, tokens) == PUBLISHED_DRAFT else None


def _of_pocket(steps: object, workload: str, sampled: bool) -> Known | None:
    """1 + the sum of the shares of verify rounds that accepted each position, over the positions that are drafted."""
    text = _TEXTS.get(workload, (None, None))[sampled]
    found = _log().get(text) if text else None
    if found is None or not isinstance(steps, int) or not 0 < steps <= len(found["accept_by_position"]):
        return None
    return 1 + sum(found["accept_by_position"][:steps]), f"the pocket model's training log, {text}"


@cache
def _log() -> dict:
    file = Path(pocket.__file__).parent / "weights" / "training_log.json"
    try:
        return json.loads(file.read_text(encoding="utf-8"))["results_of_the_pocket_engine"]
    except (OSError, ValueError, KeyError):  # a checkout without the weights, or one's own in their place
        return {}


def _published(model: str) -> Known | None:
    """The lowest published for this model, or one of its shape. A result with the draft broken on purpose is none."""
    name = _SUFFIX.sub("", model.rstrip("/").rsplit("/", 1)[-1].lower())
    try:
        shape = _shape(name if name in catalog.catalog().models else model)
        same = [r for r in catalog.catalog().results.values() if _shape(r.model) == shape]
    except BadInput:
        return None
    lengths = [r.metrics["accept_length"] for r in same if "accept_length" in r.metrics]
    low = min((e for e in lengths if e.value > NOTHING_ACCEPTED), key=lambda e: e.value, default=None)
    return None if low is None else (low.value, low.source)


def _shape(model: str) -> list:
    fields = catalog.load_config(model).fields
    return [fields.get(k) for k in _SHAPE]
