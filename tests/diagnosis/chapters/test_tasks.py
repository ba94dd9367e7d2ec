from __future__ import annotations

import pytest

from octavo.diagnosis.chapters.tasks import distributions
from octavo.diagnosis.watch import Watch
from octavo.graph import Encoder


def test_a_panel_for_every_task_and_a_box_for_every_text(planted: Encoder, texts: list[str]) -> None:
    found = distributions(planted, Watch(planted), {"One": texts * 3, "Two": texts[:2]})
    assert (found.input_site, found.output_site) == ("layers.0.ffn_input", "layers.0.ffn_output")
    assert [(panel.task, len(panel.inputs), len(panel.outputs)) for panel in found.panels] == [
        ("One", 10, 10),
        ("Two", 2, 2),
    ]
    for box in (*found.panels[0].inputs, *found.panels[0].outputs):
        assert list(box) == sorted(box)
    assert found.panels[0].inputs[0] == pytest.approx(found.panels[1].inputs[0])
