"""Token-wise clipping (Outlier Suppression): which share of the tokens every range holds whole.

The extremes of all tokens are collected once, with quantized weights and activations in float; a candidate is
then a set of ranges, and its error that of the model's outputs on some texts (`output_error`).

1. One share for all sites, from 1 (all-min-max) down, to a hundredth.
2. One share for each site. With x the tensor at a site, q(x) what its range makes of it and g the gradient of
   the outputs in a random direction, sum((g (q(x) - x))²) estimates what the range costs in the outputs, from
   one pass forwards and backwards for all sites and all shares. Tokens that no output reads cost nothing.
3. The estimate is of first order and errors add up, so that the sites of a role take their own shares only
   where that lowers the true error.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from octavo.errors import OctavoWarning
from octavo.graph import QuantizedEncoder, Quantizer
from octavo.graph.batches import of_equal_length
from octavo.graph.quantizers.switch import switched_off
from octavo.graph.quantizers.watch import watched
from octavo.methods.calibration.output_error import OutputError, output_error
from octavo.methods.context import Batches, Context
from octavo.numerics import Affine, TokenQuantiles
from octavo.progress import Progress
from octavo.spec import ClipTokens

SHARES = (1.0, 0.995, 0.99, 0.98, 0.97, 0.95, 0.93, 0.9, 0.87, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
"""The shares among which a site chooses its own."""
_MOST_BITS = 8
_AT_ONCE = 12  # shares of all sites tried before those between the best and its neighbours
_RISEN = 1.5  # the search for one share ends where the error is this many times the least
_GAIN = 0.98  # a role takes other ranges if these leave less than this of the error: less is chance
_BACKWARD = 4  # passes forwards that one forwards and backwards, with all candidates, takes about as long as
_UNTOUCHED = "attention_probs"  # softmax needs its whole range, and has no odd tokens

Grids = dict[str, Affine]


def run(model: QuantizedEncoder, done: ClipTokens, context: Context) -> QuantizedEncoder:
    """Choose the ranges of a calibrated model's activations by the error of its outputs."""
    sites = {name: q for name, q in model.quantizers.items() if _is_clipped(q)}
    if not sites:
        if done.above == 0:  # otherwise it was asked for only where it is needed
            warnings.warn(
                f"recipe {model.recipe.name!r}: clip-tokens does nothing, as no activation has a static "
                f"range of at most {_MOST_BITS} bits; drop the pass",
                OctavoWarning,
                stacklevel=2,
            )
        return model.rewritten(done)
    error = output_error(context, done.texts)
    if done.above > 0 and error.of(model) <= done.above:
        return model.rewritten(done)
    extremes = token_extremes(model, sites, context.batches)
    lowest = _lowest(sites.values()) if done.lowest is None else done.lowest
    search = _Search(model, sites, extremes, error, context.progress, lowest)
    before = search.start()
    share = search.one_share()
    if done.per_site:
        search.share_of_each(context.seed)
    search.finish()
    context.findings["clip-tokens"] = {"share": share, "error": {"before": before, "after": search.least}}
    return model.rewritten(done)


def _is_clipped(quantizer: Quantizer) -> bool:
    static = quantizer.site.kind == "activation" and not quantizer.spec.dynamic
    return static and quantizer.spec.bits <= _MOST_BITS and quantizer.site.role != _UNTOUCHED


def _lowest(quantizers: Iterable[Quantizer]) -> float:
    """Return the smallest share for the bits that most sites have."""
    counts = Counter(q.spec.bits for q in quantizers)
    bits = max(counts, key=lambda width: (counts[width], width))
    return 0.9 if bits >= 8 else 0.7 if bits >= 5 else 0.1


def token_extremes(
    model: QuantizedEncoder, sites: Mapping[str, Quantizer], batches: Batches
) -> dict[str, TokenQuantiles]:
    """Return the extremes of the tokens at some sites, activations in float."""
    found = {name: TokenQuantiles(q.index, bits=q.spec.bits) for name, q in sites.items()}

    def see(quantizer: Quantizer, x: Tensor) -> None:
        found[quantizer.site.name].observe(quantizer.rows(x))

    with _float_activations(model), watched(sites, see):
        for batch in of_equal_length(batches):
            model(batch)
    return found


@contextmanager
def _float_activations(model: QuantizedEncoder) -> Iterator[None]:
    with switched_off(q for q in model.quantizers.values() if q.site.kind == "activation"):
        yield


