import sys
from pathlib import Path

# structure.py is shared by the tests here; importmode=importlib adds no folder to the path.
sys.path.insert(0, str(Path(__file__).parent))
