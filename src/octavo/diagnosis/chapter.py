"""A chapter of the report: what it watches, what it tries, what it says and what it draws.

`octavo.diagnosis.chapters` has a file for each chapter and the table of them; `octavo.diagnosis.run` goes
through the table.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, TypeVar

from octavo.diagnosis.chosen_text import ChosenText
from octavo.diagnosis.records import pack, unpack
from octavo.diagnosis.token_kinds import TokenKinds
from octavo.diagnosis.watch import Observer, Watch
from octavo.drawing import Drawing
from octavo.errors import OctavoWarning
from octavo.fidelity import Quality, Reference
from octavo.graph import Encoder, QuantizedEncoder, Text
from octavo.ledger import Ledger
from octavo.methods import quantize
from octavo.progress import Progress
from octavo.spec import Recipe

WIDTH = 912.0
"""How wide the figures of the report are."""
Level = Literal["problem", "note", "fine", "advice"]
Score = Callable[[Encoder], float]
"""The score of a model on a task, such as `octavo.tasks.score_task` gives; higher is better."""
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing to know, in plain language, with what it rests on and the commands that act on it."""

    level: Level
    title: str
    text: str
    evidence: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


@dataclass(eq=False, kw_only=True)
class Study:
    """What the chapters share: the model, the texts, the options, and each other's results.

    Arguments:
        measured: the texts that recipes and variants are calibrated and measured on.
        chosen: the text that is shown token by token.
        ledger: what was finished in an earlier run.
        results: by the chapters' names; those earlier in the table can be relied on.
        calibrated: the last recipe and its model, which `quantize` does not make again.
        other options: as in `diagnose`.
    """

    encoder: Encoder
    texts: Sequence[Text]
    measured: Sequence[Text]
    kinds: TokenKinds
    chosen: ChosenText
    ledger: Ledger
    scopes: Sequence[str] = ()
    recipe: Recipe | None = None
    attention: bool = True
    score: Score | None = None
    panels: Mapping[str, Sequence[Text]] | None = None
    batch_size: int = 8
    max_length: int | None = None
    seed: int = 0
    source: str = "texts.txt"
    results: dict[str, Any] = field(default_factory=dict)
    calibrated: tuple[Recipe, QuantizedEncoder] | None = None

    @cached_property
    def watch(self) -> Watch:
        """The float model under observation."""
        return Watch(self.encoder)

    @cached_property
    def layers(self) -> dict[str, int | None]:
        """The layer of every activation site, by its name."""
        return {site.name: site.layer for site in self.encoder.activation_sites}

    @cached_property
    def _reference(self) -> Reference:
        return Reference.of_texts(
            self.encoder, self.measured, batch_size=self.batch_size, max_length=self.max_length
        )

    @cached_property
    def float_score(self) -> float | None:
        """The float model's score on the task, if there is one."""
        if self.score is None:
            return None
        kept = self.ledger.get("float_score")
        if kept is None:
            kept = {"score": self.score(self.encoder)}
            self.ledger.put("float_score", kept)
        return float(kept["score"])

    def quantize(self, recipe: Recipe) -> QuantizedEncoder:
        """Quantize the model, calibrated on the measured texts."""
        if self.calibrated is None or self.calibrated[0] != recipe:
            gc.collect()  # a graph refers to itself: without this, models that were tried pile up
            with warnings.catch_warnings():
                if recipe != self.recipe:
                    # not what the user asked for; sites that cannot be folded show in what it keeps
                    warnings.simplefilter("ignore", OctavoWarning)
                model = quantize(
                    self.encoder, recipe, self.measured, seed=self.seed, max_length=self.max_length
                )
            self.calibrated = recipe, model
        return self.calibrated[1]

    def measure(self, model: Encoder) -> Quality:
        """Return a model's fidelity on the measured texts, and its score if there is a task."""
        quality = self.fidelity(model)
        return quality if self.score is None else replace(quality, score=self.score(model))

    def fidelity(self, model: Encoder) -> Quality:
        """Return a model's fidelity on the measured texts alone, which never takes long."""
        return self._reference.compare(model).quality()


@dataclass(frozen=True, kw_only=True)
class Observers:
    """What a chapter watches: two passes over all texts, of which the second knows the moments of every site
    over all texts, and the chosen text alone."""

    first: Observer | None = None
    second: Observer | None = None
    chosen: Observer | None = None


class Chapter(Generic[Result]):
    """One chapter; subclasses override what they have, everything else is empty.

    Attributes:
        name: of its section and of its result. title: in the navigation.
        record: the type of its result, a dataclass of plain data, tensors and such dataclasses.
        stage: what the user reads while `conclude` works, None if that takes no time.
        turn: chapters conclude by their turn, and those of one turn in the order of the table.
        result: what `conclude` returned, now or in an earlier run.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    record: ClassVar[type[Any]]
    stage: ClassVar[str | None] = None
    turn: ClassVar[int] = 0

    def __init__(self, study: Study) -> None:
        self.study = study

    @property
    def result(self) -> Result:
        """What was found."""
        result: Result = self.study.results[self.name]
        return result

    # -- watch, try ------------------------------------------------------------------------------------------

    def is_wanted(self) -> bool:
        """Whether the user asked for it; if not, its result is None."""
        return True

    def key(self) -> str | None:
        """Return where the ledger keeps the whole result, or None if `conclude` keeps parts by itself."""
        return self.name

    def observers(self) -> Observers:
        """Return what looks at tensors before `conclude` is called."""
        return Observers()

    def conclude(self, progress: Progress) -> Result:
        """Return the result, by what the observers saw or by trying something."""
        raise NotImplementedError

    # -- say -------------------------------------------------------------------------------------------------

    def headline(self) -> list[Finding]:
        """Return what a reader must know first, before the findings of all chapters."""
        return []

    def findings(self) -> list[Finding]:
        """Return what the result means, in sentences that a reader can check and act on."""
        return []

    def to_dict(self) -> dict[str, Any]:
        """Return the chapter's part of `report.json`."""
        return {}

    # -- draw ------------------------------------------------------------------------------------------------

    def figures(self) -> dict[str, Drawing]:
        """Return the figures by file name."""
        return {}

    def section(self, figures: Mapping[str, Drawing]) -> str:
        """Return the section as HTML; without one, the chapter is not in the navigation either."""
        return ""

    def tile(self) -> tuple[str, str] | None:
        """Return a number to remember for the head of the page, and what it is."""
        return None

    def data(self) -> dict[str, Any]:
        """Return numbers for the script of the page, as JSON has them."""
        return {}

    # -- the ledger ------------------------------------------------------------------------------------------

    def restore(self) -> bool:
        """Take the result of an earlier run from the ledger, if it is there and complete."""
        key = self.key()
        kept = None if key is None else self.study.ledger.get_tensors(key)
        if kept is None:
            return False
        try:
            self.study.results[self.name] = unpack(self.record, *kept)
        except (KeyError, TypeError, ValueError):
            return False  # of another form: it counts as missing
        return True

    def finish(self, result: Result) -> None:
        """Take a result, and keep it for the next run."""
        self.study.results[self.name] = result
        key = self.key()
        if key is not None:
            self.study.ledger.put(key, *pack(result))
