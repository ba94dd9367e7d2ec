"""The smallest and largest value of every token, and quantiles of these over tokens."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from octavo.numerics.min_max import Range


def token_extremes(x: Tensor, index: Tensor, groups: int) -> Range:
    """Return the float32 minima and maxima, (tokens, groups) each, of the tokens of `x`, (tokens, channels).

    `index` names the group of every channel; with one entry all channels are in one group.
    """
    if len(index) == 1:
        return x.amin(dim=1, keepdim=True).float(), x.amax(dim=1, keepdim=True).float()
    where = index.to(x.device).expand(len(x), -1)
    empty = x.new_empty((len(x), groups), dtype=torch.float32)
    low = empty.clone().fill_(torch.inf).scatter_reduce_(1, where, x.float(), "amin")
    high = empty.fill_(-torch.inf).scatter_reduce_(1, where, x.float(), "amax")
    return low, high


def quantile_of_rows(x: Tensor, share: float) -> Tensor:
    """Return the least entry of each column of `x`, (rows, columns), that `share` of the rows do not exceed.

    It is one of the entries, never between two of them: between a token and one that reaches a million times
    further there is nothing that any token needs.
    """
    needed = max(1, math.ceil(share * len(x) - 1e-9))  # 0.07 * 100 is a little above 7
    return x.kthvalue(needed, dim=0).values
