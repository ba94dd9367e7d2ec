"""Block by block: every layer learns to end where the float model's layer ends, after those before it.

A block is all that is computed between the ends of two layers. Its parameters alone take gradients, so that
only its own activations are remembered; a weight that several blocks read learns in the first of them. The
head belongs to the last block, which learns by the outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from torch import Tensor, fx, nn

from octavo.errors import SpecError
from octavo.graph import Encoder, QuantizedEncoder
from octavo.graph.taps import layer_ends, tapped
from octavo.ledger import Ledger
from octavo.methods.distillation.objective import Objective, Outputs
from octavo.methods.distillation.settings import Distillation
from octavo.methods.distillation.taught import Taught
from octavo.methods.training.checkpoint import discard_checkpoint
from octavo.methods.training.half import in_half
from octavo.methods.training.loop import RunOptions, TrainingResult, train
from octavo.methods.training.quantized import learned_ranges
from octavo.numerics.distillation import relative_error
from octavo.progress import part_of


class EndOfLayer(Objective):
    """The relative error of the one tensor that a block ends with."""

    def error(self, outputs: Outputs, reference: Outputs, inputs: Outputs) -> Tensor:
        """Return the mean over tokens."""
        return relative_error(outputs[0], reference[0], self.mask(inputs))

    def loss(self, outputs: Outputs, reference: Outputs, inputs: Outputs) -> Tensor:
        """Return the error."""
        return self.error(outputs, reference, inputs)


def train_blocks(
    model: QuantizedEncoder,
    teacher: Encoder,
    data: Taught,
    judge: Taught,
    settings: Distillation,
    seed: int,
    ledger: Ledger,
    options: RunOptions,
) -> list[TrainingResult]:
    """Train a prepared model in place, one block after the other; finished blocks are kept in the ledger.

    Arguments:
        teacher: the float model after the rewrites that the model went through.
        data, judge: texts to learn from and texts held out, which compare outputs.
    """
    ends = layer_ends(model)
    if not ends:
        raise SpecError(f"{model.name}: no layers were found to train one by one; distill it end to end")
    students = [*(tapped(model, [end], alone=True) for end in ends[:-1]), model.graph]
    teachers = [*(tapped(teacher, [end], alone=True) for end in ends[:-1]), teacher.graph]
    inner = EndOfLayer(teacher, settings)
    results, done = [], set[int]()
    for index, (student, taught_by) in enumerate(zip(students, teachers, strict=True)):
        objective = data.objective if student is model.graph else inner
        block = replace(data, teacher=taught_by, objective=objective, kept=[])
        held = replace(judge, teacher=taught_by, objective=objective, kept=[])
        with _learning_alone(model, student, done) as own:
            results.append(
                _train(
                    index,
                    student,
                    own,
                    block,
                    held,
                    learned_ranges(model),
                    settings,
                    seed,
                    ledger,
                    replace(options, progress=part_of(options.progress, index, len(students))),
                )
            )
    return results


def _train(
    index: int,
    student: fx.GraphModule,
    own: dict[str, nn.Parameter],
    data: Taught,
    held: Taught,
    ranges: list[Tensor],
    settings: Distillation,
    seed: int,
    ledger: Ledger,
    options: RunOptions,
) -> TrainingResult:
    """Train one block, or take what the ledger has of it."""
    key = f"block-{index}"
    kept = ledger.get_tensors(key)
    if kept is not None:
        student.load_state_dict(kept[1], strict=False)
        return TrainingResult(**kept[0])
    if not own:
        return TrainingResult(steps=0)
    folder: Path | None = None if ledger.folder is None else ledger.folder / f"training-{index}"
    held.keep()
    result = train(
        in_half(student),
        data,
        settings.hyperparameters(),
        seed=seed,
        ranges=ranges,
        score=lambda: -held.error(student),
        options=replace(options, checkpoint=folder, record=False),
        start={**ledger.about, "block": index},
        keep_start=True,
    )
    ledger.put(key, result.to_dict(), {name: parameter.detach() for name, parameter in own.items()})
    if folder is not None:
        discard_checkpoint(folder)
    return result


@contextmanager
def _learning_alone(
    model: QuantizedEncoder, student: fx.GraphModule, done: set[int]
) -> Iterator[dict[str, nn.Parameter]]:
    """Let only what no block before has read take gradients; yield it by name."""
    learning = [parameter for parameter in model.graph.parameters() if parameter.requires_grad]
    own = {
        name: parameter
        for name, parameter in student.named_parameters()
        if parameter.requires_grad and id(parameter) not in done
    }
    mine = {id(parameter) for parameter in own.values()}
    for parameter in learning:
        parameter.requires_grad_(id(parameter) in mine)
    try:
        yield own
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)
        done |= {id(parameter) for parameter in student.parameters()}
