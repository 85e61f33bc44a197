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
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from interp.analysis.causal.shapley_games import Game, final_game, rerun_game
from interp.analysis.causal.shapley_results import ShapleyValues
from interp.deprecated import renamed
from interp.errors import ConfigError
from interp.gpt.cache import ActivationCache
from interp.gpt.model import HookedGPT, Input
from interp.results.document import to_numpy
from interp.results.provenance import Provenance
from interp.stream.components import Component, component, components
from interp.stream.metric import MetricFunction, make_metric, tokens_of
from interp.stream.references import ReferenceSet
from interp.stream.token_ids import TokensGiven
from interp.stream.tolerance import TOLERANCE, check_complete, check_dtype

EXACT_PLAYERS = 14
Progress = Callable[[int, int], None]


@renamed(scalar="metric")
@torch.no_grad()
def shapley_values(
    model: HookedGPT,
    cache: ActivationCache,
    players: Sequence[str] | None = None,
    *,
    metric: str | MetricFunction = "log_prob",
    targets: TokensGiven | None = None,
    foils: TokensGiven | None = None,
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
        targets: characters or ids (see `token_ids`); by default the next token at every position
            but the last.
        foils: with metric="foil"; the same.
        reference: sequences whose mean takes a component's place; by default nothing does.
        rerun: run the model again for each set, instead of its final LayerNorm only.
        permutations: estimate from so many random orders, each also taken backwards. By default
            every set is evaluated, for up to 14 players; for more, 200 orders. (With fewer than 30
            the standard error is itself uncertain: 10 gave z-scores of std 1.9, 40 of 1.07.)
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
    permutations = _permutations(permutations, len(parts))
    if reference is not None:
        reference = ReferenceSet.of(model, reference)
    value_of = make_metric(model, tokens, cache["hook_logits"], metric, targets, foils)
    play = (
        rerun_game(model, tokens, parts, value_of, reference)
        if rerun
        else final_game(model, cache, parts, value_of, reference)
    )
    n, shape = len(parts), tuple(value_of.targets.shape)
    if permutations:
        values, error, base = _by_permutations(play, n, permutations, seed, shape, progress)
    else:
        values, base = _exactly(play, n, shape, progress)
        error = torch.zeros_like(values)
    total = value_of(value_of.logits)
    missed = (values.sum(0) - (total - base)).abs()
    tolerance = TOLERANCE[model.dtype] * (1 + values.abs().sum(0) + base.abs() + total.abs())
    check_complete(missed, tolerance)
    arrays = {"values": values, "standard_error": error, "base": base, "total": total,
              "efficiency_error": missed, "tolerance": tolerance,
              "tokens": tokens[:, : shape[1]], "targets": value_of.targets}  # fmt: skip
    return ShapleyValues(
        **{name: to_numpy(tensor) for name, tensor in arrays.items()},
        components=tuple(map(str, parts)),
        characters=None if model.tokenizer is None else model.tokenizer.characters,
        metric=value_of.name,
        rerun=rerun,
        baseline="zero" if reference is None else f"mean of {len(reference)} sequences",
        permutations=permutations,
        provenance=Provenance.of(model, tokens, seed=seed if permutations else None),
    )


def _permutations(given: int | None, n_players: int) -> int:
    """How many random orders are drawn; 0: every set is evaluated."""
    if given is None:
        return 0 if n_players <= EXACT_PLAYERS else 200
    if given == 0 and n_players > EXACT_PLAYERS:
        raise ConfigError(
            f"{n_players} players have 2^{n_players} sets; give permutations, or at most "
            f"{EXACT_PLAYERS} players"
        )
    if given < 0 or given == 1:
        raise ConfigError("a standard error needs permutations >= 2 (or 0 for every set)")
    return given


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
    play: Game, n: int, shape: tuple[int, ...], progress: Progress | None
) -> tuple[Tensor, Tensor]:
    """Values [player, batch, pos] and base [batch, pos] from every set, in counting order.

    Player i's value is Σ_S share(|S|) · (v(S ∪ {i}) − v(S)) over the sets S without i, where
    share(k) = 1 / (n · C(n − 1, k)) is how often k given others have arrived before i. Collected by
    sets, v(S) counts with +share(|S| − 1) for a member of S and −share(|S|) for anyone else: one
    matrix product of these coefficients with the values of all sets gives every player's value.
    """
    # Bit i of a set's number says whether player i is in it: row 5 of three players is 1, 0, 1.
    sets = (torch.arange(2**n)[:, None] >> torch.arange(n) & 1).double()
    sizes = sets.sum(1)
    # The last entry is for the set of all, which nobody can join.
    share = torch.tensor(
        [1 / (n * math.comb(n - 1, k)) for k in range(n)] + [0.0], dtype=torch.float64
    )
    joining = share[(sizes - 1).clamp(min=0).long()][:, None] * sets
    coefficients = (joining - share[sizes.long()][:, None] * (1 - sets)).T  # [player set]
    values, base = [], []
    n_positions = math.prod(shape)
    for at, v in play(sets):
        values.append((coefficients.to(v) @ v).to(v.dtype))
        base.append(v[0])
        if progress is not None:
            progress(at.stop, n_positions)
    return torch.cat(values, 1).unflatten(1, shape), torch.cat(base).unflatten(0, shape)


def _by_permutations(
    play: Game,
    n: int,
    permutations: int,
    seed: int,
    shape: tuple[int, ...],
    progress: Progress | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Values and standard errors [player, batch, pos], and base, from random orders.

    Each order is taken backwards too: who came early comes late, so that much of the spread cancels
    in the mean of the two. These means are independent of each other; their mean and spread are
    updated as they come (Welford 1962), so that none is kept.
    """
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


def _marginals(play: Game, order: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Base [position], and what each player adds when they arrive in this order."""
    sets = torch.zeros(n + 1, n, dtype=torch.float64)
    for k, player in enumerate(order.tolist()):
        sets[k + 1 :, player] = 1
    v = torch.cat([values for _, values in play(sets)], dim=1)
    added = torch.empty_like(v[1:])
    added[order.to(v.device)] = v.diff(dim=0)
    return v[0], added
