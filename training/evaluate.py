"""What the model can do: accuracy on held-out problems, and how many drafts would be accepted, by position and load.

Text is made by recomputing the prefix in batches (no cache), which is exact. Acceptance follows a serving engine with a
chain of greedy drafts: a draft counts when it equals the token that the model itself put there, and every round
yields its accepted drafts and one more token. On sampled text this is exactly an engine that accepts a draft when
its own sample equals it.
"""

import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from labkit.workloads.texts import Text, final_number

from .layers import OPTIONS


def eager(fn):
    """Runs a function of (model, ...) in eval mode, uncompiled and without gradients."""

    def call(model, *args, **kwargs):
        before, training = OPTIONS["compile"], model.training
        OPTIONS["compile"] = False
        model.eval()
        try:
            with torch.no_grad():
                return fn(model, *args, **kwargs)
        finally:
            OPTIONS["compile"] = before
            model.train(training)

    return call


@dataclass
class Batch:
    """rows [n,L] of token ids; `first` index of the first answer token, `end` one past the last token, `done`
    ended by itself.
    """

    rows: torch.Tensor
    first: torch.Tensor
    end: torch.Tensor
    done: torch.Tensor


def batch_of(items: list[Text], tok, eos: int, device, *, answers: bool, room: int = 0, limit: int = 1024) -> Batch:
    """Prompts (with answers and eos, if asked for) padded to a common length with `room` free tokens."""
    asked = [tok.encode(t.prompt).ids for t in items]
    full = [a + (tok.encode(t.answer).ids + [eos] if answers else []) for a, t in zip(asked, items, strict=True)]
    length = min(limit, -(-(max(map(len, full)) + room) // 64) * 64)
    rows = torch.full((len(items), length), eos)
    for i, ids in enumerate(full):
        rows[i, : len(ids)] = torch.tensor(ids[:length])
    end = torch.tensor([min(len(f), length) for f in full])
    return Batch(
        *(t.to(device) for t in (rows, torch.tensor([len(a) for a in asked]), end, torch.full((len(items),), answers)))
    )


def _argmax(h, head):
    return torch.cat([F.linear(part, head.to(part.dtype)).argmax(-1) for part in h.split(16)])


@eager
def write(
    model, b: Batch, eos: int, *, temperature: float = 0.0, deadline: float = float("inf"), seed: int = 0
) -> Batch:
    """Continues every row until eos, its end or the deadline; sampled when temperature > 0."""
    random = torch.Generator(device=b.rows.device).manual_seed(seed)
    rows, end, done = b.rows.clone(), b.end.clone(), torch.zeros_like(b.done)
    while time.time() < deadline and not bool(done.all()):
        live = (~done).nonzero()[:, 0]
        width = min(rows.shape[1], -(-int(end[live].max()) // 64) * 64)
        h = model.hidden(rows[live, :width])[torch.arange(len(live), device=rows.device), end[live] - 1]
        logits = F.linear(h, model.head.to(h.dtype)).float()
        if temperature:
            token = torch.multinomial(torch.softmax(logits / temperature, -1), 1, generator=random)[:, 0]
        else:
            token = logits.argmax(-1)
        rows[live, end[live]] = token
        end[live] += 1
        done[live] = (token == eos) | (end[live] >= rows.shape[1])
    done &= rows.gather(1, (end - 1)[:, None])[:, 0] == eos
    return Batch(rows, b.first, end, done)


@eager
def reference_prefix(model, b: Batch) -> tuple[Batch, float]:
    """Cuts each row where greedy decoding would leave the reference answer. -> (batch, share of answers kept whole)."""
    predicted = _argmax(model.hidden(b.rows), model.head)
    at = torch.arange(b.rows.shape[1] - 1, device=b.rows.device)
    inside = (at >= b.first[:, None] - 1) & (at < b.end[:, None] - 1)
    off = (predicted[:, :-1] != b.rows[:, 1:]) & inside
    whole = ~off.any(1)
    end = torch.where(whole, b.end, off.int().argmax(1) + 1)
    return Batch(b.rows, b.first, torch.maximum(end, b.first), whole), whole.float().mean().item()


@eager
def acceptance(model, b: Batch, steps: int = 3) -> dict:
    """-> {"by_position": cumulative accept rates, "accept_length", "histogram", "tokens"} of the written text in b."""
    h = model.hidden(b.rows)
    at, hits = torch.arange(b.rows.shape[1], device=b.rows.device), []
    for s, hs in enumerate(model.drafts(b.rows, h, steps), 1):
        truth = F.pad(b.rows[:, s + 1 :], (0, s + 1), value=-1)
        hits.append((_argmax(hs, model.head) == truth) & (at + s + 1 < b.end[:, None]))
    agreed = torch.stack(hits).int().cumprod(0)  # [S,n,L]
    inside = (at >= b.first[:, None] - 1) & (at + steps + 1 < b.end[:, None])
    run = agreed.sum(0).tolist()
    histogram = [0] * (steps + 1)
    for took, begin, end in zip(run, (b.first - 1).tolist(), (b.end - 1).tolist(), strict=True):
        t = begin
        while t < end:
            histogram[took[t]] += 1
            t += took[t] + 1
    rounds, emitted = sum(histogram), sum(n * (i + 1) for i, n in enumerate(histogram))
    share = [(a.bool() & inside).sum().item() / max(1, inside.sum().item()) for a in agreed]
    return {
        "by_position": [round(x, 4) for x in share],
        "accept_length": round(emitted / max(1, rounds), 4),
        "histogram": histogram,
        "tokens": emitted,
    }


def accuracy(b: Batch, items: list[Text], tok, eos: int) -> dict:
    """Right final numbers. A row that did not end is wrong. -> {"right", "asked", "ended", "wrong":
    [(template, text)]}
    """
    right, wrong = 0, []
    ids, first, end = b.rows.tolist(), b.first.tolist(), b.end.tolist()
    for i, t in enumerate(items):
        text = tok.decode([x for x in ids[i][first[i] : end[i]] if x != eos])
        got, want = final_number(text), final_number(t.answer)
        if bool(b.done[i]) and got is not None and want is not None and abs(got - want) < 1e-6:
            right += 1
        else:
            wrong.append((t.template, text[-200:]))
    return {"right": right, "asked": len(items), "ended": int(b.done.sum()), "wrong": wrong}
