"""Checks of graphs and of the simulation."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import torch

import octavo
from octavo.errors import ModelError
from octavo.graph import Encoder, Head
from octavo.graph.capture.traits import layers_of
from octavo.graph.saved import read
from tests.conformance.captured import Captured
from tests.conformance.comparing import AT_16_BITS, EXACT, compare, kept
from tests.conformance.outcome import Wrong

# A first layer that reads the embeddings' norm has none of its own.
_NOT_IN_FIRST = {"attention_input"}


def equals_hugging_face(subject: Captured, head: Head) -> None:
    """The graph computes what Hugging Face's network computes."""
    model, encoder = subject.pair(head)
    # the longest first: some models compute otherwise for good once they have met a short text
    for name, batch in reversed(subject.batches.items()):
        with torch.no_grad():
            expected = model(**batch)
        compare(name, batch, encoder(batch), {o: expected[o] for o in encoder.output_names}, EXACT)


def layers(subject: Captured) -> None:
    """As many layers are found as configured, all alike."""
    found, configured = subject.encoder().layers, layers_of(subject.encoder().config)
    if found != configured:
        # said by a warning that names both, when the model is captured
        raise ModelError(f"{found} layers were found, the configuration says {configured}")
    sites = [_sites_of_layer(subject.encoder(), layer) for layer in range(found)]
    odd = sorted(set.union(*sites) - set.intersection(*sites) - _NOT_IN_FIRST)
    if odd:
        raise Wrong(f"not every layer has {', '.join(odd)}: parts of one layer were taken for another's")


def _sites_of_layer(encoder: Encoder, layer: int) -> set[str]:
    return {site.name.split(".", 2)[2] for site in encoder.activation_sites if site.layer == layer}


def equals_float(subject: Captured, wide: octavo.Recipe, head: Head = "encoder") -> None:
    """At 16 bits nothing is lost; no pass at all, and all of `int8`, are tried at every length."""
    encoder = subject.encoder(head)
    batches = subject.batches if head == "encoder" and len(wide.passes) != 1 else subject.few
    model = octavo.quantize(encoder, wide, calibration=list(batches.values()))
    for name, batch in batches.items():
        compare(name, batch, model(batch), encoder(batch), AT_16_BITS)


def is_finite(subject: Captured, preset: str) -> None:
    """Outputs of a preset are numbers."""
    model = subject.by(preset)
    for name, batch in subject.of_preset(preset).items():
        for output, values in model(batch).items():
            if not bool(kept(values, batch).isfinite().all()):
                raise Wrong(f"{name}: {output} is not finite")


def saved_equals_loaded(subject: Captured, preset: str, folder: Path, head: Head = "encoder") -> None:
    """A model that was saved and loaded gives the same bits."""
    model = subject.by(preset, head)
    saved = model.save(folder / f"{preset}-{head}")
    if preset == "int8" and head == "encoder":
        loaded = octavo.load(saved)
    else:
        # The architecture takes a second to capture and is the same for every preset; its weights are not
        # those of the model, so that all that counts comes from the files.
        with mock.patch.object(read, "make_encoder", lambda *_: subject.blank(model.head)):
            loaded = octavo.load(saved)
    for name, batch in subject.of_preset(preset, head).items():
        pairs = zip(model(batch).values(), loaded(batch).values(), strict=True)
        if not all(torch.equal(before, after) for before, after in pairs):
            raise Wrong(f"{name}: the loaded model differs from the saved one")
