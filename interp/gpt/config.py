"""The shape of a GPT: one frozen, validated record."""

from __future__ import annotations

import math
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from interp.errors import ConfigError, nearest

Activation = Literal["relu", "gelu", "gelu_tanh"]


class StrictModel(BaseModel):
    """A frozen pydantic model whose errors are one line of ours."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @classmethod
    def parse(cls, values: dict[str, Any], where: str = "") -> Self:
        """Returns the validated record.

        Raises:
            ConfigError: an unknown key (the nearest known ones are named) or a wrong value.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ConfigError(_one_line(error, cls, where)) from error


def _one_line(error: ValidationError, cls: type[BaseModel], where: str) -> str:
    # A misspelt key is the reason for a missing one, so it is named first.
    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    path = ".".join(str(part) for part in first["loc"])
    prefix = f"{where}: " if where else ""
    if first["type"] == "extra_forbidden":
        hint = nearest(str(first["loc"][-1]), _all_keys(cls))
        return f"{prefix}unknown key {path!r}{hint}"
    if first["type"] == "missing":
        return f"{prefix}the key {path!r} is missing"
    message = first["msg"].removeprefix("Value error, ")
    if not path:
        return f"{prefix}{message}"
    return f"{prefix}{path} = {first['input']!r} is wrong: {message}"


def _all_keys(cls: type[BaseModel]) -> list[str]:
    keys: list[str] = []
    for name, field in cls.model_fields.items():
        keys.append(name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            keys.extend(_all_keys(field.annotation))
    return keys


class GPTConfig(StrictModel):
    """The shape of a `HookedGPT`.

    `d_head` is the lesson's d_k. `attn_scale` is the number that scores are *divided* by, so
    `attn_scale=1.0` means unscaled attention; left out, it is sqrt(d_head). `learned_scale` gives
    each head a trained factor of its scores beside it, 1 at first. `qk_norm` brings each query and
    key to a root mean square of 1 before they are compared, with such a factor (Henry et al. 2020,
    2010.04245: there of length 1, and a factor of attn_scale · sqrt(d_head) times ours). Weights
    are drawn with std `init_std`, those of the two embeddings with `embed_std`.

    Raises:
        ConfigError: from `GPTConfig.parse`, for impossible combinations.
    """

    n_layers: int = Field(ge=0)
    n_heads: int = Field(ge=1)
    d_model: int = Field(ge=1)
    n_ctx: int = Field(ge=1)
    d_vocab: int = Field(ge=1)
    d_head: int = Field(default=0, ge=0, description="0 means d_model // n_heads")
    d_mlp: int = Field(default=-1, ge=-1, description="-1 means 4 * d_model; 0: attention only")
    act_fn: Activation = "relu"
    attn_scale: float = Field(default=0.0, ge=0.0, description="0 means sqrt(d_head)")
    learned_scale: bool = False
    qk_norm: bool = False
    qkv_bias: bool = False
    positional: bool = True
    final_norm: bool = True
    tied: bool = False
    unembed_bias: bool = True
    ln_eps: float = Field(default=1e-5, gt=0.0)
    dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
    init_std: float = Field(default=0.02, gt=0.0)
    embed_std: float = Field(default=0.0, ge=0.0, description="0 means init_std")

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        filled = dict(values)
        d_model, n_heads = filled.get("d_model"), filled.get("n_heads")
        if isinstance(d_model, int) and isinstance(n_heads, int) and n_heads > 0:
            if not filled.get("d_head"):
                if d_model % n_heads:
                    raise ValueError(
                        f"d_model = {d_model} is not divisible by n_heads = {n_heads}; "
                        "choose a divisor or give d_head"
                    )
                filled["d_head"] = d_model // n_heads
            if filled.get("d_mlp", -1) == -1:
                filled["d_mlp"] = 4 * d_model
            if not filled.get("attn_scale") and isinstance(filled["d_head"], int):
                filled["attn_scale"] = math.sqrt(max(filled["d_head"], 1))
        return filled

    @property
    def attn_only(self) -> bool:
        """True for a model without MLPs."""
        return self.d_mlp == 0
