"""TPOT by a load tool that nobody here wrote (llama-benchy, from PyPI) beside labkit's own client, on one server.

    pip install llama-benchy
    python -m benchmarks.loadtool [--json]

The tool runs once; after each of its requests it calls this module back, which sends one of labkit's own: A B A B
against one server. The tool streams /v1/chat/completions and divides the time between its first and last chunk by the
tokens that `usage` reports less one; labkit streams /generate. Its warm-up request and ours after it are left out.
Offline: the tokenizer is the model folder, the text to cut prompts from is served from this process, the tool's cache
goes to a temporary folder.
"""

import argparse
import contextlib
import http.server
import json
import os
import shlex
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from labkit import waits
from labkit.errors import LabError
from labkit.pocket.options import SHIPPED_WEIGHTS

from . import servers
from .common import Paired, existing, machine, run, whole

TOOL = "llama-benchy"
SENTENCE = "Mia has 12 apples and buys 7 more. She gives 5 apples to Tom, so 14 apples are left. "
TOOL_S = 3600.0  # for all of its rounds and ours between them
AGREE = 0.02  # the two clients should see the same TPOT to within this
BODY = {"temperature": 0, "ignore_eos": True, "skip_special_tokens": False}


def tool_path(given: str | None) -> Path:
    """The tool's program: the one given, else beside this Python, else on the PATH. LabError naming the package."""
    if given:
        return existing("tool", given, f"the path of {TOOL}")
    beside = Path(sys.executable).parent / TOOL
    found = str(beside) if beside.exists() else shutil.which(TOOL)
    if not found:
        raise LabError(f"needs the optional package {TOOL}: pip install {TOOL}")
    return Path(found)


def main(args: argparse.Namespace) -> dict:
    """Everything measured; raises BadInput and LabError."""
    if args.once:
        return once(*args.once)
    tool = tool_path(args.tool)
    whole("rounds", args.rounds, 2, 1000)
    whole("output_tokens", args.output_tokens, 8, 16384)
    whole("prompt_tokens", args.prompt_tokens, 8, 16384)
    model = existing("model", SHIPPED_WEIGHTS if args.model == "pocket" else args.model, "a model folder")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="yardstick-")))
        url = args.url or stack.enter_context(servers.pocket(args.model, args.arm, folder))
        book = stack.enter_context(text_server(SENTENCE * 400))
        log = folder / "ours.jsonl"
        request = {"url": url, "text": prompt(model, args.prompt_tokens), "tokens": args.output_tokens}
        (folder / "request.json").write_text(json.dumps(request))
        theirs = run_tool(tool, args, model, url, book, folder, log)
        ours = [json.loads(line)["tpot_s"] for line in log.read_text().splitlines()]
    # One more of ours than of theirs: the tool also calls back after its own warm-up request, which it does not report.
    if len(ours) != args.rounds + 1 or len(theirs) != args.rounds:
        raise LabError(f"{TOOL}: {len(theirs)} results and {len(ours)} call-backs for {args.rounds} rounds")
    pair = Paired(tuple(ours[1:]), tuple(theirs))
    return {
        "yardstick": TOOL,
        "machine": machine(),
        "server": args.url or f"pocket engine, {args.arm}",
        "prompt_tokens": args.prompt_tokens,
        "output_tokens": args.output_tokens,
        "rounds": args.rounds,
        "tpot": pair.as_dict("s/token"),
        "agree_within": AGREE,
        "agree": abs(pair.ratio - 1) <= AGREE,
    }


