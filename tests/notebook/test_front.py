"""The widgets without a browser: what a click or a moved slider does to the panel."""

import json
import re
import subprocess
import sys
import time

import pytest
from conftest_panels import result

from labkit.measure.results import Result, results_of
from labkit.notebook import render
from labkit.notebook.experiments.baseline import Baseline
from labkit.notebook.experiments.kernels import Kernels
from labkit.notebook.experiments.long_context import LongContext
from labkit.notebook.experiments.mtp import Mtp
from labkit.notebook.experiments.real_load import RealLoad
from labkit.notebook.panel import Panel
from labkit.notebook.widgets.compare import NOTHING
from labkit.records import read_run


@pytest.fixture
def quick(parameters):
    return {**parameters, "engine": {"engine": "pocket"}, "output_tokens": 16, "count": 1, "repeats": 1}


def front_of(experiment, pool, *, skip=True):
    """A panel's widgets, by default past the guess."""
    front = Panel(experiment, engines=pool, live=True).front()
    if skip:
        front.guess.skip()
    return front


def finish(front):
    front.run._thread.join(240)
    assert not front.busy


def buttons(front):
    return [front.run_button, front.sweep_button, front.again_button, front.queue_button]


def shown(front):
    """Everything that a panel says in words."""
    return " ".join(
        w.value
        for w in (
            front.readout.predicted,
            front.readout.lines,
            front.readout.block,
            front.readout.forecast,
            front.readout.note,
        )
    )


def test_nothing_is_shown_or_started_before_the_guess_is_committed_or_skipped(quick, pool):
    front = front_of(Baseline(**quick), pool)
    front.run.start()
    finish(front)  # something is kept now
    front = front_of(Baseline(**quick), pool, skip=False)
    front.part("ask")
    assert all(b.disabled for b in buttons(front)) and front.overlay.box.layout.display == "none"
    assert "byte floor" not in shown(front) and "measured at" not in shown(front) and " ms" not in shown(front)
    assert all(not f["data"] for f in front.readout.board.figures)
    front.guess.number.value = -5
    front.guess.commit()
    assert 'role="alert"' in front.guess.state.value and "-5" in front.guess.state.value and front.panel.veiled
    front.guess.number.value = 3.0
    front.guess.commit()
    assert (
        not any(b.disabled for b in buttons(front))
        and front.guess.number.disabled
        and front.guess.commit_button.disabled
    )
    assert (
        "byte floor" in front.readout.predicted.value
        and "3 ms" in front.readout.predicted.value
        and "● measured" in front.readout.lines.value
    )
    assert any("guess" in t["name"] for t in front.readout.board.figures[0]["data"])
    front.guess.number.value = 7.0  # too late
    front.guess.commit()
    assert front.panel.guess == 3.0 and "3 ms" in front.readout.predicted.value
    front.controls["output_tokens"].value = 32  # a guess is scored at its own settings alone
    assert front.panel.guess is None and "not scored" in front.readout.predicted.value
    assert not any("guess" in t["name"] for t in front.readout.board.figures[0]["data"])


def test_a_skipped_guess_is_never_scored(quick, pool):
    front = front_of(Baseline(**{**quick, "guess": 500.0}), pool, skip=False)
    front.part("ask")
    assert front.guess.number.value == 500.0  # the parameters cell's, not committed
    front.guess.skip()
    front.run.start()
    finish(front)
    assert "your guess" not in shown(front) and front.panel.experiment.parameters()["guess"] is None
    assert not any("guess" in t["name"] for f in front.readout.board.figures for t in f["data"] if "name" in t)


def test_other_settings_are_drawn_hollow_with_their_time_and_take_no_part(quick, pool):
    front = front_of(Mtp(**quick, steps=1, longest=1), pool)
    front.run.start()
    finish(front)
    front.controls["steps"].value = 2
    front.run.start()
    finish(front)
    drawn = front.readout.board.figures[0]
    (hollow,) = [t for t in drawn["data"] if "not compared" in t["name"]]
    assert hollow["marker"]["symbol"] == "circle-open" and len(hollow["x"]) == 1
    assert any("mtp 1/1/2" in t and re.search(r"at \d\d:\d\d", t) for t in drawn["layout"]["xaxis"]["ticktext"])
    compared = front.readout.lines.value.split("Measured earlier")[0]
    assert "mtp 2/1/3" in compared and "mtp 1/1/2" not in compared and "mtp 1/1/2" not in front.readout.block.value


