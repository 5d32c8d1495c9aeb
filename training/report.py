"""Evaluation of a trained model: before rounding in one forward pass, and on the weights as exported in full."""

import time
from pathlib import Path

from labkit.roofline.proportions import wilson
from labkit.workloads import texts

from . import evaluate, export


def _teacher_forced(model, items, tok, eos, device) -> dict:
    """Share of reference answers that greedy decoding would give token for token, and acceptance up to the
    first other.
    """
    b, whole = evaluate.reference_prefix(model, evaluate.batch_of(items, tok, eos, device, answers=True))
    return {"greedy_equals_reference": whole, "texts": len(items), **evaluate.acceptance(model, b)}


def _written(model, items, tok, eos, device, deadline, *, temperature=0.0, scored=False) -> dict:
    """Acceptance on text that the model writes itself, and accuracy if its answers are to be scored."""
    prompts = evaluate.batch_of(items, tok, eos, device, answers=False, room=260, limit=640)
    b = evaluate.write(model, prompts, eos, temperature=temperature, deadline=deadline)
    row = {"temperature": temperature, "texts": len(items), **evaluate.acceptance(model, b)}
    if scored:
        row |= evaluate.accuracy(b, items, tok, eos)
        low, high = wilson(row["right"], row["asked"])
        row |= {
            "accuracy": row["right"] / row["asked"],
            "low": low,
            "high": high,
            "wrong_templates": sorted(t for t, _ in row["wrong"]),
            "wrong": row["wrong"][:10],
        }
    return row


def evaluate_model(model, folder: Path, data: Path, deadline: float, problems: int, log) -> dict:
    """The model as trained, then with the rounded weights of `folder`. Parts that find no time are left out
    and logged.
    """
    from tokenizers import Tokenizer

    tok, eos, device = Tokenizer.from_file(str(data / "tokenizer.json")), 0, model.head.device
    seen, unseen = (texts.held_out(data / f"test_{n}.jsonl") for n in ("seen", "unseen"))
    few = max(2, problems // 4)
    seen_part, unseen_part = (
        seen[:: max(1, len(seen) // problems)][:problems],
        unseen[:: max(1, 2 * len(unseen) // problems)],
    )
    repetitive, code, prose = ([texts.make(k, 1, i) for i in range(few)] for k in ("repetitive", "code", "prose"))
    forced = {
        "seen_forced": lambda: _teacher_forced(model, seen_part, tok, eos, device),
        "unseen_forced": lambda: _teacher_forced(model, unseen_part, tok, eos, device),
        "repetitive": lambda: _teacher_forced(model, repetitive, tok, eos, device),
    }
    own = {
        "seen": lambda: _written(model, seen_part, tok, eos, device, deadline, scored=True),
        "unseen": lambda: _written(model, unseen_part, tok, eos, device, deadline, scored=True),
        "sampled": lambda: _written(
            model, seen[1 : 2 * few + 1], tok, eos, device, deadline, temperature=1.0, scored=True
        ),
        "code": lambda: _written(model, code, tok, eos, device, deadline),
        "prose_sampled": lambda: _written(model, prose, tok, eos, device, deadline, temperature=1.0),
    }
    out: dict = {}
    for label, parts in (("unrounded", forced), ("rounded", forced | own)):
        if label == "rounded":
            export.restore(model, folder)
        for name, fn in parts.items():
            if time.time() > deadline:
                log("no_time", part=f"{label}/{name}")
                continue
            begin = time.time()
            row = out.setdefault(label, {})[name] = fn()
            log(
                "evaluated",
                part=f"{label}/{name}",
                seconds=time.time() - begin,
                **{k: v for k, v in row.items() if k != "wrong"},
            )
    return out
