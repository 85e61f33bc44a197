"""Small random models of every kind, for the tests of analyses, stores and files."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from interp import CharTokenizer, GPTConfig, HookedGPT

VOCABULARY = "abcdefg"
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no blocks": {"n_layers": 0},
    "attention only": {"d_mlp": 0},
    "gelu": {"act_fn": "gelu"},
    "gelu_tanh": {"act_fn": "gelu_tanh"},
    "qkv biases": {"qkv_bias": True},
    "no positions": {"positional": False},
    "no final norm": {"final_norm": False},
    "tied": {"tied": True},
    "no unembedding bias": {"unembed_bias": False},
    "odd heads": {"n_heads": 3, "d_head": 5},
    "unscaled": {"attn_scale": 1.0},
    "dropout in training": {"dropout": 0.2},
}


def random_model(dtype: torch.dtype = torch.float32, seed: int = 0, **config: Any) -> HookedGPT:
    """Returns a model in evaluation mode in which no weight, gain or bias is 0 or 1."""
    values = {"n_layers": 2, "n_heads": 2, "d_model": 16, "n_ctx": 16, "d_vocab": 7} | config
    model = HookedGPT(GPTConfig.parse(values), CharTokenizer(VOCABULARY), seed=seed).to(dtype)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(0.3 * noise + (1.0 if name.endswith(".w") else 0.0))
    return model.eval()


def random_tokens(model: HookedGPT, batch: int, pos: int, seed: int = 0) -> Tensor:
    """Returns tokens [batch, pos]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(model.config.d_vocab, (batch, pos), generator=generator)
