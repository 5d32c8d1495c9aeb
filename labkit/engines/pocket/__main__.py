import sys

from labkit.engines.pocket.server import main

sys.exit(main())
