import argparse
import json

import pytest

from benchmarks import common
from labkit.errors import BadInput, LabError


def test_missing_package_is_one_line_that_names_it():
    with pytest.raises(LabError) as error:
        common.need("no_such_module_at_all", "the-package")
    assert "pip install the-package" in str(error.value) and "\n" not in str(error.value)


def test_interleave_turns_the_order_round():
    calls = []
    arms = {name: lambda name=name: calls.append(name) or float(len(calls)) for name in "ab"}
    assert common.interleave(arms, 3) == {"a": [1.0, 4.0, 5.0], "b": [2.0, 3.0, 6.0]}
    assert calls == list("abbaab")


def test_ratio_is_the_median_of_paired_ratios():
    pair = common.Paired((1.0, 2.0, 4.0), (3.0, 4.0, 20.0))
    assert pair.ratios == (3.0, 2.0, 5.0)
    figures = pair.as_dict("s")
    assert figures["ratio_theirs_over_ours"] == 3.0
    assert (figures["ratio_low"], figures["ratio_high"]) == (2.0, 5.0)
    assert figures["ratio_of_best"] == 3.0


@pytest.mark.parametrize("ours, theirs", [((), ()), ((1.0,), (1.0, 2.0))])
def test_rounds_that_do_not_pair_are_refused(ours, theirs):
    with pytest.raises(BadInput):
        common.Paired(ours, theirs)


@pytest.mark.parametrize("error, code", [(BadInput("rounds", 0, "more"), 2), (LabError("it broke"), 1)])
def test_failures_are_one_line(error, code, capsys):
    def main(args):
        raise error

    assert common.run(main, argparse.ArgumentParser(), str, []) == code
    out, err = capsys.readouterr()
    assert out == "" and err == f"{error}\n"


def test_json_or_table(capsys):
    assert common.run(lambda args: {"x": 1.5}, argparse.ArgumentParser(), lambda r: f"x is {r['x']}", ["--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"x": 1.5}
    assert common.run(lambda args: {"x": 1.5}, argparse.ArgumentParser(), lambda r: f"x is {r['x']}", []) == 0
    assert capsys.readouterr().out == "x is 1.5\n"
