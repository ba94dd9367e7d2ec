"""The disease across architectures: the figures of the paper's appendix D for several models.

    python -m benchmarks.architectures MODEL_DIR... -o FIGURES --results results/architectures.json

For each model, on twenty texts: outlier dimensions at FFN outputs, ranges by token, attention on special
tokens by head. The figures are those of `octavo diagnose`, which also tries remedies; here the model is
only watched, and nothing is drawn at random.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from pathlib import Path
from typing import Any

import octavo
from octavo.diagnosis.chapter import Chapter, Study
from octavo.diagnosis.chapters.attention import AttentionChapter
from octavo.diagnosis.chapters.dimensions import DimensionsChapter
from octavo.diagnosis.chapters.ranking import RankingChapter
from octavo.diagnosis.chapters.tokens import TokensChapter
from octavo.diagnosis.chosen_text import choose_text
from octavo.diagnosis.run import watch_texts
from octavo.diagnosis.token_kinds import TokenKinds
from octavo.ledger import Ledger
from octavo.progress import silent
from octavo.versions import versions

TEXTS = 20
FIGURES = ("outliers-ffn-output", "tokens", "heads")
CHAPTERS: tuple[type[Chapter[Any]], ...] = (
    RankingChapter,
    DimensionsChapter,
    TokensChapter,
    AttentionChapter,
)


def watch(encoder: octavo.Encoder, texts: list[str]) -> list[Chapter[Any]]:
    kinds = TokenKinds(encoder)
    study = Study(
        encoder=encoder,
        texts=texts,
        measured=texts,
        kinds=kinds,
        chosen=choose_text(encoder, texts, kinds, None),
        ledger=Ledger(None, {}),
        scopes=(),
        recipe=None,
        attention=True,
        score=None,
        panels=None,
        batch_size=8,
        max_length=64,
        seed=0,
        source="texts.txt",
    )
    chapters = [chapter(study) for chapter in CHAPTERS]
    watch_texts(study, [chapter.observers() for chapter in chapters], silent)
    for chapter in sorted(chapters, key=lambda each: each.turn):
        chapter.finish(chapter.conclude(silent))
    return chapters


def numbers(chapters: list[Chapter[Any]]) -> dict[str, Any]:
    """What the page says of a model, as data."""
    ranking, dimensions, *_ = (chapter.result for chapter in chapters)
    stream = sorted(dimensions.stream, key=lambda each: each.span / each.median_span, reverse=True)
    return {
        "worst_site": ranking.sites[0].to_dict(),
        "outlier_dimensions": sorted({each.dimension for each in stream}),
        "widest": [each.to_dict() for each in stream[:3]],
        "findings": [finding.text for chapter in chapters for finding in chapter.findings()],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", help="model folders")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the figures")
    parser.add_argument("--results", type=Path, required=True, help="JSON with the numbers of the page")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    korean = (Path(__file__).with_name("korean.txt")).read_text(encoding="utf-8").splitlines()
    found: dict[str, Any] = {}
    for model in options.models:
        name = Path(model).name
        texts = (korean if "kor" in name else octavo.demo_texts())[:TEXTS]
        chapters = watch(octavo.load(model), list(texts))
        for chapter in chapters:
            for figure, drawing in chapter.figures().items():
                if figure in FIGURES:
                    file = options.output / f"{name}-{figure}.svg"
                    file.write_text(drawing.document(), encoding="utf-8")
        found[name] = numbers(chapters)
    about = {
        "command": f"python -m benchmarks.architectures {' '.join(found)} -o docs/images/architectures "
        "--results results/architectures.json",
        "texts": TEXTS,
        "versions": versions(),
        "hardware": {"cpu": platform.machine(), "cores": os.cpu_count()},
    }
    options.results.write_text(json.dumps(about | {"models": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