def test_a_run_whose_requests_are_all_refused_fails_in_red_and_in_the_record(quick, pool, monkeypatch):
    from labkit.measure import client

    monkeypatch.setattr(client, "flush", lambda *a, **k: 400)  # as while another request runs
    front = front_of(Baseline(**{**quick, "repeats": 5}), pool)
    front.run.start()
    finish(front)
    assert 'role="alert"' in front.alert.value and "refused" in front.alert.value and "failed" in front.run.doing.value
    assert "done" not in front.run.doing.value and "● measured" not in front.readout.lines.value
    assert read_run(front.panel.record).meta["status"] == "failed"


def test_unstable_results_are_warned_of_first_and_no_cause_is_said(parameters, pool):
    panel = Panel(Kernels(**parameters), engines=pool, live=False)
    before, after = panel.arms()
    slow, fast = result(before, 30e-3), result(after, 20e-3)
    panel.runner.results = {before.name: slow, after.name: fast}
    assert any("times as fast" in s for s in panel.verdict()) and render.DOUBT not in panel.found()
    for row in fast.rows:
        row["tpot_s"] *= 1 + 0.1 * row["repeat"]
    panel.runner.results = {before.name: slow, after.name: Result(after, fast.rows)}
    assert after.name in panel.verdict()[0] and before.name not in panel.verdict()[0]
    said, page = panel.verdict(), panel.found()
    assert len(said) == 1 and "times as fast" not in page
    assert page.index("labkit-caution") < page.index("<table")
    marked = {line[0]: render.DOUBT in line[2] for line in panel.lines()}
    assert marked[f"TPOT, {after.name}"] and marked[f"speed-up of {after.name}"]
    assert not marked[f"TPOT, {before.name}"]


def test_a_disturbed_machine_makes_times_doubtful_and_no_count(parameters, pool):
    panel = Panel(Mtp(**parameters), engines=pool, live=False)
    plain, drafting = panel.arms()
    found = {plain.name: result(plain, 20e-3), drafting.name: result(drafting, 10e-3, accept=3.0)}
    for row in found[drafting.name].rows:
        row["tpot_s"] *= 1 + 0.2 * row["repeat"]
    panel.runner.results = {n: Result(r.arm, r.rows) for n, r in found.items()}
    marked = {what: render.DOUBT in remark for what, _, remark in panel.lines()}
    name = drafting.name
    assert not marked[f"a, {name}"] and all(marked[f"{what}, {name}"] for what in ("TPOT", "c", "speed-up"))
    for row in panel.results[name].rows:
        row["output_tokens"] += row["index"]  # of another length than asked for: the count itself is in doubt
    panel.runner.results[name] = Result(drafting, panel.results[name].rows)
    assert next(render.DOUBT in remark for what, _, remark in panel.lines() if what == f"a, {name}")


def test_one_unit_in_a_column_of_times():
    from labkit.evidence import measured

    assert [render.value(measured(v, "s", "here")) for v in (1.2334e-3, 777.3e-6)] == ["1.233 ms", "0.7773 ms"]


def test_sliders_have_tooltips_ranges_and_say_what_a_move_costs(quick, pool):
    front = front_of(Mtp(**quick, steps=3, topk=1, draft_tokens=4, longest=2), pool)
    assert all(c.tooltip for c in front.controls.values())
    assert "restarts the engine" in front.controls["steps"].tooltip
    menu = front.controls["workload"]  # ipywidgets drops a menu's tooltip
    assert menu.description_allow_html and 'title="What the engine is asked' in menu.description
    front.controls["steps"].value = 5
    assert front.panel.experiment.values["steps"] == 5 and "mtp 5/1/6" in front.readout.note.value
    assert "Sweep" in front.readout.forecast.value
    # The rule of chains is said where it overrides a slider.
    assert "6 draft tokens are verified" in front.readout.note.value
    front.controls["draft_tokens"].value = 6
    assert "are verified" not in front.readout.note.value
    front.controls["topk"].value, front.controls["steps"].value, front.controls["draft_tokens"].value = 2, 1, 9
    assert "3 draft tokens are verified" in front.readout.note.value and "mtp 1/2/3" in front.readout.note.value


