"""Which text a model is looked at on: a prompt, a file, or the text that it was trained on."""

from __future__ import annotations

from pathlib import Path

import torch

from interp.data.corpus import cut, load_corpus
from interp.errors import TextError, TokenError
from interp.gpt.model import HookedGPT
from interp.training.recipe import AnyText, Recipe


def tokens_of(
    model: HookedGPT,
    folder: Path | None,
    n: int,
    *,
    text: str | Path | None = None,
    prompt: str | None = None,
) -> torch.Tensor:
    """Returns tokens [batch, pos]: the prompt, or up to `n` contexts of a text.

    Args:
        model: whose tokenizer, and whose context's length.
        folder: its folder, whose recipe says what it was trained on.
        n: how many contexts, from the start of the text or of its validation split.
        text: a UTF-8 file to read instead.
        prompt: text to take instead, as one sequence.

    Raises:
        TextError: no text, or it cannot be read.
        TokenError: characters that the model does not know; no tokenizer.
    """
    if prompt is not None:
        return model.to_tokens(prompt)
    if model.tokenizer is None:
        raise TokenError("this model has no tokenizer, so no text can be given to it")
    n_ctx = model.config.n_ctx
    if text is not None:
        return model.to_tokens(cut(load_corpus(path=text).text, n_ctx, n))
    return model.to_tokens(text_of(folder).passages(n_ctx, n))


def text_of(folder: Path | None) -> AnyText:
    """Returns the text that the model in a folder was trained on, by its recipe.

    Of a checkpoint, the recipe is that of its run.

    Raises:
        TextError: there is no recipe.
    """
    if folder is None:
        raise TextError("a model that is not in a folder has no recipe to tell its text; give text")
    run = folder.parent.parent if folder.parent.name == "checkpoints" else folder
    recipe = next((p / "recipe.toml" for p in (folder, run) if (p / "recipe.toml").is_file()), None)
    if recipe is None:
        raise TextError(f"{folder} has no recipe.toml to tell its text; give text or prompt")
    return Recipe.load(recipe).text.load()
