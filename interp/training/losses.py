"""The loss that is trained on, and that of a whole validation text."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from interp.data.batches import validation_windows
from interp.lesson.loading import Trainable


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Returns the mean cross-entropy in nats, taken in float32."""
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


@torch.no_grad()
def validation_loss(model: Trainable, tokens: Int[Tensor, " text"], batch_size: int = 64) -> float:
    """Returns the mean loss in nats per token over all of `tokens`, in float32 precision.

    The text is read in windows of n_ctx; every token but the first is predicted once, from the
    tokens before it in its window.
    """
    return mean_loss(model, validation_windows(tokens, model.config.n_ctx, batch_size))


@torch.no_grad()
def mean_loss(model: Trainable, windows: Iterable[Int[Tensor, "_batch _pos"]]) -> float:
    """Returns the mean loss in nats per token over windows of inputs and, shifted by one, targets.

    In float32 precision, with dropout off.
    """
    was_training = model.training
    model.eval()
    total, count = 0.0, 0
    for on_cpu in windows:
        window = on_cpu.to(model.device)
        n = window[:, 1:].numel()
        total += float(cross_entropy(model(window[:, :-1]), window[:, 1:])) * n
        count += n
    model.train(was_training)
    return total / count
