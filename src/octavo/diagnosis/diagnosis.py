"""The diagnosis: everything that was found, as one object that can be read, shown and written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from octavo.diagnosis.attention import Head
from octavo.diagnosis.distributions import Distributions
from octavo.diagnosis.outliers import OutlierDimension, Recurrence
from octavo.diagnosis.sensitivity import Sensitivity
from octavo.diagnosis.statistics import SiteStatistics
from octavo.diagnosis.tokens import Coincidence
from octavo.diagnosis.trial import Trial

Level = Literal["problem", "note", "fine", "advice"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing to know, in plain language, with what it rests on and the commands that act on it."""

    level: Level
    title: str
    text: str
    evidence: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Why a model breaks when it is quantized.

    sites: statistics of every activation site, the worst first.
    outliers: dimensions that stand out, by site; recurrences: the same by dimension and role.
    token_roles, token_sites: how far outlier tokens are separators, class tokens and punctuation.
    heads: attention heads (empty without attention). trials: the remedies on the same texts.
    sensitivity, distributions: None unless asked for. report: where the report was written, if anywhere.
    """

    model: str
    texts: int
    sequence: int
    sites: tuple[SiteStatistics, ...]
    outliers: tuple[OutlierDimension, ...]
    recurrences: tuple[Recurrence, ...]
    token_roles: Mapping[str, Coincidence]
    token_sites: Mapping[str, Coincidence]
    heads: tuple[Head, ...]
    trials: tuple[Trial, ...]
    sensitivity: Sensitivity | None
    distributions: Distributions | None
    findings: tuple[Finding, ...]
    provenance: Mapping[str, Any]
    report: Path | None = None

    @property
    def worst(self) -> SiteStatistics:
        """The site that 8 bits hurt most."""
        return self.sites[0]

    def to_dict(self) -> dict[str, Any]:
        """Plain data: what `report.json` and `--json` hold."""
        return {
            "octavo": 1,
            "model": self.model,
            "texts": self.texts,
            "sequence": self.sequence,
            "findings": [asdict(finding) for finding in self.findings],
            "sites": [site.to_dict() for site in self.sites],
            "outliers": [outlier.to_dict() for outlier in self.outliers],
            "recurrences": _plain(self.recurrences),
            "tokens": {"roles": _dicts(self.token_roles), "sites": _dicts(self.token_sites)},
            "heads": [head.to_dict() for head in self.heads],
            "trials": [trial.to_dict() for trial in self.trials],
            "sensitivity": None if self.sensitivity is None else self.sensitivity.to_dict(),
            "distributions": None if self.distributions is None else asdict(self.distributions),
            "provenance": dict(self.provenance),
            "report": None if self.report is None else str(self.report),
        }


def _plain(items: Iterable[Recurrence]) -> list[dict[str, Any]]:
    return [asdict(item) for item in items]


def _dicts(items: Mapping[str, Coincidence]) -> dict[str, Any]:
    return {name: item.to_dict() for name, item in items.items()}
