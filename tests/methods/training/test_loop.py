from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from octavo.errors import ModelError, OutputError, SavedModelError
from octavo.graph import Encoder
from octavo.methods.training.checkpoint import Checkpoint
from octavo.methods.training.finetuning import own_copy
from octavo.methods.training.hyperparameters import Hyperparameters
from octavo.methods.training.labelled import Labelled
from octavo.methods.training.loop import RunOptions, TimeOverError, TrainingResult, train

HYPER = Hyperparameters(learning_rate=3e-3, batch_size=16, epochs=3, warmup=0.1)


class Killed(Exception):
    pass


def parameters(encoder: Encoder) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in encoder.graph.state_dict().items()}


def run(encoder: Encoder, data: Labelled, options: RunOptions | None = None, seed: int = 0) -> TrainingResult:
    scores = iter([50.0, 70.0, 60.0])
    return train(encoder.graph, data, HYPER, seed=seed, score=lambda: next(scores), options=options)


def kill_at(step: int) -> RunOptions:
    def progress(done: int, total: int) -> None:
        if done == step:
            raise Killed

    return RunOptions(progress=progress)


def test_the_loss_falls_and_the_best_epoch_is_kept(tiny_classifier: Encoder, tiny_data: Labelled) -> None:
    encoder = own_copy(tiny_classifier)
    result = run(encoder, tiny_data)
    assert result.steps == 12
    assert result.losses[-1] < result.losses[0]
    assert (result.scores, result.kept_epoch) == ([50.0, 70.0, 60.0], 2)


def test_the_same_seed_gives_the_same_parameters(tiny_classifier: Encoder, tiny_data: Labelled) -> None:
    found = []
    for seed in (0, 0, 1):
        encoder = own_copy(tiny_classifier)
        run(encoder, tiny_data, seed=seed)
        found.append(parameters(encoder)["classifier.weight"])
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize("step", [3, 5, 12])
def test_a_killed_run_continues_to_the_same_result(
    tiny_classifier: Encoder, tiny_data: Labelled, tmp_path: Path, step: int
) -> None:
    whole = own_copy(tiny_classifier)
    expected = run(whole, tiny_data)
    cut = own_copy(tiny_classifier)
    killer = kill_at(step).progress
    scores = iter([50.0, 70.0, 60.0])
    with pytest.raises(Killed):
        train(
            cut.graph,
            tiny_data,
            HYPER,
            score=lambda: next(scores),
            options=RunOptions(checkpoint=tmp_path / "c", every=0.0, progress=killer),
        )
    again = own_copy(tiny_classifier)
    later = train(
        again.graph,
        tiny_data,
        HYPER,
        score=lambda: next(scores),
        options=RunOptions(checkpoint=tmp_path / "c"),
    )
    assert later.resumed_at >= step - 1
    assert later.losses == pytest.approx(expected.losses)
    assert later.scores == expected.scores and later.kept_epoch == expected.kept_epoch
    for name, value in parameters(whole).items():
        assert torch.equal(value, parameters(again)[name]), name


def changed(encoder: Encoder, data: Labelled, what: str) -> tuple[Encoder, Labelled, int]:
    """The same training but for one thing."""
    encoder = own_copy(encoder)
    if what == "parameters":
        with torch.no_grad():
            encoder.graph.get_parameter("bert.embeddings.word_embeddings.weight")[0, 0] += 1
    if what == "labels":
        data = replace(data, labels=data.labels.flip(0))
    if what == "tokens":
        data = replace(data, inputs=(data.inputs[0].flip(0), *data.inputs[1:]))
    return encoder, data, int(what == "seed")


@pytest.mark.parametrize(
    ("what", "differs"),
    [("seed", "seed"), ("parameters", "parameters"), ("labels", "data"), ("tokens", "data")],
)
def test_the_checkpoint_of_another_training_is_refused(
    tiny_classifier: Encoder, tiny_data: Labelled, tmp_path: Path, what: str, differs: str
) -> None:
    options = RunOptions(checkpoint=tmp_path / "c")
    run(own_copy(tiny_classifier), tiny_data, options)
    encoder, data, seed = changed(tiny_classifier, tiny_data, what)
    before = parameters(encoder)
    with pytest.raises(OutputError, match=f"holds the checkpoint of a training with another {differs} "):
        run(encoder, data, options, seed=seed)
    assert all(torch.equal(value, before[name]) for name, value in parameters(encoder).items())


