"""Where a result came from."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from typing import Self

import numpy as np
import torch
from torch import Tensor

import interp
from interp import files
from interp.figures.palette import visible
from interp.gpt.folder import AnyModel, model_hash

EXCERPT = 24  # characters of the text that are shown


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where a result came from: hashes of the model and of the tokens, seed, dtype, versions.

    `name` is the model's folder, `text` the first characters of the first sequence, made visible,
    `sequences` and `positions` the shape of the tokens: what a figure says of itself.
    """

    model: str
    tokens: str
    dtype: str
    seed: int | None = None
    name: str = ""
    text: str = ""
    sequences: int = 0
    positions: int = 0
    versions: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, model: AnyModel, tokens: Tensor, seed: int | None = None) -> Self:
        """Returns the provenance of an analysis of `model` on `tokens` [..., pos]."""
        ids = np.ascontiguousarray(tokens.cpu().numpy().astype("<i8"))
        rows = ids.reshape(-1, ids.shape[-1]) if ids.size else ids.reshape(0, 0)
        text = ""
        if len(rows) and model.tokenizer is not None:
            text = "".join(map(visible, model.tokenizer.decode(rows[0, :EXCERPT].tolist())))
            text += "…" if len(rows) > 1 or rows.shape[1] > EXCERPT else ""
        return cls(
            model=model_hash(model),
            tokens=files.sha256(str(ids.shape).encode() + ids.tobytes()),
            dtype=str(model.dtype).removeprefix("torch."),
            seed=seed,
            name=getattr(model, "name", ""),
            text=text,
            sequences=rows.shape[0],
            positions=rows.shape[1],
            versions=dict(versions()),
        )

    @classmethod
    def simulated(cls, seed: int | None = None) -> Self:
        """Returns the provenance of what no model made: a simulation, or models made for it."""
        return cls(model="", tokens="", dtype="float64", seed=seed, versions=dict(versions()))

    def line(self) -> str:
        """Returns one line: model, text, n, seed, for a figure or a summary."""
        parts = [f"model {self.name or 'unnamed'} ({self.model[:8]})"] if self.model else []
        if self.text:
            parts.append(f"text “{self.text}”")
        if self.sequences:
            many = "s" if self.sequences > 1 else ""
            parts.append(f"n = {self.sequences} sequence{many} × {self.positions} positions")
        if self.seed is not None:
            parts.append(f"seed {self.seed}")
        return " · ".join(parts)


@cache
def versions() -> dict[str, str]:
    """Returns the versions that numbers can depend on."""
    return {
        "gpt-interp": interp.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "transformer-lens": metadata.version("transformer-lens"),
    }
