from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from scipy import special

from octavo.errors import ModelError, OctavoError
from octavo.fidelity import tally as module
from octavo.fidelity.measures import Cosine, Fidelity, Neighbours
from octavo.fidelity.tally import FidelityTally

RNG = np.random.default_rng(0)


def once(head: str, outputs: dict, reference: dict, mask: object = None) -> Fidelity:
    fidelity = FidelityTally(head)
    fidelity.update(outputs, reference, mask)
    return fidelity.result()


def flat(result: Fidelity) -> dict:
    """Return the result without nesting, which approx cannot compare."""
    plain = result.to_dict()
    nested = {
        (name, key): plain[name][key]
        for name in plain
        if isinstance(plain[name], dict)
        for key in plain[name]
    }
    return nested | {name: value for name, value in plain.items() if not isinstance(value, dict)}


def test_classifier_by_hand() -> None:
    reference = np.array([[3.0, 4.0], [1.0, 0.0]])
    model = np.array([[4.0, 3.0], [1.0, 0.0]])
    result = once("sequence-classification", {"logits": model}, {"logits": reference})
    assert result.texts == 2
    assert result.cosine.mean == pytest.approx((24 / 25 + 1) / 2)
    assert result.cosine.worst == pytest.approx(24 / 25)
    assert result.sqnr == {"logits": pytest.approx(10 * math.log10(26 / 2))}
    assert result.agreement == {"logits": 0.5}
    # p = softmax(3, 4), q its mirror image: KL = (p1 - p0) * (4 - 3); the second row adds 0
    assert result.kl == {"logits": pytest.approx((special.expit(1) - special.expit(-1)) / 2)}
    assert result.neighbours is None
    assert result.correlation == {}


def test_kl_agrees_with_scipy() -> None:
    model, reference = RNG.normal(size=(2, 50, 5)) * 3
    p, q = special.softmax(reference, axis=1), special.softmax(model, axis=1)
    result = once("sequence-classification", {"logits": model}, {"logits": reference})
    assert result.kl["logits"] == pytest.approx(special.rel_entr(p, q).sum(axis=1).mean())


@pytest.mark.parametrize("head", ["token-classification", "masked-lm"])
def test_only_tokens_that_count_are_compared(head: str) -> None:
    model, reference = RNG.normal(size=(2, 3, 4, 6))
    mask = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]])
    spoiled = model.copy()
    spoiled[mask == 0] = np.nan
    result = once(head, {"logits": spoiled}, {"logits": reference}, mask)
    alone = once("sequence-classification", {"logits": model[mask == 1]}, {"logits": reference[mask == 1]})
    assert result.texts == 3
    assert result.sqnr == pytest.approx(alone.sqnr)
    assert result.agreement == pytest.approx(alone.agreement)
    assert result.kl == pytest.approx(alone.kl)
    assert result.cosine.mean == pytest.approx(alone.cosine.mean)


def test_question_answering_is_compared_per_start_and_end() -> None:
    reference = {"start_logits": np.array([[5.0, 0.0, 9.0]]), "end_logits": np.array([[0.0, 5.0, 9.0]])}
    model = {"start_logits": np.array([[5.0, 0.0, np.nan]]), "end_logits": np.array([[5.0, 0.0, 99.0]])}
    result = once("question-answering", model, reference, np.array([[1, 1, 0]]))
    assert result.agreement == {"start_logits": 1.0, "end_logits": 0.0}
    assert result.sqnr["start_logits"] == math.inf
    assert result.sqnr["end_logits"] == pytest.approx(10 * math.log10(25 / 50))
    assert result.kl["start_logits"] == 0.0
    assert result.kl["end_logits"] == pytest.approx(5 * (special.expit(5) - special.expit(-5)))
    assert result.cosine == Cosine(mean=0.5, worst=0.0)


def test_an_encoder_is_compared_by_its_embeddings() -> None:
    torch.manual_seed(0)
    hidden, embedding = torch.randn(4, 5, 6), torch.randn(4, 6)
    mask = torch.tensor([[1, 1, 1, 0, 0]] * 4)
    noisy = hidden.clone()
    noisy[:, 3:] = torch.inf
    noisy[:, :3] += 0.1
    result = once(
        "encoder",
        {"last_hidden_state": noisy, "embedding": embedding},
        {"last_hidden_state": hidden, "embedding": embedding},
        mask,
    )
    signal = float(hidden[:, :3].double().square().sum())
    assert result.sqnr["last_hidden_state"] == pytest.approx(10 * math.log10(signal / (72 * 0.01)), abs=1e-3)
    assert result.sqnr["embedding"] == math.inf
    assert result.cosine.mean == pytest.approx(1.0)
    assert result.neighbours == Neighbours(kept=1.0, of=3, texts=4)
    assert result.agreement == result.kl == {}


def test_a_single_logit_has_a_correlation_instead_of_predictions() -> None:
    reference = np.array([[0.1], [0.5], [0.9]], dtype=np.float32)
    result = once("sequence-classification", {"logits": reference * 2 + 1}, {"logits": reference})
    assert result.correlation == {"logits": pytest.approx(1.0)}
    assert result.cosine is None
    assert result.agreement == result.kl == {}


@pytest.mark.parametrize("size", [1, 3, 10])
def test_the_result_does_not_depend_on_the_batches(size: int) -> None:
    model, reference = RNG.normal(size=(2, 10, 4))
    fidelity = FidelityTally("sequence-classification")
    for start in range(0, 10, size):
        part = slice(start, start + size)
        fidelity.update({"logits": model[part]}, {"logits": reference[part]})
    whole = once("sequence-classification", {"logits": model}, {"logits": reference})
    assert flat(fidelity.result()) == pytest.approx(flat(whole))


