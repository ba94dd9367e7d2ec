"""The one shape every range estimator reduces over, whatever the granularity.

A tensor becomes `(channels, members)`, and an index `(channels,)` names the group of every channel:

| granularity     | axis | channels | index                         |
|-----------------|------|----------|-------------------------------|
| per tensor      | None | 1        | `[0]`                         |
| per channel     | 0    | rows     | `[0, 1, 2, ...]`              |
| per embedding   | -1   | width    | `[0, 1, 2, ...]`              |
| per group, K    | -1   | width    | `group_index(width, K)`       |
| ... permuted    | -1   | width    | `group_index(width, K, order)`|

Per-group values return to the channels by `values[index]`, so a permutation costs nothing in simulation.
"""

from __future__ import annotations

import torch
from torch import Tensor

from octavo.errors import SpecError


def by_channel(x: Tensor, axis: int | None) -> Tensor:
    """Return `x` as (channels, members), with the channels along `axis`; None makes it one channel.

    A view wherever strides allow it, in particular for the first and the last axis of a contiguous tensor.
    """
    if axis is None:
        return x.reshape(1, -1)
    # The count is given outright: -1 would be ambiguous for an empty tensor.
    channels = x.shape[axis]
    return x.movedim(axis, 0).reshape(channels, x.numel() // max(channels, 1))


def group_index(width: int, groups: int, order: Tensor | None = None) -> Tensor:
    """Return the group of each of `width` channels, (width,) int64, in the channels' original order.

    Groups are consecutive runs whose sizes differ by at most one, the first `width % groups` being the
    larger. `order` is a permutation (width,), such as the argsort of the ranges (section 4 of the paper):
    the channel `order[i]` gets the group of position `i`.
    """
    if not 1 <= groups <= width:
        raise SpecError(f"{groups} groups were asked for over {width} channels; use 1 to {width}.")
    sizes = torch.full((groups,), width // groups)
    sizes[: width % groups] += 1
    by_position = torch.repeat_interleave(torch.arange(groups), sizes)
    if order is None:
        return by_position
    order = order.to(dtype=torch.int64, device="cpu")
    if not torch.equal(order.sort().values, torch.arange(width)):
        raise SpecError(
            f"the order of channels is not a permutation of 0 to {width - 1}; name each channel once."
        )
    return torch.empty_like(by_position).scatter_(0, order, by_position)


def broadcast(per_channel: Tensor, ndim: int, axis: int | None) -> Tensor:
    """Return values (channels,) shaped to broadcast along `axis` of `ndim` dimensions; None gives 0-d."""
    if axis is None:
        return per_channel.reshape(())
    shape = [1] * ndim
    shape[axis] = -1
    return per_channel.reshape(shape)
