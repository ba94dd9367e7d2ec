"""The report: one HTML file that needs nothing else, with report.json and the figures beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from octavo.diagnosis.chapter import Chapter, Finding
from octavo.diagnosis.diagnosis import Diagnosis
from octavo.diagnosis.markup import asset, heading, script_data, section, table
from octavo.drawing import Drawing, style_sheet
from octavo.errors import OutputError
from octavo.files import write_file

REPORT, DATA, FIGURES = "report.html", "report.json", "figures"
Chapters = Sequence[Chapter[Any]]
_LEVELS = {"problem": "Problem", "note": "Note", "fine": "Fine", "advice": "Advice"}


def write_report(diagnosis: Diagnosis, chapters: Chapters, folder: Path) -> Path:
    """Write report.html, report.json and figures/*.svg into a folder, and return the path of the page."""
    figures = {chapter.name: chapter.figures() for chapter in chapters}
    page = folder / REPORT
    try:
        (folder / FIGURES).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be written: {error.strerror or error}") from error
    for drawings in figures.values():
        for name, drawing in drawings.items():
            drawing.write(folder / FIGURES / f"{name}.svg")
    with write_file(folder / DATA, force=True) as draft:
        # relative: the folder may be moved
        document = replace(diagnosis, report=Path(REPORT)).to_dict()
        draft.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    with write_file(page, force=True) as draft:
        draft.write_text(render(diagnosis, chapters, figures), encoding="utf-8")
    return page


def render(diagnosis: Diagnosis, chapters: Chapters, figures: Mapping[str, Mapping[str, Drawing]]) -> str:
    """Return the page: a template of the package with sections, styles, script and data put in."""
    sections = {chapter.name: chapter.section(figures[chapter.name]) for chapter in chapters}
    titles = {chapter.name: chapter.title for chapter in chapters if sections[chapter.name]}
    body = [_findings(diagnosis.findings), *filter(None, sections.values()), _method(diagnosis)]
    data: dict[str, Any] = {"texts": diagnosis.texts}
    for chapter in chapters:
        data |= chapter.data()
    parts = {
        "title": escape(f"Octavo diagnosis of {diagnosis.model}"),
        "style": style_sheet() + asset("style.css"),
        "header": _header(diagnosis, chapters),
        "navigation": _navigation({"findings": "Findings", **titles, "method": "Method"}),
        "sections": "\n".join(body),
        "data": script_data(data),
        "script": asset("script.js"),
    }
    return "".join(_filled(asset("page.html"), parts))


def _header(diagnosis: Diagnosis, chapters: Chapters) -> str:
    """Return the model in one line, and some numbers to remember."""
    tiles = [tile for chapter in chapters if (tile := chapter.tile()) is not None]
    cells = "".join(f"<div><dt>{escape(value)}</dt><dd>{escape(text)}</dd></div>" for text, value in tiles)
    broken = any(finding.level == "problem" for finding in diagnosis.findings)
    name = f"<em>{escape(diagnosis.model)}</em>"
    title = f"Why {name} breaks in 8 bits" if broken else f"How {name} stands up to 8 bits"
    byline = f'<p class="byline">A diagnosis on {diagnosis.texts} texts, without labels.</p>'
    return f'<h1>{title}</h1>{byline}<dl class="tiles">{cells}</dl>'


def _navigation(titles: Mapping[str, str]) -> str:
    return "".join(f'<a href="#{name}">{title}</a>' for name, title in titles.items())


def _findings(findings: Sequence[Finding]) -> str:
    cards = "".join(_card(finding) for finding in findings)
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


def _filled(page: str, parts: Mapping[str, str]) -> list[str]:
    """Return a template with its gaps filled; what is put in is never searched for further gaps."""
    first, *rest = page.split("{{")
    filled = [first]
    for text in rest:
        name, _, after = text.partition("}}")
        filled += [parts[name], after]
    return filled
