"""What notebooks call: one function a notebook, each gives a panel with the cells ask, predict, run, findings, summary.

Arguments are the notebook's parameters, with the sections of a params file among them (labkit.notebook.given); wrong
ones raise BadInput at once, before an engine starts.
"""

from labkit.notebook.given import settle
from labkit.notebook.panel import Panel

__all__ = [
    "Panel",
    "baseline",
    "byte_account",
    "fp8_head",
    "gather",
    "kernels",
    "long_context",
    "mtp",
    "real_load",
    "silent_fallback",
    "start_here",
    "sweep",
]


def start_here(**parameters) -> Panel:
    """00: this machine, its memory and the engine's first tokens."""
    from labkit.notebook.experiments.start_here import StartHere

    return Panel(StartHere(**settle(StartHere.name, parameters)))


def byte_account(**parameters):
    """01: what one token reads, without an engine."""
    from labkit.notebook.bytes import BytesPanel

    return BytesPanel(**settle("01_bytes", parameters))


def baseline(**parameters) -> Panel:
    """02: TPOT of the first arm beside its byte floor."""
    from labkit.notebook.experiments.baseline import Baseline

    return Panel(Baseline(**settle(Baseline.name, parameters)))


def kernels(**parameters) -> Panel:
    """03: specialised kernels: the same bytes in less time."""
    from labkit.notebook.experiments.kernels import Kernels

    return Panel(Kernels(**settle(Kernels.name, parameters)))


def fp8_head(**parameters) -> Panel:
    """04: the FP8 head, predicted twice."""
    from labkit.notebook.experiments.fp8_head import Fp8Head

    return Panel(Fp8Head(**settle(Fp8Head.name, parameters)))


def mtp(**parameters) -> Panel:
    """05: drafting: c, a, S and the best setting."""
    from labkit.notebook.experiments.mtp import Mtp

    return Panel(Mtp(**settle(Mtp.name, parameters)))


def silent_fallback(**parameters) -> Panel:
    """06: the fault without an error message."""
    from labkit.notebook.experiments.fallback import Fallback

    return Panel(Fallback(**settle(Fallback.name, parameters)))


def real_load(**parameters) -> Panel:
    """07: sampled text of its own length."""
    from labkit.notebook.experiments.real_load import RealLoad

    return Panel(RealLoad(**settle(RealLoad.name, parameters)))


def long_context(**parameters) -> Panel:
    """08: TPOT and c from 1K tokens of context up."""
    from labkit.notebook.experiments.long_context import LongContext

    return Panel(LongContext(**settle(LongContext.name, parameters)))


def gather(**parameters):
    """09: all records below a directory."""
    from labkit.notebook.gather import Gathered

    return Gathered(**settle(Gathered.name, parameters))


def sweep(**parameters):
    """10: one sweep of configurations, also while it runs."""
    from labkit.notebook.swept import Swept

    return Swept(**settle(Swept.name, parameters))
