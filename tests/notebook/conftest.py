import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from conftest_panels import known_bandwidth, model, parameters  # noqa: E402, F401
