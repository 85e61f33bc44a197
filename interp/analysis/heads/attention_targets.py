"""Kinds of keys that a head may look for: places, earlier tokens, classes of characters.

Which they are is told in `interp.analysis.heads.scores`, where each has a score.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

BACK = 8  # offsets of the k-back kinds
LOCAL = 4
ROW_SCORES = ("sink-value", "confidence", "entropy", "span", "distance")  # of a row as a whole
VOWELS = "aeiouAEIOU"


def is_positional(score: str) -> bool:
    """True of scores that are about positions alone, which permuted tokens leave as they are."""
    positional = ("previous", "self", "sink", "sink-value", *ROW_SCORES)
    return score in positional or score.startswith(("back-", "local-"))


def key_masks(
    tokens: Int[Tensor, "batch pos"], characters: Sequence[str] | None, back: int = BACK
) -> tuple[list[str], Bool[Tensor, "batch pos key kind"]]:
    """Returns the kinds of keys and, for each query and kind, which visible keys are of it.

    Args:
        tokens: sequences.
        characters: the vocabulary; None leaves out the kinds that are about characters, and each
            kind of character that the vocabulary lacks is left out.
        back: up to how many positions back.
    """
    batch, n = tokens.shape
    device = tokens.device
    at = torch.arange(n, device=device)
    offset = at[:, None] - at[None]  # of query and key
    visible = offset >= 0
    masks: dict[str, Tensor] = {}
    for k in range(1, min(back, n - 1) + 1):
        masks["previous" if k == 1 else f"back-{k}"] = offset == k
    masks["self"] = offset == 0
    masks["sink"] = (at == 0).expand(n, n)
    masks[f"local-{LOCAL}"] = offset < LOCAL
    same = tokens[:, :, None] == tokens[:, None]  # [batch pos key]
    masks["duplicate"] = same & (offset > 0)
    follows = torch.zeros_like(same)
    follows[:, :, 1:] = same[:, :, :-1]
    masks["induction"] = follows & (offset >= 0) & (at > 0)
    if characters is not None:
        masks |= _character_masks(tokens, list(characters), offset)
    stacked = torch.stack([mask.expand(batch, n, n) & visible for mask in masks.values()], dim=-1)
    return list(masks), stacked


def _character_masks(tokens: Tensor, characters: list[str], offset: Tensor) -> dict[str, Tensor]:
    def kind(test: Callable[[str], bool]) -> Tensor | None:
        table = torch.tensor([test(c) for c in characters], device=tokens.device)
        return table[tokens] if bool(table.any()) else None  # [batch key]

    def nearest(keys: Tensor) -> Tensor:
        """[batch pos key]: the last such key at or before each query."""
        place = torch.where(keys, torch.arange(keys.shape[1], device=keys.device), -1)
        last = place.cummax(1).values  # [batch pos]
        return last[:, :, None] == torch.arange(keys.shape[1], device=keys.device)

    masks: dict[str, Tensor] = {}
    kinds = {
        "space": lambda c: c == " ",
        "newline": lambda c: c == "\n",
        "punctuation": lambda c: c.isprintable() and not c.isalnum() and not c.isspace(),
        "capital": str.isupper,
        "vowel": lambda c: c in VOWELS,
    }
    found = {name: kind(test) for name, test in kinds.items()}
    for name, keys in found.items():
        if keys is not None:
            masks[name] = keys[:, None]
    swapped = [characters.index(c.swapcase()) if c.swapcase() != c and c.swapcase() in characters
               else -1 for c in characters]  # fmt: skip
    if max(swapped) >= 0:
        other = torch.tensor(swapped, device=tokens.device)[tokens]
        masks["same-letter"] = other[:, :, None] == tokens[:, None]
    for name in ("space", "newline"):
        keys = found[name]
        if keys is not None:
            masks[f"last-{name}"] = nearest(keys)
    letters = kind(str.isalpha)
    if letters is not None:
        before = torch.zeros_like(letters)
        before[:, 1:] = letters[:, :-1]
        starts = letters & ~before
        masks["word-start"] = nearest(starts) & letters[:, :, None] & _one_word(letters)
    if found["newline"] is not None and ":" in characters:
        colon, newline = characters.index(":"), characters.index("\n")
        masks["speaker-name"] = _names(tokens, colon, newline)[:, None]
    return masks


def _one_word(letters: Tensor) -> Tensor:
    """[batch pos key]: no character between key and query, themselves included, is not a letter."""
    breaks = (~letters).cumsum(1)
    return (breaks[:, :, None] == breaks[:, None]) & letters[:, None]


def _names(tokens: Tensor, colon: int, newline: int) -> Tensor:
    """[batch key]: the character is of a line that ends in a colon."""
    out = torch.zeros_like(tokens, dtype=torch.bool)
    for b, row in enumerate(tokens.tolist()):
        start = 0
        for i, token in enumerate([*row, newline]):
            if token == newline:
                if i > start and row[i - 1] == colon:
                    out[b, start:i] = True
                start = i + 1
    return out
