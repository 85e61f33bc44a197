"""A model's folder: `config.json`, `model.safetensors`, `tokenizer.json`.

Weights are safetensors, never pickle, under TransformerLens's parameter names and shapes. This
module knows no class of model: it reads and writes configs, tokenizers and parameters.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from interp import files
from interp.errors import CheckpointError
from interp.gpt.tokenizer import CharTokenizer

FORMAT = "gpt-interp/1"
CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"


@runtime_checkable
class AnyModel(Protocol):
    """What can be saved, hashed and trained: a `HookedGPT`, or a rung of the lesson's ladder."""

    tokenizer: CharTokenizer | None

    @property
    def config(self) -> Any:
        """Its shape: a `GPTConfig` or a `LadderConfig`."""

    @property
    def dtype(self) -> torch.dtype:
        """Of its weights."""

    @property
    def device(self) -> torch.device:
        """Where its weights are."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yields its weights by name."""

    def to(self, dtype: torch.dtype, /) -> Any:
        """Converts its weights."""

    def __call__(self, tokens: Tensor, /) -> Any:
        """Returns logits."""


def save_pretrained(model: AnyModel, folder: str | Path) -> None:
    """Writes the model into `folder`; each file appears whole or not at all.

    Raises:
        OutputError: the folder cannot be written.
    """
    folder = Path(folder)
    config = {"format": FORMAT, **model.config.model_dump()}
    files.write_text(folder / CONFIG, json.dumps(config, indent=1) + "\n")
    if model.tokenizer is None:
        (folder / TOKENIZER).unlink(missing_ok=True)
    else:
        files.write_text(folder / TOKENIZER, model.tokenizer.to_json())
    save_weights(model, folder / WEIGHTS)


def save_weights(model: AnyModel, path: Path) -> None:
    """Writes `model`'s parameters as safetensors."""
    tensors = {name: p.detach().cpu().contiguous() for name, p in model.named_parameters()}
    files.write_file(path, lambda partial: save_file(tensors, partial, {"format": FORMAT}))


def read_folder(folder: str | Path) -> tuple[dict[str, Any], CharTokenizer | None]:
    """Returns the values of a folder's config, and its tokenizer if it has one.

    Args:
        folder: a model folder, or one of its `checkpoints/step-…`.

    Raises:
        CheckpointError: no such folder, or not ours.
    """
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        what = (
            "is not a model folder: it has no config.json" if folder.is_dir() else "does not exist"
        )
        raise CheckpointError(f"{folder} {what}; train one with: interp train RECIPE")
    return _read_config(folder / CONFIG), _read_tokenizer(folder / TOKENIZER)


def _read_config(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise CheckpointError(f"{path} is not readable JSON: {error}") from error
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        raise CheckpointError(
            f"{path} was not written by this package: expected format {FORMAT!r} in it"
        )
    return values


def _read_tokenizer(path: Path) -> CharTokenizer | None:
    if not path.is_file():
        return None
    try:
        return CharTokenizer.from_json(path.read_text(encoding="utf-8"))
    except (CheckpointError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: {error}") from error


def load_weights(model: AnyModel, path: Path) -> None:
    """Copies the parameters in a safetensors file into `model`.

    Raises:
        CheckpointError: missing, truncated, or with names or shapes other than the model's.
    """
    if not path.is_file():
        raise CheckpointError(f"{path} is missing")
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is damaged or truncated: {error}") from error
    own = dict(model.named_parameters())
    for name in sorted(own.keys() | tensors.keys()):
        if name not in tensors or name not in own:
            where = "the config asks for" if name in own else "the config does not have"
            raise CheckpointError(f"{path} does not fit its config: {where} {name!r}")
        if own[name].shape != tensors[name].shape:
            raise CheckpointError(
                f"{path} does not fit its config: {name!r} has shape "
                f"{tuple(tensors[name].shape)}, expected {tuple(own[name].shape)}"
            )
    dtypes = {tensor.dtype for tensor in tensors.values()}
    if len(dtypes) == 1 and (dtype := dtypes.pop()).is_floating_point:
        model.to(dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[name])


def model_hash(model: AnyModel) -> str:
    """Returns a SHA-256 of the config and every weight, by which results know their model.

    What the config leaves at its default is left out, so that a new option changes no old hash.
    """
    config = model.config.model_dump(exclude_defaults=True)
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    for name, parameter in sorted(model.named_parameters()):
        digest.update(name.encode())
        values = parameter.detach().cpu().contiguous().flatten()
        digest.update(values.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
