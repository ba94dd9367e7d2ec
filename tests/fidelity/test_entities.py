from __future__ import annotations

import warnings
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics import f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities

from octavo.fidelity.entities import EntityTally, entities, names_entities, split_tag

BIO = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
BIOES = (*BIO, "E-PER", "S-PER", "E-LOC", "S-LOC")


def by_seqeval(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    return {(start, end + 1, kind) for kind, start, end in get_entities(list(tags))}


@given(st.lists(st.sampled_from(BIO), max_size=12) | st.lists(st.sampled_from(BIOES), max_size=12))
def test_entities_are_those_of_seqeval(tags: list[str]) -> None:
    assert entities(tags) == by_seqeval(tags)


def test_bilou_tags_end_entities_as_well() -> None:
    assert entities(["B-PER", "L-PER", "L-PER", "U-LOC", "U-LOC"]) == {
        (0, 2, "PER"),
        (2, 3, "PER"),
        (3, 4, "LOC"),
        (4, 5, "LOC"),
    }


sentences = st.lists(
    st.lists(st.tuples(st.sampled_from(BIO), st.sampled_from(BIO)), min_size=1, max_size=8), min_size=1
)


@given(sentences)
def test_scores_are_those_of_seqeval(pairs: list[list[tuple[str, str]]]) -> None:
    said = [[a for a, _ in sentence] for sentence in pairs]
    true = [[b for _, b in sentence] for sentence in pairs]
    tally = EntityTally()
    for mine, theirs in zip(said, true, strict=True):
        tally.add(mine, theirs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # seqeval warns of zeros
        expected = [score(true, said) for score in (precision_score, recall_score, f1_score)]
    assert [tally.precision, tally.recall, tally.f1] == pytest.approx(expected)


def test_tags_without_a_prefix_name_no_entity() -> None:
    assert split_tag("NOUN") == split_tag("X-PER") == ("O", "")
    assert not names_entities(["NOUN", "O"]) and names_entities(["O", "S-PER"])
    assert split_tag("B-per-son") == ("B", "per-son")
