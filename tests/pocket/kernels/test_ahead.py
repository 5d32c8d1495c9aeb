"""Reading ahead: every line of what will be read is asked for once, nothing else is, and never too many at once."""

import ctypes as c
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.pocket import build

MOST = 96 << 10  # ahead.h


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    """walk(stretches [(from, end)], idle lines, bytes a turn) -> offsets asked for, longest lead"""
    variant = build.available_variants()[0]
    out = tmp_path_factory.mktemp("ahead") / "ahead.so"
    flags = [*build.COMMON, f"-DVARIANT_{variant.upper()}", *build.FLAGS[variant], f"-I{build.SOURCES}"]
    source = Path(__file__).with_name("ahead_driver.c")
    subprocess.run([*build.find_compiler(), *flags, str(source), "-lm", "-o", str(out)], check=True)
    library = c.CDLL(str(out))
    memory, whole = np.zeros(1 << 20, np.uint8), c.POINTER(c.c_int64)

    def run(stretches, idle, turn):
        ends = [np.array(x, np.int64) for x in zip(*stretches, strict=True)]
        to, most = np.zeros(1 << 16, np.int64), c.c_int64()
        pointers = [x.ctypes.data_as(whole) for x in (*ends, to)]
        base = c.c_void_p(memory.ctypes.data)
        count = library.walk(base, *pointers[:2], len(stretches), idle, turn, pointers[2], c.byref(most))
        return to[:count].tolist(), most.value

    return run


def lines(stretches):
    return [p for start, end in stretches for p in range(start, end, 64)]


stretches = st.lists(st.tuples(st.integers(0, 200), st.integers(1, 1300)), min_size=1, max_size=12).map(
    lambda pairs: [
        (64 * (sum(g + n for g, n in pairs[:i]) + g), 64 * (sum(g + n for g, n in pairs[:i]) + g + n))
        for i, (g, n) in enumerate(pairs)
    ]
)


@settings(deadline=None, max_examples=50)
@given(stretches, st.integers(0, 4000), st.sampled_from([272, 512, 1088, 6144]))
def test_every_line_once_and_no_other(walk, stretches, idle, turn):
    """Unless reading overtakes asking, which then skips: so with a lead."""
    asked, most = walk(stretches, idle, turn)
    assert len(set(asked)) == len(asked)
    assert set(asked) <= set(lines(stretches))
    assert most < MOST + 8 * 64
    if idle >= MOST // 64 and turn <= 512:
        assert sorted(asked) == lines(stretches)
    place = {p: i for i, (start, end) in enumerate(stretches) for p in range(start, end, 64)}
    assert [place[p] for p in asked] == sorted(place[p] for p in asked)


def test_idle_asking_stops_where_the_lead_is_full(walk):
    asked, most = walk([(0, 1 << 19)], 4000, 512)
    assert most == MOST and asked[: MOST // 64] == list(range(0, MOST, 64))
