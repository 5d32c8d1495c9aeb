import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from conftest_panels import known_bandwidth, model, parameters  # noqa: E402, F401

from labkit.engines import owner as ownership  # noqa: E402
from labkit.measure.pool import Pool  # noqa: E402


@pytest.fixture(scope="module")
def shared_pool():
    """The engines of a file's tests: what one test has started the next one finds, as a person does who goes on."""
    ownership.release()
    made = Pool()
    yield made
    made.stop()
    ownership.release()


@pytest.fixture
def pool(shared_pool):
    """Engines may run already."""
    return shared_pool


@pytest.fixture
def own_pool(shared_pool, tmp_path, monkeypatch):
    """No engine runs, and nobody else knows of those that a test starts here."""
    shared_pool.stop()
    ownership.release()
    monkeypatch.setenv("LABKIT_RUNTIME_DIR", str(tmp_path / "lock"))
    made = Pool()
    yield made
    made.stop()
    ownership.release()


@pytest.fixture(autouse=True)
def every_sample_counts(monkeypatch):
    """A busy machine may hand over all tokens of a short request at once, and such a sample does not count. The tests
    here are about what becomes of samples that do, on the real engine: a lump is asked again."""
    from labkit.measure import session

    once = session.sample

    def sample(arm, prompt, **how):
        for _ in range(50):
            row = once(arm, prompt, **how)
            if not (row["status"] == "refused" and row["tpot_s"] == 0):
                break
        return row

    monkeypatch.setattr(session, "sample", sample)
