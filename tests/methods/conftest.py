from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.graph import Encoder
from octavo.methods.training.labelled import Labelled
from tests.methods import tiny


@pytest.fixture(scope="session")
def tiny_classifier(tiny_bert_folder: Callable[..., Path]) -> Encoder:
    """A tiny untrained classifier of two classes; tests leave it as it is."""
    return tiny.encoder(tiny_bert_folder())


@pytest.fixture(scope="session")
def tiny_data(tiny_classifier: Encoder) -> Labelled:
    """64 examples of the task in `tiny`."""
    return tiny.data(tiny_classifier)
