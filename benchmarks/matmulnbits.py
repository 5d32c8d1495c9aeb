"""The pocket engine's 4-bit expert kernels beside ONNX Runtime's MatMulNBits: same shapes, one thread, one run.

    pip install onnx onnxruntime
    python -m benchmarks.matmulnbits [--json]

Both walk through many different matrices of one shape, several times what the last cache holds, activations rounded to
int8 for every matrix (accuracy_level 4 on their side). The figure is bytes of weights and scales per second, so the
comparison is at equal bytes; MatMulNBits keeps an FP32 scale a block (0.625 B a weight), MXFP4 a byte (0.531 B), so
the time of equal weights is compared as well. Their matrices are nodes of one graph: for the experts' own small
matrices a node's dispatch is part of their time, as it would be for anyone who uses it.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence

from labkit.errors import BadInput
from labkit.pocket.options import TABLE

from . import onnx_nbits, pocket_moe
from .common import Paired, interleave, machine, need, run, whole

SHAPES = ((256, 384), (384, 128), (1536, 384), (12288, 384), (2048, 2048))
NAMES = {(256, 384): "an expert's gate and up", (384, 128): "an expert's down"}
THEIRS = "MatMulNBits"


def shape_list(text: str) -> list[tuple[int, int]]:
    """ "256x384,384x128" as [(rows, columns), ...]. BadInput otherwise."""
    try:
        found = [tuple(int(side) for side in item.split("x")) for item in text.split(",")]
    except ValueError:
        found = []
    if not found or any(len(item) != 2 or min(item) < 1 for item in found):
        raise BadInput("shapes", text, "ROWSxCOLUMNS, separated by commas")
    for rows, columns in found:
        pocket_moe.matrix_bytes(rows, columns)
    return found


def main(args: argparse.Namespace) -> dict:
    """Everything measured; raises BadInput and LabError."""
    shapes = shape_list(args.shapes)
    whole("rounds", args.rounds, 1, 1000)
    whole("working_set_mb", args.working_set_mb, 1, 4096)
    for package in ("onnx", "onnxruntime"):
        need(package, package)
    rows = [compare(shape, tokens, args) for shape in shapes for tokens in (1, 4)]
    import onnxruntime

    return {
        "yardstick": f"onnxruntime {onnxruntime.__version__} {THEIRS}, accuracy_level 4, block 32",
        "machine": machine(),
        "rounds": args.rounds,
        "working_set_bytes": args.working_set_mb * 10**6,
        "seed": args.seed,
        "rows": rows,
    }


def compare(shape: tuple[int, int], tokens: int, args: argparse.Namespace) -> dict:
    """One shape at one number of tokens: bytes/s of the library and of both kernels, and ratios ours over theirs."""
    rows, columns = shape
    size = args.working_set_mb * 10**6
    theirs = onnx_nbits.NBits(rows, columns, tokens, max(1, size // onnx_nbits.matrix_bytes(*shape)), args.seed)
    copies = max(1, size // pocket_moe.matrix_bytes(*shape))
    ours = {
        name: pocket_moe.PocketMoe(rows, columns, tokens, copies, name, args.variant, args.seed)
        for name in pocket_moe.KERNELS
    }
    arms = {THEIRS: theirs.seconds} | {name: side.seconds for name, side in ours.items()}
    interleave(arms, 1)  # warm-up
    figures = interleave(arms, args.rounds)
    result = {
        "rows": rows,
        "columns": columns,
        "tokens": tokens,
        "what": NAMES.get(shape, ""),
        "variant": ours["generic"].variant,
        "theirs_bytes_per_s": theirs.bytes / statistics.median(figures[THEIRS]),
    }
    for name, side in ours.items():
        by_bytes = paired(figures[name], side.bytes, figures[THEIRS], theirs.bytes)
        by_weights = paired(figures[name], side.weights, figures[THEIRS], theirs.weights)
        result[name] = {
            "bytes_per_s": side.bytes / statistics.median(figures[name]),
            "at_equal_bytes": by_bytes.ratio,
            "low": min(by_bytes.ratios),
            "high": max(by_bytes.ratios),
            "at_equal_weights": by_weights.ratio,
        }
    return result


def paired(ours: Sequence[float], our_size: int, theirs: Sequence[float], their_size: int) -> Paired:
    """Seconds a byte (or a weight) of both, round by round."""
    return Paired(tuple(t / our_size for t in ours), tuple(t / their_size for t in theirs))


def show(result: dict) -> str:
    lines = [
        f"{result['yardstick']}, {result['machine']['cpu']}, median of {result['rounds']} rounds",
        "speed over MatMulNBits: at equal bytes (lowest to highest round), at equal weights",
        f"{'rows x columns':>15} {'M':>2} {'theirs':>8} {'generic':>9} {'ratio':>24} {'jit':>9} {'ratio':>24}",
    ]
    for row in result["rows"]:
        line = f"{row['rows']:>7} x {row['columns']:>5} {row['tokens']:>2} {row['theirs_bytes_per_s'] / 1e9:5.2f}GB/s"
        for name in pocket_moe.KERNELS:
            side = row[name]
            spread = f"({side['low']:.2f}-{side['high']:.2f})"
            line += (
                f" {side['bytes_per_s'] / 1e9:5.2f}GB/s {side['at_equal_bytes']:5.2f} {spread:>12} "
                f"{side['at_equal_weights']:5.2f}"
            )
        lines.append(line + (f"  {row['what']}" if row["what"] else ""))
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--shapes", default=",".join(f"{r}x{c}" for r, c in SHAPES), help="rows x columns, by commas")
    made.add_argument("--rounds", type=int, default=9)
    made.add_argument("--working-set-mb", type=int, default=128, help="bytes of matrices a side (10^6)")
    made.add_argument("--variant", default="auto", help=", ".join(TABLE["kernel_variant"].choices))
    made.add_argument("--seed", type=int, default=0)
    return made


if __name__ == "__main__":
    sys.exit(run(main, parser(), show))
