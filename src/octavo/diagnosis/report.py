"""The report: one HTML file that needs nothing else, with report.json and the figures beside it."""

from __future__ import annotations

import json
from dataclasses import replace
from html import escape
from pathlib import Path

from octavo.diagnosis import figures, sections
from octavo.diagnosis.collect import Collected
from octavo.diagnosis.diagnosis import Diagnosis
from octavo.diagnosis.markup import asset
from octavo.diagnosis.payload import payload
from octavo.diagnosis.task_figure import tasks
from octavo.diagnosis.text_view import TOKEN_ROLES, TextView
from octavo.diagnosis.watch import layer_of
from octavo.drawing import Drawing, style_sheet
from octavo.errors import OutputError
from octavo.files import write_file

REPORT, DATA, FIGURES = "report.html", "report.json", "figures"
Drawings = dict[str, Drawing]


def write_report(diagnosis: Diagnosis, collected: Collected, view: TextView, folder: Path) -> Path:
    """Write report.html, report.json and figures/*.svg into a folder; the path of the page."""
    drawings = draw(diagnosis, collected, view)
    page = folder / REPORT
    try:
        (folder / FIGURES).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be written: {error.strerror or error}") from error
    for name, drawing in drawings.items():
        drawing.write(folder / FIGURES / f"{name}.svg")
    with write_file(folder / DATA, force=True) as draft:
        # relative: the folder may be moved
        document = replace(diagnosis, report=Path(REPORT)).to_dict()
        draft.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    with write_file(page, force=True) as draft:
        draft.write_text(render(diagnosis, collected, view, drawings), encoding="utf-8")
    return page


def draw(diagnosis: Diagnosis, collected: Collected, view: TextView) -> Drawings:
    """All figures by file name."""
    drawings = {"ranking": figures.ranking(diagnosis.sites)}
    for role in TOKEN_ROLES:
        names = [name for name in collected.first_texts if collected.statistics[name].role == role]
        widths = {name: len(collected.channels[name].minimum) for name in names}
        if names:
            title = f"Outliers in {role.replace('_', ' ')}, first texts"
            drawings[f"outliers-{role.replace('_', '-')}"] = figures.outliers_by_layer(
                title, names, widths, collected.first_texts, collected.texts
            )
    shown = token_sites(diagnosis, view)
    if shown:
        drawings["tokens"] = figures.token_ranges(view, shown)
    if diagnosis.heads:
        drawings["heads"] = figures.heads(diagnosis.heads)
    if diagnosis.sensitivity is not None:
        for scope in dict.fromkeys(variant.scope for variant in diagnosis.sensitivity.variants):
            drawings[f"sensitivity-{scope}"] = figures.sensitivity(diagnosis.sensitivity, scope)
    if diagnosis.distributions is not None:
        drawings["tasks-inputs"] = tasks(diagnosis.distributions, "inputs")
        drawings["tasks-outputs"] = tasks(diagnosis.distributions, "outputs")
    return drawings


def token_sites(diagnosis: Diagnosis, view: TextView) -> list[str]:
    """FFN input and output of the layer whose FFN output suffers most."""
    worst = next(
        (site.name for site in diagnosis.sites if site.role == "ffn_output" and site.name in view.values),
        None,
    )
    if worst is None:
        return list(view.values)[:2]
    return [name for name in view.values if layer_of(name) == layer_of(worst)][-2:]


def render(diagnosis: Diagnosis, collected: Collected, view: TextView, drawings: Drawings) -> str:
    """The page as text: a template of the package with sections, styles, script and data put in."""
    body = "\n".join(sections.all_sections(diagnosis, view, drawings))
    parts = {
        "title": escape(f"Octavo diagnosis of {diagnosis.model}"),
        "style": style_sheet() + asset("style.css"),
        "header": sections.header(diagnosis),
        "navigation": sections.navigation(diagnosis),
        "sections": body,
        "data": payload(collected, view, (token_sites(diagnosis, view) or [""])[-1]),
        "script": asset("script.js"),
    }
    return "".join(_filled(asset("page.html"), parts))


def _filled(page: str, parts: dict[str, str]) -> list[str]:
    """The pieces of a template; one pass, so that what is put in is never searched for further places."""
    first, *rest = page.split("{{")
    filled = [first]
    for piece in rest:
        name, _, after = piece.partition("}}")
        filled += [parts[name], after]
    return filled
