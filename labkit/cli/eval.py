"""`labkit eval`: accuracy and latency of two or more arms on the same questions, paired."""

import argparse
import json
from typing import TYPE_CHECKING

from labkit.cli import _turn
from labkit.cli._turn import say
from labkit.cli.ladder import arms_of

if TYPE_CHECKING:
    from labkit.measure.plan import Block
    from labkit.measure.results import Arm
    from labkit.measure.runner import Runner
    from labkit.params import Params
    from labkit.records import RunWriter

HELP = "accuracy and latency of two or more arms on the same questions, paired"
PREVIEW = 50  # questions after which a first interval is shown
STEPS = 10  # times that a run says how far it is, at least
AGAIN = 2  # further attempts at a question whose request failed or was refused
FULL = 1319  # as many as GSM8K's test split, and as the shipped held-out problems


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--params", default=None, metavar="YAML", help="parameters (default: the pocket engine)")
    parser.add_argument(
        "--workload",
        default="gsm_symbolic",
        help="questions with answers: gsm_symbolic (shipped), gsm8k[:FOLDER], file:PATH (default: gsm_symbolic)",
    )
    parser.add_argument("--questions", default=60, help="how many (default: 60)")
    parser.add_argument("--full", action="store_true", help=f"all {FULL} questions of the shipped set or of GSM8K")
    parser.add_argument(
        "--arms", help="comma-separated (default: the first and the last that is not broken on purpose)"
    )
    parser.add_argument("--seed", help="seed of the questions' order and of sampling")
    parser.add_argument("--temperature", type=float, help="instead of the load's own; 0 is greedy")
    parser.add_argument(
        "--margin",
        type=float,
        default=1.0,
        help="largest acceptable loss of accuracy, in percentage points (default: 1)",
    )
    parser.add_argument("--no-answers", action="store_true", help="keep outcomes only, not the answers' text")
    parser.add_argument(
        "--retries",
        type=int,
        default=AGAIN,
        help="how many more times to ask a question whose request failed or was refused (default: 2); three failures in"
        " a row stop the run, and --resume continues it",
    )
    parser.add_argument(
        "--resume", metavar="RUN", help="continue an interrupted run; answered questions are not asked again"
    )
    parser.add_argument("--out", help="parent of the run's directory (default: outputs)")
    _turn.add_arguments(parser)


def main(args: argparse.Namespace) -> int:
    from labkit.errors import BadInput
    from labkit.measure.prompts import prompts_of
    from labkit.params import load_params
    from labkit.records import read_run

    if not 0 < args.margin < 100:
        raise BadInput("margin", args.margin, "points above 0 and below 100")
    if not 0 <= args.retries <= 100:
        raise BadInput("retries", args.retries, "0 to 100")
    params = load_params(read_run(args.resume).meta["parameters"]) if args.resume else _params(args)
    if any(p.expected is None for p in prompts_of(params)):
        raise BadInput("workload", params.workload, "questions with answers: gsm_symbolic, gsm8k, or a file with them")
    arms = arms_of(params)
    with _turn.taken(args, urls=[a.config.url for a in arms if a.config.url]):
        return _evaluated(args, params, arms)


def _evaluated(args: argparse.Namespace, params: "Params", arms: "list[Arm]") -> int:
    """Ask, judge and print."""
    from labkit.measure.evaluation import evaluation
    from labkit.records import RunWriter
    from labkit.records.writer import new_directory

    if args.resume:
        writer = RunWriter.resume(args.resume)
    else:
        directory = new_directory(params.out_dir, f"eval-{params.engine.engine}")
        writer = RunWriter(directory, params.as_dict(), label="eval")
    with writer:
        rows = _measure(params, arms, writer, args.retries)
        found = evaluation(rows, [a.name for a in arms], margin=args.margin / 100, seed=params.seed)
        writer.meta["summary"] = {"evaluation": found}
    if args.json:
        print(json.dumps({"run": str(writer.directory), "engine": params.engine.engine, **found}))
        return 0
    for line in lines(found):
        print(line)
    print(f"record: {writer.directory}")
    return 0


def _params(args: argparse.Namespace) -> "Params":
    from labkit.engines import ladder
    from labkit.params import load_params

    params = load_params(
        args.params or {},
        workload=args.workload,
        count=FULL if args.full else args.questions,
        repeats=1,
        seed=args.seed,
        sampling=None if args.temperature is None else {"temperature": args.temperature},
        keep_answers=not args.no_answers,
        out_dir=args.out,
    ).replace(output_tokens=None)
    sound = [a.name for a in params.ladder() if a.expect != ladder.FAULT]
    return params.replace(only=args.arms.split(",") if args.arms else [sound[0], sound[-1]])


def _measure(params: "Params", arms: "list[Arm]", writer: "RunWriter", retries: int) -> list[dict]:
    """Ask every question of every arm; all rows, those of a resumed run and further attempts among them."""
    from labkit.checks import judged
    from labkit.measure.pool import Pool
    from labkit.measure.runner import Runner
    from labkit.units import minutes

    runner = Runner(Pool(), check=judged.at_start)
    blocks = runner.plan(arms)
    held = sum(row["repeat"] >= 0 and row["status"] == "ok" for row in writer.resumed)
    seconds, _ = runner.forecast(blocks, writer.resumed)
    so_far = f"; {held} answers are in the record already" if held else ""
    say(f"about {minutes(seconds)} for {len(arms)} arms x {params.count} questions (a first estimate){so_far}")
    try:
        _ask(runner, blocks, writer, params.count)
        for attempt in range(retries):
            open_ = _open(runner)
            if not open_:
                break
            say(f"{open_} requests failed or were refused: asking these questions again ({attempt + 1} of {retries})")
            # What is in the record is not asked again; only a good answer counts as being there.
            writer.resumed = [row for rows in runner.fresh.values() for row in rows]
            _ask(runner, blocks, writer, params.count)
    finally:
        runner.pool.stop()
    return [row for rows in runner.fresh.values() for row in rows]


