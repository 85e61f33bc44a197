"""One causal attention head in NumPy, in float64: the second independent oracle."""

from __future__ import annotations

import numpy as np

from interp.errors import TokenError


def causal_attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, *, scale: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns outputs [..., pos, d_v] and weights [..., pos, key] of softmax(q·kᵀ / scale) v.

    Each row of the weights sums to 1, and its weights of later keys are exactly 0.0. A zero weight
    does not stop a NaN (0 · NaN is NaN), so what is not finite is refused rather than leaked from
    a masked position into all outputs.

    Args:
        q: queries [..., pos, d_k].
        k: keys [..., key, d_k], as many as queries, or more: then the queries are the last ones.
        v: values [..., key, d_v].
        scale: scores are divided by it; by default sqrt(d_k).

    Raises:
        TokenError: shapes that do not fit; more queries than keys, whose first rows would have
            nothing to see; numbers that are not finite; a scale that is not positive.

    Example:
        >>> import numpy as np
        >>> from interp import causal_attention
        >>> q = np.array([[1.0, 0], [0, 2], [1, 1]])
        >>> k = np.array([[2.0, 0], [0, 1], [1, 1]])
        >>> v = np.array([[1.0, 0], [0, 1], [1, 1]])
        >>> causal_attention(q, k, v)[0].round(4)
        array([[1.    , 0.    ],
               [0.1956, 0.8044],
               [0.8022, 0.5989]])
    """
    q, k, v = (np.asarray(x, dtype=np.float64) for x in (q, k, v))
    if min(q.ndim, k.ndim, v.ndim) < 2 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise TokenError(
            f"q, k and v have shapes {q.shape}, {k.shape} and {v.shape}; expected [..., pos, d_k], "
            "[..., key, d_k] and [..., key, d_v]"
        )
    try:
        np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    except ValueError as error:
        raise TokenError(
            f"the leading axes of q, k and v do not fit each other: {q.shape}, {k.shape}, {v.shape}"
        ) from error
    n_pos, n_key = q.shape[-2], k.shape[-2]
    if not n_key:
        raise TokenError("there are no keys to attend to")
    if n_pos > n_key:
        raise TokenError(
            f"{n_pos} queries but {n_key} keys: the first {n_pos - n_key} rows would be fully "
            "masked, and their softmax not a number"
        )
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not np.isfinite(x).all():
            raise TokenError(
                f"{name} holds NaN or infinity; a zero weight would not stop it (0 · NaN is NaN)"
            )
    scale = float(np.sqrt(q.shape[-1])) if scale is None else scale
    if not scale > 0:
        raise TokenError(f"scale = {scale} must be positive")
    with np.errstate(over="ignore", invalid="ignore"):
        scores = q @ np.swapaxes(k, -1, -2) / scale
    if not np.isfinite(scores).all():
        raise TokenError("q·k is too large for a float64; its softmax would not be a number")
    visible = np.tril(np.ones((n_pos, n_key), dtype=bool), n_key - n_pos)
    scores = np.where(visible, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    return weights @ v, weights
