"""The training loop of one segment, and its checkpoint."""

import json
import math
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

from . import layers
from .data import Stream
from .optim import Optimiser

DRAFT_WEIGHTS = (0.3, 0.15, 0.1)  # of the loss of NEXTN steps 1..3
WARMUP_STEPS, FLOOR = 40, 0.02  # the learning rate rises over 40 steps and falls to 2%
BIAS_SPEED = 0.01  # expert bias step, decaying with the schedule


class Log:
    """One line per event, to stdout and to a JSON-lines file; `rows` keeps them for the training log."""

    def __init__(self, path: Path, start: float):
        self.file, self.start, self.rows = open(path, "a", encoding="utf-8"), start, []

    def __call__(self, event: str, **fields) -> None:
        row = {
            "t": round(time.time() - self.start, 1),
            "event": event,
            **{k: float(f"{v:.5g}") if isinstance(v, float) else v for k, v in fields.items()},
        }
        self.rows.append(row)
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()
        print(" ".join(f"{k}={v}" for k, v in row.items()), flush=True)


@dataclass
class Progress:
    """What later segments need to go on; segments append to `curve`."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    segments: int = 0
    lr_scale: float = 1.0
    warm_from: int = 0  # step at which the optimiser's momentum began (0, or a restart without it)
    curve: list = field(default_factory=list)


class Trainer:
    def __init__(
        self, model, optimiser: Optimiser, stream: Stream, rows: int, length: int, log: Log, progress: Progress
    ):
        self.model, self.optimiser, self.stream, self.log = model, optimiser, stream, log
        self.rows, self.length, self.progress = rows, length, progress

    def step(self, scale: float, bias_scale: float) -> torch.Tensor:
        """One update; -> [loss, CE main, CE draft 1..3, gradient norm, worst expert load over mean]."""
        tokens, weight = self.stream.batch(self.rows)
        loss, parts = self.model.loss(tokens, weight, DRAFT_WEIGHTS)
        loss.backward()
        norm = self.optimiser.step(scale)
        worst = torch.stack([m.rebalance(BIAS_SPEED * bias_scale) for m in self.model.mixtures()]).max()
        return torch.cat([loss.detach()[None], parts, norm[None], worst[None]])

    def run(self, until: float, planned_seconds: float, every: float = 5.0, max_steps: int | None = None) -> None:
        """Trains until the clock reads `until`; the schedule is a cosine over planned_seconds of all segments
        together.
        """
        p, cuda = self.progress, self.stream.raw.is_cuda
        begin, before, first = time.time(), p.seconds, p.step
        mark, mark_step, pending, good, good_at = begin, p.step, [], None, begin
        while time.time() < until and (max_steps is None or p.step - first < max_steps):
            p.seconds = before + time.time() - begin
            share = min(1.0, p.seconds / planned_seconds)
            factor = FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * share))
            warm = min(1.0, (p.step - p.warm_from + 1) / WARMUP_STEPS)
            pending.append(self.step(factor * warm * p.lr_scale, factor))
            p.step, p.tokens = p.step + 1, p.tokens + self.rows * self.length
            if cuda and p.step % 4 == 0:
                torch.cuda.current_stream().synchronize()  # keeps the queue short: the clock is the schedule
            if time.time() - mark < every and p.step > first + 1:
                continue
            values = torch.stack(pending).float().mean(0).tolist()
            rate = (p.step - mark_step) * self.rows * self.length / (time.time() - mark)
            row = dict(zip(("loss", "ce", "draft1", "draft2", "draft3", "norm", "load"), values, strict=True))
            self.log(
                "train",
                step=p.step,
                Mtok=p.tokens / 1e6,
                **row,
                lr=self.optimiser.lr * factor * warm * p.lr_scale,
                ktok_s=rate / 1e3,
            )
            pending, mark, mark_step = [], time.time(), p.step
            if not math.isfinite(values[0]):
                if good is None:
                    raise FloatingPointError(f"loss is not finite at step {p.step}")
                self.model.load_state_dict(good)
                self.optimiser, p.lr_scale, p.warm_from = (
                    Optimiser(self.model, self.optimiser.lr),
                    p.lr_scale / 2,
                    p.step,
                )
                self.log("restored", lr_scale=p.lr_scale)
                continue
            p.curve.append([p.step, round(p.tokens / 1e6, 1), *(round(v, 4) for v in values[1:5])])
            if time.time() - good_at > 60:
                good, good_at = {k: v.clone() for k, v in self.model.state_dict().items()}, time.time()
        p.seconds = before + time.time() - begin

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(
            {
                "model": self.model.state_dict(),
                "optimiser": self.optimiser.state(),
                "at": self.stream.at,
                "passes": self.stream.passes,
                "progress": vars(self.progress),
                "options": {k: layers.OPTIONS[k] for k in ("kda", "moe", "compile", "eager")},
            },
            path,
        )

    def restore(self, path: Path) -> None:
        saved = torch.load(path, map_location=self.stream.raw.device, weights_only=True)
        self.model.load_state_dict(saved["model"])
        self.optimiser.restore(saved["optimiser"])
        self.stream.at, self.stream.passes = saved["at"], saved["passes"]
        vars(self.progress).update(saved["progress"])
        layers.OPTIONS.update(saved["options"])
