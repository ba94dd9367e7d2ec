"""`python -m octavo`: the same as the command `octavo`."""

from __future__ import annotations

from octavo.cli import main

if __name__ == "__main__":  # processes that a grid starts import this file too
    main()
