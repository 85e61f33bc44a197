"""What happens when a part is really removed: direct and total effects, and what lies between.

For a metric f of the logits and a component whose contribution c is replaced by c′ (nothing, its
mean, another sequence's):

    direct           f(logits) − f(logits − A(c − c′)): the final LayerNorm's scale and every other
                     component held as they were. For a zero ablation and a linear metric this is
                     the row of `logit_attribution`.
    renormalised    the same, with the LayerNorm's scale recomputed
    total            f(logits) − f(logits of the model run on with c′ in place of c)

    layer_norm_part  = direct − renormalised     what the LayerNorm's rescaling made up for
    downstream_part  = renormalised − total      what later components made up for (or, negative,
                                                  added: they used what was written)

so that direct = total + layer_norm_part + downstream_part. A component that nothing comes after has
no downstream part.

Each sequence gives one number, the mean over its positions; intervals are over sequences.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.analysis.causal.effect_results import ComponentEffects
from interp.deprecated import renamed
from interp.errors import ConfigError, TokenError
from interp.gpt.cache import ActivationCache
from interp.gpt.layers import LayerNorm
from interp.gpt.model import HookedGPT, Input
from interp.results.document import to_numpy
from interp.results.provenance import Provenance
from interp.stream.batches import BATCH, Run, runs
from interp.stream.components import CONSTANTS, Component, component, components
from interp.stream.metric import (
    Metric,
    MetricFunction,
    check_choice,
    targets_and_foils,
)
from interp.stream.references import ReferenceSet
from interp.stream.replacing import Ablation, Replacements
from interp.stream.resume import (
    check_can_resume,
    check_reruns,
    final_stream,
    run_batch,
    run_changed,
)
from interp.stream.token_ids import TokensGiven

FEWEST_DRAWS = 8
Progress = Callable[[int, int], None]


@renamed(scalar="metric")
@torch.no_grad()
def component_effects(
    model: HookedGPT,
    tokens: Input,
    *,
    ablate: Ablation = "mean",
    by: Literal["block", "head"] = "head",
    metric: str | MetricFunction = "centered",
    targets: TokensGiven | None = None,
    foils: TokensGiven | None = None,
    reference: ReferenceSet | Input | None = None,
    chosen: Sequence[str] | None = None,
    positions: Sequence[int] | None = None,
    draws: int = FEWEST_DRAWS,
    seed: int = 0,
    progress: Progress | None = None,
) -> ComponentEffects:
    """Returns the direct and total effect of every component, and what lies between.

    A positive effect: the component raised the metric. ("loss" is a metric too: a component that
    helps has a negative effect on it. With "kl", the effect is the divergence that the removal
    causes.)

    Args:
        model: the model, in evaluation mode.
        tokens: the sequences to look at, [sequence, pos] or text.
        ablate: "zero"; "mean": the mean at the same position over the reference set; "resample":
            another sequence's value at the same position, averaged over `draws`.
        by: "head" (heads and MLPs) or "block" (attentions and MLPs).
        metric: see `interp.stream.metric`; or a function (logits [..., batch, pos, d_vocab],
            targets [batch, pos]) → [..., batch, pos].
        targets: characters or ids (see `token_ids`), [sequence, pos]; by default the next token at
            every position but the last.
        foils: with metric="foil"; the same.
        reference: sequences that means and resamples come from; by default, for each sequence, the
            others among `tokens`.
        chosen: components' labels (also neurons, "L0.N17"); by default all that can vary, and for
            "zero" the constants too.
        positions: average over these only; by default over all that have a target.
        draws: of "resample".
        seed: of the draws and of the intervals.
        progress: called with (sequences done, of how many).

    Raises:
        ConfigError: an unknown option or component; training mode; fewer than 8 draws.
        TokenError: a position without a target, an empty or too short reference set.
        HookError: hooks are attached to the model.
        CompletenessError: the model run on from its middle does not give its own logits.

    Warns:
        UserWarning: sequences looked at are also in the reference set.

    Sources: direct and total effects and self-repair: McGrath et al. 2023 (2307.15771), Rushing &
    Nanda 2024 (2402.15390); resampling at the same position: Chan et al., Causal Scrubbing (2022).

    Example:
        >>> import interp
        >>> model = interp.HookedGPT.from_pretrained("models/shakespeare-char")
        >>> texts = ["First Citizen:\\n", "All the world's"]
        >>> effects = interp.component_effects(model, texts, ablate="zero", by="block")
        >>> list(effects.to_frame().columns[:3])
        ['component', 'layer', 'direct']
    """
    check_choice("ablate", ablate, get_args(Ablation))
    check_choice("by", by, ("block", "head"))
    check_can_resume(model)
    draws = _checked_draws(ablate, draws)
    ids = model.to_tokens(tokens)
    replacements = Replacements(model, ids, ablate, reference, draws=draws, seed=seed)
    _warn_of_overlap(replacements, len(ids))
    parts = _parts(model, by, chosen, ablate)
    asked, compared = targets_and_foils(model, ids, metric, targets, foils)
    at = _positions(positions, asked.shape[1])
    collected: list[np.ndarray] = []
    for run in runs(model, ids):
        theirs = None if compared is None else compared[run.rows]
        value_of = Metric(metric, asked[run.rows], theirs, run.logits[:, : asked.shape[1]])
        if not collected:
            rerun_error = check_reruns(model, run.cache, _depths(model, parts))
        effects = _effects(model, run, value_of, parts, replacements)
        collected.append(to_numpy(effects[..., at].mean(-1)))  # [kind component sequence]
        if progress is not None:
            progress(run.rows.stop, len(ids))
    kinds = ("direct", "direct_renormalised", "total")
    return ComponentEffects(
        **dict(zip(kinds, np.concatenate(collected, axis=-1), strict=True)),
        layers=np.array([c.layer for c in parts]),
        positions=at,
        components=tuple(map(str, parts)),
        ablate=ablate,
        metric=value_of.name,
        reference=replacements.description,
        draws=draws,
        overlap=replacements.overlap,
        rerun_error=rerun_error,
        provenance=Provenance.of(model, ids, seed=seed),
    )


def _checked_draws(ablate: Ablation, draws: int) -> int:
    """The draws of "resample"; 0 of anything else."""
    if ablate != "resample":
        return 0
    if draws < FEWEST_DRAWS:
        raise ConfigError(
            f"draws = {draws} is too few for resampling; give at least {FEWEST_DRAWS}"
        )
    return draws


def _depths(model: HookedGPT, parts: list[Component]) -> set[tuple[int, int]]:
    return {c.depth for c in parts if c.layer < len(model.blocks)}


def _warn_of_overlap(replacements: Replacements, n: int) -> None:
    if replacements.overlap:
        warnings.warn(
            f"{replacements.overlap} of {n} sequences are also in the reference set, so what "
            "takes their place is partly their own; effects come out too small",
            stacklevel=5,
        )


def _parts(
    model: HookedGPT, by: Literal["block", "head"], chosen: Sequence[str] | None, ablate: Ablation
) -> list[Component]:
    if chosen is None:
        return components(model.config, by, constants=ablate == "zero")
    if isinstance(chosen, str) or not chosen:
        raise ConfigError(f"chosen = {chosen!r} must be a list of at least one component's label")
    return sorted((component(model.config, c) for c in dict.fromkeys(chosen)), key=_in_order)


def _in_order(c: Component) -> tuple[Any, ...]:
    return (*c.depth, c.kind in CONSTANTS, c.kind == "b_U", c.index)


def _positions(given: Sequence[int] | None, n_pos: int) -> np.ndarray:
    if given is None:
        return np.arange(n_pos)
    at = np.array(sorted(set(given)), dtype=int)
    if not len(at) or at[0] < 0 or at[-1] >= n_pos:
        raise TokenError(
            f"positions {list(given)} must be one or more of 0 … {n_pos - 1}, those with a target"
        )
    return at


def _effects(
    model: HookedGPT,
    run: Run,
    value_of: Metric,
    parts: list[Component],
    replacements: Replacements,
) -> Float[Tensor, "kind component batch pos"]:
    """Direct, renormalised and total effects."""
    before = value_of(value_of.logits)
    effects = before.new_zeros(3, len(parts), *before.shape)
    number = {c: i for i, c in enumerate(parts)}
    jobs = replacements.changes(run.cache, parts, run.rows)
    for depth, some in _together(jobs, len(before)):
        changes = torch.stack([change for _, change in some])
        differences = before - value_of(_logits(model, run.cache, value_of, changes, depth))
        for (c, _), difference in zip(some, differences.unbind(1), strict=True):
            effects[:, number[c]] += difference / replacements.draws
    return effects


def _together(
    jobs: Iterable[tuple[Component, Tensor]], batch: int
) -> Iterator[tuple[tuple[int, int], list[tuple[Component, Tensor]]]]:
    """Yields a depth and the changes there, as many as are run on at a time.

    Four times as many as whole runs: from the middle nothing is kept.
    """
    for depth, group in groupby(jobs, key=lambda job: job[0].depth):
        while some := list(islice(group, max(1, 4 * BATCH // batch))):
            yield depth, some


def _logits(
    model: HookedGPT,
    cache: ActivationCache,
    value_of: Metric,
    changes: Float[Tensor, "job batch pos width"],
    depth: tuple[int, int],
) -> Float[Tensor, "kind job batch asked_pos d_vocab"]:
    """The logits with the changes made: everything frozen, LayerNorm recomputed, all run on."""
    run_on = run_changed(model, cache, depth, changes)
    if depth[0] == len(model.blocks):  # a bias behind the stream; nothing comes after it
        return run_on[:, :, : value_of.n_pos].expand(3, -1, -1, -1, -1)
    renormalised = run_batch(model.unembed_residual, final_stream(model, cache), changes)
    frozen = cache["hook_logits"] + _frozen(model, cache, changes)
    return torch.stack((frozen, renormalised, run_on))[:, :, :, : value_of.n_pos]


def _frozen(model: HookedGPT, cache: ActivationCache, changes: Tensor) -> Tensor:
    """What changes of the stream add to the logits while the LayerNorm's scale stays."""
    if isinstance(model.ln_final, LayerNorm):
        changes = changes - changes.mean(-1, keepdim=True)
        changes = changes * model.ln_final.w / cache["ln_final.hook_scale"]
    added: Tensor = changes @ model.W_U
    return added
