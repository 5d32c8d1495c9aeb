"""The machine and the model under an experiment: bandwidth with its tier, and the byte account of a configuration."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from labkit import catalog
from labkit.catalog import Machine
from labkit.engines import memory
from labkit.engines.adapter import adapter, options
from labkit.engines.config import EngineConfig, Speculative
from labkit.errors import BadInput
from labkit.evidence import Evidence, derived, measured, spec
from labkit.measure import probe

if TYPE_CHECKING:
    from labkit.params import Params
    from labkit.roofline.account import Account


def find(id: str) -> Machine:
    """A machine by id: one of the catalog's, or `this` with the memory bandwidth that it sustains. Raises BadInput."""
    if id != "this":
        return catalog.machine(id)
    sustained = bandwidth("this")
    memory, free = this_memory()
    return Machine("this", "this machine", sustained, sustained.source, memory, sustained, usable=free)


def this_memory() -> tuple[Evidence, Evidence]:
    """(all of this machine's memory, what an engine may fill now: free memory and droppable page cache), GB."""
    import psutil

    found = psutil.virtual_memory()
    return (
        measured(found.total / 1e9, "GB", "this machine's memory"),
        measured(found.available / 1e9, "GB", "memory available on this machine now, droppable page cache included"),
    )


@cache
def bandwidth(machine: str, threads: int = 1) -> Evidence:
    """B/s that decoding may hope for: what this machine's memory sustained ("this", measured once a boot), or the
    figure of a catalog machine."""
    if machine == "this":
        found = probe.probe(threads)
        # "cpu": others used the cores meanwhile. Look once more.
        return (found if found.clock == "wall" else probe.probe(threads, fresh=True)).evidence()
    # A nominal figure is nobody's measurement: what memory sustained is the better roof where it is known.
    found = catalog.machine(machine)
    return found.sustained or found.bandwidth


def look_again(threads: int = 1) -> Evidence:
    """Probe this machine's memory once more; the better figure counts from now on."""
    probe.probe(threads, fresh=True)
    bandwidth.cache_clear()
    return bandwidth("this", threads)


def shape_known(config: EngineConfig) -> bool:
    """Whether bytes can be counted: an attached server's model is known only where `model` says it."""
    return "model" in config.model_fields_set or "model" in options(config.engine)


def model_of(params: "Params") -> str:
    """Where the config.json of the model under test is: the engine's model where that is a catalog id or a path, else
    the tokenizer's folder (an engine may be told a hub id, whose files lie elsewhere). Raises BadInput."""
    name = model_path(params.engine)
    if name in catalog.catalog().models or Path(name).exists():
        return name
    folder = Path(params.tokenizer or "")
    folder = folder.parent if folder.suffix == ".json" else folder
    if params.tokenizer and (folder / "config.json").exists():
        return str(folder)
    raise BadInput(
        "engine.model", name, "a catalog id or a folder; with a hub id, tokenizer: the folder of its config.json"
    )


def model_path(config: EngineConfig) -> str:
    """The model by a name that the catalog opens: the path of its file where the engine has names of its own."""
    resolve = getattr(adapter(config.engine), "model_file", None)
    return str(resolve(config)) if resolve is not None else config.model


def head_of(config: EngineConfig) -> str | None:
    """Format in which a configuration reads the LM head's weights: fp8, fp32, bf16, or None for as the file has it."""
    if "fp8_lm_head" not in options(config.engine):
        return None
    if config.fp8_lm_head:
        return "fp8"
    # SGLang's flag changes the output's format and still reads BF16 weights; the pocket engine's reads FP32 ones.
    return "fp32" if config.enable_fp32_lm_head and config.engine == "pocket" else "bf16"


def account(
    config: EngineConfig, *, context: int, model: str, positions: int = 1, distinct: float | None = None
) -> "Account":
    """Bytes of one step under this configuration. positions: computed at once. distinct: experts
    that they use in a layer, where the engine counted them; None: expected for independent choices."""
    from labkit.roofline.account import per_tensor

    found = catalog.load_config(model)
    quant = memory.quant(found, config)
    return per_tensor(
        found, context=context, head=head_of(config), positions=positions, quant=quant, distinct_experts=distinct
    )


def round_bytes(
    config: EngineConfig, drafting: Speculative, *, context: int, model: str, distinct: float | None = None
) -> Evidence:
    """Bytes of one draft-and-verify round on this configuration: a verify step and the passes that make its drafts, by
    the model's own NEXTN layer where `drafting` names no other model.

    distinct: experts in a layer that a verify step uses, where they were counted.
    """
    from labkit.roofline.account import draft_pass

    passes = 0 if drafting.from_text else drafting.steps or drafting.verified - 1
    verify = account(config, context=context, positions=drafting.verified, model=model, distinct=distinct)
    each = 0.0
    if passes and drafting.draft_model_path is not None:
        other = config.replace(model=drafting.draft_model_path)
        each = account(other, context=context, model=model_path(other)).total_bytes
    elif passes:
        each = draft_pass(catalog.load_config(model), context=context, head=head_of(config)).total_bytes
    total = verify.total_bytes + passes * each
    return derived(
        total,
        "B",
        f"verify {verify.total_bytes / 1e6:.2f} MB + {passes} drafts of {each / 1e6:.2f} MB",
        (spec(context, "token", verify.source), spec(drafting.verified, "token", "setting: draft tokens")),
    )


def byte_cost(config: EngineConfig, drafting: Speculative, *, context: int, model: str) -> Evidence:
    """c by bytes alone: bytes of a round over bytes of a plain step."""
    whole = round_bytes(config, drafting, context=context, model=model)
    return whole / account(config, context=context, model=model).evidence()


def reported(result: str, metric: str) -> Evidence:
    """A published number by the catalog's id of its result, e.g. ("synthetic-kernels", "tpot")."""
    return catalog.result(result).metrics[metric]


def active_parameters(model: str) -> Evidence:
    """Parameters that one token uses, from the model's config (derived)."""
    from labkit.roofline.simple import simple

    found = catalog.load_config(model)
    value = simple(found).active_parameters
    return derived(value, "param", "sum of the tensors that one token uses", (spec(1, "token", found.source),))
