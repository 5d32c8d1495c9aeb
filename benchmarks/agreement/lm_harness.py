"""Accuracy by lm-evaluation-harness beside the lab's own, on one server and the same questions.

    python -m venv /tmp/lm-eval && /tmp/lm-eval/bin/pip install 'lm_eval[api]'
    python -m benchmarks.agreement.lm_harness --tool /tmp/lm-eval/bin/lm_eval [--workload gsm8k:FOLDER] [--json]

The harness asks through /v1/completions with its own GSM8K task: its prompt, stop words and both of its filters
(strict-match, flexible-extract) come from its own gsm8k.yaml, and only the questions are others. The lab asks through
/generate and reads with labkit.workloads.answers. Both greedily, without examples, at most 512 new tokens.

The harness compares what its filters extract as a text: 85.0 is wrong where 85 is expected. The lab compares numbers.
So each filter has two scores of the harness: `exact`, as it reports it, and `number`, the same extract as a number.
They agree where the two-sided exact McNemar test of `number` on the same questions finds no difference at 5%.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path

import yaml

from labkit import workloads
from labkit.errors import LabError
from labkit.measure import evaluation
from labkit.measure.session import Side, sample
from labkit.roofline.proportions import mcnemar_exact, wilson
from labkit.workloads import Prompt, answers

from .. import servers
from ..common import existing, machine, ran, run, version_in, whole

TASK = "labkit_agreement"
FILTERS = {"strict": "strict-match", "flexible": "flexible-extract"}
TOOL_S = 3600.0
GREEDY = {"temperature": 0.0}


def main(args: argparse.Namespace) -> dict:
    """Everything measured; raises BadInput and LabError."""
    tool = existing("tool", args.tool, "the path of lm_eval")
    whole("questions", args.questions, 2, 1319)
    asked = workloads.load(args.workload, count=args.questions, seed=args.seed, sampling=GREEDY, shots=0)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agreement-")))
        url = args.url or stack.enter_context(servers.pocket("pocket", args.arm, folder))
        mine = ours(url, asked)
        theirs = harness(tool, url, asked, folder)
    scores = {name: {kind: score(mine[name], found) for kind, found in theirs[name].items()} for name in FILTERS}
    return {
        "yardstick": "lm-evaluation-harness",
        "version": version_in(tool, "lm_eval"),
        "machine": machine(),
        "load_average": os.getloadavg(),
        "server": args.url or f"pocket engine, {args.arm}",
        "workload": args.workload.split(":")[0],
        "questions": len(asked),
        "scores": scores,
        "agree": all(s["number"]["p"] > 0.05 for s in scores.values()),
    }


def ours(url: str, asked: list[Prompt]) -> dict[str, list[bool]]:
    """By reader: whether the lab finds each answer right. LabError for a question without an answer."""
    arm, out = Side("lab", url), {name: [] for name in FILTERS}
    for i, prompt in enumerate(asked):
        row = sample(arm, prompt, repeat=0, index=i)
        for name in FILTERS:
            found = evaluation.outcome(row, name)
            # The harness counts whatever it cannot read, or was cut, as wrong.
            if found in (None, answers.REFUSED, answers.FAILED):
                raise LabError(f"question {i}: {row['error']}")
            out[name].append(found == answers.RIGHT)
    return out


def harness(tool: Path, url: str, asked: list[Prompt], folder: Path) -> dict[str, dict[str, list[bool]]]:
    """By reader: whether the harness finds each answer right (`exact`), and whether what it extracted is the right
    number (`number`)."""
    tasks = folder / "tasks"
    tasks.mkdir()
    questions = tasks / "questions.jsonl"
    with questions.open("w", encoding="utf-8") as out:
        for prompt in asked:
            text = prompt.text.removeprefix("Question: ").removesuffix("\nAnswer:")
            out.write(json.dumps({"question": text, "answer": f"#### {prompt.expected}"}) + "\n")
    own = {
        "include": str(gsm8k_of(tool)),
        "task": TASK,
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {"data_files": {"train": str(questions), "test": str(questions)}},
        "num_fewshot": 0,
    }
    (tasks / "task.yaml").write_text(yaml.safe_dump(own))
    model = f"model=pocket,base_url={url}/v1/completions,num_concurrent=1,max_retries=3,tokenized_requests=False"
    argv = [str(tool), "run", "--model", "local-completions", "--model_args", f"{model},tokenizer_backend=None"]
    argv += ["--tasks", TASK, "--include_path", str(tasks), "--output_path", str(folder / "out"), "--log_samples"]
    argv += ["--gen_kwargs", f"max_gen_toks={asked[0].max_new_tokens}", "--batch_size", "1"]
    env = os.environ | {"HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}

    def samples() -> list[Path]:
        return sorted((folder / "out").rglob(f"samples_{TASK}_*.jsonl"))

    ran(argv, "lm_eval", timeout_s=TOOL_S, env=env, wrote=samples)
    names = {theirs: name for name, theirs in FILTERS.items()}
    found: dict[str, dict[int, tuple[bool, bool]]] = {name: {} for name in FILTERS}
    for line in samples()[-1].read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        index, text = row["doc_id"], str(row["filtered_resps"][0])
        number = answers.same(answers.number(text), asked[index].expected)
        found[names[row["filter"]]][index] = (bool(row["exact_match"]), number)
    if any(sorted(mine) != list(range(len(asked))) for mine in found.values()):
        raise LabError("lm_eval: it did not score every question with both of its filters")
    kinds = ("exact", "number")
    return {
        name: {kind: [mine[i][k] for i in range(len(asked))] for k, kind in enumerate(kinds)}
        for name, mine in found.items()
    }


def gsm8k_of(tool: Path) -> Path:
    """The harness's own GSM8K task file."""
    found = sorted(tool.parent.parent.glob("lib/python*/site-packages/lm_eval/tasks/gsm8k/gsm8k.yaml"))
    if not found:
        raise LabError(f"{tool}: no lm_eval/tasks/gsm8k/gsm8k.yaml in its environment")
    return found[-1]


