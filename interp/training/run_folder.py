"""The folder of a training run: whose it is, and what stands in it.

recipe.toml          the recipe, and in a comment the text's name and SHA-256
history.csv          a row for each evaluation
config.json, …       the model as it is
checkpoints/step-…   models of its own
training_state/      what a stopped run goes on from
"""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

from interp import files
from interp.errors import ConfigError, OutputError
from interp.gpt import folder as folders
from interp.training.history import write_history
from interp.training.recipe import AnyText, Recipe
from interp.training.state import HISTORY, State, save_state

STATE, CHECKPOINTS, RECIPE = "training_state", "checkpoints", "recipe.toml"
TEXT = "\n# text: "


def identity_of(recipe: Recipe, corpus: AnyText) -> str:
    """Returns what a folder keeps to know its run again: the recipe, and which text it was."""
    return f"{recipe.to_toml()}{TEXT}{corpus.name}, sha256 {corpus.sha256}\n"


def is_identity(held: str, recipe: Recipe, corpus: AnyText) -> bool:
    """Tells whether a folder's `recipe.toml` is of this recipe and text, however it is written."""
    wanted = identity_of(recipe, corpus)
    try:
        same = Recipe.parse(tomllib.loads(held)) == recipe
    except (tomllib.TOMLDecodeError, ConfigError):
        return False
    return same and held.rpartition(TEXT)[2] == wanted.rpartition(TEXT)[2]


class RunFolder:
    """One run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def claim(self, recipe: Recipe, corpus: AnyText, fresh: bool) -> None:
        """Makes sure that the folder is ours to write, before any work is done.

        Raises:
            OutputError: it holds something else, or cannot be written.
        """
        if self.path.is_file():
            raise OutputError(f"cannot write {self.path}: it is a file; choose another folder")
        if self.path.is_dir() and any(map(_is_whole, self.path.iterdir())):
            self._check_same(recipe, corpus, fresh)
        if fresh:
            shutil.rmtree(self.path / STATE, ignore_errors=True)
            shutil.rmtree(self.path / CHECKPOINTS, ignore_errors=True)
            (self.path / HISTORY).unlink(missing_ok=True)
        files.write_text(self.path / RECIPE, identity_of(recipe, corpus))

    def _check_same(self, recipe: Recipe, corpus: AnyText, fresh: bool) -> None:
        if not (self.path / RECIPE).is_file():
            raise OutputError(
                f"{self.path} already holds something that is not a training run; choose another "
                "folder"
            )
        held = (self.path / RECIPE).read_text(encoding="utf-8", errors="replace")
        if not fresh and not is_identity(held, recipe, corpus):
            raise OutputError(
                f"{self.path} already holds a different run; choose another folder, or give "
                "fresh=True to replace it"
            )

    def states(self) -> list[Path]:
        """Returns the saved states, the newest last."""
        return sorted((self.path / STATE).glob("step-*"))

    def save(self, state: State) -> None:
        """Writes the state as one folder, then the model and history that users read."""
        newest = self.path / STATE / f"step-{state.step:08d}"
        with files.write_folder(newest) as partial:
            save_state(state, partial)
        for old in self.states():
            if old != newest:
                shutil.rmtree(old, ignore_errors=True)
        self.publish(state)

    def publish(self, state: State) -> None:
        """Writes the files that users read: the model and its history."""
        write_history(state.rows, self.path / HISTORY)
        folders.save_pretrained(state.model, self.path)

    def checkpoint(self, step: int) -> Path:
        """Returns the folder of a step's checkpoint."""
        return self.path / CHECKPOINTS / f"step-{step:06d}"

    def save_checkpoint(self, state: State) -> None:
        """Writes `checkpoints/step-…`, a model folder of its own."""
        with files.write_folder(self.checkpoint(state.step)) as partial:
            folders.save_pretrained(state.model, partial)


def _is_whole(path: Path) -> bool:
    """False for what a killed run left under a temporary name."""
    return not path.name.endswith(".partial")
