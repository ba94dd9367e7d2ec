from __future__ import annotations

import pytest

from octavo.fidelity.tally import HEADS
from octavo.tasks import Task
from octavo.tasks.kinds.task import held_out


@pytest.mark.parametrize("kind", Task.variants().values(), ids=Task.variants())
def test_every_kind_says_what_it_needs(kind: type[Task]) -> None:
    task = kind()
    assert task.heads and set(task.heads) <= set(HEADS)
    assert task.title == kind.variant_name and task.shown_metrics == kind.known_metrics
    own = {name for each in kind.__mro__[:-2] for name in vars(each)}
    assert {"_read", "predict", "measure", "agreement"} <= own


def test_a_share_of_texts_is_held_out() -> None:
    share = sum(held_out(f"text {number}", 0.2) for number in range(2000)) / 2000
    assert share == pytest.approx(0.2, abs=0.03)