def test_queued_settings_run_before_the_present_ones_and_all_are_kept(quick, pool):
    front = front_of(Baseline(**quick), pool)
    front._enqueue()
    assert "output tokens 16" in front.queue.items[0][0]
    front.controls["output_tokens"].value = 32
    queue, run = front.readout.forecast.value.split("<br>")  # both say how long they will take
    assert "Queue: about" in queue and "for 1 request (" in queue and "Run: about" in run
    front.run.start()
    finish(front)
    assert front.run.doing.value.count("done in") == 1 and front.queue.items == []
    assert front.panel.results["baseline"].arm.params.output_tokens == 32
    assert front.run.doing.value  # of these settings
    front.controls["output_tokens"].value = 48
    assert front.run.doing.value == ""  # that run was of other settings
    assert "1 request" in front.readout.forecast.value
    front.controls["output_tokens"].value = 16  # going back shows the kept result at once, with its time
    assert front.panel.results["baseline"].arm.params.output_tokens == 16
    assert "measured at" in front.readout.note.value and "measured already" in front.readout.forecast.value
    assert (
        "Measure again: about" in front.readout.forecast.value
        and "from earlier measurements" in front.readout.forecast.value
    )
    assert "● measured" in front.readout.lines.value


def test_the_strip_starts_and_stops_the_engine_and_shows_it(quick, own_pool):
    front = front_of(Baseline(**quick), own_pool)
    assert "no engine runs" in front.strip.state.value
    front.panel.runner.pool.ensure([front.panel.arms()[0].config], front.panel.out_dir / "engine")
    front.strip.refresh()
    assert "running: baseline at http" in front.strip.state.value and "kernel_variant" in front.strip.config_view.value
    assert "pocket engine ready" in front.strip.log_view.value
    # A long line beside the buttons leaves their words whole.
    assert front.strip.stop_button.layout.flex == "0 0 auto"
    front.strip._stop()
    assert "no engine runs" in front.strip.state.value and not own_pool.running()


def test_a_failure_is_shown_and_the_buttons_come_back(quick, pool):
    front = front_of(Baseline(**{**quick, "engine": {"engine": "pocket", "extra_args": ["--no-such-flag"]}}), pool)
    front.run.start()
    finish(front)
    assert 'role="alert"' in front.alert.value and not front.run_button.disabled and front.cancel_button.disabled


def test_an_engine_of_several_loads_is_called_by_what_its_arms_share(quick, own_pool):
    for e, name in (
        (LongContext(**{**quick, "workload": "synthetic", "max_context": 2048}), "plain"),
        (RealLoad(**{k: v for k, v in quick.items() if k != "output_tokens"}, questions=0), "baseline"),
    ):
        front = front_of(e, own_pool)
        own_pool.ensure([front.panel.arms()[0].config], front.panel.out_dir / "engine")
        front.strip.refresh()
        assert f"running: {name} at http" in front.strip.state.value
        front.strip._stop()


def test_the_note_names_each_engine_that_has_to_start_once(quick, own_pool):
    e = LongContext(**{**quick, "workload": "synthetic", "max_context": 2048})
    front = front_of(e, own_pool)
    assert len(e.arms()) == 4
    assert "start the engine for: plain at 1K, mtp at 1K." in front.readout.note.value


def test_a_run_says_what_it_found_and_the_block_of_text_follows(quick, pool):
    front = front_of(Baseline(**quick), pool)
    front.part("summary")
    assert "press Run" in front.readout.block.value and front.run.bar.layout.display == "none"
    front.run.start()
    finish(front)
    assert "TPOT baseline" in front.run.doing.value and "[" not in front.run.doing.value  # one repeat gives no interval
    assert "● measured" in front.readout.block.value and "record: " in front.readout.block.value
    assert "running: baseline" in front.strip.state.value
    # Only buttons that would do something.
    assert front.strip.start_button.disabled and not front.strip.stop_button.disabled
    front.run.start()
    finish(front)
    assert "measured already" in front.run.doing.value and "done in" not in front.run.doing.value
    front.strip._stop()
    assert not front.strip.start_button.disabled and front.strip.stop_button.disabled


