"""Kernels compiled at run time for this machine and this model, and kept in a private folder of the user's cache."""

import contextlib
import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import stat
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from labkit import waits
from labkit.errors import BadInput, LabError
from labkit.pocket import binding
from labkit.pocket.loader import PocketConfig
from labkit.pocket.options import Options

SOURCES = Path(__file__).parent / "kernels"
VERSION_S = 30.0
_AVX512 = ["-mavx2", "-mfma", "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni"]
FLAGS = {
    "avx512bf16": [*_AVX512, "-mavx512bf16"],
    "avx512": _AVX512,
    "avx2": ["-mavx2", "-mfma"],
    "neon": ["-march=armv8.2-a+dotprod"],
    "neonbf16": ["-march=armv8.2-a+dotprod+bf16"],
    "portable": ["-ffp-contract=off"],
}
# The dense dtype that each variant runs fastest at equal bytes: bfloat16 pairs make FP8 cheap, else INT8 products are
FASTEST_DENSE = {
    "avx512bf16": "fp8",
    "avx512": "int8",
    "avx2": "int8",
    "neon": "int8",
    "neonbf16": "fp8",
    "portable": "fp8",
}
COMMON = ["-O3", "-std=gnu11", "-shared", "-fPIC", "-fno-math-errno", "-Wno-psabi", "-Wno-pass-failed"]
NO_COMPILER = (
    "no C compiler found (tried $CC, cc, gcc, clang and `python -m ziglang cc`). Install one: `apt install gcc` or "
    "`dnf install gcc`, `xcode-select --install` on a Mac, or, without administrator rights, `pip install ziglang`"
)


@dataclass(frozen=True)
class Kernels:
    """Loaded libraries: `moe_library` for the routed experts ("generic" or "jit"), `library` for all else."""

    variant: str
    moe: str
    compiler: str
    compile_s: dict[str, float]  # seconds by unit; 0.0 when the cache had it
    library: ctypes.CDLL
    moe_library: ctypes.CDLL


def _cpuinfo(*keys: str) -> set[str]:
    """Words that /proc/cpuinfo gives under these keys; none where there is no such file."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    return {word for line in text.splitlines() if line.startswith(keys) for word in line.split(":", 1)[1].split()}


def cpu_flags() -> set[str]:
    return _cpuinfo("flags", "Features")


def available_variants() -> list[str]:
    """Variants that this machine can run, best first."""
    flags, found = cpu_flags(), []
    if platform.machine() in ("x86_64", "AMD64"):
        if {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"} <= flags:
            found.append("avx512")
        if found and "avx512_bf16" in flags:
            # Measured, four tokens: pairs run at 100 GMAC/s on a Zen 4, over twice FP32's rate, but at 34 on an Intel
            # Xeon of 2023, where INT8 (avx512) decodes a tenth faster.
            found.insert(0 if "AuthenticAMD" in _cpuinfo("vendor_id") else 1, "avx512bf16")
        if {"avx2", "fma"} <= flags:
            found.append("avx2")
    elif platform.machine() in ("aarch64", "arm64") and ("asimddp" in flags or sys.platform == "darwin"):
        found.append("neon")
        if "bf16" in flags:  # its speed was not measured on any machine, so it has to be asked for
            found.append("neonbf16")
    return [*found, "portable"]


def pick_variant(asked: str) -> str:
    variants = available_variants()
    if asked == "auto":
        return variants[0]
    if asked not in variants:
        raise BadInput("kernel_variant", asked, f"what this machine can run: auto, {', '.join(variants)}")
    return asked


def find_compiler() -> list[str]:
    """The compiler's command as a list of words. LabError that says what to install when there is none."""
    if os.environ.get("CC"):
        command = shlex.split(os.environ["CC"])
        if shutil.which(command[0]):
            return command
        raise LabError(f"CC={os.environ['CC']!r} names a compiler that is not there. Unset CC or install it")
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            return [path]
    argv = [sys.executable, "-m", "ziglang", "version"]
    if waits.run(argv, what="zig to say its version", timeout_s=VERSION_S).returncode == 0:
        return [sys.executable, "-m", "ziglang", "cc"]
    raise LabError(NO_COMPILER)


def private_folder(asked: str | None) -> Path:
    """The kernel cache, made with mode 0700. BadInput when others could have put code there."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "labkit" / "kernels"
    folder = Path(asked) if asked else default
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as e:
        raise BadInput("kernel_cache", str(folder), f"a folder that can be made and written ({e.strerror})") from None
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o077:
        raise BadInput(
            "kernel_cache",
            str(folder),
            "a folder of your own that nobody else can read or write (mode 0700); remove this one or name another",
        )
    return folder


def defines(c: PocketConfig) -> list[str]:
    """The model's shape as -D flags (names as in engine.h)."""
    numbers = {
        "HIDDEN": c.hidden_size,
        "VOCAB": c.vocab_size,
        "LAYERS": c.num_hidden_layers,
        "MLA_EVERY": c.layer_group_size,
        "DENSE_LAYERS": c.first_k_dense_replace,
        "HEADS": c.num_attention_heads,
        "HEAD_DIM": c.head_dim,
        "EXPERTS": c.num_experts,
        "TOP_K": c.num_experts_per_tok,
        "INTER": c.moe_intermediate_size,
        "SHARED_INTER": c.moe_shared_expert_intermediate_size,
        "DENSE_INTER": c.intermediate_size,
        "KV_RANK": c.kv_lora_rank,
        "ROPE_DIM": c.qk_rope_head_dim,
        "CONV_TAPS": c.short_conv_kernel_size,
    }
    reals = {
        "RMS_EPS": c.rms_norm_eps,
        "GATE_FLOOR": c.kda_lower_bound,
        "ROUTE_SCALE": c.routed_scaling_factor,
        "ROPE_THETA": c.rope_theta,
    }
    return [f"-D{k}={v}" for k, v in numbers.items()] + [f"-D{k}={float(v)!r}f" for k, v in reals.items()]


