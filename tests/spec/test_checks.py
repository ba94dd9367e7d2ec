from __future__ import annotations

import re

import pytest

from octavo.errors import SpecError
from octavo.spec.checks import (
    check_flag,
    check_integer,
    check_number,
    check_positive,
    check_text,
    check_texts,
    shown,
)


@pytest.mark.parametrize("value", ["eight", 8.0, True, None, 1, 17], ids=repr)
def test_an_integer_outside_its_bounds_or_of_another_type_is_refused(value: object) -> None:
    message = f"bits must be an integer from 2 to 16, got {value!r}"
    with pytest.raises(SpecError, match=f"^{re.escape(message)}$"):
        check_integer("bits", value, 2, 16)


def test_an_integer_without_upper_bound_says_so() -> None:
    check_integer("groups", 10**9, 1)
    with pytest.raises(SpecError, match=r"^groups must be an integer of at least 1, got 0$"):
        check_integer("groups", 0, 1)


def test_numbers_flags_and_texts_of_another_type_are_refused() -> None:
    with pytest.raises(SpecError, match=r"^momentum must be a number, got '0.9'$"):
        check_number("momentum", "0.9")
    with pytest.raises(SpecError, match=r"^momentum must be a number, got True$"):
        check_number("momentum", True)
    with pytest.raises(SpecError, match=r"^symmetric must be true or false, got 1$"):
        check_flag("symmetric", 1)
    with pytest.raises(SpecError, match=r"^name must be text, got 3$"):
        check_text("name", 3)


def test_one_string_is_no_tuple_of_strings() -> None:
    with pytest.raises(SpecError, match=r"^sites must be a tuple of strings, got 'layers\.\*'$"):
        check_texts("sites", "layers.*")
    with pytest.raises(SpecError, match=r"^sites must hold strings that are not empty, got ''$"):
        check_texts("sites", ("layers.*", ""))


@pytest.mark.parametrize("value", [0, -1, float("inf"), float("nan"), "1", None, True], ids=repr)
def test_a_number_that_is_not_positive_is_refused(value: object) -> None:
    with pytest.raises(SpecError, match=r"^rate must be a number"):
        check_positive("rate", value)


def test_long_values_are_cut_in_messages() -> None:
    assert len(shown("x" * 10**6)) < 100
    endless: list[object] = []
    endless.append(endless)
    assert len(shown(endless)) < 100
