"""A step of `octavo demo`: the diagnosis of the float model, as a report to look at."""

from __future__ import annotations

import tempfile
from pathlib import Path

from octavo.cli.demo.story import Story

REPORT_TEXTS = 20
_FOLDER = "report"


def report(story: Story) -> None:
    """Diagnose the float model and say where the report is: the output, otherwise a temporary folder."""
    from octavo.diagnosis import diagnose
    from octavo.diagnosis.report import REPORT

    story.begin("Look for yourself: the report")
    folder = story.folder / _FOLDER if story.output is not None else _lasting_folder()
    diagnosis = diagnose(
        story.encoder,
        story.calibration[:REPORT_TEXTS],
        output=folder,
        sensitivity=("roles",),
        seed=story.seed,
        progress=story.console.progress,
    )
    shown = (story.output / _FOLDER if story.output is not None else folder) / REPORT
    worst = diagnosis.findings[0]
    idle = sum(head.no_op for head in diagnosis.heads)
    story.tell(
        f"""Octavo also looked into the float model: {worst.title[0].lower()}{worst.title[1:]}, and
        {idle} of {len(diagnosis.heads)} attention heads do nothing. Outliers by layer, token and attention
        head, and what each part costs, are on one page for any browser:"""
    )
    story.console.show(f"  {shown}")
    story.results["report"] = str(shown)


def _lasting_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="octavo-report-"))
