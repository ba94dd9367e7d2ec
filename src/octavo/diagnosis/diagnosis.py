"""The diagnosis: everything that was found, as one object that can be read, shown and written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.diagnosis.chapter import Finding

if TYPE_CHECKING:
    from octavo.diagnosis.breakage import Breakage
    from octavo.diagnosis.chapters.attention import Attention, Head
    from octavo.diagnosis.chapters.dimensions import Dimensions, OutlierDimension, Recurrence
    from octavo.diagnosis.chapters.ranking import Ranking, SiteStatistics
    from octavo.diagnosis.chapters.remedies import Remedies
    from octavo.diagnosis.chapters.sensitivity import Sensitivity
    from octavo.diagnosis.chapters.tasks import Distributions
    from octavo.diagnosis.chapters.tokens import Coincidence, Tokens
    from octavo.diagnosis.chapters.writers import Writers
    from octavo.diagnosis.trials import Trial
    from octavo.diagnosis.writers import Writer


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Why a model breaks when it is quantized.

    results: what each chapter found, by its name; the properties are the parts of it that users ask for.
    document: the same as plain data. report: where the report was written, if anywhere.
    """

    model: str
    texts: int
    sequence: int
    results: Mapping[str, Any] = field(repr=False)
    findings: tuple[Finding, ...]
    document: Mapping[str, Any] = field(repr=False)
    provenance: Mapping[str, Any]
    report: Path | None = None

    @property
    def sites(self) -> tuple[SiteStatistics, ...]:
        """Statistics of every activation site, the worst first."""
        ranking: Ranking = self.results["ranking"]
        return ranking.sites

    @property
    def worst(self) -> SiteStatistics:
        """The site that 8 bits hurt most."""
        return self.sites[0]

    @property
    def outliers(self) -> tuple[OutlierDimension, ...]:
        """Dimensions that stand out, by site."""
        return self._dimensions.outliers

    @property
    def recurrences(self) -> tuple[Recurrence, ...]:
        """Dimensions that stand out, by dimension and role."""
        return self._dimensions.recurrences

    @property
    def writers(self) -> tuple[Writer, ...]:
        """What writes the outliers of the residual stream; those that no linear layer writes have none."""
        writers: Writers = self.results["writers"]
        return writers.writers

    @property
    def token_roles(self) -> Mapping[str, Coincidence]:
        """How far outlier tokens are separators, class tokens and punctuation, by role."""
        return self._tokens.roles

    @property
    def token_sites(self) -> Mapping[str, Coincidence]:
        """The same by site."""
        return self._tokens.sites

    @property
    def heads(self) -> tuple[Head, ...]:
        """Attention heads; empty without attention."""
        attention: Attention = self.results["attention"]
        return attention.heads

    @property
    def trials(self) -> tuple[Trial, ...]:
        """The remedies on the same texts."""
        remedies: Remedies = self.results["remedies"]
        return remedies.trials

    @property
    def breakage(self) -> Breakage | None:
        """What each role costs the recipe at hand; None where that recipe is kept."""
        remedies: Remedies = self.results["remedies"]
        return remedies.breakage

    @property
    def sensitivity(self) -> Sensitivity | None:
        """What each group of sites costs; None unless asked for."""
        sensitivity: Sensitivity | None = self.results["sensitivity"]
        return sensitivity

    @property
    def distributions(self) -> Distributions | None:
        """Activations on the texts of other tasks; None unless asked for."""
        distributions: Distributions | None = self.results["tasks"]
        return distributions

    @property
    def _dimensions(self) -> Dimensions:
        dimensions: Dimensions = self.results["dimensions"]
        return dimensions

    @property
    def _tokens(self) -> Tokens:
        tokens: Tokens = self.results["tokens"]
        return tokens

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: what `report.json` and `--json` hold."""
        return {
            "octavo": 1,
            "model": self.model,
            "texts": self.texts,
            "sequence": self.sequence,
            "findings": [asdict(finding) for finding in self.findings],
            **self.document,
            "provenance": dict(self.provenance),
            "report": None if self.report is None else str(self.report),
        }
