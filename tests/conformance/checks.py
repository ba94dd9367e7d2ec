"""The checks: everything that is promised of a family, tried on a tiny model of it."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

from octavo.errors import OctavoWarning
from octavo.runtime.backends import BACKENDS, DEFAULT
from tests.conformance.captured import Captured
from tests.conformance.exported import FLOAT, file_equals
from tests.conformance.outcome import Outcome, attempt
from tests.conformance.simulated import (
    equals_float,
    equals_hugging_face,
    is_finite,
    layers,
    saved_equals_loaded,
)
from tests.conformance.subjects import (
    ALL_OF_INT8,
    AT_16_BITS,
    IN_OPENVINO,
    heads_of,
    presets,
    quantized_heads,
    recipes_at_16_bits,
)


def check_family(family: str, every: bool = False) -> list[Outcome]:
    """Carry out the checks of a family; one that cannot be captured has no others.

    Arguments:
        every: try every pass, preset and head, whatever the family.
    """
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore", OctavoWarning)
        subject = Captured(family)
        first = attempt(family, "capture", "encoder", equals_hugging_face, subject, "encoder")
        if "encoder" not in subject.made:
            return [first]
        place = Path(folder)
        return [first, *_checks_of_encoder(subject, every, place), *_checks_of_heads(subject, every, place)]


def _checks_of_encoder(subject: Captured, every: bool, folder: Path) -> Iterator[Outcome]:
    family = subject.family
    yield attempt(family, "layers", "layers", layers, subject)
    for item, wide in recipes_at_16_bits(family, every).items():
        yield attempt(family, "16 bits", item, equals_float, subject, wide)
    works = []
    for preset in presets(family, every):
        outcome = attempt(family, "presets", preset, is_finite, subject, preset)
        yield outcome
        if outcome.state == "pass":
            works.append(preset)
            yield attempt(family, "saved", preset, saved_equals_loaded, subject, preset, folder)
    for name, backend in BACKENDS.items():
        in_files = works if name == DEFAULT else [preset for preset in works if preset in IN_OPENVINO]
        for item in (FLOAT, *in_files) if backend.is_installed else ():
            yield attempt(family, name, item, file_equals, subject, item, "encoder", name, folder)


def _checks_of_heads(subject: Captured, every: bool, folder: Path) -> Iterator[Outcome]:
    quantized = quantized_heads(subject.family, every)
    for head in heads_of(subject.family):
        first = attempt(subject.family, "heads", head, equals_hugging_face, subject, head)
        yield first
        if first.state == "pass" and head in quantized:
            yield from _checks_of_head(subject, head, folder)


def _checks_of_head(subject: Captured, head: str, folder: Path) -> Iterator[Outcome]:
    family = subject.family
    wide = AT_16_BITS[ALL_OF_INT8]
    yield attempt(family, "heads, 16 bits", head, equals_float, subject, wide, head)
    yield attempt(family, "heads, saved", head, saved_equals_loaded, subject, "int8", folder, head)
    for name, backend in BACKENDS.items():
        for item in (FLOAT, "int8") if backend.is_installed else ():
            what = f"{item}, {head}"
            yield attempt(family, f"heads, {name}", what, file_equals, subject, item, head, name, folder)
