"""Train the pocket model for one segment of wall-clock time, export its weights, and evaluate it at the end.

    python -m training --data DATA --out OUT --seconds 500 [--checkpoint FILE] [--resume FILE|FOLDER]

DATA is made by training.corpus (train_0.bin may still be in the making). --resume takes a checkpoint
file (everything) or an exported model folder (rounded weights and training_log.json; the optimiser starts anew).
The learning rate falls over --plan-seconds of training in all segments; --final ends it with this one and evaluates.
"""

import argparse
import json
import time
import traceback
from pathlib import Path

import torch

from . import export, kernels, layers, report
from .config import Shape
from .data import Stream
from .model import Pocket
from .optim import Optimiser
from .trainer import Log, Progress, Trainer

TINY = Shape(
    vocab=6144,
    hidden=64,
    layers=6,
    heads=2,
    head_dim=32,
    rope_dim=16,
    kv_lora=32,
    dense_layers=1,
    dense_inter=128,
    experts=8,
    top_k=2,
    inter=32,
)


def arguments(argv: list[str] | None) -> argparse.Namespace:
    ap = argparse.ArgumentParser(prog="python -m training", description=__doc__.split("\n")[0])
    ap.add_argument("--data", type=Path, required=True)
    ap.add_argument("--out", type=Path, required=True)
    ap.add_argument("--seconds", type=float, required=True, help="wall-clock budget of this segment, set-up included")
    ap.add_argument("--start", type=float, default=None, help="Unix time at which the budget began; default now")
    ap.add_argument("--plan-seconds", type=float, default=650, help="training seconds of all segments together")
    ap.add_argument("--final", action="store_true", help="last segment: end the schedule here and evaluate")
    ap.add_argument("--reserve", type=float, default=15, help="seconds kept for export (and evaluation, if final)")
    ap.add_argument("--checkpoint", type=Path)
    ap.add_argument("--resume", type=Path)
    ap.add_argument("--rows", type=int, default=96)
    ap.add_argument("--length", type=int, default=1024)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--problems", type=int, default=240, help="held-out problems of seen templates to evaluate on")
    ap.add_argument("--tiny", action="store_true", help="a small shape on the CPU: the whole path in a minute")
    return ap.parse_args(argv)


def wait_for(path: Path, seconds: float) -> None:
    until = time.time() + seconds
    while not path.exists() and time.time() < until:
        time.sleep(0.2)


def main(argv: list[str] | None = None) -> None:
    args = arguments(argv)
    start = args.start or time.time()
    stop, device = start + args.seconds, "cpu" if args.tiny else "cuda"
    args.out.mkdir(parents=True, exist_ok=True)
    log = Log(args.out / "events.jsonl", start)
    log("start", torch=torch.__version__, device=device if args.tiny else torch.cuda.get_device_name(0))
    shape = TINY if args.tiny else Shape()
    if args.tiny:
        args.rows, args.length, args.problems = 4, 256, 8
        layers.OPTIONS.update(kda="chunked", moe="everywhere", compile=False, dtype=torch.float32)
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    model = Pocket(shape).to(device)
    if not args.tiny:
        kernels.prepare(model, args.rows, args.length, log, known=bool(args.resume and args.resume.is_file()))
    wait_for(args.data / "train_0.bin", 150)
    stream = Stream(args.data / "train_0.bin", 0, args.length, device)
    log("data", Mtok=stream.tokens / 1e6, rows=len(stream.rows), parameters=sum(p.numel() for p in model.parameters()))
    trainer = Trainer(model, Optimiser(model, args.lr), stream, args.rows, args.length, log, Progress())
    resume(trainer, args, log)
    smoke(trainer, log)
    resume(trainer, args, log)  # the smoke step moved momentum and stream; begin exactly
    reserve = stop - args.reserve
    planned = trainer.progress.seconds + reserve - time.time() if args.final else args.plan_seconds
    trainer.progress.segments += 1
    trainer.run(reserve, planned, max_steps=6 if args.tiny else None)
    p = trainer.progress
    log(
        "trained",
        step=p.step,
        Mtok=p.tokens / 1e6,
        seconds=p.seconds,
        passes=stream.passes,
        memory_GB=0.0 if args.tiny else torch.cuda.max_memory_allocated() / 2**30,
    )
    export.save(
        shape,
        export.state_of(model),
        args.out,
        args.data,
        provenance="trained",
        extra={"step": p.step, "tokens": p.tokens, "seed": args.seed},
    )
    log("exported")
    if args.checkpoint and not args.final:
        trainer.save(args.checkpoint)
        log("checkpoint", MB=args.checkpoint.stat().st_size / 1e6)
    results = {}
    if args.final:
        try:
            results = report.evaluate_model(model, args.out, args.data, stop - 3, args.problems, log)
        except Exception:
            log("evaluation_failed", error=traceback.format_exc()[-2000:])
    (args.out / "training_log.json").write_text(
        json.dumps(
            {
                "progress": vars(p),
                "results": results,
                "events": [r for r in log.rows if r["event"] != "train"],
                "settings": {k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items()},
                "options": {k: str(v) for k, v in layers.OPTIONS.items()},
                "curve_columns": ["step", "Mtok", "ce", "draft1", "draft2", "draft3"],
            },
            indent=1,
        )
        + "\n"
    )
    log("end")


def resume(trainer: Trainer, args: argparse.Namespace, log: Log) -> None:
    """Starts from nothing, from a checkpoint file, or from an exported folder."""
    if args.resume is None:
        torch.manual_seed(args.seed)
        fresh = Pocket(trainer.model.s).state_dict()
        trainer.model.load_state_dict(fresh)
        trainer.optimiser, trainer.stream.at, trainer.progress = Optimiser(trainer.model, args.lr), 0, Progress()
    elif args.resume.is_file():
        trainer.restore(args.resume)
        log("resumed", step=trainer.progress.step, how="checkpoint")
    else:
        export.restore(trainer.model, args.resume)
        vars(trainer.progress).update(json.loads((args.resume / "training_log.json").read_text())["progress"])
        trainer.progress.warm_from = trainer.progress.step
        trainer.optimiser = Optimiser(trainer.model, args.lr)
        trainer.stream.at = trainer.progress.step * args.rows % max(1, len(trainer.stream.rows) - args.rows)
        log("resumed", step=trainer.progress.step, how="exported weights, fresh optimiser")


def smoke(trainer: Trainer, log: Log) -> None:
    """One whole step at learning rate 0 compiles what is left; without compilation if that fails."""
    try:
        values = trainer.step(0.0, 0.0)
    except Exception:
        log("compiled_step_failed", error=traceback.format_exc()[-2500:])
        layers.OPTIONS["compile"] = False
        trainer.model.zero_grad(set_to_none=True)
        values = trainer.step(0.0, 0.0)
    log("smoke", loss=values[0].item(), norm=values[5].item())


if __name__ == "__main__":
    main()
