"""What the shell offers for values that are names of Octavo's; files it completes itself."""

from __future__ import annotations


def recipe_names(incomplete: str) -> list[tuple[str, str]]:
    """Return the presets that begin like this, with what they are; none of them is a path."""
    from octavo.spec.presets import PRESETS

    return [(name, preset.description) for name, preset in PRESETS.items() if name.startswith(incomplete)]


def recipe_lists(incomplete: str) -> list[str]:
    """Return what a list of recipes, separated by commas, may go on with."""
    chosen, comma, last = incomplete.rpartition(",")
    taken = chosen.split(",")
    return [f"{chosen}{comma}{name}" for name, _ in recipe_names(last) if name not in taken]