def test_large_outputs_are_compared_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    model, reference = RNG.normal(size=(2, 2, 9, 7))
    whole = flat(once("masked-lm", {"logits": model}, {"logits": reference}))
    monkeypatch.setattr(module, "_CHUNK", 20)
    assert flat(once("masked-lm", {"logits": model}, {"logits": reference})) == pytest.approx(whole)


def test_zero_vectors_are_equal_to_each_other_only() -> None:
    model, reference = np.array([[0.0, 0.0], [0.0, 0.0]]), np.array([[0.0, 0.0], [1.0, 0.0]])
    result = once("sequence-classification", {"logits": model}, {"logits": reference})
    assert result.cosine == Cosine(mean=0.5, worst=0.0)


def test_half_precision_is_compared_in_double() -> None:
    outputs = {"logits": torch.full((2, 3), 300.0, dtype=torch.float16)}
    result = once("sequence-classification", outputs, outputs)
    assert result.cosine.mean == pytest.approx(1.0)


def test_plain_data_is_valid_json() -> None:
    outputs = {"logits": np.ones((2, 3))}
    plain = once("sequence-classification", outputs, outputs).to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False))["sqnr"] == {"logits": None}


@pytest.mark.parametrize(("spoiled", "owner"), [(0, "model"), (1, "reference")], ids=["model", "reference"])
def test_outputs_that_are_not_finite_are_refused(spoiled: int, owner: str) -> None:
    sides = [np.ones((2, 3)), np.ones((2, 3))]
    sides[spoiled][1, 1] = np.nan
    with pytest.raises(ModelError, match=f"Output 'logits' of the {owner} holds NaN or infinity"):
        once("sequence-classification", {"logits": sides[0]}, {"logits": sides[1]})


def test_outputs_of_different_shape_are_refused() -> None:
    with pytest.raises(ModelError, match=r"'logits' has shape \(2, 3\), the reference's \(2, 4\)"):
        once("sequence-classification", {"logits": np.ones((2, 3))}, {"logits": np.ones((2, 4))})


def test_an_output_the_reference_lacks_is_refused() -> None:
    with pytest.raises(ModelError, match="has no output 'logits'; it has scores"):
        once("sequence-classification", {"logits": np.ones((2, 3))}, {"scores": np.ones((2, 3))})


def test_an_unknown_head_is_refused() -> None:
    with pytest.raises(ModelError, match="head 'decoder' is not defined; known heads are encoder,"):
        FidelityTally("decoder")


def test_nothing_seen_is_refused() -> None:
    with pytest.raises(OctavoError, match="saw no outputs"):
        FidelityTally("encoder").result()


# -- in the head's language ----------------------------------------------------------------------------------


def one_hot(*labels: int, classes: int = 3) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor([labels]), classes).double()


def test_taggers_agree_in_the_entities_of_the_text() -> None:
    tally = FidelityTally("token-classification", labels=("O", "B-PER", "I-PER"))
    mine, theirs = one_hot(1, 1, 2, 0, 1), one_hot(0, 1, 2, 1, 0)
    content = torch.tensor([[0, 1, 1, 1, 0]])  # what is tagged at special tokens counts nowhere
    tally.update({"logits": mine}, {"logits": theirs}, torch.ones(1, 5), content)
    assert tally.result().entities == pytest.approx(2 / 3)  # one of one and two entities
    assert tally.result().quality().entities == pytest.approx(2 / 3)


def test_special_tokens_decide_nothing_of_a_tagger() -> None:
    model, reference = RNG.normal(size=(2, 1, 5, 3))
    content = torch.tensor([[0, 1, 1, 1, 0]])
    model[0, 0] += 1e6  # what it says of [CLS], which nobody reads
    tally = FidelityTally("token-classification", labels=("O", "B-PER", "I-PER"))
    tally.update({"logits": model}, {"logits": reference}, torch.ones(1, 5), content)
    inside = once("sequence-classification", {"logits": model[0, 1:4]}, {"logits": reference[0, 1:4]})
    assert tally.result().sqnr == pytest.approx(inside.sqnr)
    assert tally.result().agreement == pytest.approx(inside.agreement)
    assert tally.result().kl == pytest.approx(inside.kl)


def test_labels_that_name_no_entity_and_other_heads_have_none() -> None:
    tally = FidelityTally("token-classification", labels=("NOUN", "VERB", "X"))
    tally.update({"logits": one_hot(1, 2)}, {"logits": one_hot(1, 2)})
    assert tally.result().entities is None and tally.result().spans is None


def test_readers_agree_in_the_overlap_of_their_answers() -> None:
    tally = FidelityTally("question-answering")
    peaks = torch.eye(5).double()
    mine = {"start_logits": peaks[[1, 1]], "end_logits": peaks[[3, 3]]}
    theirs = {"start_logits": peaks[[1, 2]], "end_logits": peaks[[3, 2]]}
    tally.update(mine, theirs, torch.ones(2, 5), torch.tensor([[0, 1, 1, 1, 1]] * 2))
    assert tally.result().spans == pytest.approx((1 + 2 / 4) / 2)


def test_rerankers_have_a_rank_correlation() -> None:
    tally = FidelityTally("sequence-classification")
    tally.update(
        {"logits": torch.tensor([[1.0], [2.0], [9.0]])}, {"logits": torch.tensor([[0.1], [0.2], [0.3]])}
    )
    found = tally.result()
    assert found.rank_correlation == pytest.approx(1) and found.correlation["logits"] < 1
