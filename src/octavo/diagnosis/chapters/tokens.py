"""Chapter: tokens. Which carry outliers, and how far they are separators, class tokens and punctuation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from octavo.diagnosis.chapter import WIDTH, Chapter, Finding, Observers
from octavo.diagnosis.chapters.dimensions import FFN_ROLES, STREAM_ROLES, Dimensions
from octavo.diagnosis.chapters.ranking import Ranking
from octavo.diagnosis.chosen_text import TOKEN_ROLES, ChosenText
from octavo.diagnosis.markup import asset, details, figure, heading, packed_halves, section, table
from octavo.diagnosis.token_kinds import KINDS, WORD, TokenKinds
from octavo.diagnosis.watch import Shown
from octavo.diagnosis.wording import NONE, TIMES, percent
from octavo.drawing import Drawing, ticks
from octavo.progress import Progress

_SHOWN_TOKENS = 8


@dataclass(frozen=True, kw_only=True)
class Carrier:
    """A token of the vocabulary: in how many of its occurrences it carries an outlier."""

    token: str
    outliers: int
    occurrences: int


@dataclass(frozen=True, kw_only=True)
class Coincidence:
    """How far the tokens that carry outliers at some sites are separators, class tokens and punctuation.

    tokens and outliers count by kind (separator, class, punctuation, word); structural is the share of the
    outlier tokens that are one of the first three, expected their share among all tokens, lift the ratio.
    structural and lift are None where no token carries an outlier. carriers carry most of the outliers.
    """

    tokens: dict[str, int]
    outliers: dict[str, int]
    structural: float | None
    expected: float
    lift: float | None
    carriers: tuple[Carrier, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class Tokens:
    """Coincidences by role and by site name; values: site -> (tokens, width) of the chosen text."""

    roles: dict[str, Coincidence]
    sites: dict[str, Coincidence]
    values: dict[str, Tensor]


# -- watch ---------------------------------------------------------------------------------------------------


class TokenTally:
    """Counts tokens with and without outliers at FFN inputs, outputs and residual sums (second pass)."""

    def __init__(self, kinds: TokenKinds) -> None:
        self._kinds = kinds
        self._sites: dict[str, Tensor] = {}  # site -> (kinds, 2): all tokens, tokens with an outlier
        self._vocabulary: dict[str, Tensor] = {}  # role -> (vocabulary, 2)

    def see(self, shown: Shown) -> None:
        """Count the tokens of a tensor (batch, length, width)."""
        if shown.site.role not in FFN_ROLES or not shown.is_by_token:
            return
        ids = shown.batch["input_ids"].reshape(-1)
        hit = shown.outliers.any(-1).reshape(-1).long()
        _count(self._sites, shown.site.name, self._kinds.of(ids), hit, len(KINDS))
        _count(self._vocabulary, shown.site.role, ids, hit, len(self._kinds.table))

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites that were counted."""
        return tuple(self._sites)

    def site(self, name: str) -> Coincidence:
        """Return the coincidence at one site."""
        return _coincidence(self._sites[name], ())

    def role(self, role: str, names: Iterable[str]) -> Coincidence:
        """Return the coincidence at all sites of a role, with the tokens that carry most outliers."""
        counts = torch.stack([self._sites[name] for name in names]).sum(0)
        return _coincidence(counts, self._carriers(role))

    def _carriers(self, role: str) -> tuple[Carrier, ...]:
        counts = self._vocabulary[role]
        most = counts[:, 1].topk(min(_SHOWN_TOKENS, len(counts))).indices.tolist()
        names = self._kinds.names(most)
        rows = [(name, *counts[index].tolist()) for name, index in zip(names, most, strict=True)]
        return tuple(Carrier(token=name, outliers=hit, occurrences=seen) for name, seen, hit in rows if hit)


def _count(counts: dict[str, Tensor], key: str, index: Tensor, hit: Tensor, size: int) -> None:
    if key not in counts:
        counts[key] = torch.zeros(size, 2, dtype=torch.long, device=index.device)
    counts[key].index_add_(0, index, torch.stack((torch.ones_like(hit), hit), dim=1))


