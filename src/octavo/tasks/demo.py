"""The texts that come with Octavo, for the demo, for examples and for whoever has none at hand."""

from __future__ import annotations

from importlib import resources

from octavo.tasks.texts import Text, read_texts

CALIBRATION_TEXTS = 64
_FILE = "demo_texts.txt"


def demo_texts() -> list[str]:
    """Return 64 varied English sentences: enough to calibrate a model with, and to try things on."""
    calibration, _ = split_demo_texts()
    return [text if isinstance(text, str) else text[0] for text in calibration]


def split_demo_texts() -> tuple[list[Text], list[Text]]:
    """Return the texts to calibrate with, spread over the whole file, and all others, to measure on.

    Some are pairs; no text is in both lists.
    """
    with resources.as_file(resources.files("octavo") / _FILE) as file:
        texts = read_texts(file)
    chosen = {number * len(texts) // CALIBRATION_TEXTS for number in range(CALIBRATION_TEXTS)}
    calibration = [text for index, text in enumerate(texts) if index in chosen]
    return calibration, [text for index, text in enumerate(texts) if index not in chosen]
