"""How far a sum of parts may be from the model's own number, and the refusal past that."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from interp.errors import CompletenessError, ConfigError
from interp.gpt.folder import AnyModel

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}  # times 1 + Σ|part|


def check_complete(error: Tensor, tolerance: Tensor) -> None:
    """Raises CompletenessError unless every error is within its tolerance, and finite.

    Raises:
        CompletenessError: with the worst error, its tolerance and its place.
    """
    if bool(((error <= tolerance) & error.isfinite() & tolerance.isfinite()).all()):
        return
    excess = (error / tolerance).nan_to_num(nan=torch.inf)  # inf / inf is no excuse
    worst = int(excess.argmax())
    place = tuple(int(i) for i in np.unravel_index(worst, tuple(error.shape)))
    raise CompletenessError(
        f"the parts miss the model's own logits by {float(error.flatten()[worst]):.3g} at "
        f"(batch, pos) {place}, more than the tolerance {float(tolerance.flatten()[worst]):.3g}; "
        "the cache does not belong to these weights, was changed, or was made in training mode"
    )


def check_dtype(model: AnyModel) -> None:
    """Raises ConfigError unless sums in the model's dtype have a stated tolerance.

    Raises:
        ConfigError: neither float32 nor float64.
    """
    if model.dtype not in TOLERANCE:
        raise ConfigError(f"no tolerance is stated for {model.dtype}; use float32 or float64")
