from __future__ import annotations

import pytest
from torch import nn

from octavo.graph import Encoder
from tests.graph import families

_FAMILIES = [
    pytest.param(name, marks=pytest.mark.slow) if name in families.SELDOM else name for name in families.EVERY
]


@pytest.fixture(scope="session", params=_FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    """Every family in turn; session scope lets pytest run all tests of one family before the next."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def pair(family: str) -> tuple[nn.Module, Encoder]:
    """A family's Hugging Face network and its captured encoder."""
    return families.captured(family, families.usual_head(family))


@pytest.fixture(scope="session")
def bert() -> Encoder:
    """A tiny BERT with a classification head; tests leave it as it is."""
    return families.captured("bert")[1]
