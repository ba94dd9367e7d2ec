"""Writers: what writes an outlier, found by splitting one number of a linear layer into its products.

Where dimension d of a tensor is largest, at one token, the number is followed back through sums, to the
larger term each time, until a linear layer makes it:

    y[d] = sum_j W[d, j] x[j] + b[d].

Products and bias of the sign of y[d] drive it, all others take something back. As shares of y[d], what drives
it adds up to 1 and what the others take back.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, fx

from octavo.diagnosis.token_kinds import TokenKinds
from octavo.diagnosis.watch import Shown
from octavo.errors import OctavoWarning
from octavo.graph import Encoder, Text
from octavo.graph.sites.flow import operation
from octavo.numerics import HistogramMse

if TYPE_CHECKING:
    from octavo.diagnosis.chapters.dimensions import OutlierDimension

Cause = Literal["weights", "inputs", "bias", "spread"]
FEW = 8
"""At most this many products are called few."""
# What makes up this much of all that drives a number writes it; so does a layer this share of a sum.
_HALF = 0.5
# The largest of a few million normal numbers is about eight times their median; beyond it a weight is large.
_LARGE = 10.0
_CARRIED = frozenset({"dropout", "clone", "contiguous", "alias", "detach", "to", "_to_copy"})


@dataclass(frozen=True, kw_only=True)
class Product:
    """W[d, column] x[column] and its share of what the layer writes."""

    column: int
    weight: float
    input: float
    share: float


@dataclass(frozen=True, kw_only=True)
class Writer:
    """What writes an outlier dimension where it is largest.

    Arguments:
        times: the span of the dimension beside that of the site's median dimension.
        text: its number, from 1. position: of the token in it, from 0.
        value: at the site; written: what the linear layer adds to it, W[d, :] x + b[d].
        weight: the site of W.
        products: at most eight, the largest that drive the number.
        bias, back: shares of the bias, and of all that is taken back.
        row_largest: the largest weight of W[d, :], by magnitude; median: of the magnitudes in all of W.
        limit: where a range of least squared error for W ends, in 8 bits with one scale.
        input_median: of the magnitudes in x.
    """

    site: str
    dimension: int
    times: float
    text: int
    position: int
    token: str
    value: float
    written: float
    weight: str
    products: tuple[Product, ...]
    bias: float
    back: float
    row_largest: float
    median: float
    limit: float
    input_median: float

    @property
    def few(self) -> float:
        """The share of the largest products together."""
        return sum(product.share for product in self.products)

    @property
    def one(self) -> float:
        """The share of the largest product."""
        return self.products[0].share if self.products else 0.0

    @property
    def drive(self) -> float:
        """All that drives the number, as a share of it: 1 and what is taken back."""
        return 1 + self.back

    @property
    def is_one(self) -> bool:
        """Whether one product is half of what drives the number."""
        return self.one >= _HALF * self.drive

    @property
    def ratio(self) -> float:
        """The weight of the largest product beside the median of its matrix."""
        return abs(self.products[0].weight) / max(self.median, 1e-30) if self.products else 0.0

    @property
    def cause(self) -> Cause:
        """What writes the number: a few large weights, a few large inputs, the bias, or many products."""
        if self.bias >= _HALF * self.drive:
            return "bias"
        if self.few < _HALF * self.drive:
            return "spread"
        return "weights" if self.ratio >= _LARGE else "inputs"

    @property
    def is_cut(self) -> bool:
        """Whether large weights write the number, and least squared error cuts the first of them."""
        return self.cause == "weights" and abs(self.products[0].weight) > self.limit

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            **asdict(self),
            "one": self.one,
            "few": self.few,
            "ratio": self.ratio,
            "cause": self.cause,
            "cut": self.is_cut,
        }


# -- watch ---------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Peaks:
    """Per dimension of a site, (width,) each: the largest magnitude, and text and token that have it."""

    value: Tensor
    text: Tensor
    position: Tensor


class PeakTally:
    """Remembers the token at which each dimension of some sites is largest."""

    def __init__(self, roles: Iterable[str]) -> None:
        self._roles = frozenset(roles)
        self.peaks: dict[str, Peaks] = {}

    def see(self, shown: Shown) -> None:
        """Add a tensor (batch, length, width)."""
        if shown.site.role not in self._roles or not shown.is_by_token or shown.site.channel_axis != -1:
            return
        value, row = shown.x.abs().flatten(0, 1).max(0)
        length = shown.x.shape[1]
        text = torch.tensor(shown.indices, device=row.device)[row // length]
        known = self.peaks.get(shown.site.name)
        if known is None:
            self.peaks[shown.site.name] = Peaks(value, text, row % length)
            return
        larger = value > known.value
        known.value = torch.where(larger, value, known.value)
        known.text = torch.where(larger, text, known.text)
        known.position = torch.where(larger, row % length, known.position)


# -- trace ---------------------------------------------------------------------------------------------------


def find_writers(
    encoder: Encoder,
    texts: Sequence[Text],
    outliers: Iterable[OutlierDimension],
    peaks: Mapping[str, Peaks],
    kinds: TokenKinds,
    max_length: int | None = None,
) -> tuple[Writer, ...]:
    """Return what writes each outlier, in their order; those that no linear layer writes are left out."""
    known = [outlier for outlier in outliers if outlier.site in peaks]
    by_text: dict[int, list[OutlierDimension]] = {}
    for outlier in known:
        text = int(peaks[outlier.site].text[outlier.dimension])
        by_text.setdefault(text, []).append(outlier)
    trace = _Trace(encoder, kinds)
    found = {}
    for text, members in by_text.items():
        positions = {each: int(peaks[each.site].position[each.dimension]) for each in members}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OctavoWarning)  # said when all texts were watched
            _, batch = next(iter(encoder.batches([texts[text]], 1, max_length, pad=False)))
        trace.run(batch, {outlier.site for outlier in members}, set(positions.values()))
        for outlier, position in positions.items():
            writer = trace.writer(outlier, text, position)
            if writer is not None:
                found[outlier] = writer
    return tuple(found[outlier] for outlier in known if outlier in found)


class _Trace:
    """One text at a time, with what its outliers are the sums of."""

    def __init__(self, encoder: Encoder, kinds: TokenKinds) -> None:
        self._encoder, self._kinds = encoder, kinds
        nodes = {node.name: node for node in encoder.graph.graph.nodes}
        self._nodes = {site.name: nodes.get(site.targets[0]) for site in encoder.activation_sites}
        self._weights = {path: site.name for site in encoder.weight_sites for path in site.targets}
        self._sizes: dict[str, tuple[float, float]] = {}
        self._rows: dict[tuple[fx.Node, int], Tensor] = {}
        self._ids: list[int] = []

    def run(self, batch: Mapping[str, Tensor], sites: Iterable[str], positions: Iterable[int]) -> None:
        """Run a text, and keep some tokens' rows of all that these sites may come from."""
        starts = [node for site in sites if (node := self._nodes[site]) is not None]
        rows = _Rows(self._encoder.graph, _behind(starts), positions)
        with torch.no_grad():
            rows.run(*self._encoder.arguments(batch))
        self._rows, self._ids = rows.kept, batch["input_ids"][0].tolist()

    def writer(self, outlier: OutlierDimension, text: int, position: int) -> Writer | None:
        """Return what writes an outlier at a token of this text, None where no linear layer does."""
        start = self._nodes[outlier.site]
        if start is None or (start, position) not in self._rows:
            return None
        value = float(self._rows[start, position][outlier.dimension])
        linear = self._linear(start, position, outlier.dimension, value)
        path = None if linear is None else _path(linear.args[1])
        if linear is None or path not in self._weights:
            return None
        x = self._rows[_input(linear), position].double().cpu()
        row = self._encoder.graph.get_parameter(path)[outlier.dimension].detach().double().cpu()
        products = row * x
        bias = self._bias(linear, outlier.dimension)
        written = float(self._rows[linear, position][outlier.dimension])
        if written * value <= 0 or abs(written) < _HALF * abs(value):
            return None  # a sum of many terms, of which this is but the largest
        shares = products / written
        median, limit = self._size(path)
        largest = [j for j in shares.argsort(descending=True)[:FEW].tolist() if shares[j] > 0]
        return Writer(
            site=outlier.site,
            dimension=outlier.dimension,
            times=outlier.span / max(outlier.median_span, 1e-12),
            text=text + 1,
            position=position,
            token=self._kinds.names([self._ids[position]])[0],
            value=value,
            written=written,
            weight=self._weights[path],
            products=tuple(
                Product(column=j, weight=float(row[j]), input=float(x[j]), share=float(shares[j]))
                for j in largest
            ),
            bias=bias / written,
            back=-float(shares.clamp(max=0).sum()) - min(bias / written, 0.0),
            row_largest=float(row[row.abs().argmax()]),
            median=median,
            limit=limit,
            input_median=float(x.abs().median()),
        )

    def _linear(self, node: fx.Node, position: int, dimension: int, value: float) -> fx.Node | None:
        """Follow a number back to the linear layer that makes it, through the larger term of every sum."""
        sign = 1.0 if value >= 0 else -1.0
        while operation(node) != "linear":
            shape = self._rows[node, position].shape
            terms = [each for each in _terms(node) if (each, position) in self._rows]
            terms = [each for each in terms if self._rows[each, position].shape == shape]
            if not terms:
                return None
            node = max(terms, key=lambda each: sign * float(self._rows[each, position][dimension]))
        return node if (_input(node), position) in self._rows else None

    def _bias(self, linear: fx.Node, dimension: int) -> float:
        node = linear.args[2] if len(linear.args) > 2 else linear.kwargs.get("bias")
        path = _path(node)
        return 0.0 if path is None else float(self._encoder.graph.get_parameter(path)[dimension].detach())

    def _size(self, path: str) -> tuple[float, float]:
        """Return the median magnitude of a matrix, and where its range of least squared error ends."""
        if path not in self._sizes:
            weight = self._encoder.graph.get_parameter(path).detach()
            whole = torch.zeros(1, dtype=torch.long, device=weight.device)
            estimator = HistogramMse(whole, bits=8, symmetric=True)
            estimator.observe(weight.reshape(1, -1))
            estimator.commit()
            limit = max(float(end.abs().max()) for end in estimator.range())
            self._sizes[path] = float(weight.abs().median()), limit
        return self._sizes[path]


