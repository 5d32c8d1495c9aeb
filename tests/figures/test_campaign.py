"""The figure of a pass's time: every group once, nothing lost."""

import pandas as pd
import pytest

from benchmarks.h200.figures import pass_time


def test_bars_add_up_and_the_alt_text_tells_them():
    table = pd.DataFrame({"baseline": {"experts": 1.0, "KDA": 0.5}, "kernels": {"experts": 0.7, "KDA": 0.5}})
    figure = pass_time(table)
    assert [t.name for t in figure.data] == ["experts", "KDA"]
    assert sum(t.y[0] for t in figure.data) == pytest.approx(1.5)
    assert "baseline: experts 1.00 ms, KDA 0.50 ms" in figure.layout.meta["alt"]


def test_many_groups_stay_apart_without_colour():
    table = pd.DataFrame({"a": {f"g{i}": 1.0 for i in range(12)}})
    looks = {(t.marker.color, t.marker.pattern.shape) for t in pass_time(table).data}
    assert len(looks) == 12
