"""What heads ask and write, from the weights: QK and OV circuits, and copying.

The full QK circuit (which token asks for which) and OV circuit (what attending to a token adds to
the logits) are factors that are never multiplied out. LayerNorm's centring and gain are folded in,
its scale and the biases left out.

Source: Elhage et al. 2021, A mathematical framework for transformer circuits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import ConfigError
from interp.figures.marks import HeatMap, Panels
from interp.gpt.layers import LayerNorm
from interp.gpt.model import HookedGPT
from interp.hooks import FactoredMatrix
from interp.results.document import to_numpy
from interp.results.provenance import Provenance
from interp.results.result import Result
from interp.results.shown import Shown, kept
from interp.stream.components import component

ROWS = 1024  # of an OV circuit at a time: never all of it


def qk_circuit(model: HookedGPT, layer: int, head: int) -> FactoredMatrix:
    """Returns the part of a head's scores that is about tokens alone, [query token, key token].

    Raises:
        ConfigError: no such head; a model with qk_norm, whose scores are not a bilinear form.
    """
    _check_head(model, layer, head)
    check_bilinear(model)
    block = model.blocks[layer]
    asks = _read(block.ln1, model.W_E) @ block.attn.W_Q[head] / block.attn.attn_scale
    if block.attn.gain is not None:
        asks = asks * block.attn.gain[head]
    return FactoredMatrix(asks, (_read(block.ln1, model.W_E) @ block.attn.W_K[head]).T)


def ov_circuit(model: HookedGPT, layer: int, head: int) -> FactoredMatrix:
    """Returns what attending fully to a token adds to the logits, [key token, d_vocab].

    Raises:
        ConfigError: no such head.
    """
    _check_head(model, layer, head)
    block = model.blocks[layer]
    taken = _read(block.ln1, model.W_E) @ block.attn.W_V[head]
    written = _read(model.ln_final, block.attn.W_O[head]) @ model.W_U
    return FactoredMatrix(taken, written)


def check_bilinear(model: HookedGPT) -> None:
    """Raises ConfigError where a head's scores are no product of query, weights and key.

    Raises:
        ConfigError: a model with qk_norm.
    """
    if model.config.qk_norm:
        raise ConfigError("with qk_norm scores are no bilinear form of the stream")


def _read(norm: torch.nn.Module, x: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_model"]:
    """Rows as a LayerNorm passes them on, its scale left out: centred, times its gain."""
    return (x - x.mean(-1, keepdim=True)) * norm.w if isinstance(norm, LayerNorm) else x


def _check_head(model: HookedGPT, layer: int, head: int) -> None:
    component(model.config, f"L{layer}.H{head}")


@dataclass(frozen=True, kw_only=True)
class CopyingScores(Result):
    """How far each head's OV circuit raises the token attended to, [layer, head].

    `copying` is Σ Re λ / Σ |λ| over the eigenvalues of the OV circuit: 1 where every direction is
    copied, −1 where negated, near 0 by chance (Elhage et al. 2021). `own_logit` is the attended
    token's logit less the mean of its row, averaged over tokens; `own_rank` its mean rank among
    d_vocab logits, from 0 (the highest) to 1; by chance 0.5.
    """

    AXES: ClassVar = dict.fromkeys(("copying", "own_logit", "own_rank"), ("layer", "head"))
    SECTION: ClassVar = "circuits"
    HEADING: ClassVar = "How heads work together"
    copying: np.ndarray
    own_logit: np.ndarray
    own_rank: np.ndarray

    @kept
    def to_frame(self) -> pd.DataFrame:
        """Returns layer, head, copying, own_logit, own_rank."""
        layer, head = np.indices(self.copying.shape)
        columns = {"layer": layer, "head": head}
        columns |= {name: getattr(self, name) for name in self.AXES}
        return pd.DataFrame({name: value.ravel() for name, value in columns.items()})

    def figures(self) -> list[Shown]:
        """Returns the copying score and the rank of the token's own logit, layer by head."""
        copying = self._map(self.copying, "Σ Re λ / Σ |λ|", "copying", -1.0)
        ranks = self._map(self.own_rank, "mean rank of its own logit", "own rank (0: highest)", 0.0)
        caption = (
            "What each head's OV circuit does to the token that it attends to. Left: copying, from "
            "−1 (negated) by 0 (chance) to 1 (copied). Right: the mean rank of the token's own "
            "logit among all, from 0 (highest) to 1; by chance 0.5. From the weights alone."
        )
        return [
            Shown(name=self.name, caption=caption, mark=Panels(marks=(copying, ranks), columns=2))
        ]

    def _map(self, values: np.ndarray, label: str, title: str, low: float) -> HeatMap:
        layers, heads = values.shape
        return HeatMap(
            values=values, rows=tuple(f"L{i}" for i in range(layers)),
            columns=tuple(f"H{i}" for i in range(heads)), label=label, title=title,
            low=low, high=1.0, palette="signed" if low else "weight",
            numbers=tuple(tuple(f"{x:.2f}" for x in row) for row in values),
        )  # fmt: skip


@torch.no_grad()
def copying_scores(model: HookedGPT) -> CopyingScores:
    """Returns how far each head copies the token that it attends to.

    Raises:
        ConfigError: a model without blocks.
    """
    if not model.blocks:
        raise ConfigError("a model without blocks has no heads")
    shape = (model.config.n_layers, model.config.n_heads)
    copying, own_logit, own_rank = np.zeros((3, *shape))
    for layer, head in np.ndindex(shape):
        ov = ov_circuit(model, layer, head)
        copying[layer, head] = copying_of(ov)
        own_logit[layer, head], own_rank[layer, head] = _own(ov)
    none = torch.zeros(0, dtype=torch.long)
    return CopyingScores(
        copying=copying, own_logit=own_logit, own_rank=own_rank,
        provenance=Provenance.of(model, none),
    )  # fmt: skip


def copying_of(ov: FactoredMatrix) -> float:
    """Returns Σ Re λ / Σ |λ| of an OV circuit; 0 for one that writes nothing."""
    small = to_numpy(ov.B @ ov.A).astype(np.float64)  # the same eigenvalues, [d_head d_head]
    values = np.linalg.eigvals(small)
    total = np.abs(values).sum()
    return float(values.real.sum() / total) if total > 0 else 0.0


def _own(ov: FactoredMatrix) -> tuple[float, float]:
    """The attended token's logit less its row's mean, and its rank; means over tokens."""
    own, rank = [], []
    for start in range(0, len(ov.A), ROWS):
        rows = ov.A[start : start + ROWS] @ ov.B
        at = torch.arange(len(rows), device=rows.device)
        mine = rows[at, start + at]
        own.append(to_numpy(mine - rows.mean(1)))
        ties = (rows == mine[:, None]).sum(1) - 1  # half of them above it
        above = (rows > mine[:, None]).sum(1) + 0.5 * ties
        rank.append(to_numpy(above) / max(1, rows.shape[1] - 1))
    return float(np.concatenate(own).mean()), float(np.concatenate(rank).mean())