class _Rows(fx.Interpreter):
    """Runs one text and keeps some tokens' rows of some nodes, each copied before anything overwrites it."""

    def __init__(self, graph: fx.GraphModule, nodes: set[fx.Node], positions: Iterable[int]) -> None:
        super().__init__(graph)
        self._nodes, self._positions = nodes, tuple(positions)
        self.kept: dict[tuple[fx.Node, int], Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n in self._nodes and isinstance(value, Tensor) and value.dim() == 3 and len(value) == 1:
            for position in self._positions:
                if position < value.shape[1]:
                    self.kept[n, position] = value[0, position].clone()
        return value


def _behind(starts: Iterable[fx.Node]) -> set[fx.Node]:
    """Return these nodes, the terms that they are sums of, and what linear layers among them read."""
    found: set[fx.Node] = set()
    waiting = list(starts)
    while waiting:
        node = waiting.pop()
        if node in found:
            continue
        found.add(node)
        if operation(node) == "linear":
            found.add(_input(node))
        waiting += _terms(node)
    return found


def _terms(node: fx.Node) -> list[fx.Node]:
    """Return what a node adds up or carries; nothing where it computes something else."""
    name = operation(node)
    if name in _CARRIED:
        return node.all_input_nodes[:1]
    # a factor (alpha) would make the term another number than its node
    return node.all_input_nodes if name == "add" and not node.kwargs else []


def _input(linear: fx.Node) -> fx.Node:
    source = linear.args[0]
    assert isinstance(source, fx.Node)
    return source


def _path(node: object) -> str | None:
    """Return the parameter that a node is, None where it is computed."""
    return str(node.target) if isinstance(node, fx.Node) and node.op == "get_attr" else None
