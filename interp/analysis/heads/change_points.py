"""Where a loss falls from one level to another, over the checkpoints of a run.

The change point splits the mean loss into two levels by least squares. Its interval is over
sequences. Less than a halving is no change: ordinary learning lowers a loss too. (The loss itself,
not its log, whose largest falls come long after, where hardly any loss is left.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from interp.errors import ConfigError
from interp.results import intervals

FEWEST = 3  # checkpoints
HALVED = 0.5


@dataclass(frozen=True)
class ChangePoint:
    """The first checkpoint after a change, with a 95 % interval, and the levels around it.

    `step` is None where the second level is not below half of the first: nothing formed.
    """

    step: int | None
    low: int | None
    high: int | None
    before: float
    after: float


def change_point(
    steps: Int[np.ndarray, " step"],
    losses: Float[np.ndarray, "step sequence"],
    *,
    most: float = HALVED,
    draws: int = 1000,
    seed: int = 0,
) -> ChangePoint:
    """Returns where the mean loss splits best into two levels, the second lower.

    Args:
        steps: of the checkpoints, rising.
        losses: at each checkpoint, of each sequence.
        most: the second level's largest share of the first that is still a change.
        draws: resamples of sequences for the interval.
        seed: of them.

    Raises:
        ConfigError: fewer than three checkpoints; losses that are not positive numbers.
    """
    losses = np.asarray(losses, dtype=np.float64)
    if len(steps) < FEWEST or not (np.isfinite(losses).all() and (losses > 0).all()):
        raise ConfigError(
            f"a change point needs at least 3 checkpoints (got {len(steps)}) and positive losses"
        )
    at = int(_split(losses.mean(1)[:, None])[0])
    before, after = float(losses[:at].mean()), float(losses[at:].mean())
    if after > most * before:
        return ChangePoint(None, None, None, before, after)
    weights = intervals.bootstrap_weights(losses.shape[1], draws, seed)
    low, high = np.quantile(_split(losses @ weights.T), (0.025, 0.975), method="nearest")
    return ChangePoint(int(steps[at]), int(steps[low]), int(steps[high]), before, after)


def _split(y: Float[np.ndarray, "step draw"]) -> Int[np.ndarray, " draw"]:
    """The index that begins the second level, for each draw."""
    n = len(y)
    sums = y.cumsum(0)
    before = np.arange(1, n)[:, None]
    first, second = sums[:-1] / before, (sums[-1] - sums[:-1]) / (n - before)
    explained = before * first**2 + (n - before) * second**2  # the larger, the less is left
    return np.asarray(explained.argmax(0) + 1)
