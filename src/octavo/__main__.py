"""`python -m octavo`: the same as the command `octavo`."""

from __future__ import annotations

from octavo.cli import main

main()
