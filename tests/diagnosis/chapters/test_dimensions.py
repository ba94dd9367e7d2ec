from __future__ import annotations

import torch

from octavo.diagnosis.chapters.dimensions import Channels, find_outliers, find_recurrences
from octavo.graph import Site


def site(layer: int) -> Site:
    return Site(name=f"layers.{layer}.ffn_output", role="ffn_output", kind="activation",
                shape=("batch", "length", 4), targets=("x",))  # fmt: skip


def channels(span: list[float], texts: list[int]) -> Channels:
    return Channels(torch.zeros(4), torch.tensor(span), torch.tensor(texts))


def test_a_consistent_dwarf_is_found() -> None:
    found = find_outliers([site(0)], {site(0).name: channels([1, 1, 20, 1], [0, 0, 5, 0])}, texts=10)
    assert [(o.dimension, o.span, o.median_span, o.texts) for o in found] == [(2, 20.0, 1.0, 5)]


def test_a_rare_or_a_small_outlier_is_not_accused() -> None:
    rare, small = channels([1, 1, 20, 1], [0, 0, 4, 0]), channels([1, 1, 4, 1], [0, 0, 10, 0])
    assert find_outliers([site(0)], {site(0).name: rare}, texts=10) == []
    assert find_outliers([site(0)], {site(0).name: small}, texts=10) == []


def test_the_widest_comes_first() -> None:
    found = find_outliers([site(0)], {site(0).name: channels([20, 1, 40, 1], [9, 0, 9, 0])}, texts=10)
    assert [o.dimension for o in found] == [2, 0]


def test_recurrence_counts_layers() -> None:
    both = {site(n).name: channels([1, 1, 20, 1], [0, 0, 9, 0]) for n in (0, 2)}
    sites = [site(n) for n in range(3)]
    found = find_recurrences(find_outliers(sites, both, texts=10), sites)
    assert [(r.dimension, r.sites, r.of) for r in found] == [
        (2, ("layers.0.ffn_output", "layers.2.ffn_output"), 3)
    ]
