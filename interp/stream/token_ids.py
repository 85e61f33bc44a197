"""Token ids from what a user gives for them: characters, ids, strings, lists, arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from interp.errors import TokenError
from interp.gpt.folder import AnyModel

# One character or id for all; a string or ids [pos] for the only sequence; a list of strings or ids
# [batch, pos].
TokensGiven = str | int | np.integer | Sequence[Any] | np.ndarray | Tensor


def token_ids(
    model: AnyModel, given: TokensGiven, like: Int[Tensor, "batch pos"], name: str
) -> Int[Tensor, "batch up_to_pos"]:
    """Returns the token ids that a user means.

    Args:
        model: the model, whose tokenizer reads characters.
        given: one character or id, for every sequence and position; a string, or ids or characters
            [pos], of the only sequence; a list of strings, or ids or characters [batch, pos].
            Lists, numpy arrays and tensors alike; positions at the end may be left out.
        like: [batch, pos], as many as there may be.
        name: of the argument, for errors.

    Raises:
        TokenError: not integers; of the wrong shape; outside the vocabulary.
    """
    ids = _ids(model, given, name)
    batch, n_pos = like.shape
    if ids.ndim == 0:
        ids = ids.expand(batch, n_pos)
    elif ids.ndim == 1 and batch == 1:
        ids = ids[None]
    if ids.ndim != 2 or len(ids) != batch or not 1 <= ids.shape[1] <= n_pos:
        raise TokenError(
            f"{name} have shape {tuple(ids.shape)}; expected one character or id for all, or "
            f"[{batch}, up to {n_pos}]"
        )
    return _in_vocabulary(model, ids, name)


def token_per_sequence(
    model: AnyModel, given: TokensGiven, batch: int, name: str
) -> Int[Tensor, " batch"]:
    """Returns the token ids that a user means: one for all sequences, or one for each.

    Raises:
        TokenError: not integers; of the wrong shape; outside the vocabulary.
    """
    ids = _ids(model, given, name)
    if ids.ndim > 1 or ids.numel() not in (1, batch):
        raise TokenError(
            f"{name} must be one character or id, or one for each of {batch} sequences; got "
            f"shape {tuple(ids.shape)}"
        )
    return _in_vocabulary(model, ids.reshape(-1).expand(batch), name)


def _ids(model: AnyModel, given: TokensGiven, name: str) -> Tensor:
    """Integers of the shape in which they were given; a string of one character is a scalar."""
    if isinstance(given, np.ndarray) and given.dtype.kind in "UO":
        given = given.tolist()
    try:
        plain = given if isinstance(given, Tensor | np.ndarray) else _numbers(model, given)
        ids = torch.as_tensor(plain, device=model.device)
        ids = ids if ids.numel() else ids.long()  # of nothing, torch makes floats
    except (TypeError, ValueError) as error:  # rows of different lengths, or no numbers at all
        raise TokenError(f"{name} = {given!r} are no token ids: {error}") from None
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise TokenError(f"{name} are {ids.dtype}; expected integer token ids")
    return ids


def _numbers(model: AnyModel, given: Any) -> Any:
    """Characters as ids, in lists of lists."""
    if isinstance(given, str):
        if model.tokenizer is None:
            raise TokenError(f"this model has no tokenizer to read {given!r}; give token ids")
        encoded = model.tokenizer.encode(given)
        return encoded[0] if len(encoded) == 1 else encoded
    if isinstance(given, Tensor | np.ndarray):
        return given.tolist()
    if isinstance(given, Sequence):
        return [_numbers(model, one) for one in given]
    return given


def _in_vocabulary(model: AnyModel, ids: Tensor, name: str) -> Tensor:
    low, high, d_vocab = int(ids.min()), int(ids.max()), model.config.d_vocab
    if low < 0 or high >= d_vocab:
        raise TokenError(
            f"{name} run from {low} to {high}, outside the vocabulary 0 … {d_vocab - 1}"
        )
    return ids.long()
