"""Which learning rate a step has, and which steps leave a checkpoint."""

from __future__ import annotations

import math


def learning_rate_at(step: int, peak: float, least: float, warmup: int, steps: int) -> float:
    """Returns the learning rate of a step (from 0): linear warm-up, then cosine to `least`."""
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    return least + 0.5 * (peak - least) * (1 + math.cos(math.pi * progress))


def log_spaced_steps(steps: int, count: int) -> list[int]:
    """Returns about `count` distinct steps from 0 to `steps`, denser at the start.

    Example:
        >>> log_spaced_steps(2000, 12)
        [0, 1, 2, 5, 10, 21, 45, 96, 205, 437, 935, 2000]
    """
    if count == 0:
        return []
    if count == 1:
        return [steps]
    ratios = [steps ** (i / max(1, count - 2)) for i in range(count - 1)]
    return sorted({0, steps, *(round(ratio) for ratio in ratios)})
