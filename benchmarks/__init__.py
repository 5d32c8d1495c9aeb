"""Yardsticks that nobody here wrote: each module measures the pocket engine beside other people's code, in one run.

    python -m benchmarks.matmulnbits   the 4-bit kernels beside ONNX Runtime's MatMulNBits
    python -m benchmarks.llamacpp      the whole server beside llama.cpp's
    python -m benchmarks.loadtool      labkit's client beside a load tool from PyPI

What they compare with is never a dependency of the product: a missing package is one line that names it. Every script
interleaves its arms (A B A B), prints both figures and the ratio, and with --json prints everything it measured.
"""
