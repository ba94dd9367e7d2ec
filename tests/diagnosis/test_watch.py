from __future__ import annotations

import pytest
import torch
from torch import Tensor

from octavo.diagnosis.watch import Shown, Watch
from octavo.graph import Encoder


def test_every_site_is_seen_once_and_the_last_is_the_output(plain: Encoder, texts: list[str]) -> None:
    _, batch = next(iter(plain.batches(texts[:1], 1)))
    seen: list[tuple[str, Tensor]] = []
    Watch(plain).run(batch, [0], [lambda shown: seen.append((shown.site.name, shown.x.clone()))])
    assert [name for name, _ in seen] == [site.name for site in plain.activation_sites]
    assert torch.equal(dict(seen)["layers.1.layer_output"], plain(batch)["last_hidden_state"])


def test_an_observers_error_arrives_as_it_is(plain: Encoder, texts: list[str]) -> None:
    def angry(shown: Shown) -> None:
        raise ValueError("as it is")

    _, batch = next(iter(plain.batches(texts[:1], 1)))
    with pytest.raises(ValueError, match=r"^as it is$"):
        Watch(plain).run(batch, [0], [angry])


def test_nothing_is_watched_after_the_run(plain: Encoder, texts: list[str]) -> None:
    _, batch = next(iter(plain.batches(texts[:1], 1)))
    watch, seen = Watch(plain), []
    watch.run(batch, [0], [lambda shown: seen.append(shown.site.name)])
    watch.run(batch, [0], [])
    assert len(seen) == len(plain.activation_sites)
