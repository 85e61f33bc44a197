"""Rows of attention maps, against scipy and closed forms."""

import numpy as np
import pytest
import torch
from scipy import special, stats as scipy_stats

from interp.stream import rows

N = 7


@pytest.fixture
def scores() -> torch.Tensor:
    """[batch head pos key], −inf above the diagonal as a run leaves it."""
    generator = torch.Generator().manual_seed(3)
    drawn = 2 * torch.randn(2, 3, N, N, generator=generator, dtype=torch.float64)
    return drawn.masked_fill(torch.ones(N, N, dtype=torch.bool).triu(1), -torch.inf)


def test_entropy_is_scipys_of_each_row_from_scores_and_from_patterns(scores: torch.Tensor) -> None:
    expected = scipy_stats.entropy(special.softmax(scores.numpy(), -1), axis=-1)
    np.testing.assert_allclose(rows.entropy_of_scores(scores), expected, atol=1e-13)
    np.testing.assert_allclose(rows.entropy(scores.softmax(-1)), expected, atol=1e-13)


def test_entropy_over_the_visible_keys_is_one_for_equal_scores_and_nothing_in_row_0() -> None:
    found = rows.normalised(rows.entropy_of_scores(torch.zeros(N, N, dtype=torch.float64)))
    assert found[0].isnan()
    np.testing.assert_allclose(found[1:], 1.0, atol=1e-14)


def test_entropy_over_the_visible_keys_divides_by_the_log_of_their_number(
    scores: torch.Tensor,
) -> None:
    weights = special.softmax(scores.numpy(), -1)
    found = rows.normalised(rows.entropy(torch.from_numpy(weights)))
    for t in range(1, N):  # scipy's entropy to the base of the number of keys
        expected = scipy_stats.entropy(weights[..., t, : t + 1], base=t + 1, axis=-1)
        np.testing.assert_allclose(found[..., t], expected, atol=1e-13)


def test_variance_is_that_of_the_visible_scores_less_one_degree_of_freedom(
    scores: torch.Tensor,
) -> None:
    found = rows.variance(scores)
    assert found[..., 0].isnan().all()
    for t in range(1, N):
        expected = scipy_stats.tvar(scores[..., t, : t + 1].numpy(), axis=-1)
        np.testing.assert_allclose(found[..., t], expected, atol=1e-13)


def test_largest_is_one_where_all_weight_is_on_one_key() -> None:
    assert torch.equal(rows.largest(torch.eye(N)), torch.ones(N))


def test_what_stands_after_the_query_changes_nothing(scores: torch.Tensor) -> None:
    hidden = torch.ones(N, N, dtype=torch.bool).triu(1)
    for other in (torch.nan, torch.inf, 1e9):
        changed = scores.masked_fill(hidden, other)
        for of in (rows.entropy_of_scores, rows.variance):
            torch.testing.assert_close(of(changed), of(scores), rtol=0, atol=0, equal_nan=True)
