"""What has to be measured: arms into blocks that alternate, or into turns where one engine fills the machine."""

import json
import math
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from labkit.measure import estimates
from labkit.measure.pool import SIDE_BY_SIDE
from labkit.measure.results import Arm


@dataclass
class Block:
    """Arms of one load that alternate, in `repeats` passes from number `first` on. start: which visit to an engine that
    runs alone, None where engines run side by side."""

    arms: list[Arm]
    repeats: int
    first: int = 0
    start: int | None = None

    @property
    def requests(self) -> int:
        return len(self.arms) * self.repeats * self.arms[0].params.count

    def left(self, done: Container[tuple[str, int, int]]) -> list[Arm]:
        """The arm of each request that has yet to be asked."""
        passes = range(self.first, self.first + self.repeats)
        prompts = range(self.arms[0].params.count)
        return [a for a in self.arms for r in passes for i in prompts if (a.name, r, i) not in done]


def comparisons(arms: Sequence[Arm]) -> list[list[Arm]]:
    """Arms that are measured together: those of one load, and of many the first one (the reference) with a few each."""
    by_load: dict[str, list[Arm]] = {}
    for arm in arms:
        by_load.setdefault(json.dumps(arm.load, sort_keys=True), []).append(arm)
    out = []
    for group in by_load.values():
        if len(group) <= SIDE_BY_SIDE:
            out.append(group)
        else:
            size = SIDE_BY_SIDE - 1
            out += [[group[0], *group[i : i + size]] for i in range(1, len(group), size)]
    return out


def shared(rows: Mapping[str, Sequence[dict]], count: int) -> set[tuple[str, int]]:
    """Passes that all arms have with all of their requests: one that a crash or a cancel cut short does not count, and
    neither does one of a time when sessions had no name."""
    whole = []
    for mine in rows.values():
        sizes = Counter(estimates.pass_of(r) for r in mine if r["repeat"] >= 0 and r.get("session"))
        whole.append({p for p, size in sizes.items() if size >= count})
    return set.intersection(*whole) if whole else set()


def in_turns(blocks: Sequence[Block]) -> list[Block]:
    """One engine at a time: through all configurations and back again with half of the passes each, so that a drift of
    the machine hits first and last alike. An engine is visited with all of its loads before the next one starts."""
    visits: dict[str, list[Block]] = {}
    for block in blocks:
        for arm in block.arms:
            visits.setdefault(arm.config.digest(), []).append(Block([arm], block.repeats, block.first))
    there, back = [], []
    for mine in visits.values():
        for b in mine:
            half = math.ceil(b.repeats / 2)
            there.append(Block(b.arms, half, b.first, 0))
            if b.repeats > half:
                back.append(Block(b.arms, b.repeats - half, b.first + half, 1))
    return there + back[::-1]


def alternate(blocks: Sequence[Block]) -> list[Block]:
    """Pass 1 of every load, pass 2 of every load, ...: where loads are compared with each other, a drift of the machine
    then hits all of them alike. Blocks of engines that run one at a time stay as they are: each visit is a start."""
    if any(b.start is not None for b in blocks):
        return list(blocks)
    return [
        Block(b.arms, 1, b.first + i)
        for i in range(max((b.repeats for b in blocks), default=0))
        for b in blocks
        if i < b.repeats
    ]
