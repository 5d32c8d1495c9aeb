"""The widgets without a browser: what a click or a moved slider does to the panel."""

import pytest

from labkit.engines import owner as ownership
from labkit.measure.pool import Pool
from labkit.notebook.experiments.baseline import Baseline
from labkit.notebook.experiments.long_context import LongContext
from labkit.notebook.experiments.mtp import Mtp
from labkit.notebook.panel import Panel


@pytest.fixture
def pool(tmp_path, monkeypatch):
    ownership.release()
    monkeypatch.setenv("LABKIT_RUNTIME_DIR", str(tmp_path / "lock"))
    made = Pool()
    yield made
    made.stop()
    ownership.release()


@pytest.fixture
def quick(parameters):
    return {**parameters, "engine": {"engine": "pocket"}, "output_tokens": 16, "count": 1, "repeats": 1}


def front_of(experiment, pool):
    return Panel(experiment, engines=pool, live=True).front()


def finish(front):
    front._thread.join(240)
    assert not front.busy


def test_the_prediction_waits_for_the_guess(quick, pool):
    front = front_of(Baseline(**quick), pool)
    front.part("ask")
    assert "once your guess is committed" in front.predicted.value and "byte floor" not in front.predicted.value
    front.guess.value = 3.0
    front._commit()
    assert "byte floor" in front.predicted.value and "3 ms" in front.predicted.value
    assert any("guess" in t["name"] for t in front.board.figures[0]["data"])


def test_sliders_have_tooltips_ranges_and_say_what_a_move_costs(quick, pool):
    front = front_of(Mtp(**quick, steps=3, topk=1, draft_tokens=4, longest=2), pool)
    assert all(c.tooltip for c in front.controls.values())
    assert "restarts the engine" in front.controls["steps"].tooltip
    menu = front.controls["workload"]  # ipywidgets drops a menu's tooltip
    assert menu.description_allow_html and 'title="What the engine is asked' in menu.description
    front.controls["steps"].value = 5
    assert front.panel.experiment.values["steps"] == 5 and "mtp 5/1/6" in front.note.value
    assert "Sweep" in front.forecast.value
    # The rule of chains is said where it overrides a slider.
    assert "6 draft tokens are verified" in front.note.value
    front.controls["draft_tokens"].value = 6
    assert "are verified" not in front.note.value
    front.controls["topk"].value, front.controls["steps"].value, front.controls["draft_tokens"].value = 2, 1, 9
    assert "3 draft tokens are verified" in front.note.value and "mtp 1/2/3" in front.note.value


def test_queued_settings_run_before_the_present_ones_and_all_are_kept(quick, pool):
    front = front_of(Baseline(**quick), pool)
    front._enqueue()
    front.controls["output_tokens"].value = 32
    queue, run = front.forecast.value.split("<br>")  # both say how long they will take
    assert "Queue: about" in queue and "for 1 request (" in queue and "Run: about" in run
    assert "output tokens 16" in front.queued.value
    front._start()
    finish(front)
    assert front.doing.value.count("done in") == 1 and front.queued.value == ""
    assert front.panel.results["baseline"].arm.params.output_tokens == 32
    assert front.doing.value  # of these settings
    front.controls["output_tokens"].value = 48
    assert front.doing.value == "" and "1 request" in front.forecast.value  # nothing is said of other settings' run
    front.controls["output_tokens"].value = 16  # going back shows the kept result at once, with its age
    assert front.panel.results["baseline"].arm.params.output_tokens == 16
    assert "measured just now" in front.note.value and "measured already" in front.forecast.value
    assert "Measure again: about" in front.forecast.value and "from earlier measurements" in front.forecast.value
    assert "● measured" in front.lines.value


def test_the_strip_starts_and_stops_the_engine_and_shows_it(quick, pool):
    front = front_of(Baseline(**quick), pool)
    assert "no engine runs" in front.strip.state.value
    front.panel.runner.pool.ensure([front.panel.arms()[0].config], front.panel.out_dir / "engine")
    front.strip.refresh()
    assert "running: baseline at http" in front.strip.state.value and "kernel_variant" in front.strip.config_view.value
    assert "pocket engine ready" in front.strip.log_view.value
    # A long line beside the buttons leaves their words whole.
    assert front.strip.stop_button.layout.flex == "0 0 auto"
    front.strip._stop()
    assert "no engine runs" in front.strip.state.value and not pool.running()


