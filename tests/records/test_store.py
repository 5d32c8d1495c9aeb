"""A measured setting is found again, with its age; measuring again adds."""

import threading
import time

import pytest

from labkit.engines.config import EngineConfig
from labkit.errors import BadInput
from labkit.records import Store

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


def test_a_setting_comes_back_with_its_age(tmp_path):
    store = Store(tmp_path / "s")
    assert store.get(CONFIG, LOAD, "1") is None
    store.add(CONFIG, LOAD, "1", rows(0, started=time.time() - 7200))
    kept = Store(tmp_path / "s").get(CONFIG, LOAD, "1")
    assert len(kept.rows) == 2 and kept.repeats == 1
    assert 7100 < kept.age_s < 7300 and kept.age() == "2 h ago"


def test_measure_again_adds_a_repeat(tmp_path):
    store = Store(tmp_path)
    kept = store.add(CONFIG, LOAD, "1", rows(0))
    assert kept.next_repeat == 1
    kept = store.add(CONFIG, LOAD, "1", rows(kept.next_repeat))
    assert (kept.repeats, len(kept.rows), kept.next_repeat, kept.age()) == (2, 4, 2, "just now")
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
    assert [s["version"] for s in store.settings()] == ["1"]
    assert EngineConfig.from_dict(store.settings()[0]["config"]) == CONFIG


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
    assert kept.repeats == 30 and len(kept.rows) == 60
