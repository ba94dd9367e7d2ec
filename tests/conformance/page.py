"""The page: a table of families and what works, with counts, refusals and whatever is wrong."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version

from octavo.versions import versions
from tests.conformance.outcome import COLUMNS, Outcome
from tests.conformance.subjects import (
    ALL_OF_INT8,
    AT_16_BITS,
    CORE,
    CORE_AT_16_BITS,
    FEW,
    FEW_OF_PRESETS,
    IN_OPENVINO,
    LENGTHS,
    RECIPES,
    THOROUGH,
)

_TITLES = {
    "capture": "equals Hugging Face",
    "16 bits": "16 bits = float",
    "saved": "saved = loaded",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "heads, saved": "heads, saved = loaded",
    "heads, onnxruntime": "heads, ONNX Runtime",
    "heads, openvino": "heads, OpenVINO",
}
_MOST_WORDS = 60
# The sites that a sentence begins with differ from family to family.
_SITES = re.compile(r"^\S+, \S+, \S+ and \d+ more are |^\S+(, \S+)* are ")

_INTRODUCTION = """\
# Conformance: what was tried on every encoder family, and what came of it

Written by `make conformance`; do not edit. Each family is a tiny untrained model with weights of ordinary
size, run on texts of {lengths}; every token that is not
padding is compared.

The whole product of families, heads, recipes, runtimes and lengths would take a day. Of passes, presets and
quantized heads everything is tried on one family of every kind ({thorough}); on all others,
which are much like one of them, {core_wide} at 16 bits, the presets {core},
and one quantized head. `make conformance ARGS=--every` tries everything on all, and takes twice as long.