def _coincidence(counts: Tensor, carriers: tuple[Carrier, ...]) -> Coincidence:
    tokens, hits = counts[:, 0].tolist(), counts[:, 1].tolist()
    expected = 1 - tokens[WORD] / sum(tokens)
    structural = 1 - hits[WORD] / sum(hits) if sum(hits) else None
    return Coincidence(
        tokens=dict(zip(KINDS, tokens, strict=True)),
        outliers=dict(zip(KINDS, hits, strict=True)),
        structural=structural,
        expected=expected,
        lift=structural / expected if structural is not None and expected else None,
        carriers=carriers,
    )


class ValueKeeper:
    """Keeps the FFN inputs and outputs of the chosen text, (tokens, width) each."""

    def __init__(self) -> None:
        self.values: dict[str, Tensor] = {}

    def see(self, shown: Shown) -> None:
        """Keep a copy of what the figures show; a batch of one."""
        if shown.site.role in TOKEN_ROLES and shown.is_by_token:
            self.values[shown.site.name] = shown.x[0].cpu().clone()


# -- draw ----------------------------------------------------------------------------------------------------


def ranges(values: Tensor) -> tuple[list[float], list[float]]:
    """Return the smallest and largest value of every token of (tokens, width): the paper's figure 2a."""
    return torch.amin(values, 1).tolist(), torch.amax(values, 1).tolist()


def draw_ranges(text: ChosenText, values: Mapping[str, Tensor]) -> Drawing:
    """Draw the range of every token at some sites of one layer (figure 2a), each on its own scale."""
    left, panel, gap = 56.0, 118.0, 34.0
    drawing = Drawing(WIDTH, len(values) * (panel + gap) + 66, "Ranges by token")
    step = (WIDTH - left - 6) / len(text.tokens)
    for row, (name, value) in enumerate(values.items()):
        top = 22 + row * (panel + gap)
        low, high = ranges(value)
        bottom_value, top_value = min(*low, 0.0), max(*high, 0.0)
        unit = panel / max(top_value - bottom_value, 1e-12)
        drawing.text(0, top - 8, name, "head")
        for tick in ticks(bottom_value, top_value, 5):
            y = top + (top_value - tick) * unit
            drawing.line(left, y, WIDTH - 6, y, "rule")
            drawing.text(left - 6, y + 3.5, f"{tick:g}", "small", "end")
        for position, (lo, hi) in enumerate(zip(low, high, strict=True)):
            kind = "bar" if text.kinds[position] == "word" else "hot"
            tip = f"{text.tokens[position]} ({text.kinds[position]}): {lo:.3g} … {hi:.3g}"
            x, y = left + step * position + 0.15 * step, top + (top_value - hi) * unit
            drawing.rect(x, y, 0.7 * step, (hi - lo) * unit, kind, tip)
    for position, token in enumerate(text.tokens):
        x, y = left + step * (position + 0.5), len(values) * (panel + gap) + 4
        kind = "label" if text.kinds[position] == "word" else "hotlabel"
        drawing.text(x + 3, y, token[:14], kind, "end", -48)
    return drawing


