"""Make draft_vocab.json: the tokens that the shipped model's texts use, most frequent first.

A draft's cost is mostly its LM head; proposing only frequent tokens cuts that cost and loses the drafts that would have
been outside. `--speculative-token-map N` takes the first N. Run: python -m training.draft_vocab
(needs reasoning-gym, as training does; texts come from the training split, so no test question has a say).
"""

import json
from collections import Counter

from tokenizers import Tokenizer

from labkit.pocket.options import SHIPPED_WEIGHTS
from labkit.workloads import texts

FILE = SHIPPED_WEIGHTS.parent / "draft_vocab.json"
KINDS = ("word-problems", "repetitive", "code", "prose", "arithmetic")
KEPT = 4096


def count(texts_per_kind: int = 1500, seed: int = 5) -> list[int]:
    """Token ids by frequency, each kind of text weighing the same."""
    tokenizer = Tokenizer.from_file(str(SHIPPED_WEIGHTS / "tokenizer.json"))
    share: Counter[int] = Counter()
    for kind in KINDS:
        seen: Counter[int] = Counter()
        for i in range(texts_per_kind):
            seen.update(tokenizer.encode(texts.make(kind, seed, i, split="train").answer).ids)
        total = sum(seen.values())
        share.update({token: n / total for token, n in seen.items()})
    share[0] += 1.0  # the end of a text always belongs
    return [token for token, _ in sorted(share.items(), key=lambda item: (-item[1], item[0]))]


if __name__ == "__main__":
    FILE.write_text(json.dumps({"by_frequency": count()[:KEPT]}, separators=(",", ":")) + "\n")
