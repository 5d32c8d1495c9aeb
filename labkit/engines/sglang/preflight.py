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
from labkit.catalog import Machine
from labkit.errors import BadInput
from labkit.evidence import spec

if TYPE_CHECKING:
    from labkit.catalog import ModelConfig
    from labkit.engines.config import EngineConfig
    from labkit.roofline.capacity import Capacity


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


def capacity(model: "Mapping | ModelConfig", config: "EngineConfig", card: Gpu) -> "Capacity":
    """What this configuration holds on the card, by the account of the model's config.json, against its static part
    (mem_fraction_static of the card). Raises BadInput for an architecture that the account does not know.
    """
    from labkit.engines import memory
    from labkit.roofline.capacity import capacity as needed

    fraction = config.mem_fraction_static or (UNIFIED_FRACTION if card.unified else 0.88)
    how = f"mem_fraction_static {fraction:g} of {card.memory_bytes / 1e9:.0f} GB of {card.name}"
    usable = spec(fraction * card.memory_bytes, "B", how)
    quant = memory.quant(model, config)
    machine = Machine("card", card.name, usable, how, usable=usable)
    drafts = config.speculative.draft_tokens if config.speculative and config.speculative.draft_tokens else 0
    # CUDA graphs and workspaces stand outside the static part.
    return needed(model, machine, context=config.context_length or 32768, drafts=drafts, quant=quant, graphs=0)


def before_start(config: "EngineConfig", card: Gpu | None) -> list[Notice]:
    """Advice for this start and, where the model's config.json is at hand, whether it fits ("stop": it does not)."""
    if card is None:
        return []
    notices, model = advise(config, card), _model(config)
    if model is None:
        return notices
    try:
        room = capacity(model, config, card)
    except BadInput as e:
        return [*notices, Notice("advice", f"whether the model fits is not known: {e}")]
    beside = room.held_bytes + GRAPHS_BYTES <= card.memory_bytes
    text = f"{room.model} {room.sentence()} ({room.how})"
    if room.fits and not beside:
        text += f"; {GRAPHS_BYTES / 1e9:.0f} GB of graphs and workspaces do not fit beside it"
    return [*notices, Notice("advice" if room.fits and beside else "stop", text)]


def _model(config: "EngineConfig"):
    """The model's config where it can be read here: a catalog id or a local folder; None for a hub id."""
    from labkit import catalog

    known = config.model in catalog.catalog().models
    if not known and not (Path(config.model) / "config.json").exists():
        return None
    try:
        return catalog.load_config(config.model)
    except BadInput:
        return None


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
