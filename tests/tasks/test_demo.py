from __future__ import annotations

from octavo.tasks.demo import CALIBRATION_TEXTS, demo_texts, split_demo_texts


def test_demo_texts_are_64_different_sentences() -> None:
    texts = demo_texts()
    assert len(set(texts)) == len(texts) == 64
    assert all(isinstance(text, str) for text in texts)


def test_demo_texts_vary_in_length_and_are_the_same_every_time() -> None:
    lengths = sorted(len(text.split()) for text in demo_texts())
    assert lengths[0] < 8 and lengths[-1] > 25
    assert demo_texts() == demo_texts()


def test_texts_are_split_without_overlap() -> None:
    calibration, texts = split_demo_texts()
    assert len(calibration) == CALIBRATION_TEXTS
    assert len(texts) > 300
    assert not set(calibration) & set(texts)
    assert {str, tuple} == {type(text) for text in calibration} == {type(text) for text in texts}