def units(variant: str, moe: str, config: PocketConfig) -> dict[str, list[str]]:
    """Compiler arguments (without compiler and output) of the two libraries."""
    common = [*COMMON, f"-DVARIANT_{variant.upper()}", *FLAGS[variant]]
    shape = (
        [f"-DMOE_HIDDEN={config.hidden_size}", f"-DMOE_INTER={config.moe_intermediate_size}"] if moe == "jit" else []
    )
    return {
        "engine": [*common, *defines(config), str(SOURCES / "decode.c"), "-lm", "-lpthread"],
        f"moe-{moe}": [*common, *shape, str(SOURCES / f"moe_{moe}.c"), "-lm"],
    }


def spelled(compiler: list[str], arguments: list[str]) -> list[str]:
    """The arguments as zig wants them. It has names of its own for Arm's levels, and, told no CPU, compiles for this
    very one, so that a cache in a home shared between machines would hold code that another cannot run."""
    if "ziglang" not in compiler and Path(compiler[0]).name != "zig":
        return arguments
    cpu = "generic+v8_2a+dotprod" if FLAGS["neon"][0] in arguments else "baseline"
    return [f"-mcpu={cpu}", *(a for a in arguments if a not in FLAGS["neon"])]


def digest(command: list[str], version: str) -> str:
    """Content hash of everything that decides what comes out: sources, flags (without paths), compiler."""
    h = hashlib.sha256(version.encode())
    for word in command:
        h.update(Path(word).name.encode() + b"\0")
    for path in sorted(SOURCES.glob("*.[ch]")):
        h.update(path.name.encode() + b"\0" + path.read_bytes())
    return h.hexdigest()[:32]


def _compile(compiler: list[str], arguments: list[str], path: Path, name: str) -> float:
    """Run one compiler. -> seconds; the library appears whole or not at all, whoever else builds the same."""
    try:
        handle, partial = tempfile.mkstemp(suffix=".so", dir=path.parent)
    except OSError as e:
        raise LabError(f"{path.parent}: {e.strerror}; {name} was not compiled") from None
    os.close(handle)
    began = time.perf_counter()
    command = [*compiler, *arguments, "-o", partial]
    try:
        done = waits.run(command, what=f"the compiler of {name}", timeout_s=waits.COMPILE_S, merged=True)
        if done.returncode:
            raise LabError(f"compiling {name} with {' '.join(compiler)} failed: {done.stdout.strip()[-600:]}")
        os.replace(partial, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)
    return time.perf_counter() - began


def compile_units(
    compiler: list[str], wanted: dict[str, list[str]], folder: Path
) -> tuple[dict[str, Path], dict[str, float]]:
    """Build what the cache lacks, side by side. -> library path and seconds (0.0 = cached) of each unit."""
    what = f"{' '.join(compiler)} to say its version"
    version = waits.run([*compiler, "--version"], what=what, timeout_s=VERSION_S).stdout
    wanted = {name: spelled(compiler, arguments) for name, arguments in wanted.items()}
    paths = {name: folder / f"{name}-{digest([*compiler, *words], version)}.so" for name, words in wanted.items()}
    with ThreadPoolExecutor() as pool:
        running = {
            name: pool.submit(_compile, compiler, words, paths[name], name)
            for name, words in wanted.items()
            if not paths[name].exists()
        }
        try:
            return paths, {name: running[name].result() if name in running else 0.0 for name in wanted}
        except BaseException:
            waits.end_running()
            raise


def load_library(path: Path) -> ctypes.CDLL:
    """Load a library from the cache once more checking whose it is."""
    info = path.lstat()
    if not stat.S_ISREG(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o022:
        raise LabError(f"{path}: not a file of yours that only you can write; not loading it. Remove it")
    return ctypes.CDLL(str(path))


def kernels(options: Options, config: PocketConfig) -> Kernels:
    """Compiled (or cached) kernels for these options and this model's shape."""
    variant, moe = pick_variant(options.kernel_variant), "jit" if options.runs_jit else "generic"
    compiler, folder = find_compiler(), private_folder(options.kernel_cache)
    paths, took = compile_units(compiler, units(variant, moe, config), folder)
    return Kernels(
        variant,
        moe,
        " ".join(compiler),
        took,
        binding.declare(load_library(paths["engine"])),
        load_library(paths[f"moe-{moe}"]),
    )
