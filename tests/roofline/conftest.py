import sys
from pathlib import Path

from hypothesis import settings

# The small configs are a module of their own; importmode=importlib adds no folder to the path.
sys.path.insert(0, str(Path(__file__).parent))

# For the mutation run (pytest --hypothesis-profile=mutation), which tests thousands of variants: fewer examples each.
settings.register_profile("mutation", max_examples=15, derandomize=True, database=None, deadline=None)
