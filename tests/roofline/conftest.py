import sys
from pathlib import Path

# The small configs are a module of their own; importmode=importlib adds no folder to the path.
sys.path.insert(0, str(Path(__file__).parent))
