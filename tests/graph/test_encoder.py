from __future__ import annotations

import pytest
import torch

from octavo.errors import ModelError
from octavo.graph import Encoder
from tests.graph import families


def test_a_missing_mask_is_ones_and_missing_token_types_are_zeros(bert: Encoder) -> None:
    batch = families.batch((2, 7))
    full = {**batch, "token_type_ids": torch.zeros_like(batch["input_ids"])}
    assert torch.equal(bert({"input_ids": batch["input_ids"]})["logits"], bert(full)["logits"])


def test_token_types_are_read(bert: Encoder) -> None:
    batch = families.batch((2, 7))
    other = {**batch, "token_type_ids": torch.ones_like(batch["input_ids"])}
    assert not torch.equal(bert(batch)["logits"], bert(other)["logits"])


@pytest.mark.parametrize("family", ["bert", "roberta", "mpnet", "distilbert"])
def test_the_longest_text_fits_and_a_longer_one_is_refused(family: str) -> None:
    _, encoder = families.captured(family)
    assert encoder.max_length == families.LENGTH
    assert encoder(families.batch((1, families.LENGTH)))["logits"].isfinite().all()
    with pytest.raises(ModelError, match="takes at most 64 tokens, got 65; truncate the texts"):
        encoder(families.batch((1, families.LENGTH + 1)))


def test_texts_need_a_tokenizer(bert: Encoder) -> None:
    with pytest.raises(
        ModelError, match="tiny bert has no tokenizer files; add them to its folder or give token batches"
    ):
        bert.batches(["a text"])


def test_embeddings_are_the_normalised_mean_of_real_tokens() -> None:
    _, encoder = families.captured("mpnet", "encoder")
    batch = families.batch((3, 8), padded=True)
    outputs = encoder(batch)
    embeddings = encoder.embed(batch, outputs)
    for row in range(3):
        mean = outputs["last_hidden_state"][row, : int(batch["attention_mask"][row].sum())].mean(0)
        assert torch.allclose(embeddings[row], mean / mean.norm(), atol=1e-6)


def test_only_a_bare_encoder_makes_embeddings(bert: Encoder) -> None:
    batch = families.batch((2, 5))
    with pytest.raises(
        ModelError, match="has a sequence-classification head; only a bare encoder makes embeddings"
    ):
        bert.embed(batch, bert(batch))


def test_parameters_that_the_graph_reads_are_listed_once() -> None:
    network, encoder = families.captured("albert", "masked-lm")
    used = encoder.used_parameters()
    assert len({id(parameter) for parameter in used.values()}) == len(used)
    own = {id(parameter) for parameter in network.parameters()}
    assert {id(parameter) for parameter in used.values()} <= own
    assert not any("pooler" in name for name in used)  # which a masked language model does not read


def test_layers_are_counted(bert: Encoder) -> None:
    assert bert.layers == 2
    assert {site.layer for site in bert.activation_sites} == {None, 0, 1}
    assert next(site.layer for site in bert.weight_sites if site.name == "layers.1.query.weight") == 1
