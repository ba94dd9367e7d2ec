"""Write the snapshots anew: `python -m tests.golden.update [FAMILY ...]`. Read the diff then."""

from __future__ import annotations

import sys

from tests.golden.sites import golden_file, render
from tests.graph import families


def main(names: list[str]) -> None:
    """Capture the families named, or all, and write their sites."""
    for family in names or families.EVERY:
        _, encoder = families.captured(family, families.usual_head(family))
        golden_file(family).write_text(render(encoder), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
