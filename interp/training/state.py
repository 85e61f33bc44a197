"""A run in memory, and as the state on disk that a killed run goes on from, to the last bit."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from interp import files
from interp.errors import CheckpointError
from interp.gpt import folder as folders
from interp.lesson.loading import Trainable
from interp.training.history import HistoryRow, read_history, write_history

HISTORY, MOMENTS, NUMBERS = "history.csv", "optimizer.safetensors", "state.json"


@dataclass
class State:
    """The model, its optimizer, where the run is, and what it recorded."""

    model: Trainable
    optimizer: torch.optim.Optimizer
    step: int = 0
    seconds: float = 0.0
    losses: list[Tensor] = field(default_factory=list)  # since the last row, on the device
    checked: int = 0  # of them, for being finite
    rows: list[HistoryRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.parameters = list(self.model.parameters())  # to walk a model takes 1 ms a step


def save_state(state: State, folder: Path) -> None:
    """Writes all that the rest of the run depends on."""
    folders.save_weights(state.model, folder / folders.WEIGHTS)
    write_history(state.rows, folder / HISTORY)
    moments = {
        f"{name}/{key}": value.detach().cpu().contiguous()
        for name, parameter in state.model.named_parameters()
        for key, value in state.optimizer.state[parameter].items()
    }
    files.write_file(folder / MOMENTS, lambda path: save_file(moments, path))
    numbers = {
        "step": state.step,
        "seconds": state.seconds,
        "losses": [float(loss) for loss in state.losses],
    }
    files.write_text(folder / NUMBERS, json.dumps(numbers) + "\n")


def load_state(state: State, folder: Path) -> None:
    """Puts what `save_state` wrote into a state whose model and optimizer are new.

    Raises:
        CheckpointError: it is damaged.
    """
    try:
        numbers = json.loads((folder / NUMBERS).read_text(encoding="utf-8"))
        moments = load_file(folder / MOMENTS)
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(
            f"{folder} is damaged: {error}; give fresh=True to start again"
        ) from error
    folders.load_weights(state.model, folder / folders.WEIGHTS)
    for name, parameter in state.model.named_parameters():
        for key in ("step", "exp_avg", "exp_avg_sq"):
            if f"{name}/{key}" in moments:
                value = moments[f"{name}/{key}"].to(parameter.device)
                state.optimizer.state[parameter][key] = value
    state.step, state.seconds = int(numbers["step"]), float(numbers["seconds"])
    state.losses = [torch.tensor(x, device=state.model.device) for x in numbers["losses"]]
    state.rows = read_history(folder / HISTORY)


def dropout_seed(seed: int, step: int) -> int:
    """Returns the seed of a step's dropout, a function of the recipe's seed and the step."""
    return int(np.random.SeedSequence([seed, step, 1]).generate_state(1, np.uint64)[0] >> 1)