def test_the_end_is_said_when_everything_it_points_to_is_there(quick, pool):
    front = front_of(Baseline(**quick), pool)
    front.part("summary")
    seen = []

    def look(change):
        if "done in" in change["new"]:
            drawn = [t["name"] for t in front.readout.board.figures[0]["data"]]
            seen.append((front.readout.lines.value, front.readout.block.value, front.strip.state.value, drawn))

    front.run.doing.observe(look, "value")
    front.run.start()
    finish(front)
    ((table, block, strip, drawn),) = seen
    assert "● measured" in table and "● measured" in block and "running: baseline" in strip
    assert any("measured" in name for name in drawn)


def test_doubts_stand_apart_from_findings(quick, pool):
    front = front_of(Baseline(**quick), pool)
    front.run.start()
    finish(front)
    doubts = front.panel.experiment.warnings(front.panel.results)
    assert (
        doubts
        and doubts[0].split(": ")[-1][:12] in front.readout.lines.value.split("labkit-caution'>")[1].split("<table")[0]
    )


def test_settings_moved_during_a_run_wait_for_its_end_and_then_show_what_is_kept_of_them(quick, pool):
    front = front_of(Baseline(**quick), pool)
    front.run.start()
    finish(front)  # 16 tokens are kept
    front.controls["output_tokens"].value = 32
    measure, moved = front.run._measure, []

    def and_move(**how):
        measure(**how)
        front.controls["output_tokens"].value = 16  # the run is not over yet: its last second, as a hand may catch it
        moved.append((front.panel.experiment.values["output_tokens"], front.readout.note.value))

    front.run._measure = and_move
    front.run.start()
    finish(front)
    (during, said) = moved[0]
    assert during == 32 and "current run" in said
    assert front.panel.experiment.values["output_tokens"] == 16
    assert (
        front.panel.results["baseline"].arm.params.output_tokens == 16
        and "Stored results shown" in front.readout.note.value
    )
    assert {r["output_tokens"] for r in front.panel.results["baseline"].used} == {16}
    assert not front.run_button.disabled and not front.save_button.disabled


def test_no_setting_is_forgotten_and_each_can_be_named_and_taken_away(quick, pool):
    import pandas as pd

    from labkit.params import load_params

    front = front_of(Mtp(**{**quick, "repeats": 3}, steps=1, longest=1), pool)
    assert front.explored.tools.layout.display == "none" and "Tick" not in front.explored.note.value  # nothing to tick
    for steps, load in ((1, "word-problems"), (2, "word-problems"), (2, "repetitive")):
        front.controls["steps"].value, front.controls["workload"].value = steps, load
        front.run.start()
        finish(front)
    again = front_of(Mtp(**quick, steps=1, longest=1), pool)  # as on reopening
    table = again.explored
    assert table.tools.layout.display == ""
    seen = [(e.result.name, e.result.arm.load["workload"]) for e in table.settings]
    drafting = {("mtp 1/1/2", "word-problems"), ("mtp 2/1/3", "word-problems"), ("mtp 2/1/3", "repetitive")}
    assert len(seen) == 5 and drafting < set(seen)  # and plain under either load
    for e in table.settings:
        if e.cost is not None:
            assert e.speedup.value == pytest.approx(e.result.accept.value / e.cost.value)
            assert e.base.name == "plain" and e.base.arm.load == e.result.arm.load
    at = next(i for i, e in enumerate(table.settings) if e.result.name == "mtp 1/1/2")
    sent = json.loads(table.table._dt_args["data_json"])  # numbers, by which the page sorts, and nothing for none
    table.refresh()
    assert json.loads(table.table._dt_args["data_json"]) == sent
    assert {type(v) for row in sent for v in row} == {str, int, float, type(None)}
    assert not any(isinstance(v, str) and "NA" in v for row in sent for v in row)
    assert len(table.board.figures) == 3  # the plane, a heat map where a load has two cells, parallel coordinates
    table.table.selected_rows = [at]
    assert len(table.board.figures) == 1
    table.name.value = "the short one"
    table._named()
    assert table.settings[at].name == "the short one" and table.ticked == [table.settings[at]]
    table._table()
    (csv,) = front.panel.out_dir.glob("settings-*.csv")
    frame = pd.read_csv(csv)
    assert list(frame["name"]) == ["the short one"] and frame["steps"][0] == 1
    table._params()
    (saved,) = front.panel.out_dir.glob("setting-*.yaml")
    reference, mine = load_params(saved).ladder()
    assert mine.config.digest() == table.settings[at].result.arm.config.digest() and mine.before == "reference"
    assert reference.config.digest() == table.settings[at].base.arm.config.digest()
    assert load_params(saved).load() == table.settings[at].result.arm.load


