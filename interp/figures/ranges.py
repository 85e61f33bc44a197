"""How wide an axis must be for the numbers on it."""

from __future__ import annotations

import numpy as np

NEAR_ZERO = 30  # sizes that differ by more get a symmetric logarithmic scale


def near_zero(values: np.ndarray) -> float:
    """Returns within which distance of zero a symmetric logarithmic axis should be linear.

    0.0 where sizes differ so little that a linear axis serves.
    """
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    if not len(sizes) or sizes.max() < NEAR_ZERO * np.median(sizes):
        return 0.0
    return float(10.0 ** np.floor(np.log10(np.quantile(sizes, 0.25))))
