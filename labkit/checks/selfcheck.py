"""The checks put to the test: do they catch every fault that is injected, and leave sound servers alone?"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from random import Random

from labkit.checks import faults
from labkit.checks.check import FAIL
from labkit.checks.checks import configuration
from labkit.checks.observed import observe
from labkit.engines import ladder, process
from labkit.engines.config import EngineConfig

# Each fault of the pocket engine, and the check that must fail because of it.
POCKET = {
    "bare-head": "draft shares the head",
    "moe-fallback": "MoE kernels",
    "rewrite-draft-tokens": "draft tokens",
    "ignore-env": "FP8 head",
}
QUICK, FULL = (1, 20, 1), (20, 160, 10)  # runs of each fault, clean runs on small servers, rounds of the pocket's rungs
BUSY_EVERY = 4  # one clean run in so many shares its cores with a process that burns one


@dataclass(frozen=True)
class Case:
    """One run: what was wrong with it (None: nothing), what was raised, and whether that was right."""

    name: str
    fault: str | None
    raised: tuple[str, ...]
    right: bool

    def as_dict(self) -> dict:
        return asdict(self)


def run(full: bool = False, told: Callable[[str], None] = lambda line: None, *, seed: int = 0) -> list[Case]:
    """All faults and clean runs, in a fixed order of seeds. Raises EngineFailed if the pocket engine does not start."""
    each, clean, rounds = FULL if full else QUICK
    cases: list[Case] = []

    def keep(case: Case) -> None:
        cases.append(case)
        told(_line(case))

    for i in range(each):
        for fault in faults.FAULTS:
            raised = fault.raised(Random(f"{seed}/{fault.name}/{i}"))
            keep(Case(fault.name, fault.name, tuple(sorted(raised)), bool(raised & set(fault.caught_by))))
    for i in range(clean):
        busy = i % BUSY_EVERY == BUSY_EVERY - 1
        with _burning() if busy else nullcontext():
            raised = faults.clean(i + i // 4, Random(f"{seed}/clean/{i}"))
        keep(Case(f"clean {i + 1}" + (", busy machine" if busy else ""), None, tuple(sorted(raised)), not raised))
    with tempfile.TemporaryDirectory() as folder:
        for i in range(max(each, rounds)):
            arms = ladder.choose(ladder.arms(EngineConfig(seed=i)))
            for name, check in POCKET.items() if i < each else ():
                raised = _judge(_faulty(arms[-1].config, name), _expected(arms, arms[-1]), folder)
                keep(Case(f"pocket, {name}", name, raised, check in raised))
            for arm in arms if i < rounds else ():
                raised = _judge(arm.config, _expected(arms, arm), folder)
                keep(Case(f"pocket, sound {arm.name}", None, raised, not raised))
    return cases


def summary(cases: list[Case]) -> dict:
    """Counts: kinds of faults, runs with a fault and caught, clean runs and false_alarms, and the cases."""
    faulty = [c for c in cases if c.fault]
    sound = [c for c in cases if not c.fault]
    return {
        "kinds": len({c.fault for c in faulty}),
        "faults": len(faulty),
        "caught": sum(c.right for c in faulty),
        "clean": len(sound),
        "false_alarms": sum(not c.right for c in sound),
        "cases": [c.as_dict() for c in cases],
    }


@contextmanager
def _burning() -> Iterator[None]:
    """A process beside us that never rests."""
    burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        burner.kill()
        burner.wait(60.0)


def _expected(arms: list[ladder.Arm], arm: ladder.Arm) -> tuple[str, ...]:
    """The arms whose changes this one holds; the first where it holds none."""
    out = [arm.name]
    while (before := ladder.reference(arms, ladder.get(arms, out[0]))) is not None:
        out.insert(0, before.name)
    return tuple(out[1:] or out)


def _faulty(config: EngineConfig, fault: str) -> EngineConfig:
    spec = config.speculative
    if fault == "rewrite-draft-tokens":  # more draft tokens than its steps make: the engine rewrites them silently
        spec = {**spec.model_dump(), "draft_tokens": spec.draft_tokens + 2}
    return config.replace(speculative=spec, faults=[fault])


def _judge(config: EngineConfig, expect: tuple[str, ...], folder: str) -> tuple[str, ...]:
    with process.start(config, folder) as engine:
        seen = observe(
            engine.url, log_path=engine.log_path, env={"SGLANG_ENABLE_FP8_LM_HEAD": "1"} if config.fp8_lm_head else None
        )
    return tuple(c.name for c in configuration(seen, expect, config) if c.verdict == FAIL)


def _line(case: Case) -> str:
    what = f"raised: {', '.join(case.raised)}" if case.raised else "nothing raised"
    return f"{'right' if case.right else 'WRONG':6s}{case.name:52s}{what}"
