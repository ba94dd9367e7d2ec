from __future__ import annotations

import pytest
import torch

from octavo.errors import ModelError
from octavo.methods.loading import choose_device


def test_auto_is_a_gpu_if_there_is_one() -> None:
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert choose_device("cpu") == torch.device("cpu")


def test_an_unknown_device() -> None:
    with pytest.raises(ModelError, match="unknown device 'tpv'; use auto, cpu or cuda"):
        choose_device("tpv")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there() -> None:
    with pytest.raises(ModelError, match="there is no CUDA device here; use --device cpu or auto"):
        choose_device("cuda")
