"""What the steps of `octavo demo` share: the models, the texts, and a voice to tell with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.cli.console import Console
from octavo.cli.demo.neighbours import similarities
from octavo.cli.options import Device
from octavo.spec.presets import recipe

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from octavo.graph import Encoder, QuantizedEncoder, Text

MODEL = "demo:minilm"


@dataclass(kw_only=True)
class Story:
    """The state that goes from step to step.

    Arguments:
        console: what steps show things with; `begin`, `tell` and `stress` are for prose.
        folder: where steps write; it becomes `output`, or vanishes where the user keeps nothing.
        encoder: the float model.
        calibration, texts: the texts that ranges are found with, and the others, to measure on.
        models: the quantized models by recipe.
        similarities: by model, the cosines (n, n) of all its embeddings of `sentences`.
        results: plain data, for --json and the results file.
    """

    console: Console
    folder: Path
    output: Path | None
    device: Device = Device.auto
    seed: int = 0
    encoder: Encoder = field(init=False)
    calibration: list[Text] = field(default_factory=list)
    texts: list[Text] = field(default_factory=list)
    models: dict[str, QuantizedEncoder] = field(default_factory=dict)
    similarities: dict[str, NDArray[Any]] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    chapter: int = 0

    def begin(self, title: str) -> None:
        """Print the heading of the next step."""
        self.chapter += 1
        self.console.heading(f"{self.chapter}. {title}")

    def tell(self, paragraph: str) -> None:
        """Print a paragraph."""
        self.console.tell(paragraph)

    def stress(self, paragraph: str) -> None:
        """Print a paragraph that a reader in a hurry should not miss."""
        self.console.tell(paragraph, style="bold")

    @property
    def sentences(self) -> list[str]:
        """Return the texts to show examples of: pairs count as two, and each sentence once."""
        sides = (side for text in self.texts for side in ([text] if isinstance(text, str) else text))
        return list(dict.fromkeys(sides))

    def try_recipe(self, name: str) -> dict[str, Any]:
        """Quantize by a preset, save, measure against the float model, and keep model and numbers."""
        import octavo
        from octavo.methods.description import describe_saved
        from octavo.tasks import compare

        with self.console.progress(f"Calibrating {name}") as progress:
            model = octavo.quantize(
                self.encoder, recipe(name), self.calibration, seed=self.seed, progress=progress
            )
        model.save(self.folder / name)
        with self.console.progress(f"Measuring {name}") as progress:
            fidelity = compare(model, self.encoder, self.texts, progress=progress).fidelity
        assert fidelity is not None  # `compare` always gives one
        self.models[name] = model
        self.similarities[name] = similarities(model, self.sentences)
        plain = fidelity.quality().to_dict()
        numbers = {
            **describe_saved(model, self.folder / name),
            **{name: plain[name] for name in ("cosine", "neighbours")},
        }
        self.results.setdefault("recipes", []).append(numbers)
        return numbers