| column | what passes | on texts of |
|---|---|---|
"""
_EVERY, _SOME = "every length", "{few}"
_OF_PRESETS = f"{_EVERY} (`int8`), {{few_of_presets}} (others)"
_MEANINGS = {
    "equals Hugging Face": ("the captured graph computes what Hugging Face's model computes", _EVERY),
    "layers": ("as many layers are found as the configuration has, all with the same sites", ""),
    "16 bits = float": (
        "{wide} at 16 bits give the float model",
        f"{_EVERY} (none and all), {_SOME} (each alone)",
    ),
    "presets": (
        "each of the {presets} presets that differ gives finite outputs; AdaRound learns a few steps, and "
        "what is meant for training is taken as it is before training",
        _OF_PRESETS,
    ),
    "saved = loaded": ("each of these, saved and loaded, gives the same outputs bit for bit", _OF_PRESETS),
    "ONNX Runtime, OpenVINO": (
        "the exported file of the float model, and of each of these presets, computes the float model or the "
        "simulation: weights-only files to the last digits of float arithmetic; others round to the integers "
        "of the simulation at every site (ONNX Runtime), or give outputs of the same direction (OpenVINO)",
        f"{_EVERY} (float, `int8`), {{few_of_presets}} (others; in OpenVINO {{in_openvino}} only)",
    ),
    "heads": ("graphs with each head that transformers has for the family equal Hugging Face's", _EVERY),
    "heads, ...": (
        "with each head: {all} at 16 bits gives the float model; `int8`, saved and loaded, is the same bit "
        "for bit; files in float and `int8` compute the same as above",
        _SOME,
    ),
}
_CLOSING = """
A number counts what passes. What is refused ends in an error that says what cannot be done and where; these
sentences stand below the table.
"""


def render(outcomes: Sequence[Outcome]) -> str:
    """Return the page of these outcomes, which depends on nothing else but installed versions."""
    parts = [_introduction(), _counts(outcomes), _versions(), _table(outcomes)]
    parts += [_wrong(outcomes), _refused(outcomes)]
    return "\n".join(part for part in parts if part)


def _introduction() -> str:
    passes = map(_named, AT_16_BITS)
    meanings = [f"| {column} | {what} | {where} |\n" for column, (what, where) in _MEANINGS.items()]
    return (_INTRODUCTION + "".join(meanings) + _CLOSING).format(
        lengths=f"{_listed(map(str, LENGTHS))} tokens, padded and not",
        wide=_listed(passes),
        all=ALL_OF_INT8,
        few=_listed(map(_length, FEW)),
        few_of_presets=_listed(map(_length, FEW_OF_PRESETS)),
        in_openvino=_listed(map(_named, IN_OPENVINO)),
        presets=len(RECIPES),
        thorough=_listed(THOROUGH),
        core_wide=_listed(map(_named, CORE_AT_16_BITS)),
        core=_listed(map(_named, CORE)),
    )


def _named(item: str) -> str:
    return item if " " in item else f"`{item}`"


def _length(batch: str) -> str:
    return batch.replace(" tokens", "").replace(", padded", " (padded)")


def _listed(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _counts(outcomes: Sequence[Outcome]) -> str:
    states = Counter(outcome.state for outcome in outcomes)
    captured = {o.family for o in outcomes if o.column != "capture"}
    tried = {o.family for o in outcomes}
    return (
        f"**{len(tried)} families, {len(captured)} captured; {len(outcomes)} checks: {states['pass']} pass, "
        f"{states['refused']} refused with a sentence, {states['wrong']} wrong.**\n"
    )


def _versions() -> str:
    found = versions()
    for package in ("onnxruntime", "openvino"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return f"With {', '.join(f'{name} {number}' for name, number in found.items())}.\n"


# -- the table -----------------------------------------------------------------------------------------------


def _table(outcomes: Sequence[Outcome]) -> str:
    lines = [
        f"| family | {' | '.join(_TITLES.get(column, column) for column in COLUMNS)} |",
        f"|---|{'---|' * len(COLUMNS)}",
    ]
    for family in dict.fromkeys(outcome.family for outcome in outcomes):
        own = [outcome for outcome in outcomes if outcome.family == family]
        cells = [_cell([outcome for outcome in own if outcome.column == column]) for column in COLUMNS]
        lines.append(f"| {family} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(outcomes: Sequence[Outcome]) -> str:
    states = Counter(outcome.state for outcome in outcomes)
    if not outcomes:
        return ""
    if len(outcomes) == 1:
        return {"pass": "✓", "refused": "refused", "wrong": "**wrong**"}[outcomes[0].state]
    words = [str(states["pass"])] if states["pass"] else []
    words += [f"{states['refused']} refused"] if states["refused"] else []
    words += [f"**{states['wrong']} wrong**"] if states["wrong"] else []
    return ", ".join(words)


# -- the sentences -------------------------------------------------------------------------------------------


def _wrong(outcomes: Sequence[Outcome]) -> str:
    found = [outcome for outcome in outcomes if outcome.state == "wrong"]
    if not found:
        return ""
    lines = [f"- {o.family}, {_TITLES.get(o.column, o.column)}, {o.item}: {_short(o.told)}" for o in found]
    return "## Wrong\n\n" + "\n".join(lines) + "\n"


def _refused(outcomes: Sequence[Outcome]) -> str:
    groups: dict[tuple[str, str], dict[str, list[str]]] = {}
    for outcome in outcomes:
        if outcome.state == "refused":
            items = groups.setdefault((outcome.column, _SITES.sub("some sites are ", outcome.told)), {})
            items.setdefault(outcome.item, []).append(outcome.family)
    if not groups:
        return ""
    ordered = sorted(groups.items(), key=lambda group: COLUMNS.index(group[0][0]))
    lines = [f"- {_who(column, items)}: {_short(told)}" for (column, told), items in ordered]
    return "## Refused, in these words\n\n" + "\n".join(lines) + "\n"


def _who(column: str, items: dict[str, list[str]]) -> str:
    tried = dict.fromkeys(family for names in items.values() for family in names)
    what = _listed(map(_named, items))
    return f"{_TITLES.get(column, column)}, {what} ({', '.join(tried)})"


def _short(sentence: str) -> str:
    words = sentence.replace("|", "\\|").split()
    return " ".join(words[:_MOST_WORDS]) + (" …" if len(words) > _MOST_WORDS else "")
