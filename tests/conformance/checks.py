"""The checks: everything that is promised of a family, tried on a tiny model of it."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

import octavo
from octavo.errors import ModelError, OctavoWarning
from octavo.graph import Encoder, Head, QuantizedEncoder
from octavo.graph.capture.source import make_encoder
from octavo.graph.capture.traits import layers_of
from octavo.graph.quantizers.switch import switched_off
from octavo.graph.saved import read
from octavo.runtime.backends import BACKENDS, DEFAULT, find_backend
from octavo.runtime.parity import site_parity
from tests.conformance.outcome import Outcome, Wrong, attempt
from tests.conformance.subjects import (
    AT_16_BITS,
    NAME,
    NEED_A_HEAD,
    RECIPES,
    Batch,
    batches,
    heads_of,
    network,
)

_EXACT = 2e-5  # of the largest output; what float arithmetic in another order leaves
_AT_16_BITS = 5e-3  # T5 does not scale its attention scores, which makes more of small differences
# One number that rounds the other way moves all behind it by a step of 8 bits.
_INT8_COSINE = 0.99
_SITES_EQUAL, _SITE_DIFFERENCE = 0.99, 2e-3
# Each takes a session of its own.
_SITE_BATCHES = ("3 tokens, padded", "65 tokens, padded", "300 tokens")
# Presets run, and are saved and loaded, on what is not longer than this.
_LONGEST_OF_PRESETS = 130
# A first layer that reads the embeddings' norm has none of its own.
_NOT_IN_FIRST = {"attention_input"}
_MASKED = 1e4  # larger numbers are no results
_CLASSIFIER: Head = "sequence-classification"


@dataclass
class _Captured:
    """A family's network and encoder for each head, captured when first asked for."""

    family: str
    made: dict[Head, tuple[nn.Module, Encoder]] = field(default_factory=dict)
    blanks: dict[Head, Encoder] = field(default_factory=dict)
    quantized: dict[str, QuantizedEncoder] = field(default_factory=dict)

    @cached_property
    def batches(self) -> dict[str, Batch]:
        return batches(self.family)

    @property
    def shorter(self) -> dict[str, Batch]:
        """The batches that every preset runs on."""
        return {n: b for n, b in self.batches.items() if b["input_ids"].shape[1] <= _LONGEST_OF_PRESETS}

    def pair(self, head: Head = "encoder") -> tuple[nn.Module, Encoder]:
        if head not in self.made:
            made = network(self.family, head)
            self.made[head] = made, make_encoder(NAME, made, None, head)
        return self.made[head]

    def encoder(self, head: Head = "encoder") -> Encoder:
        return self.pair(head)[1]

    def by(self, preset: str) -> QuantizedEncoder:
        if preset not in self.quantized:
            classifies = preset in NEED_A_HEAD and _CLASSIFIER in heads_of(self.family)
            self.quantized[preset] = octavo.quantize(
                self.encoder(_CLASSIFIER if classifies else "encoder"),
                RECIPES[preset],
                calibration=list((self.batches if preset == "int8" else self.shorter).values()),
            )
        return self.quantized[preset]

    def blank(self, head: Head) -> Encoder:
        """Return another encoder of the same architecture, every weight of which is the same number."""
        if head not in self.blanks:
            self.blanks[head] = make_encoder(NAME, network(self.family, head), None, head)
        with torch.no_grad():
            for parameter in self.blanks[head].graph.parameters():
                if parameter.requires_grad:
                    parameter.fill_(0.5)
        return self.blanks[head]


def check_family(family: str) -> list[Outcome]:
    """Carry out every check of a family; one that cannot be captured has no others."""
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore", OctavoWarning)
        subject = _Captured(family)
        first = attempt(family, "capture", "encoder", _equals_hugging_face, subject, "encoder")
        if "encoder" not in subject.made:
            return [first]
        return [first, *_checks(subject, Path(folder))]


def _checks(subject: _Captured, folder: Path) -> Iterator[Outcome]:
    family = subject.family
    yield attempt(family, "layers", "layers", _layers, subject)
    for head in heads_of(family):
        yield attempt(family, "heads", head, _equals_hugging_face, subject, head)
    for item, wide in AT_16_BITS.items():
        yield attempt(family, "16 bits", item, _equals_float, subject, wide)
    for preset in RECIPES:
        outcome = attempt(family, "presets", preset, _finite, subject, preset)
        yield outcome
        if outcome.state == "pass":
            yield attempt(family, "saved", preset, _saved_equals_loaded, subject, preset, folder)
    for name, backend in BACKENDS.items():
        for item in ("float", "int8") if backend.is_installed else ():
            yield attempt(family, f"{item} in {name}", item, _file_equals, subject, item, name, folder)
    for head in heads_of(family) if BACKENDS[DEFAULT].is_installed else ():
        yield attempt(family, "heads in files", f"float, {head}", _float_head_equals, subject, head, folder)
        yield attempt(family, "heads in files", f"int8, {head}", _int8_head_equals, subject, head, folder)


# -- the simulation ------------------------------------------------------------------------------------------


def _equals_hugging_face(subject: _Captured, head: Head) -> None:
    model, encoder = subject.pair(head)
    for name, batch in subject.batches.items():
        with torch.no_grad():
            expected = model(**batch)
        _compare(name, batch, encoder(batch), {o: expected[o] for o in encoder.output_names}, _EXACT)


def _layers(subject: _Captured) -> None:
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


def _equals_float(subject: _Captured, wide: octavo.Recipe) -> None:
    encoder = subject.encoder()
    model = octavo.quantize(encoder, wide, calibration=list(subject.batches.values()))
    for name, batch in subject.batches.items():
        _compare(name, batch, model(batch), encoder(batch), _AT_16_BITS)


