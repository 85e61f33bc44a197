"""One step of AdamW, and the precision in which the forward pass computes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from interp.training.recipe import Precision


def make_optimizer(
    model: nn.Module, learning_rate: float, weight_decay: float, betas: tuple[float, float]
) -> torch.optim.AdamW:
    """Returns AdamW that decays the weight matrices, and not norms, biases or embeddings."""
    named = list(model.named_parameters())
    decayed = [p for name, p in named if p.ndim > 1 and _is_matrix(name)]
    others = [p for name, p in named if not (p.ndim > 1 and _is_matrix(name))]
    groups = [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, fused=True)


def _is_matrix(name: str) -> bool:
    last = name.rsplit(".", 1)[-1]
    if last == "weight":  # the lesson's names
        return "embedding_table" not in name
    return last.startswith("W_") and last not in ("W_E", "W_pos")


def update(
    optimizer: torch.optim.Optimizer,
    loss: Tensor,
    learning_rate: float,
    parameters: list[nn.Parameter],
    grad_clip: float,
) -> Tensor:
    """Takes one step down the loss's gradient, clipped, and returns the gradient's norm before."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(parameters, grad_clip)
    optimizer.step()
    return norm


def autocast_for(
    precision: Precision | str, device: torch.device
) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """Returns a context for the forward pass. "auto" is bfloat16 where the hardware computes in it.

    Weights, optimizer and validation stay in float32.
    """
    if precision == "float32" or (precision == "auto" and not _has_bfloat16(device)):
        return contextlib.nullcontext
    return lambda: torch.autocast(device.type, dtype=torch.bfloat16)


def _has_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        mkldnn = torch.backends.mkldnn.is_available()
        return mkldnn and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # no public way to ask
    return False
