"""The training data: held-out problems, tokenizer, and the token stream, made in parallel from seeds.

    python -m training.corpus --data DATA [--tokens 150e6] [--part 0] [--workers 8] [--fixed-only]

DATA/test_seen.jsonl, test_unseen.jsonl and tokenizer.json are made once and kept if present. DATA/train_P.bin is a
stream of uint16: bits 0-12 the token, bits 13-15 how its loss counts (an index into WEIGHTS). Each document ends with
<|eos|>.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from random import Random

from labkit.workloads import texts
from labkit.workloads.texts import problems

from . import tokenizer

# Loss weight classes: what the model must say; the request it is given; prose, half of which nobody could predict.
WEIGHTS = (1.0, 0.25, 0.5)
CLASS_SHIFT = 13
# Share of documents by kind; lengths differ, so the shares of tokens are reported by main().
MIX = {"word-problems": 0.60, "arithmetic": 0.13, "repetitive": 0.08, "code": 0.10, "prose": 0.09}
SEED, TEST_SEEN, TEST_PER_UNSEEN = 20261, 1319, 40


def lexicon(count: int = 6000) -> list[str]:
    """A larger word list for prose, from the word files that ship with reasoning-gym; empty when they are absent."""
    try:
        import reasoning_gym

        folder = Path(reasoning_gym.__file__).parent / "data"
        words = sorted({w.strip() for w in (folder / "words3to10.txt").read_text().split() if w.strip().islower()})
    except (ImportError, OSError):
        return []
    return Random("lexicon").sample(words, min(count, len(words)))


def held_out(folder: Path) -> frozenset[str]:
    """Makes the two test files unless they exist; -> the normalised prompts that training must not contain."""
    seen_path, unseen_path = folder / "test_seen.jsonl", folder / "test_unseen.jsonl"
    if not (seen_path.exists() and unseen_path.exists()):

        def draw(templates, count, split):
            rows, taken, i = [], set(), 0
            while len(rows) < count and i < 50 * count:
                template = templates[i % len(templates)]
                t = texts.make("word-problems", SEED, i, split=split, template=template)
                i += 1
                key = problems.normalise(t.prompt)
                if key not in taken:  # a few templates have few distinct questions
                    taken.add(key)
                    rows.append({"prompt": t.prompt, "cot": t.answer, "answer": t.expected, "template": template})
            return rows

        for path, rows in (
            (seen_path, draw(texts.SEEN, TEST_SEEN, "test")),
            (unseen_path, draw(texts.HELD_OUT, TEST_PER_UNSEEN * len(texts.HELD_OUT), "test")),
        ):
            path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows), encoding="utf-8")
    return banned_prompts(folder)


def banned_prompts(folder: Path) -> frozenset[str]:
    return frozenset(
        problems.normalise(t.prompt)
        for name in ("test_seen.jsonl", "test_unseen.jsonl")
        for t in texts.held_out(folder / name)
    )


def documents(first: int, count: int, banned: frozenset[str], words: list[str]) -> Iterator[texts.Text]:
    """Training documents number first .. first+count-1, without those whose question is in a test set."""
    kinds, weights = list(MIX), list(MIX.values())
    for i in range(first, first + count):
        kind = Random(f"mix/{SEED}/{i}").choices(kinds, weights)[0]
        text = texts.make(kind, SEED, i, split="train", words=words)
        if text.kind != "word-problems" or problems.normalise(text.prompt) not in banned:
            yield text


def _shard(job: tuple) -> tuple[dict[str, int], int]:
    """Generates and tokenises one shard to a file; -> (tokens by kind, documents dropped as test questions)."""
    import numpy as np
    from tokenizers import Tokenizer

    folder, path, first, count = job
    banned, words = banned_prompts(folder), lexicon()
    tok = Tokenizer.from_file(str(folder / "tokenizer.json"))
    eos, by_kind, kept = tok.token_to_id(tokenizer.EOS), {}, 0
    with open(path, "wb") as out:
        for begin in range(first, first + count, 1000):
            docs = list(documents(begin, min(1000, first + count - begin), banned, words))
            kept += len(docs)
            asked = tok.encode_batch_fast([d.prompt for d in docs], add_special_tokens=False)
            said = tok.encode_batch_fast([d.answer for d in docs], add_special_tokens=False)
            stream = []
            for d, a, s in zip(docs, asked, said, strict=True):
                mark = (2 if d.kind == "prose" else 0) << CLASS_SHIFT
                stream += [t | 1 << CLASS_SHIFT for t in a.ids]
                stream += [t | mark for t in s.ids]
                stream.append(eos | mark)
                by_kind[d.kind] = by_kind.get(d.kind, 0) + len(a.ids) + len(s.ids) + 1
            np.array(stream, np.uint16).tofile(out)
    return by_kind, count - kept


def make_part(folder: Path, part: int, tokens: float, workers: int) -> dict:
    """Writes DATA/train_PART.bin of about `tokens` tokens; parts use disjoint document numbers."""
    start, chunk, jobs = time.time(), 4000, []
    per_document = 190  # measured mean; only decides how many documents are made
    count = max(1, round(tokens / per_document / chunk))
    for i in range(count):
        jobs.append((folder, folder / f"part_{part}_{i:04d}.tmp", part * 10_000_000 + i * chunk, chunk))
    with get_context("spawn").Pool(workers) as pool:
        results = pool.map(_shard, jobs, chunksize=1)
    whole = folder / f"train_{part}.tmp"
    with open(whole, "wb") as out:
        for job in jobs:
            out.write(job[1].read_bytes())
            job[1].unlink()
    by_kind: dict[str, int] = {}
    for kinds, _ in results:
        for k, n in kinds.items():
            by_kind[k] = by_kind.get(k, 0) + n
    report = {
        "part": part,
        "documents": count * chunk,
        "tokens": sum(by_kind.values()),
        "tokens_by_kind": by_kind,
        "dropped_as_test_questions": sum(d for _, d in results),
        "seconds": round(time.time() - start, 1),
    }
    (folder / f"train_{part}.json").write_text(json.dumps(report) + "\n")
    whole.rename(folder / f"train_{part}.bin")  # last: its presence means complete
    return report


def make_fixed(folder: Path, vocab: int = 6144, sample: int = 60_000) -> None:
    """Held-out problems and tokenizer, unless present."""
    folder.mkdir(parents=True, exist_ok=True)
    banned = held_out(folder)
    if not (folder / "tokenizer.json").exists():
        docs = documents(90_000_000, sample, banned, lexicon())
        # Long repetitive answers are cut: the words they repeat would fill the vocabulary.
        samples = (d.prompt + (d.answer[:200] if d.kind == "repetitive" else d.answer) for d in docs)
        tokenizer.build(samples, vocab).save(str(folder / "tokenizer.json"))
    tokenizer.write_config(folder)


def main(argv: list[str] | None = None) -> None:
    ap = argparse.ArgumentParser(prog="python -m training.corpus", description=__doc__.split("\n")[0])
    ap.add_argument("--data", type=Path, required=True)
    ap.add_argument("--tokens", type=float, default=150e6)
    ap.add_argument("--part", type=int, default=0)
    ap.add_argument("--workers", type=int, default=os.cpu_count())
    ap.add_argument("--fixed-only", action="store_true", help="only the held-out problems and the tokenizer")
    args = ap.parse_args(argv)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    make_fixed(args.data)
    if not args.fixed_only:
        print("corpus", json.dumps(make_part(args.data, args.part, args.tokens, args.workers)), flush=True)


if __name__ == "__main__":
    main()
