from __future__ import annotations

import torch
from torch import Tensor

from octavo.graph import Quantizer, State
from octavo.graph.quantizers.watch import channel_extremes, probe, watched
from tests.graph import families

BATCH = families.batch((3, 12))


def test_a_probe_computes_what_the_float_model_does_and_has_every_site() -> None:
    encoder = families.captured("bert")[1]
    probed = probe(encoder)
    assert set(probed.quantizers) == {site.name for site in encoder.activation_sites}
    assert {q.state for q in probed.quantizers.values()} == {State.OFF}
    assert torch.equal(probed(BATCH)["logits"], encoder(BATCH)["logits"])


def test_watching_shows_tensors_inside_the_block_only() -> None:
    probed = probe(families.captured("bert")[1])
    seen: list[tuple[str, tuple[int, ...]]] = []

    def see(quantizer: Quantizer, x: Tensor) -> None:
        seen.append((quantizer.site.name, tuple(x.shape)))

    chosen = {name: q for name, q in probed.quantizers.items() if q.site.role == "ffn_output"}
    with watched(chosen, see):
        probed(BATCH)
    probed(BATCH)
    rows, length = BATCH["input_ids"].shape
    assert seen == [(name, (rows, length, q.site.width)) for name, q in chosen.items()]


def test_extremes_are_those_of_every_channel() -> None:
    probed = probe(families.captured("bert")[1])
    name = "layers.0.ffn_output"
    kept: list[Tensor] = []
    chosen = {name: probed.quantizers[name]}
    with channel_extremes(chosen) as extremes, watched(chosen, lambda _, x: kept.append(x.clone())):
        probed(BATCH)
        probed({key: value.flip(1) for key, value in BATCH.items()})
    rows = torch.cat([x.reshape(-1, x.shape[-1]) for x in kept])
    low, high = extremes[name].range()
    assert torch.equal(low, rows.amin(0)) and torch.equal(high, rows.amax(0))