def test_a_queue_has_an_order_and_a_way_out_and_the_sliders_show_what_runs(quick, pool):
    front = front_of(Baseline(**quick), pool)
    for tokens in (16, 32, 48):
        front.controls["output_tokens"].value = tokens
        front._enqueue()
    front.queue.move(2, -1)
    front.queue.remove(0)
    assert [v["output_tokens"] for _, v in front.queue.items] == [48, 32]
    assert len(front.queue.box.children) == 3 and front.queue.box.children[1].children[0].disabled
    front.controls["output_tokens"].value = 64
    ran, measure = [], front.run._measure

    def note(**how):
        ran.append((front.controls["output_tokens"].value, front.panel.experiment.values["output_tokens"]))
        measure(**how)

    front.run._measure = note
    front.run.start()
    finish(front)
    assert ran == [(48, 48), (32, 32), (64, 64)] and front.queue.items == []


def test_notes_of_what_run_would_do_end_with_its_start(quick, own_pool, tmp_path):
    front = front_of(Baseline(**quick), own_pool)
    assert "start the engine" in front.readout.note.value and "Run: " in front.readout.forecast.value
    seen, measure = [], front.run._measure

    def look(**how):
        measure(**how)
        seen.append((front.readout.note.value, front.readout.forecast.value))

    front.run._measure = look
    front.run.start()
    finish(front)
    assert seen == [("", "")]
    assert "start the engine" not in front.readout.note.value  # it runs now
    front.strip.stop_button.click()
    front.controls["output_tokens"].value = 32
    assert "start the engine" in front.readout.note.value
    front.strip.start_button.click()
    until(lambda: "start the engine" not in front.readout.note.value)


def until(true, limit_s=120.0):
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_owners_note_goes_when_its_engines_go(quick, own_pool):
    """Another process owns an engine and lets it go, tidily or by being killed: the panel follows without a press."""
    code = (
        "import sys, time; from labkit.engines import owner; owner.acquire();"
        "owner.publish([{'url': 'http://127.0.0.1:9', 'pid': 0}]); print('up', flush=True); sys.stdin.readline();"
        "owner.release(); print('gone', flush=True); time.sleep(100)"
    )
    front = front_of(Baseline(**quick), own_pool)
    for tidily in (True, False):
        other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert other.stdout.readline() == "up\n"
            until(lambda: "http://127.0.0.1:9" in front.strip.state.value)
            if tidily:
                other.stdin.write("\n")
                other.stdin.flush()
            else:
                other.kill()
                other.wait(60)
            until(lambda: "no engine runs" in front.strip.state.value)
        finally:
            other.kill()
            other.wait(60)


def test_an_export_shows_that_it_works_and_then_where_the_file_is(quick, pool, tmp_path, monkeypatch):
    from labkit.notebook.widgets import export

    front, seen, path = front_of(Baseline(**quick), pool), [], tmp_path / "report.html"

    def slow(panel):
        seen.append((front.report_button.icon, front.report_button.disabled))
        path.write_text("report")
        return path

    monkeypatch.setattr(export, "export_report", slow)
    front.report_button.click()
    assert seen == [("spinner", True)] and not front.report_button.disabled and front.report_button.icon != "spinner"
    assert front.saved.path == str(path)


def test_the_overlay_names_what_it_offers_and_leaves_out_what_lies_on_itself(quick, pool):
    front = front_of(Baseline(**quick), pool)
    front.run.start()
    finish(front)
    first = front.panel.record
    assert len(front.overlay.menu.options) == 1  # the one that is shown already
    front.panel.writer().finish(status="failed")  # a run of which nothing is left
    front.run.start(again=True)
    finish(front)
    (_, none), (label, name) = front.overlay.menu.options
    assert (none, name) == (NOTHING, first.name)
    tpot = results_of(first)["baseline"].tpot.to("ms").value
    assert f"baseline {tpot:.3g} ms" in label and "word-problems" in label and re.search(r"\d\d:\d\d:\d\d", label)
    front.overlay.menu.value = name
    assert len(front.overlay.shown.children) == 2


