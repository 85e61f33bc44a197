"""Recipes: everything a training run depends on, in one TOML file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal, Self

import tomli_w
from pydantic import Field, model_validator

from interp.data.corpus import Corpus, load_corpus
from interp.data.repeated import RepeatedTokens
from interp.errors import ConfigError
from interp.gpt.config import GPTConfig, StrictModel
from interp.lesson.ladder import LadderConfig
from interp.lesson.loading import config_of

AnyText = Corpus | RepeatedTokens
Precision = Literal["auto", "float32", "bfloat16"]


class TextSettings(StrictModel):
    """Which text: a named `source`, or the `path` of a UTF-8 file.

    The other keys are those of the source "repeated-tokens" (see `RepeatedTokens`).
    """

    source: Literal["shakespeare", "tinyshakespeare", "repeated-tokens"] = "shakespeare"
    path: str | None = None
    symbols: int | None = None
    min_period: int | None = None
    max_period: int | None = None
    replacement: bool | None = None

    @model_validator(mode="after")
    def _check_repeated(self) -> Self:
        given = self._repeated()
        if self.source == "repeated-tokens" and self.path is None:
            RepeatedTokens(**given)
        elif given:
            raise ValueError(f"{next(iter(given))} is of the source 'repeated-tokens' only")
        return self

    def _repeated(self) -> dict[str, Any]:
        names = ("symbols", "min_period", "max_period", "replacement")
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    def load(self) -> AnyText:
        """Returns the text. See `load_corpus` for the errors."""
        if self.source == "repeated-tokens" and self.path is None:
            return RepeatedTokens(**self._repeated())
        return load_corpus(self.source, self.path)


class TrainingSettings(StrictModel):
    """How to train. Steps count optimizer updates; learning rates are AdamW's."""

    steps: int = Field(default=2000, ge=1)
    batch_size: int = Field(default=32, ge=1)
    learning_rate: float = Field(default=2e-3, gt=0)
    min_learning_rate: float = Field(default=0.0, ge=0)
    warmup_steps: int = Field(default=100, ge=0)
    weight_decay: float = Field(default=0.1, ge=0)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.99, ge=0, lt=1)
    grad_clip: float = Field(default=1.0, gt=0)
    eval_every: int = Field(default=250, ge=1)
    checkpoints: int = Field(default=12, ge=0, description="how many log-spaced checkpoints")
    checkpoint_every: int | None = Field(default=None, ge=1, description="and one every so many")
    precision: Precision = "auto"


class Recipe(StrictModel):
    """One training run. `[model]` takes the keys of `GPTConfig`, or, with `rung`, those of the
    ladder's `LadderConfig`; but not d_vocab, which the text gives.

    Example:
        >>> from interp import Recipe
        >>> recipe = Recipe.parse({"name": "tiny", "model": {
        ...     "n_layers": 1, "n_heads": 2, "d_model": 8, "n_ctx": 16}})
        >>> recipe.config(d_vocab=65).d_head
        4
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    seed: int = Field(default=0, ge=0)
    text: TextSettings = TextSettings()
    model: dict[str, Any]
    training: TrainingSettings = TrainingSettings()

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        if "d_vocab" in self.model:
            raise ValueError("model.d_vocab is given by the text; leave it out")
        self.config(d_vocab=1)
        return self

    def config(self, d_vocab: int) -> GPTConfig | LadderConfig:
        """Returns the model's shape for a vocabulary of `d_vocab` characters."""
        return config_of({**self.model, "d_vocab": d_vocab}, "model")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Returns the recipe in a TOML file.

        Raises:
            ConfigError: missing, not TOML, an unknown key or a wrong value.
        """
        path = Path(path)
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise ConfigError(f"the recipe {path} does not exist; see models/recipes/") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
            raise ConfigError(f"the recipe {path} is not readable TOML: {error}") from error
        return cls.parse(values, str(path))

    def to_toml(self) -> str:
        """Returns the recipe as TOML text, every default written out."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))
