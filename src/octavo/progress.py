"""Progress: how long work tells how far it is, in one form for every package."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with (steps done, steps in all) after every step."""


def silent(done: int, total: int) -> None:
    """Take a report of progress and show nothing: the default of everything that reports."""


def part_of(progress: Progress, index: int, count: int) -> Progress:
    """Return the progress of one of several runs of the same length."""
    return lambda done, total: progress(index * total + done, count * total)
