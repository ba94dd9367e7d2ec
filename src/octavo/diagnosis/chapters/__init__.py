"""The chapters of the report, one file each. A new one is a file here and a line in the table below."""

from __future__ import annotations

from typing import Any

from octavo.diagnosis.chapter import Chapter
from octavo.diagnosis.chapters.attention import AttentionChapter
from octavo.diagnosis.chapters.dimensions import DimensionsChapter
from octavo.diagnosis.chapters.ranking import RankingChapter
from octavo.diagnosis.chapters.remedies import RemediesChapter
from octavo.diagnosis.chapters.sensitivity import SensitivityChapter
from octavo.diagnosis.chapters.tasks import TasksChapter
from octavo.diagnosis.chapters.tokens import TokensChapter
from octavo.diagnosis.chapters.writers import WritersChapter

CHAPTERS: tuple[type[Chapter[Any]], ...] = (
    RankingChapter,
    DimensionsChapter,
    WritersChapter,
    TokensChapter,
    AttentionChapter,
    SensitivityChapter,
    RemediesChapter,
    TasksChapter,
)
"""In the order of the report, of its navigation, of its findings and of `report.json`."""
