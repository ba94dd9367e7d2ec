from __future__ import annotations

import pytest

from octavo.cli.summary import in_words, megabytes, size_in_words


@pytest.mark.parametrize(
    ("count", "expected"), [(90_261_504, "90.3 MB"), (100_000, "0.1 MB"), (99_949, "99.9 kB"), (0, "0.0 kB")]
)
def test_bytes_in_words(count: int, expected: str) -> None:
    assert megabytes(count) == expected


def test_bits_in_words() -> None:
    assert in_words({"8": 63, "16": 18, "float": 2}) == "63 in 8 bits, 18 in 16 bits, 2 in float"


def test_size_in_words() -> None:
    sizes = {"weights_bytes": 2_000_000, "fp32_bytes": 8_000_000, "folder_bytes": 2_500_000}
    expected = "2.0 MB of weights, 4.00 times smaller than FP32 (8.0 MB); 2.5 MB with tokenizer and settings"
    assert size_in_words({**sizes, "times_smaller": 4.0}) == expected
