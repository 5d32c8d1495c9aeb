"""The checks put to the test: do they catch every fault that is injected, and leave sound servers alone?"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from random import Random

from labkit.checks import faults
from labkit.checks.check import FAIL
from labkit.checks.checks import configuration
from labkit.checks.observed import observe
from labkit.engines import ladder, process
from labkit.engines.config import EngineConfig
from labkit.errors import LabError

# Each fault of the pocket engine, and the check that must fail because of it.
POCKET = {
    "bare-head": "draft shares the head",
    "moe-fallback": "MoE kernels",
    "rewrite-draft-tokens": "draft tokens",
    "ignore-env": "FP8 head",
}
QUICK, FULL = (1, 20, 1), (20, 160, 10)  # runs of each fault, clean runs on small servers, rounds of the pocket's rungs
REFUSED = "not measured"
BUSY_EVERY = 4  # one clean run in so many shares its cores with a process that burns one


@dataclass(frozen=True)
class Case:
    """One run: what was wrong with it (None: nothing), what was raised, and whether that was right.

    turn: which run of this name it is, from 0; its random numbers follow from seed, name and turn.
    """

    name: str
    fault: str | None
    raised: tuple[str, ...]
    right: bool
    turn: int = 0

    def as_dict(self) -> dict:
        return asdict(self)


def run(
    full: bool = False,
    told: Callable[[str], None] = lambda line: None,
    *,
    seed: int = 0,
    kept: Sequence[Case] = (),
    keep: Callable[[Case], None] = lambda case: None,
) -> list[Case]:
    """All faults and clean runs, in a fixed order of seeds. Raises EngineFailed if the pocket engine does not start.

    kept: cases of an earlier run that was stopped; they are not run again. keep: called with each new case.
    """
    there = {(c.name, c.turn): c for c in kept}
    cases: list[Case] = []
    with tempfile.TemporaryDirectory() as folder:
        for one in _plan(full, seed, folder):
            case = there.get((one.name, one.turn))
            if case is None:
                raised = _raised(one)
                right = bool(raised & set(one.caught_by)) if one.fault else not raised
                case = Case(one.name, one.fault, tuple(sorted(raised)), right, one.turn)
                keep(case)
                told(_line(case))
            cases.append(case)
    return cases


def _raised(one: "_Planned") -> set[str]:
    """What a run raises; that the lab refuses to measure this server is an outcome as well, and no end of all runs."""
    try:
        return one.raised()
    except LabError as e:
        return {f"{REFUSED}: {e}"[:200], REFUSED}


@dataclass(frozen=True)
class _Planned:
    name: str
    fault: str | None
    turn: int
    caught_by: tuple[str, ...]
    raised: Callable[[], set[str]]


def _plan(full: bool, seed: int, folder: str) -> Iterator[_Planned]:
    each, clean, rounds = FULL if full else QUICK
    for i in range(each):
        for f in faults.FAULTS:
            yield _Planned(f.name, f.name, i, f.caught_by, partial(f.raised, Random(f"{seed}/{f.name}/{i}")))
    for i in range(clean):
        busy = i % BUSY_EVERY == BUSY_EVERY - 1
        name = f"clean {i + 1}" + (", busy machine" if busy else "")
        yield _Planned(name, None, 0, (), partial(_clean, i, Random(f"{seed}/clean/{i}"), busy))
    for i in range(max(each, rounds)):
        arms = ladder.choose(ladder.arms(EngineConfig(seed=i)))
        for fault, check in POCKET.items() if i < each else ():
            config, words = _faulty(arms[-1].config, fault), _expected(arms, arms[-1])
            yield _Planned(f"pocket, {fault}", fault, i, (check,), partial(_judge, config, words, folder))
        for arm in arms if i < rounds else ():
            judged = partial(_judge, arm.config, _expected(arms, arm), folder)
            yield _Planned(f"pocket, sound {arm.name}", None, i, (), judged)


def _clean(i: int, rng: Random, busy: bool) -> set[str]:
    with _burning() if busy else nullcontext():
        return faults.clean(i + i // 4, rng)


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


def _judge(config: EngineConfig, expect: tuple[str, ...], folder: str) -> set[str]:
    with process.start(config, folder) as engine:
        seen = observe(
            engine.url, log_path=engine.log_path, env={"SGLANG_ENABLE_FP8_LM_HEAD": "1"} if config.fp8_lm_head else None
        )
    return {c.name for c in configuration(seen, expect, config) if c.verdict == FAIL}


def _line(case: Case) -> str:
    what = f"raised: {', '.join(case.raised)}" if case.raised else "nothing raised"
    return f"{'right' if case.right else 'WRONG':6s}{case.name:52s}{what}"
