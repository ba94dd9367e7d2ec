"""Findings: what the numbers mean, in sentences that a reader can check and act on."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.diagnosis.advice import advice
from octavo.diagnosis.collect import Collected
from octavo.diagnosis.diagnosis import Finding
from octavo.diagnosis.outliers import OutlierDimension, Recurrence
from octavo.diagnosis.sensitivity import Sensitivity
from octavo.diagnosis.statistics import SiteStatistics
from octavo.diagnosis.tokens import KINDS, WORD, Coincidence
from octavo.diagnosis.trial import Trial

STREAM_ROLES = ("ffn_output", "ffn_residual", "ffn_input", "attention_residual", "layer_output")
_SITES_TOLD = 3
_ROLE_WORDS = {
    "ffn_output": "FFN outputs",
    "ffn_residual": "residual sums after the FFN",
    "ffn_input": "FFN inputs",
    "attention_residual": "residual sums after the attention",
    "layer_output": "layer outputs",
}


def find(
    collected: Collected,
    sites: Sequence[SiteStatistics],
    recurrences: Sequence[Recurrence],
    trials: Sequence[Trial],
    sensitivity: Sensitivity | None,
    model: str,
    source: str,
    float_score: float | None = None,
) -> list[Finding]:
    """All findings, the cause first and the remedy last; `source` is the file of texts for the commands."""
    stream = [outlier for outlier in collected.outliers if outlier.role in STREAM_ROLES]
    found = [_outliers(stream, collected, recurrences) if stream else _no_outliers(sites)]
    if stream:
        found += _tokens(stream, collected)
    found += _attention(collected)
    found += _sensitive(sensitivity)
    return [*found, *advice(trials, bool(stream), model, source, float_score)]


def number(value: float) -> str:
    """Three digits: 194.9 as 195, 1.504 as 1.5."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percent(share: float) -> str:
    """A share as a percentage: whole numbers, but never 0 % or 100 % for what is not."""
    text = f"{100 * share:.0f} %"
    return (
        f"{100 * share:.2g} %"
        if text == "0 %" and share > 0
        else "over 99 %"
        if text == "100 %" and share < 1
        else text
    )


def _outliers(
    stream: Sequence[OutlierDimension], collected: Collected, recurrences: Sequence[Recurrence]
) -> Finding:
    ordered = sorted(stream, key=lambda o: -o.span / max(o.median_span, 1e-12))
    evidence = [_outlier(outlier, collected) for outlier in ordered[:_SITES_TOLD]]
    dimensions = sorted({outlier.dimension for outlier in stream})
    shown = ", ".join(map(str, dimensions[:8])) + (", …" if len(dimensions) > 8 else "")
    again = [r for r in recurrences if r.role in STREAM_ROLES and len(r.sites) > 1][:2]
    evidence += [
        f"Dimension {r.dimension} stands out in {len(r.sites)} of {r.of} {_ROLE_WORDS[r.role]}."
        for r in again
    ]
    plural = "dimension dwarfs" if len(dimensions) == 1 else "dimensions dwarf"
    return Finding(
        level="problem",
        title=f"{len(dimensions)} {plural} the others ({shown})",
        text="One range for the whole tensor must cover them, and leaves a handful of steps for all others.",
        evidence=tuple(evidence),
    )


def _outlier(outlier: OutlierDimension, collected: Collected) -> str:
    where = ""
    coincidence = collected.token_sites.get(outlier.site)
    if coincidence is not None and coincidence.structural is not None:
        where = f", at {_kinds(coincidence)}"
    typical = collected.statistics[outlier.site].typical_sqnr_db
    return (
        f"{outlier.site}: dimension {outlier.dimension} spans {number(outlier.span)} while the median "
        f"dimension spans {number(outlier.median_span)}, in {outlier.texts} of {collected.texts} "
        f"texts{where}; 8 bits per tensor leave that median dimension {typical:.1f} dB."
    )


