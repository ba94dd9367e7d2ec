"""The sections of the report, in order."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape

from octavo.diagnosis.diagnosis import Diagnosis, Finding
from octavo.diagnosis.findings import number, percent
from octavo.diagnosis.markup import NONE, SIGMA, TIMES, asset, details, figure, heading, section, table
from octavo.diagnosis.quality import Quality
from octavo.diagnosis.result_sections import remedies, sensitivity, short
from octavo.diagnosis.text_view import TextView
from octavo.diagnosis.tokens import TRACKED_ROLES, Coincidence
from octavo.drawing import Drawing

_LEVELS = {"problem": "Problem", "note": "Note", "fine": "Fine", "advice": "Advice"}
_RANKING_CAPTION = (
    "Bars: what 8 bits per tensor leave of the median dimension. The dot is the same for the whole tensor, "
    "whose energy lies in its outliers: it can look well there while nearly every dimension of it is lost. "
    "Red: FFN outputs and residual sums."
)


def header(diagnosis: Diagnosis) -> str:
    """The model in one line, and four numbers to remember."""
    plain = next((trial.quality for trial in diagnosis.trials if trial.quality is not None), None)
    dimensions = {outlier.dimension for outlier in diagnosis.outliers if outlier.role in TRACKED_ROLES}
    idle = sum(head.no_op for head in diagnosis.heads)
    worst = diagnosis.worst
    tiles = {
        f"left in the median dimension of {worst.name}, the worst of {len(diagnosis.sites)} sites": (
            f"{_decibels(worst.typical_sqnr_db)} dB"
        ),
        "outlier dimensions at FFN inputs, outputs and residual sums": str(len(dimensions)),
        "attention heads that are no-ops": f"{idle} / {len(diagnosis.heads)}" if diagnosis.heads else NONE,
        f"{_measure(plain)} kept by w8a8, plain 8 bits per tensor": short(plain),
    }
    cells = "".join(
        f"<div><dt>{escape(value)}</dt><dd>{escape(text)}</dd></div>" for text, value in tiles.items()
    )
    broken = any(finding.level == "problem" for finding in diagnosis.findings)
    name = f"<em>{escape(diagnosis.model)}</em>"
    title = f"Why {name} breaks in 8 bits" if broken else f"How {name} stands up to 8 bits"
    byline = f'<p class="byline">A diagnosis on {diagnosis.texts} texts, without labels.</p>'
    return f'<h1>{title}</h1>{byline}<dl class="tiles">{cells}</dl>'


def navigation(diagnosis: Diagnosis) -> str:
    """Links to the sections there are."""
    there = {
        "findings": "Findings",
        "ranking": "Ranking",
        "dimensions": "Dimensions",
        "tokens": "Tokens",
        "attention": "Attention" if diagnosis.heads else "",
        "sensitivity": "Sensitivity" if diagnosis.sensitivity is not None else "",
        "remedies": "Remedies",
        "tasks": "Tasks" if diagnosis.distributions is not None else "",
        "method": "Method",
    }
    return "".join(f'<a href="#{name}">{title}</a>' for name, title in there.items() if title)


def all_sections(diagnosis: Diagnosis, view: TextView, drawings: dict[str, Drawing]) -> Iterable[str]:
    """The sections as HTML."""
    yield _findings(diagnosis)
    yield _ranking(diagnosis, drawings)
    yield _dimensions(diagnosis, drawings)
    yield _tokens(diagnosis, view, drawings)
    if diagnosis.heads:
        lead = "What heads look at, and which dimensions make them look there."
        yield section("attention", "Attention", lead, asset("attention.html"))
    if diagnosis.sensitivity is not None:
        yield sensitivity(diagnosis.sensitivity, drawings)
    yield remedies(diagnosis.trials)
    if diagnosis.distributions is not None:
        yield _tasks(drawings)
    yield _method(diagnosis)


def _findings(diagnosis: Diagnosis) -> str:
    cards = "".join(_card(finding) for finding in diagnosis.findings)
    lead = "What was found, from cause to remedy."
    return section("findings", "Findings", lead, f'<ol class="findings">{cards}</ol>')


def _card(finding: Finding) -> str:
    items = "".join(f"<li>{escape(item)}</li>" for item in finding.evidence)
    evidence = f"<ul>{items}</ul>" if items else ""
    button = '<button type="button" class="copy">Copy</button>'
    commands = "".join(
        f'<div class="command"><code>{escape(command)}</code>{button}</div>' for command in finding.commands
    )
    tag = f'<span class="tag">{_LEVELS[finding.level]}</span>'
    text = f"{heading(finding.title)}<p>{escape(finding.text)}</p>"
    return f'<li class="{finding.level}">{tag}{text}{evidence}{commands}</li>'


def _ranking(diagnosis: Diagnosis, drawings: dict[str, Drawing]) -> str:
    rows = [
        (
            site.name,
            *(number(value) for value in (site.minimum, site.maximum, site.std, site.kurtosis)),
            percent(site.beyond),
            _decibels(site.sqnr_db),
            _decibels(site.typical_sqnr_db),
        )
        for site in diagnosis.sites
    ]
    headers = (
        "site",
        "min",
        "max",
        SIGMA,
        "kurtosis",
        f"beyond 6 {SIGMA}",
        "SQNR dB",
        "SQNR dB, median dim.",
    )
    return section(
        "ranking",
        "Where 8 bits hurt",
        f"All {len(diagnosis.sites)} activation sites by the quantization error of their median dimension.",
        figure(drawings["ranking"], _RANKING_CAPTION),
        details("All sites, sortable", table(headers, rows, sortable=True)),
    )


def _dimensions(diagnosis: Diagnosis, drawings: dict[str, Drawing]) -> str:
    caption = f"Marked: values beyond 6 {SIGMA} of the tensor. Down: the first ten texts. Across: dimensions."
    pictures = [
        figure(drawing, caption) for name, drawing in drawings.items() if name.startswith("outliers-")
    ]
    rows = [
        (
            f"{found.site} · {found.dimension}",
            number(found.minimum),
            number(found.maximum),
            number(found.span / max(found.median_span, 1e-12)),
            f"{found.texts} of {diagnosis.texts}",
        )
        for found in diagnosis.outliers
    ]
    headers = ("site · dimension", "min", "max", f"{TIMES} median span", "texts")
    listed = [details(f"All {len(rows)} outlier dimensions", table(headers, rows))] if rows else []
    lead = "Range of every dimension. One that stands out layer after layer is a structured outlier."
    return section("dimensions", "Outlier dimensions", lead, asset("dimensions.html"), *pictures, *listed)


def _tokens(diagnosis: Diagnosis, view: TextView, drawings: dict[str, Drawing]) -> str:
    cut = f" (its first {len(view.tokens)} tokens)" if view.cut else ""
    caption = "Range of every token. Red: separator, class and punctuation tokens."
    headers = ("", "outlier tokens", "separator", "class", "punctuation", "word", "not words", "to chance")
    roles = [_carriers(name, found) for name, found in diagnosis.token_roles.items()]
    sites = [_carriers(name, found) for name, found in diagnosis.token_sites.items()]
    return section(
        "tokens",
        "Tokens",
        f"Text {view.place + 1}{cut} inside the model, and which tokens carry outliers in all texts.",
        figure(drawings["tokens"], caption) if "tokens" in drawings else "",
        asset("tokens.html"),
        heading("Which tokens carry outliers"),
        table(headers, roles),
        details("By site", table(headers, sites)),
    )


def _carriers(name: str, found: Coincidence) -> tuple[str, ...]:
    return (
        name,
        f"{sum(found.outliers.values())} of {sum(found.tokens.values())}",
        *(f"{found.outliers[kind]} of {found.tokens[kind]}" for kind in found.tokens),
        NONE if found.structural is None else percent(found.structural),
        NONE if found.lift is None else f"{found.lift:.1f} {TIMES}",
    )


def _tasks(drawings: dict[str, Drawing]) -> str:
    lead = "The second-to-last layer on other data: is the structure in the model or in the texts?"
    pictures = [
        figure(drawings[f"tasks-{which}s"], f"FFN {which}, first ten texts of each task.")
        for which in ("input", "output")
    ]
    return section("tasks", "Across tasks", lead, *pictures)


def _method(diagnosis: Diagnosis) -> str:
    facts = diagnosis.provenance
    rows = {
        **facts["versions"],
        "texts": str(diagnosis.texts),
        "texts for recipes and sensitivity": str(facts["measured_texts"]),
        "seed": str(facts["seed"]),
        "task": str(facts["task"] or "none"),
        "seconds": f"{facts['seconds']:.1f}",
    }
    return section("method", "How this was measured", asset("method.html"), table(("", ""), rows.items()))


def _measure(quality: Quality | None) -> str:
    return "" if quality is None else quality.measure.replace("sqnr_db", "SQNR")


def _decibels(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "exact"