def test_a_failure_is_shown_and_the_buttons_come_back(quick, pool):
    front = front_of(Baseline(**{**quick, "engine": {"engine": "pocket", "extra_args": ["--no-such-flag"]}}), pool)
    front._start()
    finish(front)
    assert 'role="alert"' in front.alert.value and not front.run_button.disabled and front.cancel_button.disabled


def test_the_note_names_each_engine_that_has_to_start_once(quick, pool):
    e = LongContext(**{**quick, "workload": "synthetic", "max_context": 2048})
    front = front_of(e, pool)
    assert len(e.arms()) == 4
    assert "start the engine for: plain at 1K, mtp at 1K." in front.note.value


def test_no_figure_gives_the_prediction_away_before_the_guess(quick, pool):
    front = front_of(Baseline(**quick), pool)
    front.part("ask")
    drawn = front.board.figures
    assert drawn and all(not f["data"] and "Commit your guess" in f["layout"]["meta"]["alt"] for f in drawn)
    front.guess.value = 3.0
    front._commit()
    assert any("byte floor" in t["name"] for t in front.board.figures[0]["data"])


def test_a_run_says_what_it_found_and_the_block_of_text_follows(quick, pool):
    front = front_of(Baseline(**quick), pool)
    assert "press Run" in front.part("summary").value and front.bar.layout.display == "none"
    front._start()
    finish(front)
    assert "TPOT baseline" in front.doing.value and "[" not in front.doing.value  # one repeat gives no interval
    assert "● measured" in front.block.value and "record: " in front.block.value
    assert "running: baseline" in front.strip.state.value
    # Only buttons that would do something.
    assert front.strip.start_button.disabled and not front.strip.stop_button.disabled
    front._start()
    finish(front)
    assert "measured already" in front.doing.value and "done in" not in front.doing.value
    front.strip._stop()
    assert not front.strip.start_button.disabled and front.strip.stop_button.disabled


def test_the_end_is_said_when_everything_it_points_to_is_there(quick, pool):
    front = front_of(Baseline(**quick), pool)
    front.part("summary")
    seen = []

    def look(change):
        if "done in" in change["new"]:
            drawn = [t["name"] for t in front.board.figures[0]["data"]]
            seen.append((front.lines.value, front.block.value, front.strip.state.value, drawn))

    front.doing.observe(look, "value")
    front._start()
    finish(front)
    ((table, block, strip, drawn),) = seen
    assert "● measured" in table and "● measured" in block and "running: baseline" in strip
    assert any("measured" in name for name in drawn)


def test_doubts_stand_apart_from_findings(quick, pool):
    front = front_of(Baseline(**quick), pool)
    front._start()
    finish(front)
    doubts = front.panel.experiment.warnings(front.panel.results)
    assert doubts and doubts[0].split(": ")[-1][:12] in front.lines.value.split("labkit-caution'>")[1]


def test_settings_moved_during_a_run_wait_for_its_end_and_then_show_what_is_kept_of_them(quick, pool):
    front = front_of(Baseline(**quick), pool)
    front._start()
    finish(front)  # 16 tokens are kept
    front.controls["output_tokens"].value = 32
    measure, moved = front._measure, []

    def and_move(**how):
        measure(**how)
        front.controls["output_tokens"].value = 16  # the run is not over yet: its last second, as a hand may catch it
        moved.append((front.panel.experiment.values["output_tokens"], front.note.value))

    front._measure = and_move
    front._start()
    finish(front)
    (during, said) = moved[0]
    assert during == 32 and "current run" in said
    assert front.panel.experiment.values["output_tokens"] == 16
    assert front.panel.results["baseline"].arm.params.output_tokens == 16 and "Stored results shown" in front.note.value
    assert {r["output_tokens"] for r in front.panel.results["baseline"].used} == {16}
    assert not front.run_button.disabled and not front.save_button.disabled