def _kinds(coincidence: Coincidence) -> str:
    """`class tokens (100 %)`, the kinds that carry most of the outliers."""
    total = sum(coincidence.outliers.values())
    shares = sorted(
        ((hits / total, kind) for kind, hits in coincidence.outliers.items() if hits), reverse=True
    )
    return " and ".join(f"{kind} tokens ({percent(share)})" for share, kind in shares[:2])


def _no_outliers(sites: Sequence[SiteStatistics]) -> Finding:
    worst = sites[0]
    return Finding(
        level="fine",
        title="No dimension dwarfs the others",
        text="No dimension of the residual stream exceeds six standard deviations in half of the texts while "
        "spanning five times the median dimension. "
        f"The site that 8 bits hurt most is {worst.name}, whose median dimension keeps "
        f"{worst.typical_sqnr_db:.1f} dB.",
    )


def _tokens(stream: Sequence[OutlierDimension], collected: Collected) -> list[Finding]:
    role = next((role for role in ("ffn_output", "ffn_residual") if role in collected.token_roles), None)
    coincidence = collected.token_roles.get(role or "")
    if role is None or coincidence is None or coincidence.structural is None or coincidence.lift is None:
        return []
    carriers = ", ".join(f"{c.token} ({c.outliers} of {c.occurrences})" for c in coincidence.carriers[:4])
    title = "Outliers sit on separator, class and punctuation tokens"
    return [
        Finding(
            level="note",
            title=f"{title} {coincidence.lift:.1f} times as often as chance",
            text=f"Over all {_ROLE_WORDS[role]}, {percent(coincidence.structural)} of the tokens with "
            "outliers are separator, class or punctuation tokens, which make up "
            f"{percent(coincidence.expected)} of all tokens. Most often: {carriers}.",
        )
    ]


def _attention(collected: Collected) -> list[Finding]:
    idle = [head for head in collected.heads if head.no_op]
    if not idle:
        return []
    kind = max(KINDS[:WORD], key=lambda k: sum(head.shares[k] for head in idle))
    driven: dict[int, list[float]] = {}
    for head in idle:
        for share in head.input_dimensions[:1]:
            if share.outlier:
                driven.setdefault(share.dimension, []).append(share.share)
    strongest = max(idle, key=lambda head: head.special)
    text = (
        f"They put more than half of their attention on separator and class tokens, mostly {kind} tokens: "
        f"such heads do nothing for that text. The strongest is {strongest.name} (layer.head) with "
        f"{percent(strongest.special)}."
    )
    if driven:
        dimension, shares = max(driven.items(), key=lambda item: len(item[1]))
        middle = sorted(shares)[len(shares) // 2]
        text += (
            f" In {len(shares)} of them the outlier dimension {dimension} is the largest part of what pulls "
            f"the keys there (median {percent(middle)} of the pull): the outliers steer "
            "these heads to doing nothing."
        )
    return [
        Finding(
            level="note", title=f"{len(idle)} of {len(collected.heads)} attention heads are no-ops", text=text
        )
    ]


def _sensitive(sensitivity: Sensitivity | None) -> list[Finding]:
    variants = sensitivity.of("roles") if sensitivity is not None else []
    if sensitivity is None or not variants or variants[0].gain <= 0:
        return []
    best, unit = variants[0], sensitivity.measure.replace("_db", " (dB)").replace("sqnr", "SQNR")
    text = (
        f"With every activation in 8 bits the {unit} is {sensitivity.everything.value:.3f}. Leaving "
        f"the {best.sites} sites of this role in float gives {best.left_out.value:.3f}, the largest gain "
        f"of all {len(variants)} roles"
    )
    text += (
        f"; next is {variants[1].label} with {variants[1].left_out.value:.3f}." if len(variants) > 1 else "."
    )
    return [Finding(level="problem", title=f"Most is lost at: {best.label}", text=text)]
