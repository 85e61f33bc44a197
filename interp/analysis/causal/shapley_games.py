"""The two games that Shapley values are of: what a set of components is worth.

A game is called with sets [set, player] of zeros and ones, and yields (positions, values [set,
position]) until all positions, counted over batch and pos together, are done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.gpt.cache import ActivationCache
from interp.gpt.layers import LayerNorm
from interp.gpt.model import HookedGPT
from interp.stream.components import Component
from interp.stream.interventions import How, Intervention, intervene
from interp.stream.metric import LinearMetric, Metric
from interp.stream.references import ReferenceSet
from interp.stream.replacing import Ablation, Replacements
from interp.stream.resume import check_not_random, final_stream

NUMBERS_AT_ONCE = 2**21  # logits held at a time; 8 MB in float32
SCALES_AHEAD = 32
Game = Callable[
    [Float[Tensor, "set player"]], Iterator[tuple[slice, Float[Tensor, "set position"]]]
]


def final_game(
    model: HookedGPT,
    cache: ActivationCache,
    parts: list[Component],
    value_of: Metric,
    reference: ReferenceSet | None,
) -> Game:
    """Returns the game through the final LayerNorm and the unembedding only."""
    return _FinalGame(model, cache, parts, value_of, reference)


def rerun_game(
    model: HookedGPT,
    tokens: Int[Tensor, "batch pos"],
    parts: list[Component],
    value_of: Metric,
    reference: ReferenceSet | None,
) -> Game:
    """Returns the game in which every set is a run of the model, the others taken away.

    Raises:
        ConfigError: the model is in training mode, where dropout is random.
    """
    check_not_random(model)
    how: How = "zero" if reference is None else "mean"

    def play(sets: Tensor) -> Iterator[tuple[slice, Tensor]]:
        rows = []
        for there in sets.bool().tolist():
            gone = [
                Intervention(c.label, how)
                for c, is_in in zip(parts, there, strict=True)
                if not is_in
            ]
            with intervene(model, gone, reference=reference):
                rows.append(value_of(model(tokens)[:, : value_of.n_pos]).flatten())
        yield slice(0, rows[0].numel()), torch.stack(rows)

    return play


class _FinalGame:
    """Through the final LayerNorm and the unembedding only.

    The stream of a set S is x(S) = Σ_{i in S} c_i + (what is always there): the *terms*, of which
    the last is in every set. The logits are linear in them but for the LayerNorm's scale,

        logits(S) = (Σ terms in S, centred, · w · W_U) / scale(S) + b · W_U + b_U,
        scale(S)² = Σ over pairs of terms in S of ⟨t_i, t_j⟩ / d_model + eps,

    so that per set only d_vocab sums and one scale are needed, nothing of width d_model. Of a
    metric that is linear in the logits, one number per term takes the place of the d_vocab.
    """

    def __init__(
        self,
        model: HookedGPT,
        cache: ActivationCache,
        parts: list[Component],
        value_of: Metric,
        reference: ReferenceSet | None,
    ) -> None:
        n_pos = value_of.n_pos
        ablate: Ablation = "zero" if reference is None else "mean"
        replacements = Replacements(model, _tokens(cache)[:, :n_pos], ablate, reference)
        changes = replacements.changes(cache, parts, n_pos=n_pos)
        players = torch.stack([-change for _, change in changes])  # beyond what takes their place
        always = final_stream(model, cache)[:, :n_pos] - players.sum(0)
        terms = torch.cat((players, always[None])).flatten(1, 2)  # [term position d_model]
        self.offset = torch.zeros_like(model.W_U[0])
        self.products: Tensor | None = None
        self.eps = model.config.ln_eps
        if isinstance(model.ln_final, LayerNorm):
            terms = terms - terms.mean(-1, keepdim=True)
            self.products = _inner_products(terms)
            terms = terms * model.ln_final.w
            self.offset = model.ln_final.b @ model.W_U
            self.eps = model.ln_final.eps
        self.into_logits = terms @ model.W_U  # [term position d_vocab]
        if model.b_U is not None:
            self.offset = self.offset + model.b_U
        self.value_of = _flat(value_of)
        self.linear = value_of.metric in get_args(LinearMetric)
        if self.linear:  # [term position 1]: weighted once, not for each set
            weights = self.value_of.weights()[0]
            self.into_logits = (self.into_logits * weights).sum(-1, keepdim=True)
            self.offset = (weights @ self.offset)[:, None]

    def __call__(
        self, sets: Float[Tensor, "set player"]
    ) -> Iterator[tuple[slice, Float[Tensor, "set position"]]]:
        """Yields the values of the sets, some positions at a time."""
        there = torch.cat((sets, torch.ones(len(sets), 1)), dim=1).to(self.into_logits)
        n_positions, width = self.into_logits.shape[1:]
        step = max(1, NUMBERS_AT_ONCE // (len(sets) * width))
        scales = self._scales(there, n_positions, step)
        for start in range(0, n_positions, step):
            at = slice(start, min(start + step, n_positions))
            terms = self.into_logits[:, at].flatten(1)
            logits = _sums(there, terms).unflatten(1, (-1, width))  # [set position width]
            if scales is not None:
                logits *= next(scales)[:, :, None]
            logits += self.offset[at] if self.linear else self.offset
            if self.linear:
                yield at, logits[..., 0]
            else:
                yield at, _at(self.value_of, at)(logits[:, None])[:, 0]

    def _scales(
        self, there: Float[Tensor, "set term"], n_positions: int, step: int
    ) -> Iterator[Float[Tensor, "set position"]] | None:
        """One over the LayerNorm's scale of each set, `step` positions at a time.

        They are computed for many steps at once: a matrix product of many columns takes little
        longer than one of a few.
        """
        if self.products is None:
            return None
        products, pairs = self.products, _pairs(_wide(there))

        def steps() -> Iterator[Tensor]:
            for start in range(0, n_positions, SCALES_AHEAD * step):
                variance = pairs @ products[:, start : start + SCALES_AHEAD * step]
                yield from (variance + self.eps).rsqrt().to(there.dtype).split(step, dim=1)

        return steps()


def _tokens(cache: ActivationCache) -> Tensor:
    assert cache.tokens is not None
    return cache.tokens


def _flat(value_of: Metric) -> Metric:
    """The metric with batch and pos as one axis of positions."""
    return replace(
        value_of,
        targets=value_of.targets.reshape(1, -1),
        foils=None if value_of.foils is None else value_of.foils.reshape(1, -1),
        logits=value_of.logits.reshape(1, -1, value_of.logits.shape[-1]),
    )


def _sums(there: Float[Tensor, "set term"], terms: Float[Tensor, "term width"]) -> Tensor:
    """Returns [set, width], the sum of each set's terms; of all sets, from two halves of them.

    Adding a sum of the first players to a sum of the others is one pass over memory, a twelfth of
    the time of the matrix product with so few terms (measured at 14 players).

    Where all 2^n sets are given they must be in counting order: bit i of the number of a set says
    whether player i is in it. So the first 2^half rows differ in the first `half` players only, and
    every (2^half)-th row in the others only; each set is one of the former and one of the latter.
    The last term, in every set, is added with the others.
    """
    n = len(terms) - 1
    if n < 2 or len(there) != 2**n:
        return there @ terms
    half = n // 2
    low, high = there[: 2**half], there[:: 2**half]
    return (high @ terms)[:, None].add(low[:, :half] @ terms[:half]).flatten(0, 1)


def _inner_products(
    terms: Float[Tensor, "term position d_model"],
) -> Float[Tensor, "pair position"]:
    """Σ over pairs is the variance of a sum of centred terms; in float64, for sums that cancel."""
    wide = _wide(terms).transpose(0, 1)
    products = wide @ wide.mT / terms.shape[-1]  # [position term term]
    i, j = torch.triu_indices(len(terms), len(terms))
    return (products[:, i, j] * torch.where(i == j, 1.0, 2.0).to(products)).T


def _wide(x: Tensor) -> Tensor:
    return x if x.device.type == "mps" else x.double()  # MPS has no float64


def _pairs(there: Float[Tensor, "set term"]) -> Float[Tensor, "set pair"]:
    i, j = torch.triu_indices(there.shape[1], there.shape[1])
    return there[:, i] * there[:, j]


def _at(value_of: Metric, at: slice) -> Metric:
    foils = None if value_of.foils is None else value_of.foils[:, at]
    return replace(
        value_of, targets=value_of.targets[:, at], foils=foils, logits=value_of.logits[:, at]
    )
