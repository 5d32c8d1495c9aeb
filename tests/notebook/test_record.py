"""A notebook that reads a finished record: all of its arms from one comparison, or none."""

import pytest

from labkit.errors import BadInput
from labkit.measure.pool import Pool
from labkit.notebook import headless
from labkit.notebook.experiments.kernels import Kernels
from labkit.notebook.panel import Panel
from labkit.records import RunWriter

from .conftest_panels import rows


def record(folder, experiment, names):
    with RunWriter(folder, experiment.parameters()) as writer:
        for arm in experiment.arms():
            if arm.name in names:
                config = arm.config.as_dict()
                writer.add_arm(arm.name, requested=config, server_info={"engine": "pocket"}, load=arm.load)
                for row in rows(arm.name, 1.5e-3):
                    writer.append({**row, "session": "s"})
        writer.finish({})
    return str(folder)


def panel(parameters, path, live=False):
    return Panel(Kernels(**{**parameters, "record": path}), engines=Pool(), live=live)


def test_arms_come_from_the_record_and_nothing_is_measured(parameters, tmp_path, capsys):
    path = record(tmp_path / "r", Kernels(**parameters), {"baseline", "kernels"})
    shown = panel(parameters, path)
    assert shown.results == {}  # predictions are made without them
    headless.run(shown)
    assert set(shown.results) == {"baseline", "kernels"} and not (tmp_path / "out").exists()
    assert "read from" in capsys.readouterr().out and f"record: {path}" in shown.summary_text()


def test_a_record_that_lacks_an_arm_or_another_load_is_refused(parameters, tmp_path):
    path = record(tmp_path / "r", Kernels(**parameters), {"baseline"})
    with pytest.raises(BadInput, match="^record: got .*; accepted: a finished record with kernels under"):
        panel(parameters, path)
    path = record(tmp_path / "s", Kernels(**parameters), {"baseline", "kernels"})
    with pytest.raises(BadInput, match="^record: .*baseline, kernels under"):
        panel({**parameters, "seed": 2}, path)


def test_at_a_front_end_panels_measure(parameters, tmp_path):
    with pytest.raises(BadInput, match="^record: .*JupyterLab"):
        panel(parameters, str(tmp_path), live=True)