def score(mine: list[bool], theirs: list[bool]) -> dict:
    """Both accuracies with Wilson's intervals, and the questions on which they differ with McNemar's exact p."""
    flips = [sum(a and not b for a, b in zip(*pair, strict=True)) for pair in ((mine, theirs), (theirs, mine))]
    both = {"ours": mine, "theirs": theirs}
    out = {name: {"accuracy": sum(s) / len(s), "interval": wilson(sum(s), len(s))} for name, s in both.items()}
    differ = [i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b]
    return out | {"only_ours": flips[0], "only_theirs": flips[1], "p": mcnemar_exact(*flips), "differ": differ}


def show(result: dict) -> str:
    lines = [f"{result['questions']} questions of {result['workload']} on {result['server']}"]
    for name, kinds in result["scores"].items():
        for kind, s in kinds.items():
            lines.append(
                f"{name:9} lab {100 * s['ours']['accuracy']:.2f}%, lm-eval by {kind}"
                f" {100 * s['theirs']['accuracy']:.2f}%;"
                f" only the lab {s['only_ours']}, only lm-eval {s['only_theirs']}, exact McNemar p = {s['p']:.3g}"
            )
    return "\n".join([*lines, "they agree" if result["agree"] else "they DO NOT agree"])


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--tool", required=True, metavar="PATH", help="lm_eval, in whichever environment it is")
    made.add_argument("--workload", default="word-problems", help="questions: word-problems or gsm8k:FOLDER")
    made.add_argument("--questions", type=int, default=200)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--arm", default="mtp", help="setting of the pocket engine that is started")
    made.add_argument("--url", help="a server that runs already")
    return made


if __name__ == "__main__":
    sys.exit(run(main, parser(), show))