def _ask(runner: "Runner", blocks: "list[Block]", writer: "RunWriter", questions: int) -> None:
    """One go at what is still open, saying how far it is, and what the first questions can already tell."""
    from labkit.units import minutes

    said = 0
    for progress in runner.run(blocks, writer):
        if progress.row is None:
            say(progress.text)
            continue
        arm = progress.row["arm"]
        if questions > PREVIEW and len(runner.fresh[arm]) == PREVIEW:
            say(f"{arm}, first {PREVIEW} questions: {_preview(runner.fresh[arm])}")
        every = max(1, min(100, progress.total // STEPS))
        if progress.done // every > said // every and progress.done < progress.total:
            said = progress.done
            say(f"{progress.done} of {progress.total} requests, about {minutes(progress.eta_s or 0)} left")


def _open(runner: "Runner") -> int:
    """Questions without a good answer, over all arms."""
    from labkit.measure.evaluation import settled

    return sum(row["status"] != "ok" for rows in runner.fresh.values() for row in settled(rows))


def _preview(rows: list[dict]) -> str:
    from labkit.measure import evaluation
    from labkit.workloads import answers

    heard = [o for row in rows if (o := evaluation.outcome(row)) in evaluation.ANSWERED]
    return evaluation.preview(heard.count(answers.RIGHT), len(heard)) if heard else "none answered"


def lines(found: dict) -> list[str]:
    """The evaluation as tables of text: arms, pairs, and what may be decided on."""
    out = [_row(["arm", "accuracy [95%]", "strict", "TPOT ms", "tok/s", "a", "TTFT ms", "tokens mean/median"], _WIDTHS)]
    for a in found["arms"]:
        out.append(_row(_arm_cells(a), _WIDTHS))
    out += ["", _row(["latency s", "mean", "P50", "P90", "P95", "P99", "TTFT + TPOT (n-1)", "residual"], _LATENCY)]
    for a in found["arms"]:
        if a["latency_s"]:
            cells = [f"{a['latency_s'][k]:.3f}" for k in ("mean", "p50", "p90", "p95", "p99")]
            r = a["rebuilt"]
            out.append(
                _row([a["name"], *cells, f"{r['ttft_s'] + r['decode_s']:.3f}", f"{r['residual_s']:+.3f}"], _LATENCY)
            )
    for p in found["pairs"]:
        out += ["", *_pair_lines(p)]
    out.append("")
    again = sum(a["attempts"]["asked_again"] for a in found["arms"])
    if again:
        out.append(f"{again} requests were further attempts at questions whose request had failed or was refused")
    out += [
        f"{'usable' if u['usable'] else 'NOT usable'} for decisions: {u['figure']} ({u['why']})"
        for u in found["usable"]
    ]
    return out + [f"warning: {w}" for w in found["warnings"]]


_WIDTHS = (14, 26, 8, 9, 8, 6, 9, 19)
_LATENCY = (14, 8, 8, 8, 8, 8, 18, 9)


def _row(cells: list[str], widths: tuple[int, ...]) -> str:
    return "  ".join(
        f"{c:{w}s}" if i == 0 else f"{c:>{w}s}" for i, (c, w) in enumerate(zip(cells, widths, strict=True))
    ).rstrip()


def _arm_cells(a: dict) -> list[str]:
    if a["accuracy"] is None:
        return [a["name"], "no answer", *["-"] * 6]
    shown = f"{100 * a['accuracy']:.2f}% [{100 * a['low']:.1f}, {100 * a['high']:.1f}]"
    strict = "-" if a["strict"]["accuracy"] is None else f"{100 * a['strict']['accuracy']:.2f}%"
    if a["tpot_s"] is None:
        return [a["name"], shown, strict, *["-"] * 5]
    accept = "-" if a["accept_length"] is None else f"{a['accept_length']:.2f}"
    tokens = f"{a['output_tokens']['mean']:.0f}/{a['output_tokens']['median']:.0f}"
    return [
        a["name"],
        shown,
        strict,
        f"{1e3 * a['tpot_s']:.3f}",
        f"{a['decode_tok_s']:.1f}",
        accept,
        f"{1e3 * a['ttft_s']:.1f}",
        tokens,
    ]


def _pair_lines(p: dict) -> list[str]:
    from labkit.measure.stats import text

    m = p["mcnemar"]
    out = [
        f"{p['b']} against {p['a']}, {p['questions']} questions answered by both:"
        f" both right {m['both']}, only {p['a']} {m['only_a']}, only {p['b']} {m['only_b']}, neither {m['neither']}"
    ]
    if p["questions"]:
        n = p["non_inferiority"]
        out += [
            f"  difference {100 * p['difference']:+.2f} points [{100 * p['low']:+.2f}, {100 * p['high']:+.2f}],"
            f" exact McNemar p = {m['p']:.3g}; smallest difference that so many can show:"
            f" {100 * p['smallest_detectable']:.1f} points",
            f"  not worse by {100 * n['margin']:g} points or more: {'shown' if n['holds'] else 'NOT shown'}"
            f" (one-sided p = {n['p']:.3g}, limit 0.025)",
        ]
    if p["speedup"]:
        out.append(f"  TPOT: x{text(p['speedup'], 1, '.2f')} faster; TTFT: x{text(p['ttft_ratio'], 1, '.2f')}")
    return out
