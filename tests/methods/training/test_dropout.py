from __future__ import annotations

import pytest
import torch

from octavo.errors import OctavoWarning
from octavo.graph import Encoder
from octavo.methods import quantize
from octavo.methods.training.dropout import attention_dropouts, set_dropout
from octavo.methods.training.finetuning import own_copy
from octavo.spec.presets import recipe
from tests.graph import families


def rates(encoder: Encoder) -> list[float]:
    return [module.p for module in encoder.graph.modules() if isinstance(module, torch.nn.Dropout)]


def test_attention_has_the_dropout_of_the_configuration(tiny_classifier: Encoder) -> None:
    encoder = own_copy(tiny_classifier)
    assert rates(encoder).count(0.0) == 2  # one in each layer, as capture left it
    set_dropout(encoder)
    assert rates(encoder) == [0.1] * len(rates(encoder))
    set_dropout(encoder, attention=0.3, hidden=0.2)
    assert sorted(rates(encoder)) == [0.2] * (len(rates(encoder)) - 2) + [0.3] * 2


@pytest.mark.parametrize("family", ["modernbert", "eurobert", "bert", "deberta-v2", "distilbert", "mpnet"])
def test_every_layer_has_its_attention_dropout(family: str) -> None:
    encoder = families.fresh(family)
    assert len(attention_dropouts(encoder)) == 2
    set_dropout(encoder, attention=0.3, hidden=0.2)
    assert rates(encoder).count(0.3) == 2


def test_quantizers_between_are_passed() -> None:
    encoder = families.fresh("modernbert")
    model = quantize(own_copy(encoder), recipe("w8a8"), [families.batch((2, 8))])
    assert attention_dropouts(model) == attention_dropouts(encoder)


def test_a_rate_that_the_configuration_calls_otherwise_stays() -> None:
    encoder = families.fresh("t5", "encoder")
    set_dropout(encoder)
    assert set(rates(encoder)) == {0.1}


def test_a_dropout_that_is_not_there_is_warned_of() -> None:
    encoder = families.fresh("fnet")  # has no attention
    with pytest.warns(OctavoWarning, match=r"it trains without the attention dropout of 0\.3"):
        set_dropout(encoder, attention=0.3)
