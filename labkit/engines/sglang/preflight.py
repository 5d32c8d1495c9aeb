"""Before SGLang starts: does the model fit, does the card take these flags, what will the first start cost?

Advice comes as notices; only flags that this card is known to refuse are taken out, and only with a notice.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from labkit import waits

if TYPE_CHECKING:
    from labkit.engines.config import EngineConfig


RELEASE = "0.5.23"  # whose names, flags and traps the lab knows
UNIFIED_FRACTION = 0.68  # the published Spark recipe; 0.75 exhausted memory there and locked the driver
GRAPHS_BYTES = 3e9  # CUDA context, graphs and workspaces, as seen on an H200 (2.5 to 3 GB)
GB10_GBPS = 273  # nominal; NVML tells no memory clock there
CACHES = {
    "humming": "~/.humming/cache",
    "triton": "~/.triton/cache",
    "flashinfer": "~/.cache/flashinfer",
    "deep_gemm": "~/.cache/deep_gemm",
    "sglang": "~/.cache/sglang",
}


@dataclass(frozen=True)
class Gpu:
    """A card as nvidia-smi tells it; memory_bytes is the system's where memory is unified (nvidia-smi says N/A)."""

    name: str
    capability: tuple[int, int]
    memory_bytes: float
    memory_clock: bool = True
    driver: str = ""

    @property
    def unified(self) -> bool:
        return self.capability == (12, 1)


@dataclass(frozen=True)
class Notice:
    """level: "stop" (it will fail), "changed" (a flag was replaced), "advice". text: one sentence."""

    level: str
    text: str


@cache
def gpu() -> Gpu | None:
    """This machine's first NVIDIA GPU; None without one (or without nvidia-smi)."""
    command = [
        "nvidia-smi",
        "--query-gpu=name,compute_cap,memory.total,clocks.max.mem,driver_version",
        "--format=csv,noheader,nounits",
    ]
    try:
        done = waits.run(command, what="nvidia-smi", timeout_s=20)
    except (OSError, waits.TookTooLong):
        return None
    return parse(done.stdout, _system_memory()) if done.returncode == 0 else None


def parse(text: str, system_memory: float) -> Gpu | None:
    """The first line of nvidia-smi's answer (name, compute capability, MiB, MHz, driver) as a Gpu; None without one."""
    cells = [c.strip() for c in text.strip().splitlines()[0].split(",")] if text.strip() else []
    if len(cells) < 5:
        return None
    name, capability, memory, clock, driver = cells[:5]
    major, _, minor = capability.partition(".")
    if not major.isdigit():
        return None
    total = float(memory) * 2**20 if memory.replace(".", "").isdigit() else system_memory
    return Gpu(name, (int(major), int(minor or 0)), total, clock.replace(".", "").isdigit(), driver)


def adapt(config: "EngineConfig", card: Gpu | None) -> "tuple[EngineConfig, list[Notice]]":
    """The configuration as this card takes it, with a notice for each change. Without a card nothing is changed."""
    notices: list[Notice] = []
    if card is None:
        return config, notices
    extra, env = list(config.extra_args), dict(config.env)
    at = next((i for i, a in enumerate(extra) if a.startswith("--fp8-gemm-backend")), None)
    if at is not None and card.capability[0] != 12:
        joined = "=" in extra[at]
        value = extra[at].partition("=")[2] if joined else extra[at + 1] if at + 1 < len(extra) else ""
        if value == "cutlass":
            del extra[at : at + (1 if joined else 2)]
            notices.append(
                Notice(
                    "changed",
                    f"{card.name}: --fp8-gemm-backend cutlass left out; this release has it "
                    "for SM120 and SM121 only and takes DeepGEMM here",
                )
            )
    if not card.memory_clock and config.moe_runner_backend == "humming" and "HUMMING_GPU_BANDWIDTH_GBPS" not in env:
        env["HUMMING_GPU_BANDWIDTH_GBPS"] = str(GB10_GBPS)
        text = f"{card.name} tells no memory clock: HUMMING_GPU_BANDWIDTH_GBPS={GB10_GBPS} set, by which Humming picks "
        notices.append(Notice("changed", text + "its kernels (0.1.12 also falls back to it)"))
    if notices:
        config = config.replace(extra_args=extra, env=env)
    return config, notices


def advise(config: "EngineConfig", card: Gpu | None, caches: Mapping[str, bool] | None = None) -> list[Notice]:
    """What to know before this start: memory fraction, compiles to come, versions. caches: name -> warm."""
    out = [] if card else [Notice("stop", "no NVIDIA GPU here: SGLang cannot start; the pocket engine can")]
    warm = kernel_caches() if caches is None else caches
    if card and card.unified and (config.mem_fraction_static or 1.0) > UNIFIED_FRACTION:
        out.append(
            Notice(
                "advice",
                f"unified memory: mem_fraction_static {UNIFIED_FRACTION} is the published value; "
                "0.75 exhausted memory and locked the driver on a DGX Spark",
            )
        )
    if config.moe_runner_backend == "flashinfer_mxfp4" and not warm.get("flashinfer", False):
        text = "FlashInfer compiles its MXFP4 kernels at the first start (97 targets, tens of minutes)"
        if card and card.unified:
            text += "; compile once with no model loaded: beside one it ran out of memory (4 jobs, about 20 minutes)"
        out.append(Notice("advice", text))
    if config.moe_runner_backend == "humming" and not warm.get("humming", False):
        out.append(Notice("advice", "Humming compiles each kernel at first use, in seconds; later starts are quicker"))
    installed = _version("sglang")
    if installed is not None and installed != RELEASE:
        out.append(Notice("advice", f"SGLang {installed} is installed; names and traps are checked for {RELEASE}"))
    return out


def capacity(model: Mapping | object, config: "EngineConfig", card: Gpu) -> dict:
    """Bytes that this configuration needs on the card, by the account of the model's config.json.

    Returns weights, kv (of context_length tokens), state (one sequence and its drafts), graphs, needed, available
    (mem_fraction_static of the card), fits. Raises BadInput for an architecture that the account does not know.
    """
    from labkit.roofline.account import checkpoint_bytes, kv_bytes_per_token, per_tensor

    fraction = config.mem_fraction_static or (UNIFIED_FRACTION if card.unified else 0.88)
    tokens = config.context_length or 32768
    weights = checkpoint_bytes(model, nextn=config.speculative is not None)
    kv = tokens * kv_bytes_per_token(model)
    # The account's state is read and written: half of it is held, per position of a verify step.
    positions = config.speculative.draft_tokens + 1 if config.speculative else 1
    step = per_tensor(model, context=0)
    state = positions * (step.state_bytes + step.convolution_bytes) / 2
    needed = weights + kv + state
    return {
        "weights": weights,
        "kv": kv,
        "state": state,
        "graphs": GRAPHS_BYTES,
        "needed": needed,
        "available": fraction * card.memory_bytes,
        "fraction": fraction,
        "fits": needed <= fraction * card.memory_bytes and needed + GRAPHS_BYTES <= card.memory_bytes,
    }


def kernel_caches() -> dict[str, bool]:
    """Which kernel caches of this user hold something: what decides between a cold and a warm start."""
    folders = {name: Path(path).expanduser() for name, path in CACHES.items()}
    if os.environ.get("TRITON_CACHE_DIR"):
        folders["triton"] = Path(os.environ["TRITON_CACHE_DIR"])
    return {name: folder.is_dir() and any(folder.iterdir()) for name, folder in folders.items()}


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _system_memory() -> float:
    import psutil

    return float(psutil.virtual_memory().total)
