from __future__ import annotations

import pytest
import torch

from octavo.fidelity.neighbours import NeighbourOverlap


def overlap(model: torch.Tensor, reference: torch.Tensor, **options: int) -> tuple[float | None, int, int]:
    neighbours = NeighbourOverlap(**options)
    for x, y in zip(model.split(7), reference.split(7), strict=True):
        neighbours.update(x, y)
    return neighbours.result()


def brute_force(model: torch.Tensor, reference: torch.Tensor, k: int) -> float:
    shares = []
    for i in range(len(model)):
        lists = []
        for vectors in (model, reference):
            cosines = torch.cosine_similarity(vectors[i], vectors, dim=-1).tolist()
            ranked = sorted((j for j in range(len(model)) if j != i), key=lambda j: -cosines[j])
            lists.append(set(ranked[:k]))
        shares.append(len(lists[0] & lists[1]) / k)
    return sum(shares) / len(shares)


def test_overlap_agrees_with_brute_force() -> None:
    torch.manual_seed(0)
    reference = torch.randn(40, 8)
    model = reference + 0.3 * torch.randn(40, 8)
    found, k, texts = overlap(model, reference)
    assert (k, texts) == (10, 40)
    assert found == pytest.approx(brute_force(model, reference, 10))


def test_rows_beyond_one_chunk_count_too() -> None:
    torch.manual_seed(0)
    reference = torch.randn(600, 4)
    model = reference.clone()
    model[550:] = torch.randn(50, 4)
    assert overlap(model, reference)[0] == pytest.approx(brute_force(model, reference, 10), abs=1e-4)


def test_identical_embeddings_overlap_completely_even_with_duplicates() -> None:
    vectors = torch.randn(5, 3).repeat(6, 1)
    assert overlap(vectors, vectors)[0] == 1.0


def test_which_duplicate_comes_first_does_not_matter() -> None:
    reference = torch.eye(3).repeat(6, 1)
    assert overlap(reference + 1e-4 * torch.randn(18, 3), reference)[0] == 1.0


@pytest.mark.parametrize(("texts", "k"), [(2, 1), (5, 4), (11, 10), (12, 10)])
def test_few_texts_have_fewer_neighbours(texts: int, k: int) -> None:
    vectors = torch.randn(texts, 4)
    assert overlap(vectors, vectors) == (1.0, k, texts)


def test_one_text_has_no_neighbours() -> None:
    assert overlap(torch.ones(1, 4), torch.ones(1, 4)) == (None, 0, 1)


def test_nothing_seen_has_no_overlap() -> None:
    assert NeighbourOverlap().result() == (None, 0, 0)


def test_beyond_the_limit_a_uniform_sample_is_kept() -> None:
    # The position of a text is its only coordinate that varies, so the kept ones can be read off.
    vectors = torch.stack([torch.arange(1000.0), torch.full((1000,), 500.0)], dim=1)
    neighbours = NeighbourOverlap(limit=100)
    for part in vectors.split(32):
        neighbours.update(part, part)
    assert neighbours.result() == (1.0, 10, 100)
    kept = neighbours._sample()[1]
    positions = 500 * kept[:, 0] / kept[:, 1]
    assert positions.mean() == pytest.approx(500, abs=90)


def test_rank_correlation_is_the_mean_of_spearmans_over_texts() -> None:
    from scipy.stats import spearmanr

    first, second = (
        torch.randn(30, 8, generator=torch.Generator().manual_seed(0)),
        torch.randn(30, 8, generator=torch.Generator().manual_seed(1)),
    )
    overlap = NeighbourOverlap()
    overlap.update(first, first + 0.3 * second)
    units = [torch.nn.functional.normalize(each, dim=1) for each in (first, first + 0.3 * second)]
    mine, theirs = ((unit @ unit.T).numpy() for unit in units)
    others = [[other for other in range(30) if other != text] for text in range(30)]
    each = [spearmanr(mine[t, others[t]], theirs[t, others[t]]).statistic for t in range(30)]
    assert overlap.rank_correlation() == pytest.approx(sum(each) / 30, abs=1e-6)


def test_two_texts_have_no_order() -> None:
    overlap = NeighbourOverlap()
    assert overlap.rank_correlation() is None
    overlap.update(torch.eye(2), torch.eye(2))
    assert overlap.rank_correlation() is None
