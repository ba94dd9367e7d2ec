from __future__ import annotations

import torch
from torch import Tensor

from octavo.diagnosis.watch import Batch, Places, Watcher, layer_of
from octavo.graph import Encoder, Site


class Keeper:
    def __init__(self) -> None:
        self.seen: dict[str, Tensor] = {}

    def see(self, site: Site, x: Tensor, batch: Batch, places: Places) -> None:
        self.seen[site.name] = x.clone()


def test_every_site_is_seen_once_and_the_last_is_the_output(plain: Encoder, texts: list[str]) -> None:
    _, batch = next(iter(plain.batches(texts[:1], 1)))
    keeper = Keeper()
    Watcher(plain).show(batch, [0], [keeper])
    assert list(keeper.seen) == [site.name for site in plain.activation_sites]
    assert torch.equal(keeper.seen["layers.1.layer_output"], plain(batch)["last_hidden_state"])


def test_an_observers_error_arrives_as_it_is(plain: Encoder, texts: list[str]) -> None:
    class Angry:
        def see(self, site: Site, x: Tensor, batch: Batch, places: Places) -> None:
            raise ValueError("as it is")

    _, batch = next(iter(plain.batches(texts[:1], 1)))
    try:
        Watcher(plain).show(batch, [0], [Angry()])
    except ValueError as error:
        assert str(error) == "as it is"


def test_layers_of_names() -> None:
    assert layer_of("layers.11.ffns.2.ffn_output") == 11
    assert layer_of("embeddings.norm") is None
