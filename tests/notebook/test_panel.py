"""A panel on the real engine: measure, keep, recall, add, cancel, survive a crash, export, compare. No browser."""

import os
import re
import signal

import nbformat
import pytest
import yaml

from labkit.errors import BadInput, LabError
from labkit.measure import client
from labkit.notebook.experiments.baseline import Baseline
from labkit.notebook.experiments.kernels import Kernels
from labkit.notebook.panel import Panel
from labkit.notebook.widgets import compare, export
from labkit.records import read_run


@pytest.fixture
def quick(parameters):
    return {**parameters, "engine": {"engine": "pocket"}, "output_tokens": 8, "count": 1, "repeats": 2}


def live_panel(kind, quick, pool):
    """A panel that keeps its measurements, without building widgets."""
    return Panel(kind(**quick), engines=pool, live=True)


def measure(panel, again=False):
    blocks = panel.blocks(again=again)
    return [p.done for p in panel.measure(blocks, panel.writer())]


def test_measured_settings_are_kept_recalled_and_added_to(quick, own_pool):
    panel = live_panel(Baseline, quick, own_pool)
    assert "first estimate" in panel.forecast(panel.blocks())
    assert measure(panel)[-1] == 2
    assert panel.blocks() == [] and "measured already" in panel.forecast([])
    first = panel.results["baseline"].tpot

    fresh = live_panel(Baseline, quick, own_pool)  # as after a restart of the kernel
    fresh.recall()
    kept = fresh.results["baseline"]
    assert kept.tpot.value == first.value and kept.when.startswith("at ") and kept.when in kept.tpot.source

    measure(fresh, again=True)
    assert fresh.results["baseline"].summary["tpot_s"]["repeats"] == 4
    record = read_run(fresh.record)
    assert {r["repeat"] for r in record.rows if r["repeat"] >= 0} == {2, 3}
    assert record.meta["status"] == "finished" and record.meta["parameters"] == fresh.experiment.parameters()

    fresh.experiment.values["output_tokens"] = 16  # another setting has no result yet
    fresh.recall()
    assert fresh.results == {} and len(fresh.blocks()) == 1
    assert fresh.runner.forecast(fresh.blocks())[0] < 60


def test_measure_again_works_when_an_engine_of_this_kernel_runs_already(quick, pool):
    """Baseline measured, its engine gone, then the comparison: the other engine starts first, and again both run."""
    measure(live_panel(Baseline, quick, pool))
    pool.stop()
    panel = live_panel(Kernels, quick, pool)
    panel.recall()
    assert panel.results == {} and re.fullmatch(r"baseline, at \d\d:\d\d", panel.kept_lines()[0][0])
    measure(panel)
    pool._running.pop(panel.arms()[0].config.digest()).stop()
    measure(panel, again=True)
    assert {len({r["repeat"] for r in r.rows}) for r in panel.results.values()} == {4}
    assert panel.kept_lines() == [] and not any(
        "not interleaved" in w for w in panel.experiment.warnings(panel.results)
    )


def test_arms_of_one_load_alternate_side_by_side(quick, pool):
    panel = live_panel(Kernels, quick, pool)
    (block,) = panel.blocks()
    assert [a.name for a in block.arms] == ["baseline", "kernels"]
    measure(panel)
    rows = [r["arm"] for r in read_run(panel.record).rows if r["repeat"] >= 0]
    assert rows == ["baseline", "kernels", "kernels", "baseline"]
    assert len(pool.running()) == 2
    both = {e.server_info()["moe_runner_backend"] for e in pool.running()}
    assert both == {"generic", "jit"}


def test_cancel_in_the_middle_of_a_request_keeps_what_came(quick, pool, monkeypatch):
    panel = live_panel(Baseline, {**quick, "output_tokens": 4000, "engine": {"engine": "pocket"}}, pool)
    generate = client.generate

    def cancelled_at_100(url, **more):  # warm-up requests are shorter
        return generate(url, **more | {"on_chunk": lambda seconds, tokens: tokens >= 100 and panel.cancel.set()})

    monkeypatch.setattr(client, "generate", cancelled_at_100)
    texts = [p.text for p in panel.measure(panel.blocks(), panel.writer())]
    assert texts[-1] == "cancelled" and read_run(panel.record).meta["status"] == "cancelled"
    (row,) = [r for r in read_run(panel.record).rows if r["repeat"] >= 0]
    assert row["status"] == "cancelled" and 100 <= row["chunk_tokens"][-1] < 4000
    monkeypatch.undo()
    panel.cancel.clear()
    panel.experiment.values["output_tokens"] = 32
    assert measure(panel)[-1] == 2  # the engine is free again


def test_a_dead_engine_ends_the_run_with_its_log_and_the_next_run_starts_another(quick, pool):
    panel = live_panel(Baseline, {**quick, "output_tokens": 64, "repeats": 20}, pool)
    run = panel.measure(panel.blocks(), panel.writer())
    with pytest.raises(LabError) as e:
        for progress in run:
            if progress.done == 1:
                os.kill(pool.running()[0].pid, signal.SIGKILL)
    assert "killed by signal 9" in str(e.value) and "last lines" in str(e.value)
    assert read_run(panel.record).meta["status"] == "failed"
    assert measure(panel)[-1] >= 1


