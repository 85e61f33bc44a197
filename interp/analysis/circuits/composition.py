"""How far later heads read what earlier heads write, from the weights, beside random rotations.

A score far above its null shows that two heads overlap, not that anything depends on it: an idle
head can have as high a score as the one that carries the circuit. The measure of composition to go
by is `interp.analysis.circuits.paths.path_effects`, from runs.

Source: Elhage et al. 2021, A mathematical framework for transformer circuits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from interp.analysis.circuits.weights import check_bilinear
from interp.figures.marks import HeatMap, Panels
from interp.gpt.layers import LayerNorm
from interp.gpt.model import HookedGPT
from interp.results.document import to_numpy
from interp.results.provenance import Provenance
from interp.results.result import Result
from interp.results.shown import Shown, kept

LETTERS = ("Q", "K", "V")
DRAWS = 200  # random rotations


@dataclass(frozen=True, kw_only=True)
class CompositionScores(Result):
    """Of each pair of heads and each letter, how far the later reads what the earlier writes.

    `score` [pair] from 0 to 1; `null` and `null_std` the mean and the std of `draws` random
    rotations; `p_value` the share of them, and of the score itself, that reach it. `senders` and
    `receivers` are labels of heads, `letters` "Q", "K" or "V".
    """

    AXES: ClassVar = dict.fromkeys(("score", "null", "null_std", "p_value"), ("pair",))
    NAMES: ClassVar = dict.fromkeys(("senders", "receivers", "letters"), "pair")
    SECTION: ClassVar = "circuits"
    HEADING: ClassVar = "How heads work together"
    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    letters: tuple[str, ...]
    score: np.ndarray
    null: np.ndarray
    null_std: np.ndarray
    p_value: np.ndarray
    draws: int

    @kept
    def to_frame(self) -> pd.DataFrame:
        """Returns sender, receiver, letter, score, null, null_std, z, p_value."""
        return pd.DataFrame(
            {
                "sender": self.senders, "receiver": self.receivers, "letter": self.letters,
                "score": self.score, "null": self.null, "null_std": self.null_std,
                "z": (self.score - self.null) / self.null_std, "p_value": self.p_value,
            }
        )  # fmt: skip

    def figures(self) -> list[Shown]:
        """Returns a map of each letter, sender by receiver: the score less its null's mean."""
        table = self.to_frame()
        if table.empty:
            return []
        above = table.assign(above=table["score"] - table["null"])
        limit = float(above["above"].abs().max()) or 1.0
        maps = tuple(self._map(above, letter, limit) for letter in LETTERS)
        caption = (
            "How far the weights of each later head (columns) read what each earlier head (rows) "
            "writes, by its queries (Q), keys (K) and values (V): the score less the mean of "
            f"{self.draws} random rotations, seed {self.provenance.seed}. Overlap is not use: see "
            "the effects of paths."
        )
        return [
            Shown(name=self.name, caption=caption, mark=Panels(marks=maps, columns=3, share=True))
        ]

    def _map(self, table: pd.DataFrame, letter: str, limit: float) -> HeatMap:
        senders, receivers = (tuple(dict.fromkeys(x)) for x in (self.senders, self.receivers))
        wide = table[table["letter"] == letter].pivot(
            index="sender", columns="receiver", values="above"
        )
        return HeatMap(
            values=wide.reindex(index=senders, columns=receivers).to_numpy(), rows=senders,
            columns=receivers, label="score − null", low=-limit, high=limit, title=letter,
            row_label="head that writes", column_label="head that reads",
        )  # fmt: skip


class Factors(NamedTuple):
    """What a score needs of a matrix of low rank: W = left · diag(size) · right."""

    left: np.ndarray
    size: np.ndarray
    right: np.ndarray

    @classmethod
    def of(cls, W: np.ndarray, rank: int) -> Factors:
        """Returns a matrix's singular vectors and values, up to its rank."""
        left, size, right = np.linalg.svd(W, full_matrices=False)
        return cls(left[:, :rank], size[:rank], right[:rank])


