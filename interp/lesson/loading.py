"""Any of this package's models from its config or its folder: the GPT, or a rung of the ladder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from interp.errors import CheckpointError, ConfigError
from interp.gpt import folder as folders
from interp.gpt.config import GPTConfig
from interp.gpt.model import HookedGPT
from interp.gpt.tokenizer import CharTokenizer
from interp.lesson.ladder import RUNGS, LadderConfig, LadderModel

Trainable = HookedGPT | LadderModel


def build_model(
    config: GPTConfig | LadderConfig, tokenizer: CharTokenizer | None = None, *, seed: int = 0
) -> Trainable:
    """Returns a new model of a config: a `HookedGPT`, or a rung of the ladder.

    Raises:
        ConfigError: the tokenizer's vocabulary is not of the config's size; heads that do not
            divide the width.
    """
    if isinstance(config, GPTConfig):
        return HookedGPT(config, tokenizer, seed=seed)
    return RUNGS[config.rung](config, tokenizer, seed=seed)


def config_of(values: dict[str, Any], where: str = "") -> GPTConfig | LadderConfig:
    """Returns the config that a table of values describes: a ladder's if it names a rung.

    Raises:
        ConfigError: unknown keys or wrong values.
    """
    kind: type[GPTConfig] | type[LadderConfig] = LadderConfig if "rung" in values else GPTConfig
    return kind.parse(values, where)


def load_model(folder: str | Path, device: str | torch.device = "cpu") -> Trainable:
    """Returns the model in `folder`, a `HookedGPT` or a rung of the ladder, in evaluation mode.

    Args:
        folder: a model folder, or one of its `checkpoints/step-…`.
        device: where to put it.

    Raises:
        CheckpointError: no such folder, not ours, truncated, or of another size than its config.
    """
    values, tokenizer = folders.read_folder(folder)
    try:
        model = build_model(config_of(values, str(Path(folder) / folders.CONFIG)), tokenizer)
    except ConfigError as error:
        raise CheckpointError(f"{folder} does not fit together: {error}") from error
    folders.load_weights(model, Path(folder) / folders.WEIGHTS)
    model.folder, model.name = Path(folder), Path(folder).resolve().name
    return model.to(device).eval()