def _finite(subject: _Captured, preset: str) -> None:
    model = subject.by(preset)
    for name, batch in subject.shorter.items():
        for output, values in model(batch).items():
            if not bool(_kept(values, batch).isfinite().all()):
                raise Wrong(f"{name}: {output} is not finite")


def _saved_equals_loaded(subject: _Captured, preset: str, folder: Path) -> None:
    model = subject.by(preset)
    saved = model.save(folder / preset)
    if preset == "int8":
        loaded = octavo.load(saved)
    else:
        # The architecture takes a second to capture and is the same for every preset; its weights are not
        # those of the model, so that all that counts comes from the files.
        with mock.patch.object(read, "make_encoder", lambda *_: subject.blank(model.head)):
            loaded = octavo.load(saved)
    for name, batch in subject.shorter.items():
        pairs = zip(model(batch).values(), loaded(batch).values(), strict=True)
        if not all(torch.equal(before, after) for before, after in pairs):
            raise Wrong(f"{name}: the loaded model differs from the saved one")


# -- files ---------------------------------------------------------------------------------------------------


def _file_equals(subject: _Captured, item: str, backend: str, folder: Path) -> None:
    model = subject.encoder() if item == "float" else subject.by(item)
    file = octavo.export(model, folder / f"{item}-{backend}.onnx", backend=backend)
    run = find_backend(backend).open(file, 1, exact=True)
    for name, batch in subject.batches.items():
        if batch["input_ids"].shape[1] > model.max_length:
            continue
        results = run({key: tensor.numpy() for key, tensor in batch.items()})
        found = dict(zip(model.output_names, map(torch.from_numpy, results.values()), strict=True))
        expected = _simulated(model, batch, backend)
        if isinstance(model, QuantizedEncoder):
            _compare_directions(name, batch, found, expected)
        else:
            _compare(name, batch, found, expected, _EXACT * 5)
        if isinstance(model, QuantizedEncoder) and backend == "onnxruntime" and name in _SITE_BATCHES:
            _compare_sites(name, model, file, batch, expected)


def _float_head_equals(subject: _Captured, head: Head, folder: Path) -> None:
    model = subject.encoder(head)
    run = find_backend(DEFAULT).open(octavo.export(model, folder / f"{head}.onnx"), 1, exact=True)
    for name in _SITE_BATCHES:
        batch = subject.batches[name]
        if batch["input_ids"].shape[1] <= model.max_length:
            results = run({key: tensor.numpy() for key, tensor in batch.items()})
            found = dict(zip(model.output_names, map(torch.from_numpy, results.values()), strict=True))
            _compare(name, batch, found, model(batch), _EXACT * 5)


def _int8_head_equals(subject: _Captured, head: Head, folder: Path) -> None:
    calibration = [subject.batches[name] for name in _SITE_BATCHES]
    model = octavo.quantize(subject.encoder(head), RECIPES["int8"], calibration=calibration)
    file = octavo.export(model, folder / f"int8-{head}.onnx")
    for name in _SITE_BATCHES:
        batch = subject.batches[name]
        if batch["input_ids"].shape[1] <= model.max_length:
            _compare_sites(name, model, file, batch, model(batch))


def _simulated(model: Encoder, batch: Batch, backend: str) -> Batch:
    """Run the simulation without the quantizers that the backend's files leave out."""
    quantizers = model.quantizers.values() if isinstance(model, QuantizedEncoder) else ()
    with switched_off([q for q in quantizers if q.site.role in find_backend(backend).left_out]):
        return model(batch)


def _compare_sites(name: str, model: QuantizedEncoder, file: Path, batch: Batch, expected: Batch) -> None:
    parity = site_parity(model, file, batch)
    allowed = _SITE_DIFFERENCE * max(1.0, *(float(v.abs().max()) for v in expected.values()))
    if parity.most_steps > 1 or parity.equal < _SITES_EQUAL or parity.difference > allowed:
        raise Wrong(f"{name}: site by site {parity}")


# -- comparing -----------------------------------------------------------------------------------------------


def _kept(values: Tensor, batch: Batch) -> Tensor:
    """Return what counts: no token of padding."""
    mask = batch["attention_mask"].bool()
    return values[mask] if values.shape[: mask.dim()] == mask.shape else values


def _compare(
    name: str, batch: Batch, found: Mapping[str, Tensor], expected: Mapping[str, Tensor], tolerance: float
) -> None:
    for output, values in expected.items():
        right, given = _kept(values, batch), _kept(found[output], batch)
        difference, size = (given - right).abs(), right.abs()
        # what a head masks with -1e6 allows nothing to the other logits
        ordinary = size[size < _MASKED].max() if bool((size < _MASKED).any()) else size.min()
        allowed = tolerance * torch.where(size < _MASKED, ordinary.clamp(min=1.0), size)
        worst = int((difference / allowed).nan_to_num(nan=torch.inf).argmax())
        if not bool((difference <= allowed).all()):
            off, most = float(difference.flatten()[worst]), float(allowed.flatten()[worst])
            raise Wrong(f"{name}: {output} differs by {off:.2g}, more than {most:.2g}")


def _compare_directions(
    name: str, batch: Batch, found: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> None:
    for output, values in expected.items():
        right, given = _kept(values, batch).double(), _kept(found[output], batch).double()
        cosine = float(np.min(torch.cosine_similarity(given, right, dim=-1).numpy()))
        if not cosine >= _INT8_COSINE:
            raise Wrong(
                f"{name}: cosine of {output} to the simulation {cosine:.4f}, less than {_INT8_COSINE}"
            )
