"""What every test shares: type-checked imports, the variants of the model, random weights."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

import pytest
import torch
from beartype import BeartypeConf, FrozenDict, beartype
from jaxtyping import install_import_hook

# `Self` in a method means nothing to a checker that sees one method at a time.
type_checked = beartype(
    conf=BeartypeConf(is_pep484_tower=True, hint_overrides=FrozenDict({Self: object}))
)
checked = [
    *(f"interp.{room}" for room in ("analysis", "cli", "data", "ground_truth", "lesson", "pages",
                                    "results", "store", "stream", "training")),
    *(f"interp.gpt.{name}" for name in ("aliases", "config", "folder", "generate", "model",
                                        "presets", "recording", "text", "tokenizer",
                                        "transformer", "weights")),
]  # fmt: skip
if os.environ.get("TYPE_CHECKS") == "all":  # and what runs thousands of times a test
    checked = ["interp"]
pytest.register_assert_rewrite("helpers")
install_import_hook(checked, f"{__name__}.type_checked")

from interp import CharTokenizer, GPTConfig, HookedGPT  # noqa: E402  # after the import hook

if TYPE_CHECKING:
    from torch import Tensor

torch.set_num_threads(1)  # the models are too small for more to help

VOCABULARY = "abcdefg"
N_CTX = 16

VARIANTS: list[dict[str, Any]] = [
    {},
    {"d_head": 5},
    {"act_fn": "gelu"},
    {"act_fn": "gelu_tanh", "qkv_bias": True},
    {"final_norm": False},
    {"tied": True, "unembed_bias": False},
    {"d_mlp": 0},
    {"positional": False},
    {"attn_scale": 1.0},
]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def assert_close(given: Tensor, expected: Tensor, said: str = "") -> None:
    """Compares within 1e-5 (float32) or 1e-12 (float64) of the largest finite number, or of 1."""
    finite = expected.detach()[expected.isfinite()].abs()
    size = max(1.0, float(finite.max())) if finite.numel() else 1.0
    torch.testing.assert_close(
        given, expected, atol=size * TOLERANCE[expected.dtype], rtol=0,
        msg=lambda message: f"{said} {message}",
    )  # fmt: skip


def variant_id(variant: dict[str, Any]) -> str:
    """Returns a variant's name among pytest's."""
    return "-".join(f"{key}={value}" for key, value in variant.items()) or "plain"


def name_of(value: object) -> str:
    """Returns a parameter's name among pytest's, the same in every process.

    A function's own, a set in order, anything else as it prints.
    """
    if isinstance(value, set | frozenset):
        return "-".join(sorted(map(str, value))) or "none"
    return str(getattr(value, "__name__", value))


def random_model(dtype: torch.dtype = torch.float32, seed: int = 0, **kwargs: Any) -> HookedGPT:
    """Returns a small model in evaluation mode with noise on every parameter.

    The noise makes gains, biases and attention patterns far from trivial.
    """
    shape = {"n_layers": 2, "n_heads": 4, "d_model": 32, "n_ctx": N_CTX} | kwargs
    cfg = GPTConfig(d_vocab=len(VOCABULARY), **shape)
    model = HookedGPT(cfg, CharTokenizer(VOCABULARY), seed=seed).to(dtype).eval()
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=dtype)
            parameter.add_(0.3 * noise)
    return model


def random_tokens(model: HookedGPT, batch: int = 2, pos: int = 9, seed: int = 0) -> Tensor:
    """Returns tokens [batch, pos] drawn evenly from the vocabulary."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(model.config.d_vocab, (batch, pos), generator=generator)
