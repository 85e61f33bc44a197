"""Shapley values: each component's share of a metric, fair to all orders of taking them away.

A component's Shapley value is its marginal contribution v(S ∪ {i}) − v(S), averaged over the sets S
of other components with the weights that make every order of arrival equally likely. The values sum
to v(all) − v(none) exactly (efficiency), also for log p, which is not a sum of parts.

Two games:

    the final LayerNorm   v(S) = f(unembed(LN(x − what is not in S))), through the true LayerNorm
                          and log-softmax; the components keep what they wrote
    a re-run              v(S) = f(the model run with what is not in S taken away); components that
                          read from those taken away write something else

What is taken away is replaced by nothing, or by its mean over a reference set. Everything that is
not a player (by default the constants: b_O, b_out, ln_bias, b_U) is always there.

Through the final LayerNorm nothing of width d_model is needed once a set: logits are linear in the
players but for the scale, and the scale follows from their inner products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, get_args

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import ConfigError
from interp.gpt.cache import ActivationCache
from interp.gpt.layers import LayerNorm
from interp.gpt.model import HookedGPT, Input
from interp.results.provenance import Provenance
from interp.results.result import Result, to_numpy
from interp.stream.components import Component, component, components
from interp.stream.interventions import Intervention, ReferenceSet, intervene
from interp.stream.metric import LinearMetric, Metric, MetricFunction, make_metric, tokens_of
from interp.stream.resume import final_stream
from interp.stream.tolerance import TOLERANCE, check_complete, check_dtype

EXACT_PLAYERS = 14
NUMBERS_AT_ONCE = 2**21  # logits held at a time; 8 MB in float32
SCALES_AHEAD = 32
Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class ShapleyValues(Result):
    """Shapley values [component, batch, pos], in the units of the metric.

    They sum to `total` − `base` (all components there, none there); `efficiency_error` is by how
    much they miss it, at most `tolerance`. `standard_error` is 0 where every set was evaluated
    (`permutations` = 0), else that of the mean over permutations.
    """

    AXES: ClassVar = {
        "values": ("component", "batch", "pos"),
        "standard_error": ("component", "batch", "pos"),
        "base": ("batch", "pos"),
        "total": ("batch", "pos"),
        "efficiency_error": ("batch", "pos"),
        "tolerance": ("batch", "pos"),
        "tokens": ("batch", "pos"),
        "targets": ("batch", "pos"),
    }
    NAMES: ClassVar = {"components": "component"}
    values: np.ndarray
    standard_error: np.ndarray
    base: np.ndarray
    total: np.ndarray
    efficiency_error: np.ndarray
    tolerance: np.ndarray
    tokens: np.ndarray
    targets: np.ndarray
    components: tuple[str, ...]
    metric: str
    rerun: bool
    baseline: str
    permutations: int

    def to_frame(self) -> pd.DataFrame:
        """Returns columns component, batch, pos, target, value, standard_error."""
        n, batch, pos = self.values.shape
        index = pd.MultiIndex.from_product(
            [self.components, range(batch), range(pos)], names=["component", "batch", "pos"]
        )
        columns = {
            "target": np.tile(self.targets.ravel(), n),
            "value": self.values.ravel(),
            "standard_error": self.standard_error.ravel(),
        }
        return pd.DataFrame(columns, index=index).reset_index()


@torch.no_grad()
def shapley_values(
    model: HookedGPT,
    cache: ActivationCache,
    players: Sequence[str] | None = None,
    *,
    metric: str | MetricFunction = "log_prob",
    targets: Int[Tensor, "batch pos"] | None = None,
    foils: Int[Tensor, "batch pos"] | str | int | None = None,
    reference: ReferenceSet | Input | None = None,
    rerun: bool = False,
    permutations: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> ShapleyValues:
    """Returns the Shapley value of each player at each position.

    Args:
        model: the model.
        cache: of a run in evaluation mode.
        players: components' labels; by default embeddings, attentions and MLPs.
        metric: see `interp.stream.metric`, or a function of logits and targets.
        targets: by default the next token at every position but the last.
        foils: with metric="foil".
        reference: sequences whose mean takes a component's place; by default nothing does.
        rerun: run the model again for each set, instead of its final LayerNorm only.
        permutations: estimate from so many random orders, each also taken backwards. By default
            every set is evaluated, for up to 14 players; for more, 200 orders. (With fewer than 30
            the standard error is itself uncertain: 10 gave z-scores of deviation 1.9, 40 of 1.07.)
        seed: of the orders.
        progress: called with (steps done, of how many).

    Raises:
        ConfigError: no such component; one named twice, or also as part of another; ln_bias or
            b_U as a player of the final LayerNorm's game; every set of more than 14 players.
        CompletenessError: the values do not sum to what they should.
        CacheError, TokenError: as `logit_attribution`.

    Source: Shapley 1953; the permutation estimator: Castro, Gómez & Tejada 2009.

    Example:
        >>> import interp
        >>> model = interp.HookedGPT.from_pretrained("models/shakespeare-char")
        >>> _, cache = model.run_with_cache("O Romeo")
        >>> values = interp.shapley_values(model, cache)
        >>> bool((abs(values.values.sum(0) - (values.total - values.base)) < 1e-4).all())
        True
    """
    tokens = tokens_of(model, cache)
    check_dtype(model)
    parts = _players(model, players, rerun)
    if permutations is None:
        permutations = 0 if len(parts) <= EXACT_PLAYERS else 200
    if permutations == 0 and len(parts) > EXACT_PLAYERS:
        raise ConfigError(
            f"{len(parts)} players have 2^{len(parts)} sets; give permutations, or at most "
            f"{EXACT_PLAYERS} players"
        )
    if permutations < 0 or permutations == 1:
        raise ConfigError("a standard error needs permutations >= 2 (or 0 for every set)")
    if reference is not None:
        reference = ReferenceSet.of(model, reference)
    value_of = make_metric(model, tokens, cache["hook_logits"], metric, targets, foils)
    play = (
        _rerun_game(model, tokens, parts, value_of, reference)
        if rerun
        else _final_game(model, cache, parts, value_of, reference)
    )
    shape = tuple(value_of.targets.shape)
    if permutations:
        values, error, base = _by_permutations(
            play, len(parts), permutations, seed, shape, progress
        )
    else:
        values, base = _exactly(play, len(parts), shape, progress)
        error = torch.zeros_like(values)
    total = value_of(value_of.logits)
    missed = (values.sum(0) - (total - base)).abs()
    tolerance = TOLERANCE[model.dtype] * (1 + values.abs().sum(0) + base.abs() + total.abs())
    check_complete(missed, tolerance)
    return ShapleyValues(
        values=to_numpy(values),
        standard_error=to_numpy(error),
        base=to_numpy(base),
        total=to_numpy(total),
        efficiency_error=to_numpy(missed),
        tolerance=to_numpy(tolerance),
        tokens=to_numpy(tokens[:, : shape[1]]),
        targets=to_numpy(value_of.targets),
        components=tuple(map(str, parts)),
        metric=value_of.name,
        rerun=rerun,
        baseline="zero" if reference is None else f"mean of {len(reference)} sequences",
        permutations=permutations,
        provenance=Provenance.of(model, tokens, seed=seed if permutations else None),
    )


# A game: for sets [set, player] of zeros and ones, yields (positions, values [set, position]) until
# all positions, counted over batch and pos together, are done. Where all 2^n sets are given, they
# are in counting order.
_Game = Callable[
    [Float[Tensor, "set player"]], Iterator[tuple[slice, Float[Tensor, "set position"]]]
]


def _players(model: HookedGPT, given: Sequence[str] | None, rerun: bool) -> list[Component]:
    if given is None:
        varying = components(model.config, "block", constants=False)
        position = [component(model.config, "pos_embed")] if model.config.positional else []
        return [varying[0], *position, *varying[1:]]
    if isinstance(given, str) or not given or len(set(given)) < len(given):
        raise ConfigError(f"players = {given!r} must be a list of different components' labels")
    parts = [component(model.config, label) for label in given]
    for c in parts:
        whole = {"head": "attn", "neuron": "mlp"}.get(c.kind)
        if whole and f"L{c.layer}.{whole}" in given:
            raise ConfigError(f"{c} is part of L{c.layer}.{whole}; one of them can play, not both")
    if not rerun and any(c.kind in ("ln_bias", "b_U") for c in parts):
        raise ConfigError("ln_bias and b_U are added after the final LayerNorm; they cannot play")
    return parts


def _exactly(
    play: _Game, n: int, shape: tuple[int, ...], progress: Progress | None
) -> tuple[Tensor, Tensor]:
    """Values [player, batch, pos] and base [batch, pos] from every set, in counting order."""
    sets = (torch.arange(2**n)[:, None] >> torch.arange(n) & 1).double()
    sizes = sets.sum(1)
    share = torch.tensor(
        [1 / (n * math.comb(n - 1, k)) for k in range(n)] + [0.0], dtype=torch.float64
    )
    joining = share[(sizes - 1).clamp(min=0).long()][:, None] * sets  # v(S) with i in S …
    coefficients = (joining - share[sizes.long()][:, None] * (1 - sets)).T  # … minus without
    values, base = [], []
    n_positions = math.prod(shape)
    for at, v in play(sets):
        values.append((coefficients.to(v) @ v).to(v.dtype))
        base.append(v[0])
        if progress is not None:
            progress(at.stop, n_positions)
    return torch.cat(values, 1).unflatten(1, shape), torch.cat(base).unflatten(0, shape)


def _by_permutations(
    play: _Game,
    n: int,
    permutations: int,
    seed: int,
    shape: tuple[int, ...],
    progress: Progress | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Values and standard errors [player, batch, pos], and base, from random orders."""
    generator = torch.Generator().manual_seed(seed)
    mean = spread = base = torch.zeros(0)
    for k in range(permutations):
        order = torch.randperm(n, generator=generator)
        both = [_marginals(play, one, n) for one in (order, order.flip(0))]
        base, one = both[0][0], (both[0][1] + both[1][1]) / 2
        if k == 0:
            mean, spread = torch.zeros_like(one), torch.zeros_like(one)
        step = one - mean
        mean = mean + step / (k + 1)
        spread = spread + step * (one - mean)
        if progress is not None:
            progress(k + 1, permutations)
    error = (spread / (permutations - 1) / permutations).sqrt()
    return mean.unflatten(1, shape), error.unflatten(1, shape), base.unflatten(0, shape)


