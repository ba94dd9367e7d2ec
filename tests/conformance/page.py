"""The page: a table of families and what works, with counts, refusals and whatever is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version

from octavo.versions import versions
from tests.conformance.outcome import COLUMNS, Outcome
from tests.conformance.subjects import AT_16_BITS, LENGTHS, RECIPES

_TITLES = {
    "capture": "equals Hugging Face",
    "16 bits": "16 bits = float",
    "saved": "saved = loaded",
    "float in onnxruntime": "ONNX Runtime, float",
    "int8 in onnxruntime": "ONNX Runtime, `int8`",
    "float in openvino": "OpenVINO, float",
    "int8 in openvino": "OpenVINO, `int8`",
}
_MOST_WORDS = 60

_INTRODUCTION = """\
# Conformance: what was tried on every encoder family, and what came of it

Written by `make conformance`; do not edit. Each family is a tiny untrained model with weights of ordinary
size, run on texts of {lengths} (presets up to 130); every token that is not padding
is compared.

| column | what passes |
|---|---|
"""
_MEANINGS = {
    "equals Hugging Face": "the captured graph computes what Hugging Face's model computes",
    "layers": "as many layers are found as the configuration has, all with the same sites",
    "heads": "graphs with heads do as well, for each head that transformers has for the family",
    "16 bits = float": "{wide} at 16 bits give the float model",
    "presets": "each of the {presets} presets that differ gives finite outputs; AdaRound learns a few steps, "
    "and what is meant for training is taken as it is before training",
    "saved = loaded": "each of these, saved and loaded, gives the same outputs bit for bit",
    "ONNX Runtime, OpenVINO": "the exported file computes the float model or the simulation; in ONNX Runtime "
    "`int8` rounds to the integers of the simulation at every site",
    "heads in files": "files with each head do as well, in float and `int8`, in ONNX Runtime",
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
    passes = [f"`{name}`" if name != "no pass" else "plain quantizers" for name in AT_16_BITS]
    meanings = [f"| {column} | {meaning} |\n" for column, meaning in _MEANINGS.items()]
    return (_INTRODUCTION + "".join(meanings) + _CLOSING).format(
        lengths=f"{_listed(map(str, LENGTHS))} tokens, padded and not",
        wide=_listed(passes),
        presets=len(RECIPES),
    )


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
            items = groups.setdefault((outcome.column, outcome.told), {})
            items.setdefault(outcome.item, []).append(outcome.family)
    if not groups:
        return ""
    ordered = sorted(groups.items(), key=lambda group: COLUMNS.index(group[0][0]))
    lines = [f"- {_who(column, items)}: {_short(told)}" for (column, told), items in ordered]
    return "## Refused, in these words\n\n" + "\n".join(lines) + "\n"


def _who(column: str, items: dict[str, list[str]]) -> str:
    tried = dict.fromkeys(family for names in items.values() for family in names)
    what = _listed(f"`{item}`" for item in items)
    return f"{_TITLES.get(column, column)}, {what} ({', '.join(tried)})"


def _short(sentence: str) -> str:
    words = sentence.replace("|", "\\|").split()
    return " ".join(words[:_MOST_WORDS]) + (" …" if len(words) > _MOST_WORDS else "")
