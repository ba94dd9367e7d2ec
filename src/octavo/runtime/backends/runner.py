"""What an opened artifact is: a function from token ids to outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from numpy.typing import NDArray

Arrays: TypeAlias = "Mapping[str, NDArray[Any]]"


class Runner(Protocol):
    """Something that turns token ids (batch, length) into outputs by name."""

    def __call__(self, batch: Arrays) -> dict[str, NDArray[Any]]: ...


def complete(batch: Arrays, inputs: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Return what a file takes, int64: a missing mask is all ones, missing token types are all zeros."""
    import numpy as np

    ids = np.asarray(batch["input_ids"])
    fill = {"attention_mask": np.ones_like, "token_type_ids": np.zeros_like}
    return {
        n: np.asarray(batch[n] if n in batch else fill[n](ids)).astype(np.int64, copy=False) for n in inputs
    }
