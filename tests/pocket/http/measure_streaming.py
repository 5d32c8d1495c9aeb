"""What streaming costs: TPOT as a streaming client sees it over TPOT of the same request unstreamed, on one server.

    python tests/pocket/http/measure_streaming.py [--pairs 30] [--tokens 256] [--pace 0.01] [-- SERVER FLAGS]

An unstreamed request wakes the server's Python twice, so its decode_throughput is the engine's own speed; a streamed
one wakes it for every chunk. Pairs alternate (A B, B A, ...). Printed are the medians, their ratio, the median of the
pairs' ratios, the ratio of the best of each (which other work on the machine disturbs least), and the CPU time of the
server's event loop per token, read from Linux's scheduler.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

from labkit.measure import client


def loop_seconds(pid: int) -> float:
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--pace", default="0.01")
    parser.add_argument("flags", nargs="*")
    args = parser.parse_args()
    command = [sys.executable, "-m", "labkit.pocket", "--port", "0", "--stream-pace", args.pace, *args.flags]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        url = next(found[1] for line in server.stdout if (found := re.search(r"ready on (http\S+)", line)))
        measure(url, server.pid, args)
    finally:
        server.terminate()
        server.stdout.close()
        server.wait()


def measure(url: str, pid: int, args) -> None:
    ask = {
        "input_ids": list(range(100, 116)),
        "sampling_params": {"temperature": 0, "max_new_tokens": args.tokens, "ignore_eos": True},
    }

    def whole() -> float:
        status, body = client.request(url, "POST", "/generate", json.dumps(ask).encode(), timeout_s=60)
        assert status == 200, body
        return 1 / json.loads(body)["meta_info"]["decode_throughput"]

    def streamed() -> float:
        before = loop_seconds(pid)
        result = client.generate(url, input_ids=ask["input_ids"], sampling=ask["sampling_params"])
        loop.append((loop_seconds(pid) - before) / args.tokens)
        chunks.append(len(result.chunk_times))
        return result.tpot_s

    loop: list[float] = []
    chunks: list[int] = []
    for _ in range(2):
        whole(), streamed()
    loop.clear(), chunks.clear()
    alone, seen = [], []
    for i in range(args.pairs):
        for arm, out in ((whole, alone), (streamed, seen))[:: 1 if i % 2 else -1]:
            out.append(arm())
    pairs = statistics.median(b / a for a, b in zip(alone, seen, strict=True))
    print(f"engine alone  {1e3 * statistics.median(alone):.4f} ms a token (best {1e3 * min(alone):.4f})")
    print(
        f"streamed      {1e3 * statistics.median(seen):.4f} ms a token (best {1e3 * min(seen):.4f}), "
        f"{statistics.median(chunks):g} chunks of {args.tokens} tokens"
    )
    medians = statistics.median(seen) / statistics.median(alone)
    print(
        f"cost of streaming: medians {medians - 1:+.1%}, pairs {pairs - 1:+.1%}, "
        f"best {min(seen) / min(alone) - 1:+.1%}; event loop {1e6 * statistics.median(loop):.0f} us a token"
    )


if __name__ == "__main__":
    main()