def _marginals(play: _Game, order: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Base [position], and what each player adds when they arrive in this order."""
    sets = torch.zeros(n + 1, n, dtype=torch.float64)
    for k, player in enumerate(order.tolist()):
        sets[k + 1 :, player] = 1
    v = torch.cat([values for _, values in play(sets)], dim=1)
    added = torch.empty_like(v[1:])
    added[order.to(v.device)] = v.diff(dim=0)
    return v[0], added


def _changes(
    model: HookedGPT,
    cache: ActivationCache,
    parts: list[Component],
    n_pos: int,
    reference: ReferenceSet | None,
) -> Float[Tensor, "player batch pos d_model"]:
    """What each player wrote beyond what takes its place."""
    written = []
    if reference is not None:
        reference.prepare([c.hook for c in parts])
    for c in parts:
        value = c.value(model, cache[c.hook][:, :n_pos])
        if reference is not None:
            value = value - reference.mean(c, n_pos)
        written.append(c.written(model, value))
    return torch.stack(written)


def _final_game(
    model: HookedGPT,
    cache: ActivationCache,
    parts: list[Component],
    value_of: Metric,
    reference: ReferenceSet | None,
) -> _Game:
    """Through the final LayerNorm and the unembedding only."""
    changes = _changes(model, cache, parts, value_of.n_pos, reference)
    always = final_stream(model, cache)[:, : value_of.n_pos] - changes.sum(0)
    terms = torch.cat((changes, always[None])).flatten(1, 2)  # [term position d_model]
    offset = torch.zeros_like(model.W_U[0])
    products: Tensor | None = None
    if isinstance(model.ln_final, LayerNorm):
        terms = terms - terms.mean(-1, keepdim=True)
        products = _inner_products(terms)
        terms = terms * model.ln_final.w
        offset = model.ln_final.b @ model.W_U
    into_logits = terms @ model.W_U  # [term position d_vocab]
    if model.b_U is not None:
        offset = offset + model.b_U
    flat = replace(
        value_of,
        targets=value_of.targets.reshape(1, -1),
        foils=None if value_of.foils is None else value_of.foils.reshape(1, -1),
        logits=value_of.logits.reshape(1, -1, value_of.logits.shape[-1]),
    )
    linear = value_of.kind in get_args(LinearMetric)
    if linear:  # one number a term is enough
        weights = flat.weights()[0]
        into_logits = (into_logits * weights).sum(-1, keepdim=True)
        offset = (weights @ offset)[:, None]

    def play(sets: Tensor) -> Iterator[tuple[slice, Tensor]]:
        there = torch.cat((sets, torch.ones(len(sets), 1)), dim=1).to(terms)
        pairs = None if products is None else _pairs(_wide(there))
        width, n_positions = into_logits.shape[-1], terms.shape[1]
        step = max(1, NUMBERS_AT_ONCE // (len(sets) * width))
        for start in range(0, n_positions, step):
            at = slice(start, min(start + step, n_positions))
            logits = _sums(there, into_logits[:, at].flatten(1)).unflatten(1, (-1, width))
            if products is not None and pairs is not None:
                assert isinstance(model.ln_final, LayerNorm)
                ahead = start % (SCALES_AHEAD * step)
                if ahead == 0:  # a matrix product of many columns takes little longer than of one
                    variance = pairs @ products[:, start : start + SCALES_AHEAD * step]
                    scales = (variance + model.ln_final.eps).rsqrt().to(logits.dtype)
                logits *= scales[:, ahead : ahead + step, None]
            logits += offset[at] if linear else offset
            yield at, logits[..., 0] if linear else _at(flat, at)(logits[:, None])[:, 0]

    return play


def _sums(there: Float[Tensor, "set term"], terms: Float[Tensor, "term width"]) -> Tensor:
    """Returns [set, width], the sum of each set's terms; of all sets, from two halves of them.

    Adding a sum of the first players to a sum of the others is one pass over memory, a twelfth of
    the time of the matrix product with so few terms (measured at 14 players).
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


def _rerun_game(
    model: HookedGPT,
    tokens: Int[Tensor, "batch pos"],
    parts: list[Component],
    value_of: Metric,
    reference: ReferenceSet | None,
) -> _Game:
    """Every set is a run of the model with the others taken away."""
    kind: Any = "zero" if reference is None else "mean"

    def play(sets: Tensor) -> Iterator[tuple[slice, Tensor]]:
        rows = []
        for there in sets.bool().tolist():
            gone = [
                Intervention(c.label, kind)
                for c, is_in in zip(parts, there, strict=True)
                if not is_in
            ]
            with intervene(model, gone, reference=reference):
                rows.append(value_of(model(tokens)[:, : value_of.n_pos]).flatten())
        yield slice(0, rows[0].numel()), torch.stack(rows)

    return play
