"""Decode speed of llama.cpp's own server beside the pocket engine's: same shape and bytes, one run, one thread.

    python -m benchmarks.llamacpp --llama-server BUILD/bin/llama-server [--json]

llama.cpp gets random weights of the pocket model's shape (gguf_shape.py says where the two differ, and the byte table
is printed), the pocket engine its own; plain decoding on both, no drafts. All servers are up together and answer in
turn, the order turned round every round; TPOT is seen by the client, from the first to the last streamed token.
llama.cpp reads the same bytes every step, so a last-level cache of that size serves part of them; the pocket engine
walks through several copies, so that no cache does. What that gives llama.cpp is not taken off.

Building the server takes some seven minutes on two cores (gcc, cmake, ninja) and needs about 1 GB of disk:

    pip download --no-deps --no-binary :all: llama-cpp-python && tar xzf llama_cpp_python-*.tar.gz
    cmake -S llama_cpp_python-*/vendor/llama.cpp -B BUILD -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \\
          -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_USE_PREBUILT_UI=OFF
    ninja -C BUILD llama-server
"""

import argparse
import contextlib
import random
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from labkit import waits
from labkit.engines import ladder
from labkit.engines.config import EngineConfig
from labkit.errors import LabError
from labkit.measure.client import get_json

from . import gguf_random, gguf_shape, servers
from .common import Paired, existing, interleave, machine, need, run, whole

RESOLVED = ("kernel_variant", "dense_dtype", "lm_head_dtype", "replicas", "last_level_cache_bytes")
THEIRS = "llama.cpp"


def main(args: argparse.Namespace) -> dict:
    """Everything measured; raises BadInput and LabError."""
    binary = existing(
        "llama_server",
        args.llama_server,
        f"the path of a llama-server (python -m pydoc {__spec__.name} says how to build one)",
    )
    whole("rounds", args.rounds, 1, 1000)
    whole("output_tokens", args.output_tokens, 2, 16384)
    whole("prompt_tokens", args.prompt_tokens, 1, 16384)
    own = ladder.arms(EngineConfig())
    chosen = [a for a in own if a.config.speculative is None]
    if args.arms:
        chosen = [ladder.get(chosen, name, "arms") for name in args.arms.split(",")]
    names = [a.name for a in chosen]
    config = gguf_random.read_config(None if args.model == "pocket" else args.model)
    need("gguf", "gguf")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="yardstick-")))
        gguf = folder / "random.gguf"
        gguf_random.write(gguf, config, args.seed)
        arms: dict[str, Callable[[], float]] = {}
        draw = random.Random(args.seed)
        ids = [draw.randrange(256, config["vocab_size"] - 1) for _ in range(args.prompt_tokens)]
        context = args.prompt_tokens + args.output_tokens + 16
        url = stack.enter_context(servers.llama(binary, gguf, folder, context, args.llama_flags.split()))
        arms[THEIRS] = lambda: servers.llama_tpot(url, ids, args.output_tokens)
        resolved = {}
        for name in names:
            at = stack.enter_context(servers.pocket(args.model, name, folder))
            said = get_json(at, "/server_info")
            resolved[name] = {key: said.get(key) for key in RESOLVED}
            arms[name] = lambda at=at: servers.pocket_tpot(at, ids, args.output_tokens)
        interleave(arms, 2)  # warm-up
        figures = interleave(arms, args.rounds)
    compared = {name: Paired(tuple(figures[name]), tuple(figures[THEIRS])).as_dict("s/token") for name in names}
    return {
        "yardstick": "llama.cpp server",
        "llama_server": version(binary),
        "machine": machine(),
        "prompt_tokens": args.prompt_tokens,
        "output_tokens": args.output_tokens,
        "rounds": args.rounds,
        "seed": args.seed,
        "llama_flags": args.llama_flags,
        "llama_step_bytes": gguf_shape.step_bytes(config),
        "pocket_step_bytes": {name: pocket_step_bytes(config, ladder.get(own, name).config) for name in names},
        "pocket_resolved": resolved,
        "arms": compared,
    }


def pocket_step_bytes(config: dict, engine: EngineConfig) -> float:
    """Weight bytes that one token reads on the pocket engine, by the lab's own account."""
    from labkit.roofline.account import per_tensor

    return per_tensor(config, context=0, head="fp8" if engine.fp8_lm_head else "bf16").weight_bytes


def version(binary: Path) -> str:
    """What the binary says it is."""
    try:
        said = waits.run([str(binary), "--version"], what=f"{binary} to say its version", timeout_s=30.0)
    except (OSError, waits.TookTooLong) as error:
        raise LabError(f"llama-server: {binary} does not run ({error})") from None
    lines = (said.stderr + said.stdout).strip().splitlines()
    return lines[0] if lines else "unknown"


def show(result: dict) -> str:
    theirs = next(iter(result["arms"].values()))["theirs"]
    llama_bytes = result["llama_step_bytes"]["total"]
    lines = [
        f"TPOT of {result['output_tokens']} tokens after {result['prompt_tokens']}, median of {result['rounds']} "
        f"rounds, one thread, {result['machine']['cpu']}",
        f"{'':24}{'MB a step':>10}{'ms a token':>12}{'llama.cpp / pocket':>22}{'best ms':>10}{'ratio':>7}",
        f"{'llama.cpp server':24}{llama_bytes / 1e6:10.2f}{statistics.median(theirs) * 1e3:12.3f}{'1':>22}"
        f"{min(theirs) * 1e3:10.3f}{'1':>7}",
    ]
    for name, figure in result["arms"].items():
        size = result["pocket_step_bytes"][name] / 1e6
        spread = f"{figure['ratio_theirs_over_ours']:.2f} ({figure['ratio_low']:.2f} to {figure['ratio_high']:.2f})"
        lines.append(
            f"{'pocket ' + name:24}{size:10.2f}{figure['ours_median'] * 1e3:12.3f}{spread:>22}"
            f"{figure['ours_best'] * 1e3:10.3f}{figure['ratio_of_best']:7.2f}"
        )
    said = next(iter(result["pocket_resolved"].values()))
    if said["last_level_cache_bytes"]:
        lines.append(
            f"Last-level cache {said['last_level_cache_bytes'] / 1e6:.0f} MB: the pocket engine reads "
            f"{said['replicas']} copies in turn, llama.cpp one. Kernels {said['kernel_variant']}."
        )
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--llama-server", required=True, metavar="PATH", help="the built llama-server")
    made.add_argument("--model", default="pocket", help="pocket, or a model folder of the same architecture")
    made.add_argument("--arms", help="which arms of the pocket engine's ladder (default: all that do not draft)")
    made.add_argument("--prompt-tokens", type=int, default=64)
    made.add_argument("--output-tokens", type=int, default=128)
    made.add_argument("--rounds", type=int, default=9)
    made.add_argument("--seed", type=int, default=0, help="of weights and prompt")
    made.add_argument("--llama-flags", default="", help="more flags for llama-server, as one string")
    return made


if __name__ == "__main__":
    sys.exit(run(main, parser(), show))