def test_a_pass_that_was_cut_short_is_measured_again(quick, pool):
    panel = live_panel(Baseline, {**quick, "count": 2}, pool)
    for progress in panel.measure(panel.blocks(), panel.writer()):
        if progress.done == 3:  # of four: the second pass lacks its last request
            panel.cancel.set()
    panel.cancel.clear()
    (block,) = panel.blocks()
    assert (block.repeats, block.first) == (1, 2)
    measure(panel)
    assert panel.blocks() == []


def test_saved_parameters_are_what_labkit_run_takes(quick, pool):
    from pathlib import Path

    from labkit.batch import schema

    panel = live_panel(Baseline, quick, pool)
    panel.experiment.values["count"] = 3
    path = export.save_parameters(panel)
    saved = yaml.safe_load(path.read_text())
    notebook = Path(__file__).parents[2] / "notebooks/02_baseline.ipynb"
    assert schema.unknown([notebook], saved) == [] and schema.check_values(notebook, saved)["count"] == 3
    assert Baseline(**saved).arms() == panel.arms()
    assert export.save_parameters(panel) != path  # nothing is overwritten


def test_saved_paths_count_from_where_labkit_run_is_called(quick, pool, tmp_path, monkeypatch):
    """The kernel's own folder is notebooks/, and there ../outputs means what outputs means one folder above."""
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "02_baseline.ipynb").touch()
    monkeypatch.setenv("JPY_SESSION_NAME", str(tmp_path / "notebooks" / "02_baseline.ipynb"))
    monkeypatch.chdir(tmp_path / "notebooks")
    path = export.save_parameters(live_panel(Baseline, {**quick, "out_dir": "../outputs"}, pool))
    text = path.read_text()
    assert yaml.safe_load(text)["out_dir"] == "outputs"
    assert f"labkit run 02_baseline -f outputs/{path.name}" in text


def test_export_puts_the_panels_state_into_the_notebook(quick, pool, tmp_path, monkeypatch):
    panel = live_panel(Baseline, quick, pool)
    measure(panel)
    panel.gate.commit(3.0, panel.key())
    nb = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell("# My question?"),
            nbformat.v4.new_code_cell("lab.run()"),
            nbformat.v4.new_code_cell("lab.findings()"),
        ]
    )
    nbformat.write(nb, tmp_path / "mine.ipynb")
    monkeypatch.setenv("JPY_SESSION_NAME", str(tmp_path / "mine.ipynb"))
    monkeypatch.setenv("LABKIT_STATIC", "0")
    page = export.export_report(panel).read_text(encoding="utf-8")
    assert "My question?" in page and "utilisation U" in page and "your guess" in page
    monkeypatch.delenv("JPY_SESSION_NAME")
    assert "02_baseline" in export.export_report(panel).read_text(encoding="utf-8")


def test_two_records_are_compared_only_under_equal_conditions(quick, pool):
    panel = live_panel(Baseline, quick, pool)
    measure(panel)
    then = compare.results_of(panel.record)
    lines = compare.compare(panel.results, then)
    assert lines[-1][1].value == pytest.approx(1.0) and lines[-1][2] == "too few repeats to tell"
    panel.experiment.values["output_tokens"] = 16
    panel.runner.results.clear()
    measure(panel)
    assert "output_tokens" in compare.compare(panel.results, then)[-1][2]
    with pytest.raises(BadInput):
        compare.results_of(panel.out_dir / "nowhere")


def test_another_notebook_attaches_to_the_same_engine_or_is_told(quick, pool, tmp_path):
    """The other notebook is another process: the engine's lock belongs to processes."""
    import subprocess
    import sys

    panel = live_panel(Baseline, quick, pool)
    measure(panel)
    script = """
import sys, yaml
from labkit.errors import LabError
from labkit.notebook.experiments.baseline import Baseline
from labkit.notebook.experiments.kernels import Kernels
from labkit.measure.pool import Pool
from labkit.notebook.panel import Panel
given = yaml.safe_load(open(sys.argv[1]))
same = Panel(Baseline(**given), engines=Pool(), live=True)
for progress in same.measure(same.blocks(again=True), same.writer()): pass
print("attached", same.runner.pool.running()[0].launch_record())
other = Panel(Kernels(**given), engines=Pool(), live=True)
other.runner.store = None
try:
    for progress in other.measure(other.blocks()[:1], other.writer()): pass
except LabError as e:
    print("told", e)
"""
    given = tmp_path / "given.yaml"
    given.write_text(yaml.safe_dump(quick))
    env = {**os.environ, "LABKIT_LIVE": "0"}
    argv = [sys.executable, "-c", script, str(given)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, env=env)
    assert "attached {'attached': True" in done.stdout, done.stderr[-2000:]
    assert f"process {os.getpid()} runs an engine with other settings at http" in done.stdout
    assert "Press Stop engine there" in done.stdout


def test_an_engine_borrowed_from_another_notebook_may_be_stopped_there(quick, own_pool):
    from labkit.engines.attach import Attached
    from labkit.engines.config import EngineConfig
    from labkit.engines.identify import Identity
    from labkit.engines.survey import Found

    config = live_panel(Baseline, quick, own_pool).arms()[0].config
    there = Found(Identity("pocket"), {})
    gone = Attached(EngineConfig(engine="attach", url="http://127.0.0.1:9"), "http://127.0.0.1:9", there)
    own_pool._running[config.digest()] = gone
    assert own_pool.get(config) is None and own_pool.needs_start(config) and own_pool.running() == []
    (engine,) = own_pool.ensure([config], live_panel(Baseline, quick, own_pool).out_dir)
    assert engine.alive and own_pool.running() == [engine]