class TokensChapter(Chapter[Tokens]):
    """Tokens that carry outliers, and one text token by token."""

    name, title, record = "tokens", "Tokens", Tokens

    def key(self) -> str:
        """Keep results by the text that is shown."""
        return f"tokens/text-{self.study.chosen.index + 1}"

    def observers(self) -> Observers:
        """Watch outliers by token in the second pass, and the values of the chosen text."""
        self._tally, self._keeper = TokenTally(self.study.kinds), ValueKeeper()
        return Observers(second=self._tally.see, chosen=self._keeper.see)

    def conclude(self, progress: Progress) -> Tokens:
        """Sum up by site and by role."""
        tally = self._tally
        counted = [site for site in self.study.encoder.activation_sites if site.name in tally.sites]
        names = {role: [site.name for site in counted if site.role == role] for role in FFN_ROLES}
        return Tokens(
            roles={role: tally.role(role, where) for role, where in names.items() if where},
            sites={name: tally.site(name) for name in tally.sites},
            values=self._keeper.values,
        )

    # -- say -------------------------------------------------------------------------------------------------

    def findings(self) -> list[Finding]:
        """Say which tokens carry the outliers, if there are any in the residual stream."""
        dimensions: Dimensions = self.study.results["dimensions"]
        role = next((role for role in ("ffn_output", "ffn_residual") if role in self.result.roles), None)
        if role is None or not dimensions.stream:
            return []
        coincidence = self.result.roles[role]
        if coincidence.structural is None or coincidence.lift is None:
            return []
        carriers = ", ".join(f"{c.token} ({c.outliers} of {c.occurrences})" for c in coincidence.carriers[:4])
        title = "Outliers sit on separator, class and punctuation tokens"
        return [
            Finding(
                level="note",
                title=f"{title} {coincidence.lift:.1f} times as often as chance",
                text=f"Over all {STREAM_ROLES[role]}, {percent(coincidence.structural)} of the tokens with "
                "outliers are separator, class or punctuation tokens, which make up "
                f"{percent(coincidence.expected)} of all tokens. Most often: {carriers}.",
            )
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return `tokens`: coincidences by role and by site."""
        both = {"roles": self.result.roles, "sites": self.result.sites}
        return {
            "tokens": {
                which: {name: item.to_dict() for name, item in items.items()} for which, items in both.items()
            }
        }

    # -- draw ------------------------------------------------------------------------------------------------

    def figures(self) -> dict[str, Drawing]:
        """Draw the chosen text's ranges at the layer whose FFN output suffers most."""
        shown = {name: self.result.values[name] for name in self._worst_sites()}
        return {"tokens": draw_ranges(self.study.chosen, shown)} if shown else {}

    def _worst_sites(self) -> Sequence[str]:
        """Return FFN input and output of the layer whose FFN output suffers most."""
        ranking: Ranking = self.study.results["ranking"]
        values, layers = self.result.values, self.study.layers
        outputs = (site.name for site in ranking.sites if site.role == "ffn_output" and site.name in values)
        worst = next(outputs, None)
        if worst is None:
            return list(values)[:2]
        return [name for name in values if layers[name] == layers[worst]][-2:]

    def section(self, figures: Mapping[str, Drawing]) -> str:
        """Show the figure, the map of the text and tables of coincidences."""
        text = self.study.chosen
        cut = f" (its first {len(text.tokens)} tokens)" if text.cut else ""
        caption = "Range of every token. Red: separator, class and punctuation tokens."
        headers = (
            "",
            "outlier tokens",
            "separator",
            "class",
            "punctuation",
            "word",
            "not words",
            "to chance",
        )
        roles = [_cells(name, item) for name, item in self.result.roles.items()]
        sites = [_cells(name, item) for name, item in self.result.sites.items()]
        return section(
            "tokens",
            "Tokens",
            f"Text {text.index + 1}{cut} inside the model, and which tokens carry outliers in all texts.",
            figure(figures["tokens"], caption) if "tokens" in figures else "",
            asset("tokens.html"),
            heading("Which tokens carry outliers"),
            table(headers, roles),
            details("By site", table(headers, sites)),
        )

    def data(self) -> dict[str, Any]:
        """Return the values of the chosen text by token and dimension."""
        ranking: Ranking = self.study.results["ranking"]
        worst = (list(self._worst_sites()) or [""])[-1]
        return {"tokens": token_data(self.study.chosen, self.result.values, ranking) | {"worst": worst}}


def token_data(text: ChosenText, values: Mapping[str, Tensor], ranking: Ranking) -> dict[str, Any]:
    """Return labels, kinds, and a map (tokens, width) for every site."""
    sites = [
        {
            "name": name,
            "width": value.shape[1],
            "std": ranking.by_name[name].std,
            "mean": ranking.by_name[name].mean,
            "values": packed_halves(value),
        }
        for name, value in values.items()
    ]
    return {"labels": text.tokens, "kinds": text.kinds, "sites": sites}


def _cells(name: str, item: Coincidence) -> tuple[str, ...]:
    return (
        name,
        f"{sum(item.outliers.values())} of {sum(item.tokens.values())}",
        *(f"{item.outliers[kind]} of {item.tokens[kind]}" for kind in item.tokens),
        NONE if item.structural is None else percent(item.structural),
        NONE if item.lift is None else f"{item.lift:.1f} {TIMES}",
    )
