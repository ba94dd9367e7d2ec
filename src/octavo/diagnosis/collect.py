"""Collection: two passes over all texts that everything else comes from, in memory that does not grow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from octavo.diagnosis.attention import AttentionTally, Head
from octavo.diagnosis.outliers import FirstTexts, OutlierDimension, find_outliers
from octavo.diagnosis.statistics import Channels, Errors, Ranges, SiteStatistics
from octavo.diagnosis.tokens import TRACKED_ROLES, Coincidence, TokenKinds, TokenTally
from octavo.diagnosis.watch import Observer, Watcher, layer_of, sites_with_role
from octavo.graph import Encoder, Text

Progress = Callable[[int, int], None]
_STREAM_ROLES = ("ffn_output", "ffn_residual", "layer_output", "embedding_norm", "embedding_sum")


@dataclass(eq=False, kw_only=True)
class Collected:
    """What two passes over the texts found, by site name where it is a dictionary."""

    texts: int
    statistics: dict[str, SiteStatistics]
    channels: dict[str, Channels]
    outliers: list[OutlierDimension]
    first_texts: dict[str, dict[int, list[int]]]
    token_sites: dict[str, Coincidence]
    token_roles: dict[str, Coincidence]
    heads: list[Head]


def collect(
    encoder: Encoder,
    texts: Sequence[Text],
    kinds: TokenKinds,
    *,
    batch_size: int,
    max_length: int | None,
    attention: bool,
    progress: Progress | None = None,
) -> Collected:
    """Run all texts twice, unpadded, and let go of every tensor as soon as it was looked at."""
    # Token ids only: some kilobytes for thousands of texts.
    batches = list(encoder.batches(texts, batch_size, max_length, pad=False))
    watcher = Watcher(encoder)
    done = 0

    def run(observers: Sequence[Observer]) -> None:
        nonlocal done
        for places, batch in batches:
            watcher.show(batch, places, observers)
            done += len(places)
            if progress is not None:
                progress(done, 2 * len(texts))

    ranges = Ranges()
    run([ranges])
    errors, tokens = Errors(ranges), TokenTally(kinds, ranges.moments)
    first = FirstTexts(ranges.moments)
    heads = AttentionTally(encoder, kinds) if attention else None
    run([errors, tokens, first, *([heads] if heads is not None else [])])
    sites = encoder.activation_sites
    found = find_outliers(sites, ranges.channels, len(texts))
    return Collected(
        texts=len(texts),
        statistics={site.name: errors.statistics(site) for site in sites},
        channels=ranges.channels,
        outliers=found,
        first_texts=first.dimensions,
        token_sites={name: tokens.site(name) for name in tokens.sites},
        token_roles=_by_role(encoder, tokens),
        heads=heads.heads(_entering(found)) if heads is not None else [],
    )


def _by_role(encoder: Encoder, tokens: TokenTally) -> dict[str, Coincidence]:
    names = {
        role: [s.name for s in sites_with_role(encoder.activation_sites, role)] for role in TRACKED_ROLES
    }
    counted = {role: [name for name in found if name in tokens.sites] for role, found in names.items()}
    return {role: tokens.role(role, found) for role, found in counted.items() if found}


def _entering(found: Sequence[OutlierDimension]) -> dict[int, set[int]]:
    """Outlier dimensions of what enters each layer: those of the layer before, or of the embeddings."""
    entering: dict[int, set[int]] = {}
    for outlier in found:
        if outlier.role in _STREAM_ROLES:
            layer = layer_of(outlier.site)
            entering.setdefault(0 if layer is None else layer + 1, set()).add(outlier.dimension)
    return entering