def prompt(model: Path, tokens: int) -> str:
    """Text of about `tokens` tokens, of the same sentences that the tool cuts its prompts from."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(existing("model", model / "tokenizer.json", "a folder with tokenizer.json")))
    return tokenizer.decode(tokenizer.encode(SENTENCE * 400, add_special_tokens=False).ids[:tokens])


def run_tool(tool: Path, args: argparse.Namespace, model: Path, url: str, book: str, folder: Path, log: Path) -> list:
    """The tool's seconds a token, one a round, in the order it ran them."""
    saved = folder / "theirs.json"
    back = [sys.executable, "-m", __spec__.name, "--once", str(folder / "request.json"), str(log), "--json"]
    argv = [
        str(tool),
        "--base-url",
        f"{url}/v1",
        "--model",
        "pocket",
        "--tokenizer",
        str(model),
        "--book-url",
        book,
        "--pp",
        str(args.prompt_tokens),
        "--tg",
        str(args.output_tokens),
        "--runs",
        str(args.rounds),
        "--latency-mode",
        "none",
        "--skip-coherence",
        "--exit-on-first-fail",
        "--format",
        "json",
        "--save-result",
        str(saved),
        "--post-run-cmd",
        shlex.join(back) + " > /dev/null",
    ]
    for key, value in BODY.items():
        argv += ["--extra-body", f"{key}={json.dumps(value)}"]
    env = os.environ | {"HOME": str(folder), "HF_HUB_OFFLINE": "1"}
    done = waits.run(argv, what=TOOL, timeout_s=TOOL_S, env=env)
    if done.returncode or not saved.exists():
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()] or ["no output"]
        said = next((line for line in lines if "HTTP" in line or "rror" in line or "failed" in line), lines[-1])
        raise LabError(f"{TOOL}: {said.strip()[:300]}")
    speeds = json.loads(saved.read_text())["benchmarks"][0]["tg_req_throughput"]
    return [1 / speed for speed in (speeds or {"values": []})["values"]]


def once(request: str, log: str) -> dict:
    """One request of labkit's client, as described in the file `request`, its TPOT appended to `log`."""
    wanted = json.loads(Path(request).read_text())
    from labkit.measure.client import generate

    result = generate(
        wanted["url"],
        text=wanted["text"],
        sampling={"temperature": 0, "ignore_eos": True, "max_new_tokens": wanted["tokens"]},
    )
    row = {"tpot_s": result.tpot_s, "output_tokens": result.output_tokens}
    with open(log, "a") as out:
        out.write(json.dumps(row) + "\n")
    return row


@contextlib.contextmanager
def text_server(text: str) -> Iterator[str]:
    """A web server on 127.0.0.1 whose every page is `text`; yields a URL."""
    body = text.encode()

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/text"
        finally:
            server.shutdown()
            thread.join(5.0)


def show(result: dict) -> str:
    figure = result["tpot"]
    return (
        f"TPOT on {result['server']}, {result['output_tokens']} tokens, median of {result['rounds']} rounds\n"
        f"labkit client  {figure['ours_median'] * 1e3:.3f} ms, best {figure['ours_best'] * 1e3:.3f}\n"
        f"{TOOL:14} {figure['theirs_median'] * 1e3:.3f} ms, best {figure['theirs_best'] * 1e3:.3f}\n"
        f"ratio {figure['ratio_theirs_over_ours']:.3f} ({figure['ratio_low']:.3f} to {figure['ratio_high']:.3f}), "
        f"{'within' if result['agree'] else 'NOT within'} {result['agree_within']:.0%}; "
        f"of the best rounds {figure['ratio_of_best']:.3f}"
    )


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--tool", metavar="PATH", help=f"{TOOL}, when it is in another environment")
    made.add_argument("--model", default="pocket", help="pocket, or a model folder")
    made.add_argument("--arm", default="baseline", help="setting of the server that is started")
    made.add_argument("--url", help="a server that runs already, with the same model")
    made.add_argument("--prompt-tokens", type=int, default=64)
    made.add_argument("--output-tokens", type=int, default=768)
    made.add_argument("--rounds", type=int, default=15)
    made.add_argument("--once", nargs=2, metavar=("REQUEST", "LOG"), help=argparse.SUPPRESS)
    return made


if __name__ == "__main__":
    sys.exit(run(main, parser(), show))
