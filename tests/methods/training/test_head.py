from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from octavo.graph import Encoder
from octavo.methods.training.finetuning import own_copy
from octavo.methods.training.head import head_parameters, load_with_head, new_head
from tests.graph import families


def test_a_head_is_drawn_by_its_seed(tiny_classifier: Encoder) -> None:
    heads = []
    for seed in (0, 0, 1):
        encoder = own_copy(tiny_classifier)
        new_head(encoder, seed)
        heads.append(encoder.graph.get_parameter("classifier.weight").detach())
    assert torch.equal(heads[0], heads[1]) and not torch.equal(heads[0], heads[2])
    assert set(head_parameters(tiny_classifier)) == {"classifier.weight", "classifier.bias"}


@pytest.mark.parametrize("family", [family for family in families.REQUIRED if family != "distilroberta"])
def test_the_logits_of_a_new_head_depend_on_the_text(family: str) -> None:
    check_alive(family)


def test_a_norm_in_the_head_starts_at_one() -> None:
    encoder = check_alive("modernbert")
    norm = encoder.graph.get_parameter("head.norm.weight")
    assert torch.equal(norm, torch.ones_like(norm))


def check_alive(family: str) -> Encoder:
    encoder = families.fresh(family)
    new_head(encoder, 0)
    logits = encoder(families.batch((4, 12)))["logits"]
    assert float(logits.std(0).min()) > 0, family
    return encoder


def test_what_a_checkpoint_lacks_is_the_same_every_time(tiny_bert_folder: Callable[..., Path]) -> None:
    folder = str(tiny_bert_folder())
    first = dict(load_with_head(folder, 2).graph.named_parameters())
    torch.manual_seed(123)
    second = dict(load_with_head(folder, 2).graph.named_parameters())
    assert all(torch.equal(first[name], second[name]) for name in first)