def test_what_is_saved_beside_the_widgets_follows_a_run(quick, pool, monkeypatch):
    front = front_of(Baseline(**quick), pool)
    updated = {}

    class Handle:
        def __init__(self, which):
            self.which = which

        def update(self, data, **_):
            updated.setdefault(self.which, []).append(data)

    import IPython.display

    monkeypatch.setattr(IPython.display, "display", lambda *a, **k: Handle(a[0].get("text/plain", "")[:20]))
    places = {}
    for which in ("predict", "run", "findings", "summary"):
        front.kept.place(which)
        front.kept._handles[which] = [Handle(which) for _ in front.kept._handles[which]]
        places[which] = len(front.kept._handles[which])
    assert places["run"] == len(front.panel.figures()) + 1  # and the table of settings
    front.run.start()
    finish(front)
    assert "● measured" in updated["findings"][-1]["text/html"] and "● measured" in updated["summary"][-1]["text/plain"]
    assert sum("image/png" in d for d in updated["run"]) == len(front.panel.figures())
    assert "<td>baseline</td>" in next(d["text/html"] for d in updated["run"] if "text/html" in d)
    assert all("application/vnd.plotly.v1+json" not in d for d in updated["run"])


def test_the_engine_s_own_fields_are_knobs_and_a_wrong_one_changes_nothing(quick, pool):
    front = front_of(Mtp(**quick, steps=1, longest=1), pool)
    assert "threads" in front.knobs.fields and "speculative" not in front.knobs.fields
    front.knobs.fields["threads"].value = "2"
    front.knobs.env.value = "LABKIT_TEST=1"
    front.knobs.use.click()
    assert front.alert.value == ""
    assert all(a.config.threads == 2 and a.config.env == {"LABKIT_TEST": "1"} for a in front.panel.arms())
    assert [a.name for a in front.panel.arms()] == ["plain", "mtp 1/1/2"]
    before = front.panel.experiment
    front.knobs.fields["threads"].value = "banana"
    front.knobs.use.click()
    assert 'role="alert"' in front.alert.value and "banana" in front.alert.value
    assert front.panel.experiment is before


def test_own_prompts_are_a_load_like_any_other(quick, pool):
    front = front_of(Baseline(**quick), pool)
    front.prompts.text.value = "Count to ten.\n---\nName five rivers."
    front.prompts.box.children[1].click()
    load = front.controls["workload"].value
    assert load.startswith("file:") and front.panel.arms()[0].params.workload == load
    front.run.start()
    finish(front)
    assert front.alert.value == "" and front.panel.results["baseline"].used
    assert front.panel.results["baseline"].arm.load["workload"] == load


def test_a_notebook_hands_its_engines_over_when_asked_and_not_while_it_measures(quick, own_pool, tmp_path):
    import subprocess
    import sys

    front = front_of(Baseline(**quick), own_pool)
    front.panel.runner.pool.ensure([front.panel.arms()[0].config], front.panel.out_dir / "engine")
    code = "from labkit.notebook.widgets import handover; handover.ask(LIMIT)"
    ask = [sys.executable, "-c"]
    front.run.busy = True
    refused = subprocess.run([*ask, code.replace("LIMIT", "3")], capture_output=True, text=True, timeout=60)
    assert refused.returncode != 0 and "did not hand over" in refused.stderr and own_pool.running()
    front.run.busy = False
    asked = subprocess.run([*ask, code.replace("LIMIT", "30")], capture_output=True, text=True, timeout=60)
    assert asked.returncode == 0, asked.stderr
    assert not own_pool.running() and "took over" in front.strip.state.value


