"""Scores a model folder with the pocket engine itself, on a CPU: the numbers of the model card.

    python -m training.score --model FOLDER [--out scores.json] [--seen 1319] [--unseen 400]

The engine runs with three drafts (NEXTN 3/1/4). Accept rates by position are per verify pass: share of passes in
which at least so many drafts were right.
"""

import argparse
import json
import time
from pathlib import Path

from labkit.roofline.proportions import wilson
from labkit.workloads import texts
from labkit.workloads.texts import final_number


def run(
    engine, tok, items: list[texts.Text], *, temperature: float = 0.0, top_p: float = 1.0, limit: int = 1024
) -> dict:
    """Answers every item -> accuracy (where an item has an expected number), accept lengths, distinct 4-gram share."""
    from labkit.pocket.engine import Sampling

    histogram, tokens, right, asked, ended, wrong, shares, loops = [0] * 4, 0, 0, 0, 0, {}, [], 0
    begin = time.time()
    for i, t in enumerate(items):
        request = engine.start(
            tok.encode(t.prompt).ids, Sampling(temperature=temperature, top_p=top_p, max_new_tokens=limit, seed=i)
        )
        stats = request.join(120)
        ids = request.poll(0)
        tokens += len(ids)
        ended += stats.finish_reason == "stop"
        histogram = [a + b for a, b in zip(histogram, stats.histogram, strict=True)]
        shares.append(texts.distinct_share(ids))
        loops += texts.is_loop(ids)
        if t.expected is not None:
            asked += 1
            got, want = final_number(tok.decode(ids)), final_number(t.answer)
            good = stats.finish_reason == "stop" and got is not None and want is not None and abs(got - want) < 1e-6
            right += good
            if not good:
                wrong[t.template] = wrong.get(t.template, 0) + 1
    passes = sum(histogram)
    row = {
        "texts": len(items),
        "temperature": temperature,
        "top_p": top_p,
        "tokens": tokens,
        "ended": ended,
        "accept_length": round(sum(n * (i + 1) for i, n in enumerate(histogram)) / max(1, passes), 3),
        "accept_by_position": [round(sum(histogram[s:]) / max(1, passes), 4) for s in (1, 2, 3)],
        "histogram": histogram,
        "distinct_4gram_share": round(sum(shares) / len(shares), 3),
        "single_loops": loops,
        "seconds": round(time.time() - begin, 1),
    }
    if asked:
        low, high = wilson(right, asked)
        row |= {
            "right": right,
            "asked": asked,
            "accuracy": round(right / asked, 4),
            "low": round(low, 4),
            "high": round(high, 4),
            "wrong_by_template": {str(k): n for k, n in sorted(wrong.items())},
        }
    return row


def main(argv: list[str] | None = None) -> None:
    ap = argparse.ArgumentParser(prog="python -m training.score", description=__doc__.split("\n")[0])
    ap.add_argument("--model", type=Path, required=True)
    ap.add_argument("--out", type=Path)
    ap.add_argument("--seen", type=int, default=1319)
    ap.add_argument("--unseen", type=int, default=400)
    ap.add_argument("--texts", type=int, default=40)
    args = ap.parse_args(argv)

    from tokenizers import Tokenizer

    from labkit.pocket.engine import Engine
    from labkit.pocket.options import Options

    tok = Tokenizer.from_file(str(args.model / "tokenizer.json"))
    seen, unseen = (texts.held_out(args.model / f"test_{n}.jsonl") for n in ("seen", "unseen"))
    few = seen[:: max(1, len(seen) // (3 * args.texts))]
    parts = {
        "repetitive": ([texts.make("repetitive", 1, i) for i in range(args.texts)], {}),
        "code": ([texts.make("code", 1, i) for i in range(args.texts)], {}),
        "prose, sampled": ([texts.make("prose", 1, i) for i in range(args.texts)], {"temperature": 1.0}),
        "word problems, sampled": (few, {"temperature": 1.0}),
        "word problems, sampled, top_p 0.95": (few, {"temperature": 1.0, "top_p": 0.95}),
        "unseen word problems, sampled": (unseen[:: max(1, len(unseen) // (3 * args.texts))], {"temperature": 1.0}),
        "unseen word problems, greedy": (unseen[: args.unseen], {"limit": 400}),
        "word problems, greedy": (seen[: args.seen], {"limit": 400}),
    }
    options = Options(
        model_path=str(args.model),
        moe_runner_backend="jit",
        speculative_algorithm="NEXTN",
        speculative_num_steps=3,
        speculative_eagle_topk=1,
        speculative_num_draft_tokens=4,
    )
    out = {}
    with Engine(options) as engine:
        for name, (items, how) in parts.items():
            out[name] = run(engine, tok, items, **how)
            print(name, json.dumps(out[name]), flush=True)
    if args.out:
        args.out.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
