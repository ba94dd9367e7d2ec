"""`octavo.diagnose`: look into a float model with some texts, and say why it breaks when it is quantized."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from octavo.diagnosis.chapter import Chapter, Finding, Observers, Score, Study
from octavo.diagnosis.chapters import CHAPTERS
from octavo.diagnosis.chapters.attention import check_attention
from octavo.diagnosis.chapters.sensitivity import TABLE_2_RECIPE, check_scopes
from octavo.diagnosis.chosen_text import choose_text
from octavo.diagnosis.diagnosis import Diagnosis
from octavo.diagnosis.report import write_report
from octavo.diagnosis.token_kinds import TokenKinds
from octavo.diagnosis.watch import MomentsBySite
from octavo.errors import DataError, ModelError, OutputError
from octavo.graph import Encoder, QuantizedEncoder, Text
from octavo.ledger import Ledger, fingerprint
from octavo.progress import Progress, silent
from octavo.spec import Recipe
from octavo.spec.document import recipe_to_dict
from octavo.versions import versions

Stage = Callable[[str], AbstractContextManager[Progress]]
PROGRESS = ".progress"
"""The folder of finished measurements inside that of the report."""
MEASURED_TEXTS = 64
"""At most this many texts, the first, calibrate and measure recipes and variants; statistics are of all."""


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
    began = time.perf_counter()
    kinds = TokenKinds(encoder)
    chosen = choose_text(encoder, texts, kinds, sequence)
    settings = _settings(recipe, task, max_length, seed)
    folder = None if output is None else Path(output)
    study = Study(
        encoder=encoder,
        texts=texts,
        measured=list(texts[:MEASURED_TEXTS]),
        kinds=kinds,
        chosen=chosen,
        ledger=_open_ledger(folder, encoder, texts, settings, force),
        scopes=scopes,
        recipe=recipe,
        attention=attention,
        score=score,
        panels=panels,
        batch_size=batch_size,
        max_length=max_length,
        seed=seed,
        source=source,
    )
    chapters = [chapter(study) for chapter in CHAPTERS]
    _conclude(chapters, study, progress or _silent_stage)
    diagnosis = Diagnosis(
        model=encoder.name,
        texts=len(texts),
        sequence=chosen.index + 1,
        results=study.results,
        findings=_findings(chapters),
        document={key: part for chapter in chapters for key, part in chapter.to_dict().items()},
        provenance=settings
        | {
            "measured_texts": len(study.measured),
            "seconds": time.perf_counter() - began,
            "versions": versions(),
        },
    )
    if folder is None:
        return diagnosis
    return replace(diagnosis, report=write_report(diagnosis, chapters, folder))


def _findings(chapters: Sequence[Chapter[Any]]) -> tuple[Finding, ...]:
    first = [finding for chapter in chapters for finding in chapter.headline()]
    return (*first, *(finding for chapter in chapters for finding in chapter.findings()))


# -- the loop over chapters ----------------------------------------------------------------------------------


def _conclude(chapters: Sequence[Chapter[Any]], study: Study, stage: Stage) -> None:
    """Take what the ledger holds, watch what is missing, and let each chapter conclude in its turn."""
    missing = [chapter for chapter in chapters if chapter.is_wanted() and not chapter.restore()]
    observers = [each for chapter in missing if (each := chapter.observers()) != Observers()]
    if observers:
        with stage("Watching activations") as progress:
            watch_texts(study, observers, progress)
    for chapter in sorted(missing, key=lambda chapter: chapter.turn):
        if chapter.stage is None:
            chapter.finish(chapter.conclude(silent))
            continue
        with stage(chapter.stage) as progress:
            chapter.finish(chapter.conclude(progress))
    for chapter in chapters:
        study.results.setdefault(chapter.name, None)


def watch_texts(study: Study, observers: Sequence[Observers], progress: Progress) -> None:
    """Run all texts twice, unpadded, then the chosen one; no tensor is held after it was looked at."""
    # Token ids only: some kilobytes for thousands of texts.
    batches = list(study.encoder.batches(study.texts, study.batch_size, study.max_length, pad=False))
    by_site = MomentsBySite()
    first = [by_site.see, *(each.first for each in observers if each.first is not None)]
    second = [each.second for each in observers if each.second is not None]
    done = 0
    for watching, moments in ((first, None), (second, by_site.moments)):
        for indices, batch in batches:
            study.watch.run(batch, indices, watching, moments)
            done += len(indices)
            progress(done, 2 * len(study.texts))
    alone = [each.chosen for each in observers if each.chosen is not None]
    if alone:
        study.watch.run(study.chosen.batch, [study.chosen.index], alone)


# -- checks --------------------------------------------------------------------------------------------------


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


def _open_ledger(
    folder: Path | None, encoder: Encoder, texts: Sequence[Text], settings: Mapping[str, Any], force: bool
) -> Ledger:
    """Open the measurements of an earlier run; refuse a folder of something else before any work is done."""
    if folder is None:
        return Ledger(None, {})
    about = {
        "model": encoder.name,
        "weights": fingerprint(dict(encoder.graph.named_parameters())),
        "texts": {"count": len(texts), "sha256": fingerprint(list(texts))},
        **settings,
        "versions": versions(),
    }
    kept = folder / PROGRESS
    try:
        foreign = folder.is_dir() and any(folder.iterdir()) and not kept.is_dir()
    except OSError as error:
        raise OutputError(f"{folder} cannot be read: {error.strerror or error}") from error
    if foreign and not force:
        raise OutputError(
            f"{folder} holds other files; choose an empty folder or use --force to write among them"
        )
    return Ledger(kept, about, noun="a diagnosis", remedy="give another folder or use --force", force=force)


@contextmanager
def _silent_stage(title: str) -> Iterator[Progress]:
    yield silent
