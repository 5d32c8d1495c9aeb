"""The machine and the model under an experiment: bandwidth with its tier, and the byte account of a configuration."""

from functools import cache
from typing import TYPE_CHECKING

from labkit.engines.config import EngineConfig
from labkit.evidence import Evidence, derived, spec

if TYPE_CHECKING:
    from labkit.roofline.account import Account


@cache
def bandwidth(machine: str, threads: int = 1) -> Evidence:
    """B/s that decoding may hope for: what this machine's memory sustained ("this", measured once a boot), or the
    figure of a catalog machine."""
    if machine == "this":
        from labkit.measure import probe

        return probe.bandwidth(threads)
    from labkit import catalog

    # A nominal figure is nobody's measurement: what memory sustained is the better roof where it is known.
    found = catalog.machine(machine)
    return found.sustained or found.bandwidth


def account(config: EngineConfig, *, context: int, tokens: int = 1, model: str | None = None) -> "Account":
    """Bytes of one step under this configuration. tokens: positions that the step computes at once."""
    from labkit import catalog
    from labkit.roofline.account import per_tensor

    return per_tensor(
        catalog.load_config(model or config.model), context=context, head="fp8" if config.fp8_lm_head else "bf16",
        tokens=tokens,
    )  # fmt: skip


def round_bytes(config: EngineConfig, *, context: int, steps: int, tokens: int, model: str | None = None) -> Evidence:
    """Bytes of one draft-and-verify round: one verify step of `tokens` positions and `steps` draft passes."""
    from labkit import catalog
    from labkit.roofline.account import draft_pass

    verify = account(config, context=context, tokens=tokens, model=model)
    head = "fp8" if config.fp8_lm_head else "bf16"
    draft = draft_pass(catalog.load_config(model or config.model), context=context, head=head)
    total = verify.total_bytes + steps * draft.total_bytes
    return derived(
        total, "B", f"verify {verify.total_bytes / 1e6:.2f} MB + {steps} drafts of {draft.total_bytes / 1e6:.2f} MB",
        (spec(context, "token", verify.source), spec(tokens, "token", "setting: draft tokens")),
    )  # fmt: skip


def reported(result: str, metric: str) -> Evidence:
    """A published number by the catalog's id of its result, e.g. ("synthetic-kernels", "tpot")."""
    from labkit import catalog

    return catalog.result(result).metrics[metric]


def active_parameters(config: EngineConfig) -> Evidence:
    """Parameters that one token uses, from the model's config (derived)."""
    from labkit import catalog
    from labkit.roofline.account import simple

    found = catalog.load_config(config.model)
    value = simple(found).active_parameters
    return derived(value, "param", "sum of the tensors that one token uses", (spec(1, "token", found.source),))
