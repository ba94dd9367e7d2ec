from __future__ import annotations

import numpy as np
import pytest

from octavo.tasks.examples import Examples


@pytest.mark.parametrize(
    ("full", "skipped", "partial"),
    [(2, 0, False), (3, 0, True), (3, 1, False)],
    ids=["full", "less", "skipped"],
)
def test_less_than_the_published_split_is_partial(full: int, skipped: int, partial: bool) -> None:
    examples = Examples(
        task="glue/sst2",
        split="dev",
        texts=("a", "b"),
        labels=np.array([0, 1]),
        full=full,
        source="x",
        skipped=skipped,
    )
    assert len(examples) == 2
    assert examples.partial is partial