def test_an_error_below_a_cell_is_one_line():
    from IPython.core.interactiveshell import InteractiveShell

    from labkit.errors import BadInput

    shell, seen = InteractiveShell(), []
    shell._showtraceback = lambda kind, error, lines: seen.append(lines)
    shell.push({"BadInput": BadInput})
    assert not shell.run_cell("raise BadInput('topk', 9, 'a number from 1 to 8')").success
    (lines,) = seen
    assert len(lines) == 1 and "topk: got 9; accepted: a number from 1 to 8" in lines[0]


def test_a_server_that_runs_already_is_a_field_of_the_engine_menu(quick, pool):
    front = front_of(Baseline(**quick), pool)
    before, knobs = front.panel.experiment, front.knobs
    assert "url" not in knobs.fields
    knobs.kind.value = "attach"
    assert {"url", "api_key_env", "model"} == set(knobs.fields) and knobs.fields["url"].value == ""
    for url in ("", "ftp://here", "localhost", "http://user:secret@127.0.0.1:1"):
        knobs.fields["url"].value = url
        knobs.use.click()
        assert 'role="alert"' in front.alert.value and "url" in front.alert.value and "secret" not in front.alert.value
        assert front.panel.experiment is before and "\n" not in front.alert.value.strip()
        front.alert.value = ""
    knobs.fields["url"].value = "http://127.0.0.1:9"
    knobs.use.click()
    assert front.alert.value == ""
    config = front.panel.arms()[0].config
    assert (config.engine, config.url) == ("attach", "http://127.0.0.1:9")
    front.run.start()
    finish(front)
    assert 'role="alert"' in front.alert.value and "127.0.0.1:9" in front.alert.value  # nobody answers there
    knobs.kind.value = "pocket"
    knobs.use.click()
    assert front.panel.arms()[0].config.engine == "pocket" and "url" not in knobs.fields


def test_a_click_brings_the_settings_that_the_page_had(quick, pool):
    front = front_of(Mtp(**quick, steps=1, topk=1, draft_tokens=2, longest=2), pool)
    started = []
    front.run.start = lambda **how: started.append((dict(front.panel.experiment.values), how))
    settings = {front.controls["steps"].model_id: 4, front.controls["workload"].model_id: 4}
    front.again_button._told(None, {"event": "click", "settings": settings}, None)
    ((values, how),) = started
    assert how == {"again": True} and values["steps"] == 4
    assert values["workload"] == front.controls["workload"].options[4] == front.controls["workload"].value
    assert "mtp 4/1/5" in front.readout.note.value
    # Half a number, a control that is not carried, another message: nothing moves and nothing breaks.
    odd = {front.controls["steps"].model_id: "x", "another": 3, front.controls["topk"].model_id: None}
    front.run_button._told(None, {"event": "click", "settings": odd}, None)
    front.run_button._told(None, {"event": "other"}, None)
    assert len(started) == 2 and started[1][0] == values
    front.run_button.click()
    assert len(started) == 3


def test_the_text_that_is_written_is_shown_escaped_and_bounded_and_goes_at_the_end(quick, pool):
    import json

    from labkit.measure.answer import Answer
    from labkit.notebook.widgets import ticker

    shown = front_of(Baseline(**quick), pool).run.ticker
    answer = Answer(0.0)
    assert shown._writing() == ""
    shown.watch("plain <b>", answer)
    assert shown._writing() == ""
    for n in range(1, 40):
        text = "<script>alert(1)</script> & " * n
        meta = {"completion_tokens": n}
        answer.take(0.1 * n, None, json.dumps({"text": text, "output_ids": list(range(n)), "meta_info": meta}).encode())
    said = shown._writing()
    assert "<script" not in said and "&lt;script&gt;" in said and "plain &lt;b&gt;" in said
    assert len(said) < 10 * ticker.TEXT
    assert shown._rate() == "10 tok/s"
    shown.text.value = said
    shown.stop()
    assert shown.text.value == ""


def test_the_answer_that_streams_reaches_the_page(quick, pool):
    front = front_of(Baseline(**{**quick, "output_tokens": 64}), pool)
    seen, watch = [], front.panel.runner.watch

    def look(arm, answer):
        seen.append((arm, answer, len(answer.result.chunk_times)))
        watch(arm, answer)

    front.panel.runner.watch = look
    front.run.start()
    finish(front)
    ((arm, answer, events),) = seen  # once a measured request, before its first event
    assert arm == "baseline" and events == 0 and answer.so_far(50)
