"""An identity of attention scores: the gradient to their scale is that along W_Q, and along W_K."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from interp.errors import ConfigError, TokenError
from interp.gpt.model import HookedGPT, Input
from interp.results.result import to_numpy


def scale_identity(model: HookedGPT, tokens: Input) -> dict[str, Float[np.ndarray, "layer head"]]:
    """Returns three numbers per head that must be equal: c·∂L/∂c, ⟨W_Q, ∂L/∂W_Q⟩, ⟨W_K, ∂L/∂W_K⟩.

    A score is c·(x W_Q)·(x W_K): a homogeneous function of degree 1 of the scale c, of W_Q and of
    W_K, so by Euler's theorem all three products are the same (without query and key biases, and
    without qk_norm).

    Raises:
        ConfigError: the model has query and key biases, or qk_norm.
        TokenError: sequences of one token have no loss.
    """
    if model.config.qkv_bias or model.config.qk_norm:
        what = "query and key biases" if model.config.qkv_bias else "qk_norm"
        raise ConfigError(f"with {what} the score is not homogeneous of degree 1 in W_Q and W_K")
    ids = model.to_tokens(tokens)
    if ids.shape[1] < 2:
        raise TokenError("a sequence of one token has no loss to take a gradient of")
    shape = (model.config.n_layers, model.config.n_heads)
    with torch.enable_grad():
        scale = torch.ones(shape, device=model.device, dtype=model.dtype, requires_grad=True)
        weights: list[Any] = [w for b in model.blocks for w in (b.attn.W_Q, b.attn.W_K)]
        frozen = [w for w in weights if not w.requires_grad]
        for w in frozen:
            w.requires_grad_(True)
        try:
            with model.attn_scaled_by(scale):
                loss = model(ids, return_type="loss")
            grads = torch.autograd.grad(loss, [scale, *weights])
        finally:
            for w in frozen:
                w.requires_grad_(False)
    inner = [(w * g).sum((1, 2)).detach() for w, g in zip(weights, grads[1:], strict=True)]
    return {
        "scale": to_numpy(grads[0]),
        "W_Q": to_numpy(torch.stack(inner[0::2])),
        "W_K": to_numpy(torch.stack(inner[1::2])),
    }