@torch.no_grad()
def composition_scores(model: HookedGPT, *, draws: int = DRAWS, seed: int = 0) -> CompositionScores:
    """Returns how far the weights of each later head read what each earlier head writes.

    The score of a pair is ‖W_OV M‖ / (‖W_OV‖ ‖M‖) in Frobenius norms, with M the reader's W_QK for
    "Q", its transpose for "K" and its W_OV for "V". LayerNorm's centring and gain are folded into
    M, its scale and the biases left out. The null keeps both spectra and turns one against the
    other at random.

    Args:
        model: the model.
        draws: random rotations of each pair.
        seed: of them.

    Raises:
        ConfigError: a model with qk_norm.
    """
    check_bilinear(model)
    rng = np.random.default_rng(seed)
    heads = list(np.ndindex(model.config.n_layers, model.config.n_heads))
    senders = {at: _sender(model, *at) for at in heads if at[0] < model.config.n_layers - 1}
    names, numbers = [], []
    for layer, head in heads:
        for letter, reader in _readers(model, layer, head).items():
            for early, sender in np.ndindex(layer, model.config.n_heads):
                names.append((f"L{early}.H{sender}", f"L{layer}.H{head}", letter))
                numbers.append(_scored(senders[early, sender], reader, draws, rng))
    score, null, null_std, p_value = np.array(numbers).reshape(-1, 4).T
    by_pair = list(zip(*names, strict=True)) or [(), (), ()]
    none = torch.zeros(0, dtype=torch.long)
    return CompositionScores(
        senders=by_pair[0], receivers=by_pair[1], letters=by_pair[2],
        score=score, null=null, null_std=null_std, p_value=p_value,
        draws=draws, provenance=Provenance.of(model, none, seed=seed),
    )  # fmt: skip


def _sender(model: HookedGPT, layer: int, head: int) -> Factors:
    attn = model.blocks[layer].attn
    W_OV = to_numpy(attn.W_V[head] @ attn.W_O[head]).astype(np.float64)
    return Factors.of(W_OV, attn.W_V.shape[-1])


def _readers(model: HookedGPT, layer: int, head: int) -> dict[str, Factors]:
    """What each letter of a head makes of the stream; nothing comes before the first layer."""
    if layer == 0:
        return {}
    block = model.blocks[layer]
    W_Q, W_K, W_V = (
        to_numpy(_before_norm(block.ln1, W[head])).astype(np.float64)
        for W in (block.attn.W_Q, block.attn.W_K, block.attn.W_V)
    )
    W_O = to_numpy(block.attn.W_O[head]).astype(np.float64)
    pairs = zip(LETTERS, ((W_Q, W_K.T), (W_K, W_Q.T), (W_V, W_O)), strict=True)
    return {letter: Factors.of(left @ right, left.shape[1]) for letter, (left, right) in pairs}


def _before_norm(
    norm: torch.nn.Module, W: Float[Tensor, "d_model d_head"]
) -> Float[Tensor, "d_model d_head"]:
    """What W makes of the stream before its LayerNorm, whose scale is left out."""
    if not isinstance(norm, LayerNorm):
        return W
    scaled = W * norm.w[:, None]
    return scaled - scaled.mean(0, keepdim=True)


def _scored(
    sender: Factors, reader: Factors, draws: int, rng: np.random.Generator
) -> tuple[float, float, float, float]:
    """Score, mean and std of the null, and p.

    With both in singular vectors, ‖W_OV M‖ is that of the two spectra around the small matrix in
    which the sender's right vectors meet the reader's left ones; the null draws that matrix.
    """
    s, r = sender.size[:, None], reader.size
    size = np.linalg.norm(sender.size) * np.linalg.norm(r)
    score = np.linalg.norm(s * (sender.right @ reader.left) * r) / size
    turned = [_turn(rng, len(reader.left), len(r)) for _ in range(draws)]
    null = np.array([np.linalg.norm(s * turn * r) for turn in turned]) / size
    p_value = (1 + (null >= score).sum()) / (1 + draws)
    return float(score), float(null.mean()), float(null.std(ddof=1)), float(p_value)


def _turn(rng: np.random.Generator, n: int, rank: int) -> np.ndarray:
    """A rank-by-rank block of a random rotation of n dimensions."""
    one, _ = np.linalg.qr(rng.standard_normal((n, rank)))
    out: np.ndarray = one[:rank]
    return out
