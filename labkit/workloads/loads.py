"""The loads: what is asked of an engine, how it samples, and how long it may go on."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random

from labkit.errors import BadInput
from labkit.workloads import gsm8k, texts

NAMES = (
    "repetitive",
    "code",
    "word-problems",
    "word-problems-unseen",
    "word-problems-sampled",
    "word-problems-unseen-sampled",
    "synthetic",
    "gsm8k",
    "file:PATH",
)
ALIASES = {"gsm_symbolic": "word-problems"}  # the data set's own name for the pocket model's problems
POCKET_WEIGHTS = Path(__file__).parents[1] / "pocket" / "weights"
FREE_LENGTH = 512  # most tokens when no output length is given and the model stops by itself
SAMPLED = {"temperature": 1.0, "top_p": 0.95}


@dataclass(frozen=True)
class Prompt:
    """One request: exactly one of text and input_ids; sampling in SGLang's names (without max_new_tokens).

    expected: the right answer where there is one. workload: the load's name. keep_answer: whether a record may hold the
    text that comes back.
    """

    text: str | None = None
    input_ids: list[int] | None = None
    sampling: dict = field(default_factory=dict)
    max_new_tokens: int = FREE_LENGTH
    seed: int = 0
    expected: str | None = None
    workload: str = ""
    keep_answer: bool = True


def load(
    name: str,
    *,
    count: int,
    seed: int,
    tokenizer_path: str | Path | None = None,
    prompt_tokens: int | None = None,
    output_tokens: int | None = None,
    sampling: Mapping[str, object] | None = None,
    shots: int | None = None,
    keep_answers: bool = True,
) -> list[Prompt]:
    """`count` distinct prompts of a load.

    repetitive, code                   greedy
    word-problems, -unseen             the model's held-out problems: seen templates with new numbers, or templates that
                                       training never showed; greedy
    word-problems-sampled, -unseen-sampled
                                       the same problems sampled (temperature 1, top_p 0.95, a seed per prompt)
    synthetic                          random token ids below the vocabulary size, greedy; needs prompt_tokens
    gsm8k, gsm8k:FOLDER                its test questions with `shots` examples (5, on the pocket model 0), sampled as
                                       published: temperature 0.6, top_p 0.95, top_k 29 (labkit.workloads.gsm8k)
    file:PATH                          JSONL: {"prompt": text, "answer"?: text, "sampling"?: {...}} a line

    prompt_tokens fixes the length exactly: earlier items of the load are put before the last one and cut at the front,
    then sent as ids; it needs a tokenizer (`tokenizer_path`: tokenizer.json or its folder, default the pocket model's).
    output_tokens fixes the output length (ignore_eos); without it the model stops by itself. sampling overrides the
    load's own sampling parameters (SGLang's names); one that samples gets a seed a prompt, equal in every arm.
    Raises BadInput.
    """
    if count < 1:
        raise BadInput("count", count, "at least 1")
    name = ALIASES.get(name, name)
    length = {"ignore_eos": True} if output_tokens else {}
    published = name.split(":")[0] == "gsm8k"
    new = output_tokens or (gsm8k.MOST_TOKENS if published and tokenizer_path is not None else FREE_LENGTH)
    if name == "synthetic":
        return _synthetic(count, seed, tokenizer_path, prompt_tokens, length, new)
    items = _items(name, seed, tokenizer_path, shots)
    kind, _, path = name.partition(":")
    shown = kind if published else f"file:{Path(path).name}" if path else name  # no machine paths in records
    prompts = []
    for i in range(count):
        text, expected, own = items(i)
        how = {"temperature": 0.0, **own, **(sampling or {}), **length}
        if how["temperature"]:
            how = {"sampling_seed": _seed(seed, i), **how}
        ids = None
        if prompt_tokens is not None:
            ids = _exactly(prompt_tokens, items, i, count, _tokenizer(tokenizer_path))
        prompts.append(
            Prompt(
                None if ids else text,
                ids,
                how,
                new,
                _seed(seed, i),
                expected,
                shown,
                keep_answers,
            )
        )
    if len({(p.text, tuple(p.input_ids or ())) for p in prompts}) < count:
        raise BadInput("count", count, f"fewer: {name} has not that many distinct prompts of this length")
    return prompts


def check(name: str) -> None:
    """Can the prompts of a load be had here? Raises BadInput: an unknown name, a file that is not there or not right,
    a package that is not installed. Downloads nothing."""
    kind, _, path = ALIASES.get(name, name).partition(":")
    if kind == "file":
        _file(Path(path))
    elif kind == "gsm8k":
        gsm8k.check(path or None)
    elif kind not in NAMES or path:
        raise BadInput("workload", name, "one of " + ", ".join(NAMES))


def _items(name: str, seed: int, tokenizer_path: str | Path | None, shots: int | None):
    """A function i -> (text, expected, sampling) that gives item i of the load, for any i >= 0."""
    if name in ("repetitive", "code"):

        def made(i: int):
            item = texts.make(name, seed, i)
            return item.prompt, item.expected, {}

        return made
    if name.startswith("file:"):
        rows = _file(Path(name[5:]))
    elif name.split(":")[0] == "gsm8k":
        # The pocket model was trained on single questions in one plain form.
        own = tokenizer_path is None
        few = shots if shots is not None else 0 if own else gsm8k.SHOTS
        folder = None if own else _folder(tokenizer_path)
        asked = gsm8k.prompts(name[6:] or None, shots=few, seed=seed, folder=folder)
        rows = [(text, expected, gsm8k.SAMPLING) for text, expected in asked]
    elif name.removesuffix("-sampled") in ("word-problems", "word-problems-unseen"):
        rows = _held_out(name, tokenizer_path)
    else:
        raise BadInput("workload", name, "one of " + ", ".join(NAMES))
    order = list(range(len(rows)))
    if ":" not in name or name.startswith("gsm8k:"):
        Random(f"{name.removesuffix('-sampled')}/{seed}").shuffle(order)
    # Past the end the items come round again: only as filling before a long prompt's last item.
    return lambda i: rows[order[i % len(rows)]]


def _held_out(name: str, tokenizer_path: str | Path | None) -> list[tuple]:
    file = "test_unseen.jsonl" if "unseen" in name else "test_seen.jsonl"
    folder = _folder(tokenizer_path)
    path = folder / file if (folder / file).exists() else POCKET_WEIGHTS / file
    if not path.exists():
        raise BadInput("workload", name, f"a load whose file is here; {path.name} of the pocket weights is missing")
    own = SAMPLED if name.endswith("sampled") else {}
    return [(t.prompt, t.expected, own) for t in texts.held_out(path)]


def _file(path: Path) -> list[tuple]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise BadInput("workload", f"file:{path}", f"a readable JSONL file ({e})") from None
    rows = []
    for n, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            prompt, sampling = row["prompt"], row.get("sampling", {})
            if not isinstance(prompt, str) or not prompt or not isinstance(sampling, dict):
                raise TypeError
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BadInput(f"{path.name} line {n}", line, '{"prompt": "...", "sampling": {...}} as JSON') from None
        rows.append((prompt, row.get("answer"), sampling))
    if not rows:
        raise BadInput("workload", f"file:{path}", "a file with at least one prompt")
    return rows


def _exactly(tokens: int, items, i: int, count: int, tokenizer) -> list[int]:
    """Ids of exactly `tokens` tokens that end with item i; what stands before it are other items of the load."""
    ids = tokenizer.encode(items(i)[0]).ids
    step = 0
    while len(ids) < tokens:
        step += 1
        # Strides keep the filling of different prompts different, so that no prefix is shared between them.
        before = tokenizer.encode(items(count + i + step * count)[0] + "\n\n").ids
        ids = before + ids
    return ids[len(ids) - tokens :]


def _synthetic(count, seed, tokenizer_path, prompt_tokens, length, new) -> list[Prompt]:
    if prompt_tokens is None:
        raise BadInput("prompt_tokens", None, "a number of tokens: the synthetic load has no text of its own")
    low, high = 100, _vocabulary(tokenizer_path)  # special tokens sit below 100
    prompts = []
    for i in range(count):
        rng = Random(f"synthetic/{seed}/{i}")
        ids = [rng.randrange(low, high) for _ in range(prompt_tokens)]
        prompts.append(Prompt(None, ids, {"temperature": 0.0, **length}, new, _seed(seed, i), None, "synthetic"))
    return prompts


def _vocabulary(path: str | Path | None) -> int:
    """vocab_size of config.json beside the tokenizer."""
    config = _folder(path) / "config.json"
    try:
        return int(json.loads(config.read_text(encoding="utf-8"))["vocab_size"])
    except (OSError, ValueError, KeyError):
        raise BadInput("tokenizer", str(config), "a model folder whose config.json has vocab_size") from None


def _folder(path: str | Path | None) -> Path:
    folder = Path(path) if path is not None else POCKET_WEIGHTS
    return folder.parent if folder.suffix == ".json" else folder


def counter(tokenizer_path: str | Path | None) -> Callable[[str], int] | None:
    """A function text -> number of tokens, special ones left out (default: the pocket model's); None for a model folder
    without a tokenizer, which synthetic loads do without: they are sent as ids."""
    if not (_folder(tokenizer_path) / "tokenizer.json").exists():
        return None
    tokenizer = _tokenizer(tokenizer_path)
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def _tokenizer(path: str | Path | None):
    return _read_tokenizer(str(_folder(path) / "tokenizer.json"))


@lru_cache(maxsize=4)
def _read_tokenizer(path: str):
    from tokenizers import Tokenizer

    if not Path(path).exists():
        raise BadInput("tokenizer", path, "a tokenizer.json or the model folder that holds one")
    return Tokenizer.from_file(path)


def _seed(seed: int, i: int) -> int:
    return Random(f"prompt/{seed}/{i}").randrange(2**31)
