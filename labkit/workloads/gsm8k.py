"""GSM8K (Cobbe et al., arXiv:2110.14168; MIT) as the published runs ask it. The lab ships no copy of it.

Questions come from a folder with train.jsonl and test.jsonl (`gsm8k:FOLDER`) or, for plain `gsm8k`, from the `datasets`
package (openai/gsm8k, main). A prompt holds `shots` worked examples of the train split, chosen by the seed and the same
for every question, then the question; where the model folder has a chat template it becomes one user message of it.
"""

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from random import Random

from labkit.errors import BadInput
from labkit.workloads import chat

# The settings of the published run on DGX Spark: temperature 0.6, top_p 0.95, top_k 29, at most 32,768 new tokens.
SAMPLING = {"temperature": 0.6, "top_p": 0.95, "top_k": 29}
MOST_TOKENS = 32768
SHOTS = 5
_ASK = (
    "Solve the problem step by step. End with a line that holds `#### ` and the answer as a number, nothing else.\n\n"
)
_NO_PACKAGE = "gsm8k:FOLDER with train.jsonl and test.jsonl, or an installed `datasets` package to load openai/gsm8k"


@dataclass(frozen=True)
class Question:
    """One problem. worked: the reference solution, ending `#### n`; expected: that n."""

    text: str
    worked: str

    @property
    def expected(self) -> str:
        return self.worked.rpartition("####")[2].strip()


def questions(source: str | Path | None, split: str) -> list[Question]:
    """All questions of a split ("train" or "test"). Raises BadInput where they cannot be had."""
    rows = _from_package(split) if source is None else _from_file(Path(source), split)
    return [Question(row["question"].strip(), _without_marks(row["answer"])) for row in rows]


def check(source: str | Path | None) -> None:
    """Can questions be had from here? Raises BadInput; whether a hub can be reached is not asked."""
    if source is not None:
        _from_file(Path(source), "test")
    elif importlib.util.find_spec("datasets") is None:
        raise BadInput("workload", "gsm8k", _NO_PACKAGE)


def prompts(source: str | Path | None, *, shots: int, seed: int, folder: Path | None) -> list[tuple[str, str]]:
    """(prompt text, expected answer) of every test question.

    shots: worked examples from the train split, drawn by the seed. folder: the model's, whose chat template is used
    (with thinking where the model has it); None asks in plain text, as a model without one expects.
    """
    asked = questions(source, "test")
    train = questions(source, "train") if shots else []
    if shots > len(train):
        raise BadInput("shots", shots, f"at most {len(train)}, the questions of the train split")
    examples = Random(f"gsm8k shots/{seed}").sample(train, shots)
    shown = "".join(f"Question: {q.text}\nAnswer: {q.worked}\n\n" for q in examples)
    out = []
    for q in asked:
        text = f"{shown}Question: {q.text}\nAnswer:"
        templated = chat.render(folder, _ASK + text, thinking=True) if folder is not None else None
        out.append((text if templated is None else templated, q.expected))
    return out


def _without_marks(worked: str) -> str:
    """GSM8K's calculator marks (<<48/2=24>>) taken out: they are for a tool that nobody here runs."""
    parts = worked.split("<<")
    return parts[0] + "".join(p.partition(">>")[2] for p in parts[1:])


def _from_file(path: Path, split: str) -> list[dict]:
    file = path / f"{split}.jsonl" if path.is_dir() else path
    if not path.is_dir() and split == "train":
        file = path.with_name("train.jsonl")
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise BadInput("workload", f"gsm8k:{path}", f"a folder with {split}.jsonl ({e})") from None
    rows = []
    for n, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if not row["question"].strip() or "####" not in row["answer"]:
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError):
            shown = '{"question": "...", "answer": "... #### 18"} as JSON'
            raise BadInput(f"{file.name} line {n}", line[:80], shown) from None
        rows.append(row)
    if not rows:
        raise BadInput("workload", f"gsm8k:{path}", "a file with at least one question")
    return rows


def _from_package(split: str) -> list[dict]:
    try:
        from datasets import load_dataset
    except ImportError:
        raise BadInput("workload", "gsm8k", _NO_PACKAGE) from None
    try:
        return list(load_dataset("openai/gsm8k", "main", split=split))
    except Exception as e:  # the hub's client raises many kinds; all mean that the questions are not here
        raise BadInput("workload", "gsm8k", f"a reachable hub or gsm8k:FOLDER ({type(e).__name__})") from None
