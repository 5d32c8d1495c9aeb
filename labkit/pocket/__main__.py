import sys

from labkit.pocket.server import main

sys.exit(main())
