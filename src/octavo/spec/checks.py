"""Checks that specs make on their own fields; messages name the field, what is allowed and what was given."""

from __future__ import annotations

import reprlib

from octavo.errors import SpecError


def shown(value: object) -> str:
    """Return `value` as it appears in a message, cut short where it is long."""
    # A hostile recipe may hold megabytes, or aliases that nest without end.
    return reprlib.repr(value)


def check_integer(field: str, value: object, low: int, high: int | None = None) -> None:
    """Refuse anything but an integer from `low` to `high`; True and False are no integers here."""
    if isinstance(value, int) and not isinstance(value, bool):
        if low <= value and (high is None or value <= high):
            return
    allowed = f"an integer from {low} to {high}" if high is not None else f"an integer of at least {low}"
    raise SpecError(f"{field} must be {allowed}, got {shown(value)}")


def check_number(field: str, value: object) -> None:
    """Refuse anything but an int or a float."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise SpecError(f"{field} must be a number, got {shown(value)}")


def check_flag(field: str, value: object) -> None:
    """Refuse anything but True and False."""
    if not isinstance(value, bool):
        raise SpecError(f"{field} must be true or false, got {shown(value)}")


def check_text(field: str, value: object) -> None:
    """Refuse anything but a string."""
    if not isinstance(value, str):
        raise SpecError(f"{field} must be text, got {shown(value)}")


def check_texts(field: str, value: object) -> None:
    """Refuse anything but a tuple of strings that are not empty."""
    if not isinstance(value, tuple):
        raise SpecError(f"{field} must be a tuple of strings, got {shown(value)}")
    for entry in value:
        if not isinstance(entry, str) or not entry:
            raise SpecError(f"{field} must hold strings that are not empty, got {shown(entry)}")


def check_positive(field: str, value: object) -> float:
    """Return a number above 0 as a float; refuse anything else."""
    check_number(field, value)
    number = float(value)  # type: ignore[arg-type]
    if not 0 < number < float("inf"):
        raise SpecError(f"{field} must be a number above 0, got {shown(value)}")
    return number


def check_share(field: str, value: object) -> float:
    """Return a number from 0 to 1 as a float; refuse anything else."""
    check_number(field, value)
    number = float(value)  # type: ignore[arg-type]
    if not 0 <= number <= 1:
        raise SpecError(f"{field} must be at least 0 and at most 1, got {shown(value)}")
    return number
