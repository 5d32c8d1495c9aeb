"""In which order passes are measured."""

from labkit.measure.plan import Block, alternate
from labkit.measure.results import Arm
from labkit.params import load_params


def block(name, repeats, first=0, start=None):
    params = load_params({"engine": {"engine": "pocket"}, "count": 2})
    return Block([Arm(name, "", params.engine, params)], repeats, first, start)


def test_loads_take_turns_pass_by_pass():
    blocks = [block("a", 3, first=2), block("b", 1), block("c", 2)]
    order = alternate(blocks)
    assert [(b.arms[0].name, b.first, b.repeats) for b in order] == [
        ("a", 2, 1),
        ("b", 0, 1),
        ("c", 0, 1),
        ("a", 3, 1),
        ("c", 1, 1),
        ("a", 4, 1),
    ]
    assert sum(b.requests for b in order) == sum(b.requests for b in blocks) and alternate([]) == []


def test_engines_that_run_alone_are_not_started_more_often():
    blocks = [block("a", 3, start=0), block("b", 3, start=0)]
    assert alternate(blocks) == blocks
