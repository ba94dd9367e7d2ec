"""`octavo.diagnose`: look into a float model with some texts, and say why it breaks when it is quantized."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from octavo.diagnosis.attention import check_attention
from octavo.diagnosis.collect import Progress, collect
from octavo.diagnosis.diagnosis import Diagnosis
from octavo.diagnosis.distributions import distributions
from octavo.diagnosis.findings import find
from octavo.diagnosis.ledger import Ledger, fingerprint
from octavo.diagnosis.outliers import recurrences
from octavo.diagnosis.quality import Reference, Score
from octavo.diagnosis.report import write_report
from octavo.diagnosis.sensitivity import TABLE_2_RECIPE, analyse
from octavo.diagnosis.statistics import ranked
from octavo.diagnosis.text_view import look_at
from octavo.diagnosis.tokens import TokenKinds
from octavo.diagnosis.trial import try_recipes
from octavo.diagnosis.variants import check_scopes
from octavo.errors import DataError, ModelError
from octavo.graph import Encoder, QuantizedEncoder, Text
from octavo.spec import Recipe
from octavo.spec.document import recipe_to_dict
from octavo.versions import versions

Stage = Callable[[str], AbstractContextManager[Progress]]
MEASURED_TEXTS = 64
"""Recipes and variants are calibrated and measured on the first so many texts; statistics are of all."""


def diagnose(
    encoder: Encoder,
    texts: Sequence[Text],
    *,
    output: str | Path | None = None,
    sensitivity: Sequence[str] = ("roles", "last"),
    recipe: Recipe | None = None,
    sequence: int | None = None,
    attention: bool = True,
    score: Score | None = None,
    task: str | None = None,
    panels: Mapping[str, Sequence[Text]] | None = None,
    batch_size: int = 8,
    max_length: int | None = None,
    seed: int = 0,
    source: str = "texts.txt",
    force: bool = False,
    progress: Stage | None = None,
) -> Diagnosis:
    """Find out why a float encoder breaks when it is quantized; no labels are needed.

    Arguments:
        texts: twenty are enough to see the structure; memory does not grow with their number.
        output: folder for report.html, report.json and figures; a second run with the same folder continues.
        sensitivity: scopes of leave-one-out and enable-one: roles, last (roles in the last two layers),
            layers, sites.
        recipe: what sensitivity quantizes by; by default the setting of the paper's table 2.
        sequence: number of the text, from 1, that tokens and attention are shown for.
        attention: False for a model whose graph has no attention probabilities.
        score: adds a task's score to fidelity: a function of a model; `task` is its name.
        panels: texts by task for the distributions of appendix D; the first ten of each are used.
        source: the file the texts came from, for the commands that the report recommends.
        force: replace the diagnosis of something else in the output folder.
        progress: opens a stage by its title and gives its progress(done, total).
    """
    scopes = check_scopes(sensitivity)
    _check(encoder, texts, attention)
    stage = progress or _silent
    began = time.perf_counter()
    settings = _settings(recipe, task, max_length, seed)
    folder = None if output is None else Path(output)
    kinds = TokenKinds(encoder)
    view = look_at(encoder, texts, kinds, sequence)
    ledger = Ledger(folder, fingerprint(encoder, texts, settings), force)
    with stage("Watching activations") as report:
        collected = collect(
            encoder,
            texts,
            kinds,
            batch_size=batch_size,
            max_length=max_length,
            attention=attention,
            progress=report,
        )
    sites = ranked(collected.statistics)
    measured = list(texts[:MEASURED_TEXTS])
    reference = Reference(encoder, measured, batch_size=batch_size, max_length=max_length, score=score)
    float_score = _float_score(encoder, score, ledger)
    with stage("Trying recipes") as report:
        trials = try_recipes(
            encoder, reference, measured, ledger=ledger, seed=seed, max_length=max_length, progress=report
        )
    found = None
    if scopes:
        with stage("Sensitivity") as report:
            found = analyse(
                encoder, reference, measured, scopes, recipe=recipe, ledger=ledger,
                float_score=float_score,
                worst=[site.name for site in sites], seed=seed, max_length=max_length, progress=report,
            )  # fmt: skip
    shown = None
    if panels:
        with stage("Tasks") as report:
            shown = distributions(encoder, panels, max_length=max_length, progress=report)
    again = recurrences(collected.outliers, encoder.activation_sites)
    diagnosis = Diagnosis(
        model=encoder.name,
        texts=len(texts),
        sequence=view.place + 1,
        sites=tuple(sites),
        outliers=tuple(collected.outliers),
        recurrences=tuple(again),
        token_roles=collected.token_roles,
        token_sites=collected.token_sites,
        heads=tuple(collected.heads),
        trials=tuple(trials),
        sensitivity=found,
        distributions=shown,
        findings=tuple(find(collected, sites, again, trials, found, encoder.name, source, float_score)),
        provenance=settings
        | {"measured_texts": len(measured), "seconds": time.perf_counter() - began, "versions": versions()},
    )
    if folder is None:
        return diagnosis
    return replace(diagnosis, report=write_report(diagnosis, collected, view, folder))


def _check(encoder: Encoder, texts: Sequence[Text], attention: bool) -> None:
    if isinstance(encoder, QuantizedEncoder):
        raise ModelError(f"{encoder.name} is quantized already; diagnose the float model it was made from")
    if isinstance(texts, str) or not texts:
        raise DataError("a diagnosis needs a list of at least one text; twenty show the structure well")
    if encoder.tokenizer is None:
        raise ModelError(
            f"{encoder.name} has no tokenizer files; add them to its folder, texts cannot be read without"
        )
    if attention:
        check_attention(encoder)


def _settings(recipe: Recipe | None, task: str | None, max_length: int | None, seed: int) -> dict[str, Any]:
    chosen = recipe_to_dict(recipe or TABLE_2_RECIPE)
    return {"sensitivity_recipe": chosen, "task": task, "max_length": max_length, "seed": seed}


def _float_score(encoder: Encoder, score: Score | None, ledger: Ledger) -> float | None:
    if score is None:
        return None
    if "float_score" not in ledger:
        ledger.put("float_score", score(encoder))
    return float(ledger["float_score"])


@contextmanager
def _silent(title: str) -> Iterator[Progress]:
    yield lambda done, total: None