def test_a_folder_of_other_files_is_refused_as_a_checkpoint(
    tiny_classifier: Encoder, tiny_data: Labelled, tmp_path: Path
) -> None:
    (tmp_path / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputError, match="holds other files"):
        run(own_copy(tiny_classifier), tiny_data, RunOptions(checkpoint=tmp_path, every=0.0))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_training_stops_in_time_and_goes_on_later(
    tiny_classifier: Encoder, tiny_data: Labelled, tmp_path: Path
) -> None:
    whole, cut = own_copy(tiny_classifier), own_copy(tiny_classifier)
    expected = run(whole, tiny_data)
    with pytest.raises(TimeOverError, match="the time was over after 1 of 12 steps"):
        run(cut, tiny_data, RunOptions(checkpoint=tmp_path / "c", stop_at=time.monotonic()))
    again = own_copy(tiny_classifier)
    later = run(again, tiny_data, RunOptions(checkpoint=tmp_path / "c"))
    assert later.resumed_at == 1 and later.losses == pytest.approx(expected.losses)
    for name, value in parameters(whole).items():
        assert torch.equal(value, parameters(again)[name]), name


@pytest.mark.parametrize("epoch", [1, 3])
def test_an_epoch_whose_scoring_ran_out_of_time_is_not_trained_again(
    tiny_classifier: Encoder, tiny_data: Labelled, tmp_path: Path, epoch: int
) -> None:
    whole, cut = own_copy(tiny_classifier), own_copy(tiny_classifier)
    expected = run(whole, tiny_data)
    options = RunOptions(checkpoint=tmp_path / "c")
    scores = [50.0, 70.0, 60.0]
    left = iter(scores)
    asked = 0

    def score() -> float:
        nonlocal asked
        asked += 1
        if asked == epoch:
            raise TimeOverError("the time was over")
        return next(left)

    with pytest.raises(TimeOverError):
        train(cut.graph, tiny_data, HYPER, score=score, options=options)
    again = own_copy(tiny_classifier)
    later = train(again.graph, tiny_data, HYPER, score=lambda: next(left), options=options)
    assert later.resumed_at == 4 * epoch
    assert later.losses == pytest.approx(expected.losses)
    assert (later.scores, later.kept_epoch) == (scores, 2)
    for name, value in parameters(whole).items():
        assert torch.equal(value, parameters(again)[name]), name


@pytest.mark.parametrize(("every", "expected"), [(0.0, list(range(1, 13))), (60.0, [12])])
def test_checkpoints_are_as_far_apart_as_asked(
    tiny_classifier: Encoder,
    tiny_data: Labelled,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    every: float,
    expected: list[int],
) -> None:
    """Each holds several copies of the model; the last one is there until the result is saved."""
    done: list[int] = []
    monkeypatch.setattr(Checkpoint, "write", lambda *arguments: done.append(arguments[-1]["done"]))
    run(own_copy(tiny_classifier), tiny_data, RunOptions(checkpoint=tmp_path / "c", every=every))
    assert done == expected


def test_a_damaged_checkpoint_is_refused(
    tiny_classifier: Encoder, tiny_data: Labelled, tmp_path: Path
) -> None:
    run(own_copy(tiny_classifier), tiny_data, RunOptions(checkpoint=tmp_path / "c"))
    (tmp_path / "c" / "checkpoint.safetensors").write_bytes(b"broken")
    with pytest.raises(SavedModelError, match="is damaged"):
        run(own_copy(tiny_classifier), tiny_data, RunOptions(checkpoint=tmp_path / "c"))


def test_a_loss_that_explodes_is_an_error(tiny_classifier: Encoder, tiny_data: Labelled) -> None:
    encoder = own_copy(tiny_classifier)
    with torch.no_grad():
        encoder.graph.get_parameter("classifier.weight").fill_(torch.nan)
    with pytest.raises(ModelError, match="the loss of epoch 1 is nan; train with a smaller learning rate"):
        run(encoder, tiny_data)


def test_progress_and_log_are_told(tiny_classifier: Encoder, tiny_data: Labelled) -> None:
    seen: list[tuple[int, int]] = []
    logged: list[tuple[int, dict[str, float]]] = []
    options = RunOptions(
        progress=lambda *at: seen.append(at), log=lambda step, values: logged.append((step, values))
    )
    run(own_copy(tiny_classifier), tiny_data, options)
    assert seen[0] == (1, 12) and seen[-1] == (12, 12)
    assert [step for step, _ in logged] == [4, 8, 12]
    assert logged[1][1]["score"] == 70.0
