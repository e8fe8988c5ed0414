"""``python -m simulator`` is ``kvsim``."""

import sys

from simulator.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
