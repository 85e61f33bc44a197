"""The text that a model was trained on, and the passages of it that training held out."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from interp.errors import ConfigError, TextError, TokenError
from interp.gpt import folder as folders
from interp.gpt.folder import AnyModel
from interp.training.recipe import AnyText, Recipe
from interp.training.run_folder import CHECKPOINTS, RECIPE


def held_out(
    model: AnyModel | str | Path, n: int = 32, *, seed: int | None = None, n_pos: int | None = None
) -> Int[Tensor, "sequence pos"]:
    """Returns passages of the validation text of a model, as tokens.

    Without a seed they are the start of it, in order; with one, drawn from all of it, none twice. A
    text that is shorter than one passage is the only passage, and there are fewer than `n` where
    there is no more text.

    Args:
        model: a model that was loaded from a folder or trained into one, or a model's folder, or
            one of its `checkpoints/step-…`.
        n: how many passages.
        seed: draw them by this seed.
        n_pos: characters of each; by default the model's n_ctx.

    Returns:
        Tokens, on the model's device; those of a folder on the CPU.

    Raises:
        ConfigError: n or n_pos that is not positive, or n_pos above n_ctx; see `Recipe.load`.
        TextError: the model has no folder, or its folder no recipe; see `load_corpus`.
        TokenError: the model has no tokenizer, or the text characters that it does not know.
        CheckpointError: no such folder, or not a model's.

    Example:
        >>> import interp
        >>> interp.held_out("models/shakespeare-char", 4, n_pos=16).shape
        torch.Size([4, 16])
    """
    device: str | torch.device = "cpu"
    if isinstance(model, str | Path):
        values, tokenizer = folders.read_folder(model)
        n_ctx = int(values["n_ctx"])
    else:
        n_ctx, tokenizer, device = model.config.n_ctx, model.tokenizer, model.device
    length = n_ctx if n_pos is None else n_pos
    if n < 1 or not 1 <= length <= n_ctx:
        raise ConfigError(
            f"n = {n} and n_pos = {length} must be at least 1, and n_pos at most n_ctx = {n_ctx}"
        )
    if tokenizer is None:
        raise TokenError("this model has no tokenizer, so no text can be given to it")
    passages = corpus_of(model).passages(length, n, seed=seed)
    return torch.tensor([tokenizer.encode(text) for text in passages], device=device)


def corpus_of(model: AnyModel | str | Path) -> AnyText:
    """Returns the text that a model was trained on, by the recipe in its folder.

    A checkpoint's is that of its run.

    Args:
        model: as of `held_out`.

    Raises:
        TextError: the model has no folder, or its folder no recipe; see `load_corpus`.
        ConfigError: see `Recipe.load`.
    """
    folder = model if isinstance(model, str | Path) else getattr(model, "folder", None)
    if folder is None:
        raise TextError(
            "this model comes from no folder, so its text is not known; load it from its folder, "
            "or give a text, prompt or tokens instead"
        )
    path = run_of(Path(folder)) / RECIPE
    if not path.is_file():
        raise TextError(
            f"{folder} has no {RECIPE} to tell its text; give a text, prompt or tokens instead"
        )
    return Recipe.load(path).text.load()


def run_of(folder: Path) -> Path:
    """Returns the folder of the run that a checkpoint is of; any other folder as it is."""
    above = folder.resolve().parent
    has_own = (folder / RECIPE).is_file()
    is_of_run = above.name == CHECKPOINTS and (above.parent / RECIPE).is_file()
    return above.parent if is_of_run and not has_own else folder
