from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from octavo.graph import Encoder, Head
from octavo.methods import quantize
from octavo.methods.calibration.output_error import OutputError, spread_texts
from octavo.spec.presets import recipe
from tests.graph import families

BATCHES = [families.batch((3, 12), padded=True, seed=seed) for seed in range(4)]
TEXTS = spread_texts(BATCHES, 12)


@pytest.mark.parametrize(
    "head", ["encoder", "sequence-classification", "token-classification", "question-answering"]
)
def test_the_float_model_has_no_error_and_fewer_bits_have_more(head: Head) -> None:
    encoder = families.captured("bert", head)[1]
    error = OutputError(encoder, TEXTS)
    assert error.of(encoder) == 0
    eight, four = (
        replace(recipe("w8a32"), weights=replace(recipe("w8a32").weights, bits=bits))  # type: ignore[type-var]
        for bits in (8, 4)
    )
    assert 0 < error.of(quantize(encoder, eight)) < error.of(quantize(encoder, four)) < 1


def test_the_error_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes (2, 0) centred are (1, -1), |r|² = 2; the median over three texts is 2 as well."""
    encoder = families.captured("bert")[1]
    logits = torch.tensor([[2.0, 0.0], [1.0, 3.0], [9.0, 1.0]])
    monkeypatch.setattr(Encoder, "__call__", lambda self, batch: {"logits": logits})
    error = OutputError(encoder, [families.batch((3, 12))])
    found = error.of_batch(0, {"logits": torch.tensor([[5.0, 3.0], [1.0, 1.0], [9.0, 1.0]])})
    # a shift of all classes is no error; centred (-1, 1) became (0, 0): e = 2 * 2 / (2 + 2)
    assert found.tolist() == pytest.approx([0.0, 0.5, 0.0])


def test_a_ruined_item_counts_once() -> None:
    encoder = families.captured("bert", "token-classification")[1]
    error = OutputError(encoder, TEXTS[:1])
    outputs = dict(encoder(TEXTS[0]))
    outputs["logits"] = outputs["logits"].clone()
    outputs["logits"][0, 0, 0] += 1e9
    found = error.of_batch(0, outputs)
    assert float(found.max()) == pytest.approx(1) and float(found.sum()) == pytest.approx(1)


def test_nan_is_the_largest_error() -> None:
    encoder = families.fresh("bert")
    error = OutputError(encoder, TEXTS)
    with torch.no_grad():
        encoder.graph.get_parameter("classifier.bias").fill_(torch.nan)
    assert error.of(encoder) == float("inf")


def test_texts_are_spread_over_lengths_and_lose_their_padding() -> None:
    some = spread_texts(BATCHES, 5)
    lengths = [batch["input_ids"].shape[1] for batch in some for _ in batch["input_ids"]]
    assert len(lengths) == 5 and lengths == sorted(lengths) and len(set(lengths)) > 1
    assert all(bool(batch["attention_mask"].all()) for batch in some)
    assert sum(len(batch["input_ids"]) for batch in spread_texts(BATCHES, 1000)) == 12
    assert sum(len(batch["input_ids"]) for batch in spread_texts(BATCHES, 1)) == 1
