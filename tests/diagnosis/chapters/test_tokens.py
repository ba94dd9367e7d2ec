from __future__ import annotations

import pytest
import torch

from octavo.diagnosis.chapters.tokens import TokenTally, ValueKeeper, ranges
from octavo.diagnosis.running_moments import RunningMoments
from octavo.diagnosis.token_kinds import TokenKinds
from octavo.diagnosis.watch import Shown, Watch
from octavo.graph import Encoder, Site

SITE = Site(
    name="layers.0.ffn_output",
    role="ffn_output",
    kind="activation",
    shape=("batch", "length", 2),
    targets=("x",),
)


MOMENTS = RunningMoments(count=1, mean=0.0, m2=1.0)


def test_coincidence_is_a_number(plain: Encoder) -> None:
    kinds = TokenKinds(plain)
    _, batch = next(iter(plain.batches(["ab, c."], 1)))  # seven tokens, four of them no words
    x = torch.zeros(1, 7, 2)
    x[0, 0, 1] = x[0, 1, 1] = x[0, 6, 0] = 10.0
    tally = TokenTally(kinds)
    tally.see(Shown(site=SITE, x=x, batch=batch, indices=[0], moments=MOMENTS))
    found = tally.role("ffn_output", [SITE.name])
    assert found.outliers == {"separator": 1, "class": 1, "punctuation": 0, "word": 1}
    assert found.structural == pytest.approx(2 / 3)
    assert found.expected == pytest.approx(4 / 7)
    assert found.lift == pytest.approx((2 / 3) / (4 / 7))
    assert {(c.token, c.outliers, c.occurrences) for c in found.carriers} == {
        ("[CLS]", 1, 1),
        ("[SEP]", 1, 1),
        ("a", 1, 1),
    }


def test_without_outliers_there_is_no_coincidence(plain: Encoder) -> None:
    _, batch = next(iter(plain.batches(["ab"], 1)))
    tally = TokenTally(TokenKinds(plain))
    tally.see(Shown(site=SITE, x=torch.zeros(1, 4, 2), batch=batch, indices=[0], moments=MOMENTS))
    found = tally.site(SITE.name)
    assert (found.structural, found.lift, found.carriers) == (None, None, ())


def test_values_of_the_chosen_text_by_token(plain: Encoder) -> None:
    keeper = ValueKeeper()
    _, batch = next(iter(plain.batches(["abcdefgh"], 1)))
    Watch(plain).run(batch, [0], [keeper.see])
    assert {name: tuple(x.shape) for name, x in keeper.values.items()} == {
        f"layers.{layer}.{role}": (10, 32) for layer in (0, 1) for role in ("ffn_input", "ffn_output")
    }


def test_ranges_by_token() -> None:
    assert ranges(torch.tensor([[1.0, -2.0], [3.0, 5.0]])) == ([-2.0, 3.0], [1.0, 5.0])
