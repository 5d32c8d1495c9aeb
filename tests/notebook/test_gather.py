"""09: all rungs on one load lead, with what each gain is made of."""

import pytest
from conftest_panels import result

from labkit.measure.results import Arm, Result
from labkit.notebook import render
from labkit.notebook.gather import Gathered
from labkit.params import load_params

RUNGS = {"baseline": (2.4e-3, None), "kernels": (2.1e-3, None), "fp8-head": (1.9e-3, None), "mtp": (1.0e-3, 3.9)}


@pytest.fixture
def lab(model, tmp_path):
    """Records of a run: three rungs, then two of them again under another load, then all four of the first load."""
    params = load_params({"engine": {"engine": "pocket", "model": model}, "workload": "repetitive", "count": 2})
    arms = {a.name: a for a in params.ladder()}

    def record(names, start, scale=1.0, **load):
        own = params.replace(**load)
        out = {}
        for i, name in enumerate(names):
            time, accept = RUNGS[name]
            out[name] = result(Arm.of(arms[name], own), scale * time, accept=accept, start=start + 0.1 * i)
        return out

    gathered = Gathered(out_dir=str(tmp_path / "nothing"), live=False)
    gathered.records = [
        ("all", record(RUNGS, 1000.0)),
        ("other load", record(["fp8-head", "mtp"], 2000.0, workload="code")),
        ("later", record(["baseline", "kernels", "fp8-head"], 3000.0, scale=1.5)),
    ]
    gathered.ladders = [list(arms.values())] * 3
    return gathered


def test_all_rungs_of_one_record_lead(lab):
    found = lab.ladder()
    assert [name for name, _ in found] == list(RUNGS)
    assert all(r.used[0]["started_unix"] < 2000 for _, r in found)  # not mixed with the slower, later ones
    ladder, splits, _ = lab.figures()
    assert len(next(t for t in ladder.data if t.type == "waterfall").x) == 4
    assert all(f"{name} over baseline" in splits.layout.meta["alt"] for name in list(RUNGS)[1:])


def test_each_gain_in_two_factors(lab):
    first, results = lab.ladder()[0][1], dict(lab.ladder())
    splits = dict(lab.splits())
    for name, split in splits.items():
        gain = first.tpot.value / results[name].tpot.value
        assert split.fewer_bytes.value * split.more_bandwidth.value == pytest.approx(gain, rel=0.01), name
    assert splits["kernels"].fewer_bytes.value == pytest.approx(1.0)  # the same bytes, faster
    assert splits["mtp"].fewer_bytes.value > splits["fp8-head"].fewer_bytes.value > 1
    lines = {what: value for what, value, _ in lab.lines()}
    assert lines["ladder: mtp over baseline"].value == pytest.approx(2.4, rel=0.03)


def test_a_doubtful_number_says_so_and_an_arm_of_another_load_is_named(lab):
    lab.records = [lab.records[2], lab.records[1]]  # the ladder's load lacks mtp, which ran under another
    lines = {what: (value, remark) for what, value, remark in lab.lines()}
    assert lines["ladder: mtp"] == ("not measured under this load", "measured under code")
    assert not lab.cautions() and render.DOUBT not in lines["later: kernels"][1]
    slow = dict(lab.ladder())["kernels"]
    for row in slow.rows:
        row["tpot_s"] *= 1 + 0.2 * row["repeat"]
    lab.records[0][1]["kernels"] = Result(slow.arm, slow.rows)
    lines = {what: remark for what, _, remark in lab.lines()}
    assert any(c.startswith("kernels: ") for c in lab.cautions())
    assert all(render.DOUBT in lines[n] for n in ("later: kernels", "ladder: kernels over the arm before"))
    assert render.DOUBT not in lines["later: baseline"]
    page = lab.static("findings")[0][0]["text/html"]
    assert page.index("labkit-caution") < page.index("<table")


def test_an_unstable_ladder_gives_no_cause(lab):
    assert not any("No conclusion" in said for said in lab.candidates())
    for r in dict(lab.ladder()).values():
        for row in r.rows:
            row["tpot_s"] *= 1 + 0.5 * row["repeat"]
    lab.records = [(label, {n: Result(r.arm, r.rows) for n, r in found.items()}) for label, found in lab.records]
    (said,) = lab.candidates()
    assert "kernels" in said and "No conclusion" in said


def test_a_load_with_other_sampling_leads_no_ladder_and_says_what_it_is(lab):
    results = lab.records[0][1]
    params = {n: r.arm.params.replace(sampling={"temperature": 0.05}) for n, r in results.items()}
    cold = {
        n: Result(Arm.of(r.arm, params[n]), [{**row, "started_unix": 9e3} for row in r.rows])
        for n, r in results.items()
    }
    lab.records.append(("cold", cold))
    lab.ladders.append(lab.ladders[0])
    assert all(r.arm.load["sampling"] is None for _, r in lab.ladder())
    said = {what: remark for what, _, remark in lab.lines()}
    assert "temperature 0.05" in said["cold: mtp"] and "temperature" not in said["all: mtp"]


def test_a_summary_is_broken_between_words(lab):
    for said in (lab.static("findings"), [(render.mime("a  b"), {})]):
        assert all({"text/html", "text/plain"} <= set(data) for data, _ in said)


def test_without_a_record_both_figures_say_so(tmp_path):
    empty = Gathered(out_dir=str(tmp_path), live=False)
    assert empty.splits() == [] and len(empty.figures()) == 3
