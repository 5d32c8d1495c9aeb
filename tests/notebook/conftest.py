import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from conftest_panels import known_bandwidth, model, parameters  # noqa: E402, F401


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
