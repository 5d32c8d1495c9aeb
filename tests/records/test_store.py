"""A measured setting is found again, with its age; measuring again adds."""

import threading
import time
from datetime import datetime

import pytest

from labkit.engines.config import EngineConfig
from labkit.errors import BadInput
from labkit.records import Store
from labkit.records.store import clock

CONFIG, LOAD = EngineConfig(), {"workload": "code", "count": 2, "output_tokens": 64}


def rows(repeat, n=2, started=None):
    return [
        {
            "arm": "a",
            "repeat": repeat,
            "index": i,
            "status": "ok",
            "started_unix": started or time.time(),
            "latency_s": 0.5,
        }
        for i in range(n)
    ]


def test_a_setting_comes_back_with_its_time(tmp_path):
    store = Store(tmp_path / "s")
    assert store.get(CONFIG, LOAD, "1") is None
    store.add(CONFIG, LOAD, "1", rows(0, started=time.time() - 7200))
    kept = Store(tmp_path / "s").get(CONFIG, LOAD, "1")
    assert len(kept.rows) == 2 and 7100 < time.time() - kept.measured_unix < 7300
    assert Store(tmp_path / "s").get(CONFIG, LOAD) == kept  # the newest version, where nobody can say which


def test_a_time_stays_true_on_a_page_that_stays_open():
    noon = datetime(2026, 3, 5, 12, 0).timestamp()
    assert clock(noon - 300, noon) == "at 11:55" and clock(noon - 86400, noon) == "on 4 Mar 2026, 12:00"


def test_measure_again_adds_a_repeat(tmp_path):
    store = Store(tmp_path)
    store.add(CONFIG, LOAD, "1", rows(0))
    kept = store.add(CONFIG, LOAD, "1", rows(1))
    assert [r["repeat"] for r in kept.rows] == [0, 0, 1, 1]
    assert len(store.add(CONFIG, LOAD, "1", [r | {"session": "another"} for r in rows(1)]).rows) == 6
    kept = store.get(CONFIG, LOAD, "1")
    with pytest.raises(BadInput, match="repeat"):
        store.add(CONFIG, LOAD, "1", rows(1))
    assert store.get(CONFIG, LOAD, "1").rows == kept.rows


def test_config_load_and_version_are_the_key(tmp_path):
    store = Store(tmp_path)
    store.add(CONFIG, LOAD, "1", rows(0))
    assert store.get(CONFIG.replace(fp8_lm_head=True), LOAD, "1") is None
    assert store.get(CONFIG, LOAD | {"count": 3}, "1") is None
    assert store.get(CONFIG, LOAD, "2") is None
    assert store.get(CONFIG.replace(port=1234), LOAD, "1") is not None
    assert [s.version for s in store.settings()] == ["1"]
    assert EngineConfig.from_dict(store.settings()[0].config) == CONFIG


def test_a_cut_line_costs_only_itself(tmp_path):
    store = Store(tmp_path)
    store.add(CONFIG, LOAD, "1", rows(0))
    path = next(tmp_path.glob("*.jsonl"))
    path.write_bytes(path.read_bytes()[:-7])
    assert len(store.get(CONFIG, LOAD, "1").rows) == 1
    assert len(store.add(CONFIG, LOAD, "1", rows(1)).rows) == 3


def test_two_notebooks_at_once(tmp_path):
    def work(first):
        for r in range(first, first + 10):
            Store(tmp_path).add(CONFIG, LOAD, "1", rows(r))

    workers = [threading.Thread(target=work, args=(n,)) for n in (0, 100, 200)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    kept = Store(tmp_path).get(CONFIG, LOAD, "1")
    assert len({r["repeat"] for r in kept.rows}) == 30 and len(kept.rows) == 60
