"""The verdicts put to the test: do they catch each fault of the pocket engine, and leave sound ones alone?"""

import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass

from labkit.checks.check import FAIL, Check
from labkit.checks.checks import configuration
from labkit.checks.observed import observe
from labkit.engines import ladder, process
from labkit.engines.config import EngineConfig

# Each fault, and the check that must fail because of it.
CAUGHT_BY = {
    "bare-head": "draft shares the head",
    "moe-fallback": "MoE kernels",
    "rewrite-draft-tokens": "draft tokens",
    "ignore-env": "FP8 head",
}


@dataclass(frozen=True)
class Case:
    """One start: what was wrong with it (None: nothing), which checks failed, and whether the verdict was right."""

    name: str
    fault: str | None
    failed: tuple[str, ...]
    right: bool

    def as_dict(self) -> dict:
        return asdict(self)


def run(rounds: int = 1, told: Callable[[str], None] = lambda line: None) -> list[Case]:
    """Start every fault and every sound arm of the ladder `rounds` times and judge each. Raises EngineFailed."""
    base = EngineConfig.from_dict("pocket")
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        for i in range(rounds):
            arms = ladder.choose(ladder.arms(base.replace(seed=i)))
            for fault, check in CAUGHT_BY.items():
                failed = _judge(_faulty(arms[-1].config, fault), _expected(arms, arms[-1]), folder)
                cases.append(Case(fault, fault, failed, check in failed))
                told(_line(cases[-1]))
            for arm in arms:
                failed = _judge(arm.config, _expected(arms, arm), folder)
                cases.append(Case(f"sound {arm.name}", None, failed, not failed))
                told(_line(cases[-1]))
    return cases


def summary(cases: list[Case]) -> dict:
    """Counts: faults and caught, clean and false_alarms, and the cases."""
    faulty = [c for c in cases if c.fault]
    sound = [c for c in cases if not c.fault]
    return {
        "faults": len(faulty),
        "caught": sum(c.right for c in faulty),
        "clean": len(sound),
        "false_alarms": sum(not c.right for c in sound),
        "cases": [c.as_dict() for c in cases],
    }


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
    checks: list[Check] = configuration(seen, expect, config)
    return tuple(c.name for c in checks if c.verdict == FAIL)


def _line(case: Case) -> str:
    what = f"failed: {', '.join(case.failed)}" if case.failed else "nothing failed"
    return f"{'right' if case.right else 'WRONG':6s}{case.name:24s}{what}"
