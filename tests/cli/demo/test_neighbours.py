from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from octavo.cli.demo.neighbours import Example, find_example

TEXTS = ("a", "b", "c")
FLOAT = np.array([[-1, 0.9, 0.1], [0.9, -1, 0.3], [0.1, 0.3, -1]])
LOST = np.array([[-1, 0.2, 0.5], [0.9, -1, 0.3], [0.1, 0.3, -1]])


def find(**cosines: NDArray[np.float64]) -> Example | None:
    return find_example(TEXTS, {"float": FLOAT, **cosines}, "float", "broken")


def test_the_text_whose_neighbour_was_lost_is_found() -> None:
    expected = Example(text="a", nearest={"float": "b", "broken": "c", "repaired": "b"})
    assert find(broken=LOST, repaired=FLOAT) == expected


def test_there_is_none_where_the_repair_errs_too() -> None:
    assert find(broken=LOST, repaired=LOST) is None


def test_there_is_none_where_nothing_broke() -> None:
    assert find(broken=FLOAT) is None