class _Search:
    """The best grids so far, with their error."""

    def __init__(
        self,
        model: QuantizedEncoder,
        sites: Mapping[str, Quantizer],
        extremes: Mapping[str, TokenQuantiles],
        error: OutputError,
        progress: Progress,
        lowest: float,
    ) -> None:
        self._model, self._sites, self._extremes, self._error = model, sites, extremes, error
        self._progress, self._shares = progress, _coarse_shares(lowest)
        self._roles = list(dict.fromkeys(q.site.role for q in sites.values()))
        self._total = 1 + 2 * _AT_ONCE + _BACKWARD + 1 + 2 * len(self._roles)
        self._done = 0
        self.best: Grids = {}
        self.least = float("inf")

    def start(self) -> float:
        """Take the ranges as they were found, and return their error."""
        self.best = {name: q.affine() for name, q in self._sites.items()}
        self.least = self._error.of(self._model)
        self._count()
        return self.least

    def one_share(self) -> float:
        """Keep one share of the tokens at all sites where that is better; return the best share."""
        errors: dict[float, float] = {}
        for share in self._shares:
            errors[share] = self._try(self._at(share))
            if errors[share] > _RISEN * min(errors.values()):
                break
        for share in _between(errors):
            errors[share] = self._try(self._at(share))
        return min(errors, key=lambda share: errors[share])

    def share_of_each(self, seed: int) -> None:
        """Give every site its own share, all at once and then role by role, where that is better."""
        found, whole = self.best, self._at(1.0)
        costs = first_order_costs(self._model, self._sites, self._grids_of, self._error, seed)
        self._count(_BACKWARD)
        own = {name: self._grid(name, SHARES[int(cost.argmin())]) for name, cost in costs.items()}
        self._try(own, gain=_GAIN)
        for role in self._roles:
            for other in (own, whole, found):
                now = {n: other[n] if q.site.role == role else self.best[n] for n, q in self._sites.items()}
                if any(now[name] is not self.best[name] for name in now):
                    self._try(now, gain=_GAIN)

    def finish(self) -> None:
        """Fix the best grids."""
        self._put(self.best)
        self._progress(self._total, self._total)

    def _try(self, grids: Grids, gain: float = 1.0) -> float:
        self._put(grids)
        error = self._error.of(self._model)
        if error < gain * self.least:
            self.best, self.least = grids, error
        self._count()
        return error

    def _put(self, grids: Grids) -> None:
        for name, quantizer in self._sites.items():
            quantizer.fix(grids[name])

    def _at(self, share: float) -> Grids:
        return {name: self._grid(name, share) for name in self._sites}

    def _grids_of(self, name: str) -> list[Affine]:
        return [self._grid(name, share) for share in SHARES]

    def _grid(self, name: str, share: float) -> Affine:
        quantizer = self._sites[name]
        ends = self._extremes[name].range_at(share)
        signed = quantizer.low < 0
        return quantizer.grid_over(*ends, signed=signed)

    def _count(self, steps: int = 1) -> None:
        self._done = min(self._done + steps, self._total - 1)
        self._progress(self._done, self._total)


def _coarse_shares(lowest: float) -> list[float]:
    """Return shares in hundredths from 1 down to the lowest, few enough to try them all."""
    steps = min(_AT_ONCE - 1, round((1 - lowest) * 100))
    return sorted({round(1 - (1 - lowest) * i / max(1, steps), 2) for i in range(steps + 1)}, reverse=True)


def _between(errors: Mapping[float, float]) -> list[float]:
    """Return the hundredths between the best share and those tried beside it."""
    tried = sorted(errors)
    best = tried.index(min(errors, key=lambda share: errors[share]))
    low, high = tried[max(0, best - 1)], tried[min(len(tried) - 1, best + 1)]
    inside = [place / 100 for place in range(round(low * 100) + 1, round(high * 100))]
    return [share for share in inside if share not in errors]


def first_order_costs(
    model: QuantizedEncoder,
    sites: Mapping[str, Quantizer],
    grids: Callable[[str], Sequence[Affine]],
    error: OutputError,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Return what each grid of a site adds to the squared error of the outputs, in first order, (grids,)."""
    generator = torch.Generator().manual_seed(seed)
    candidates = {name: grids(name) for name in sites}
    costs = {name: torch.zeros(len(given)) for name, given in candidates.items()}
    for number, batch in enumerate(error.batches):
        seen: dict[str, Tensor] = {}

        def see(quantizer: Quantizer, x: Tensor, seen: dict[str, Tensor] = seen) -> None:
            if not x.requires_grad:  # weights on their grids are constants: nothing before took gradients
                x.requires_grad_()
            seen[quantizer.site.name] = x

        with _float_activations(model), watched(sites, see), torch.enable_grad():
            results = model.graph(*model.arguments(batch))
            rows = error.rows(batch, dict(zip(model.output_names, results, strict=True)))
            total = torch.zeros((), device=model.device)
            for name, reference in error.reference[number].items():
                direction = torch.randn(rows[name].shape, generator=generator).to(rows[name])
                total = total + (rows[name] * direction / error.scale(name, reference).sqrt()).sum()
            gradients = torch.autograd.grad(total, list(seen.values()), allow_unused=True)
        for (name, x), gradient in zip(seen.items(), gradients, strict=True):
            if gradient is not None:
                costs[name] += _costs(sites[name], x.detach(), gradient, candidates[name])
    return costs


def _costs(quantizer: Quantizer, x: Tensor, gradient: Tensor, grids: Sequence[Affine]) -> Tensor:
    """Return sum((g (q(x) - x))²) for each grid."""
    errors = (quantizer.quantized(x, grid).sub_(x).mul_(gradient) for grid in grids)
    return torch.tensor([float(error.square_().sum()) for error in errors])
