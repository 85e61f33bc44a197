"""Passages that a model was not trained on."""

from __future__ import annotations

from pathlib import Path

from jaxtyping import Int
from torch import Tensor

from interp.errors import ConfigError
from interp.gpt.model import HookedGPT
from interp.training.recipe import Recipe


def held_out(
    model: HookedGPT, n: int = 32, *, seed: int | None = None
) -> Int[Tensor, "sequence pos"]:
    """Returns passages of the validation split of the text that a model was trained on.

    Raises:
        ConfigError: the model did not come from a folder.
        TextError: the text is too short for so many passages.
    """
    folder: Path | None = getattr(model, "folder", None)
    if folder is None:
        raise ConfigError("the model did not come from a folder, so its text is not known")
    corpus = Recipe.load(folder / "recipe.toml").text.load()
    return model.to_tokens(corpus.passages(model.config.n_ctx, n, seed=seed))
