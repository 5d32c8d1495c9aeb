"""Many short probes, each repeated in sweeps over all of them, so that a disturbance spoils one value of many probes
and not every value of one.

Canaries (reading memory, one kernel on cached operands) run between the probes. A sweep during which they slowed down,
or other programs used the machine, is made again.
"""

import os
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
import psutil

from labkit import waits
from labkit.errors import BadInput
from labkit.measure.probe import CLEAN

WANTED, LEAST = 5, 5  # quiet sweeps wanted; to go by when time is up
MOST_S = 6.0  # after which no further sweep starts
SWEEP_S = 300.0  # of one sweep, which takes a second
PASSES = "LABKIT_PROBE_PASSES"  # environment: sweeps wanted instead, where time matters more than the last percent
SLACK = 1.25  # a canary's time over its usual time from which on something was in the way
OTHERS = 0.10  # share of the cores' time that other programs may use
BETWEEN = 25  # probes from one canary to the next
USED = ("user", "system", "nice", "irq", "softirq", "steal")  # of a core's time; the rest it was idle
Took = float | dict[str, float]


@dataclass
class Sweep:
    """One pass over all probes. took: seconds by probe; canaries: seconds of each, as often as it ran; share: of its
    core that the probing thread had; others: share of all usable cores' time that other programs used, or that a
    virtual machine's host gave away (stolen: that alone)."""

    took: dict[Hashable, Took] = field(default_factory=dict)
    canaries: dict[str, list[float]] = field(default_factory=dict)
    share: float = 1.0
    others: float = 0.0
    stolen: float = 0.0


@dataclass(frozen=True)
class Swept:
    """took, canaries: over the sweeps that count, the mean of those in the middle. disturbed: why the values hold other
    programs' work too, "" when they do not; then all sweeps count."""

    took: dict[Hashable, Took]
    canaries: dict[str, float]
    disturbed: str
    sweeps: list[Sweep]


def swept(probes: Mapping[Hashable, Callable[[], Took]], canaries: Mapping[str, Callable[[], float]]) -> Swept:
    """Every probe WANTED times while the machine is quiet. Raises BadInput for a number of PASSES that is none."""
    wanted, least = _passes()
    made: list[Sweep] = []
    began = time.perf_counter()
    while len(good := quiet(made)) < wanted and time.perf_counter() - began < MOST_S:
        if len(made) >= least and not good:  # and it will not become quiet
            break
        made.append(_apart(probes, canaries))
    disturbed = ""
    if len(good) < least:
        others, stolen = (float(np.median([getattr(s, n) for s in made])) for n in ("others", "stolen"))
        what = f"others used {others:.0%} of the machine" if others > OTHERS else "the machine changed its speed"
        if stolen > others / 2 > OTHERS / 2:
            what = f"the host of this virtual machine gave {stolen:.0%} of it to others"
        disturbed = f"probed while {what}: {len(good)} of {len(made)} passes were undisturbed"
        good = made
    took = {name: _over([s.took[name] for s in good]) for name in probes}
    seen = {name: middle([t for s in good for t in s.canaries[name]]) for name in canaries}
    return Swept(took, seen, disturbed, made)


def _passes() -> tuple[int, int]:
    """Sweeps wanted, and the least to go by."""
    given = os.environ.get(PASSES, str(WANTED))
    if not given.isdecimal() or int(given) < 1:
        raise BadInput(PASSES, given, "a whole number from 1")
    return int(given), min(int(given), LEAST)


def quiet(made: list[Sweep]) -> list[Sweep]:
    """The sweeps during which nothing was in the way: the thread had its core, others left the machine alone, and no
    canary took longer than usual."""
    if not made:
        return []
    usual = {name: np.quantile([t for s in made for t in s.canaries[name]], 0.25) for name in made[0].canaries}
    return [
        s
        for s in made
        if s.share >= CLEAN
        and s.others <= OTHERS
        and all(np.median(took) <= SLACK * usual[name] for name, took in s.canaries.items())
    ]


def _apart(probes: Mapping[Hashable, Callable[[], Took]], canaries: Mapping[str, Callable[[], float]]) -> Sweep:
    """A sweep in a thread of its own, as a request is: cores differ (each may share its arithmetic with a neighbour),
    and the system chooses one anew for each thread."""
    made: Future[Sweep] = Future()

    def run() -> None:
        try:
            made.set_result(_sweep(probes, canaries))
        except BaseException as e:
            made.set_exception(e)

    thread = threading.Thread(target=run, name="pocket-probes", daemon=True)
    thread.start()
    waits.join([thread], "a sweep of probes to end", SWEEP_S)
    return made.result(0)


def _sweep(probes: Mapping[Hashable, Callable[[], Took]], canaries: Mapping[str, Callable[[], float]]) -> Sweep:
    out = Sweep(canaries={name: [] for name in canaries})
    wall, cpu, machine = time.perf_counter(), time.thread_time(), Others()
    for i, (name, probe) in enumerate(probes.items()):
        if i % BETWEEN == 0:
            for canary, run in canaries.items():
                out.canaries[canary].append(run())
        out.took[name] = probe()
    for canary, run in canaries.items():
        out.canaries[canary].append(run())
    out.share = (time.thread_time() - cpu) / (time.perf_counter() - wall)
    out.others, out.stolen = machine.share(), machine.share(("steal",), 0.0)
    return out


class Others:
    """How much of the cores that this process may use other programs use from here on."""

    def __init__(self):
        self._began, self._own = time.perf_counter(), time.process_time()
        self._cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
        self._before = self._times()

    def share(self, kinds: Sequence[str] = USED, own: float | None = None) -> float:
        """Of their time, 0 to 1: what was counted as any of `kinds`, less `own` (None: this process's time)."""
        wall = time.perf_counter() - self._began
        own = time.process_time() - self._own if own is None else own
        now, cores = self._times(), len(self._before)
        used = sum(getattr(t, n, 0.0) for t in now for n in kinds) - sum(
            getattr(t, n, 0.0) for t in self._before for n in kinds
        )
        return min(max(used - own, 0.0) / (wall * cores), 1.0)

    def _times(self) -> list:
        every = psutil.cpu_times(percpu=True)
        return every if self._cores is None or self._cores[-1] >= len(every) else [every[i] for i in self._cores]


def middle(times: Sequence[float]) -> float:
    """Mean without the fastest and the slowest fifth. A request takes as long as hundreds of probes and so sees the
    mean of what the machine does meanwhile, but a probe that was interrupted says nothing."""
    n = len(times) // 5
    return float(np.mean(np.sort(times)[n : len(times) - n]))


def _over(tries: list[Took]) -> Took:
    if isinstance(tries[0], dict):
        return {part: middle([t[part] for t in tries]) for part in tries[0]}
    return middle(tries)
