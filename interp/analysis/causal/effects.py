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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import ConfigError, HookError, TokenError
from interp.gpt.cache import ActivationCache
from interp.gpt.layers import LayerNorm
from interp.gpt.model import HookedGPT, Input
from interp.results import intervals
from interp.results.provenance import Provenance
from interp.results.result import Result, to_numpy
from interp.stream.components import CONSTANTS, Component, component, components
from interp.stream.interventions import PIECE, ReferenceSet
from interp.stream.metric import Metric, MetricFunction, check_choice, make_metric
from interp.stream.resume import check_reruns, final_stream, run_batch, run_from, stream_at

Ablation = Literal["zero", "mean", "resample"]
TOGETHER = 64  # sequences in one run from the middle of the model
FEWEST_DRAWS = 8
Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class ComponentEffects(Result):
    """Effects of replacing each component, one number a sequence, [component, sequence].

    Units are those of the metric: logits, or nats for log_prob, loss and kl.
    `rerun_error` is how far the model, run on from its middle with nothing replaced, was from its
    own logits; `overlap` how many sequences were also in the reference set.
    """

    AXES: ClassVar = {
        "direct": ("component", "sequence"),
        "direct_renormalised": ("component", "sequence"),
        "total": ("component", "sequence"),
        "layers": ("component",),
        "positions": ("position",),
    }
    NAMES: ClassVar = {"components": "component"}
    direct: np.ndarray
    direct_renormalised: np.ndarray
    total: np.ndarray
    layers: np.ndarray
    positions: np.ndarray
    components: tuple[str, ...]
    ablate: str
    metric: str
    reference: str
    draws: int
    overlap: int
    rerun_error: float

    @property
    def layer_norm_part(self) -> np.ndarray:
        """Direct minus renormalised, [component, sequence]."""
        part: np.ndarray = self.direct - self.direct_renormalised
        return part

    @property
    def downstream_part(self) -> np.ndarray:
        """Renormalised minus total, [component, sequence]."""
        part: np.ndarray = self.direct_renormalised - self.total
        return part

    def to_frame(self) -> pd.DataFrame:
        """Returns component, layer, then direct, total, layer_norm_part and downstream_part, each
        with _low and _high (95 %, over sequences), n, and signs_disagree: the intervals of direct
        and total lie on different sides of zero.
        """
        columns: dict[str, Any] = {"component": self.components, "layer": self.layers}
        for name in ("direct", "total", "layer_norm_part", "downstream_part"):
            mean, low, high = intervals.mean_interval(getattr(self, name), seed=self._seed)
            columns |= {name: mean, f"{name}_low": low, f"{name}_high": high}
        frame = pd.DataFrame(columns)
        frame["n"] = self.direct.shape[1]
        up = (frame.direct_low > 0) & (frame.total_high < 0)
        down = (frame.direct_high < 0) & (frame.total_low > 0)
        frame["signs_disagree"] = up | down
        return frame

    def agreement(self) -> pd.DataFrame:
        """Returns how direct and total effects agree, per layer and pooled ("all").

        Columns: layer, n (components), pearson, spearman, slope (of total on direct), each with
        _low and _high: 95 % percentile intervals over resampled sequences. A layer with fewer than
        three components has NaN: two points always correlate.
        """
        weights = intervals.bootstrap_weights(self.direct.shape[1], seed=self._seed).T
        x, y = self.direct, self.total
        groups = [(str(layer), self.layers == layer) for layer in np.unique(self.layers)]
        groups = [(name, which) for name, which in groups if name != "-1"]
        rows = []
        for name, which in [*groups, ("all", np.ones(len(self.layers), dtype=bool))]:
            row: dict[str, Any] = {"layer": name, "n": int(which.sum())}
            whole = intervals.correlations(x[which].mean(1), y[which].mean(1))
            drawn = intervals.correlations((x[which] @ weights).T, (y[which] @ weights).T)
            for i, statistic in enumerate(("pearson", "spearman", "slope")):
                known = x.shape[1] > 1 and bool(np.isfinite(drawn[i]).any())
                low, high = np.nanquantile(drawn[i], (0.025, 0.975)) if known else [np.nan] * 2
                row[statistic] = float(whole[i])
                row |= {f"{statistic}_low": low, f"{statistic}_high": high}
            rows.append(row)
        return pd.DataFrame(rows)

    @property
    def _seed(self) -> int:
        return self.provenance.seed or 0


@torch.no_grad()
def component_effects(
    model: HookedGPT,
    tokens: Input,
    *,
    ablate: Ablation = "mean",
    by: Literal["block", "head"] = "head",
    metric: str | MetricFunction = "centered",
    targets: Int[Tensor, "batch pos"] | None = None,
    foils: Int[Tensor, "batch pos"] | str | int | None = None,
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
        targets: tokens [sequence, pos]; by default the next token at every position but the last.
        foils: with metric="foil".
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
    if model.training and model.config.dropout > 0:
        raise ConfigError("the model is in training mode, where dropout is random; call .eval()")
    if model.is_edited:
        raise HookError(
            "the model has hooks attached, which would act twice in a run from its middle; remove "
            "them (model.reset_hooks()), or use interp.intervene and compare losses"
        )
    if ablate == "resample" and draws < FEWEST_DRAWS:
        raise ConfigError(
            f"draws = {draws} is too few for resampling; give at least {FEWEST_DRAWS}"
        )
    ids = model.to_tokens(tokens)
    parts = _parts(model, by, chosen, ablate)
    swap = _Swap(model, ids, ablate, reference, draws if ablate == "resample" else 1, seed)
    swap.prepare(parts)
    if targets is not None:
        targets = torch.as_tensor(targets, device=model.device)
    for what, given in (("targets", targets), ("foils", foils)):
        if isinstance(given, Tensor) and given.ndim and len(given) != len(ids):
            raise TokenError(
                f"{what} have shape {tuple(given.shape)}, but there are {len(ids)} sequences"
            )

    collected: list[np.ndarray] = []
    error, at, name = 0.0, np.empty(0, dtype=int), ""
    for start in range(0, len(ids), PIECE):
        piece = slice(start, start + PIECE)
        logits, cache = model.run_with_cache(ids[piece])
        value_of = make_metric(
            model,
            ids[piece],
            logits,
            metric,
            None if targets is None else targets[piece],
            foils[piece] if isinstance(foils, Tensor) else foils,
        )
        at, name = _positions(positions, value_of.n_pos), value_of.name
        if start == 0:
            depths = {c.depth for c in parts if c.layer < len(model.blocks)}
            error = check_reruns(model, cache, depths)
        effects = _effects(model, cache, value_of, parts, swap, piece)
        collected.append(to_numpy(effects[..., at].mean(-1)))  # [kind component sequence]
        if progress is not None:
            progress(min(start + PIECE, len(ids)), len(ids))
    direct, direct_renormalised, total = np.concatenate(collected, axis=-1)
    return ComponentEffects(
        direct=direct,
        direct_renormalised=direct_renormalised,
        total=total,
        layers=np.array([c.layer for c in parts]),
        positions=at,
        components=tuple(map(str, parts)),
        ablate=ablate,
        metric=name,
        reference=swap.said,
        draws=swap.draws if ablate == "resample" else 0,
        overlap=swap.overlap,
        rerun_error=error,
        provenance=Provenance.of(model, ids, seed=seed),
    )


class _Swap:
    """What takes each component's place."""

    def __init__(
        self,
        model: HookedGPT,
        tokens: Int[Tensor, "sequence pos"],
        ablate: Ablation,
        reference: ReferenceSet | Input | None,
        draws: int,
        seed: int,
    ) -> None:
        self.model, self.ablate, self.draws = model, ablate, draws
        self.overlap, self.said = 0, "none"
        self.others = reference is None
        if ablate == "zero":
            return
        if reference is None:
            reference = ReferenceSet(model, tokens)
            self.said = f"for each sequence, the other {len(tokens) - 1}"
            self.overlap = len(tokens) - len({row.tobytes() for row in tokens.cpu().numpy()})
        else:
            reference = ReferenceSet.of(model, reference)
            self.said = f"{len(reference)} sequences"
            self.overlap = reference.overlap(tokens)
        if self.overlap:
            warnings.warn(
                f"{self.overlap} of {len(tokens)} sequences are also in the reference set, so what "
                "takes their place is partly their own; effects come out too small",
                stacklevel=4,
            )
        self.reference = reference
        own = torch.eye(len(tokens), dtype=torch.bool) if self.others else None
        if ablate == "resample":
            self.rows = [reference.draw(len(tokens), seed + i, own) for i in range(draws)]

    def prepare(self, parts: list[Component]) -> None:
        if self.ablate != "zero":
            self.reference.prepare([c.hook for c in parts], keep=self.ablate == "resample")

    def values(
        self, c: Component, cache: ActivationCache, value: Tensor, piece: slice
    ) -> Iterator[Tensor]:
        """Yields what takes the value's place, once a draw."""
        n_pos = value.shape[1]
        if self.ablate == "zero":
            yield torch.zeros_like(value)
        elif self.ablate == "mean":
            own = cache[c.hook] if self.others else None
            yield self.reference.mean(c, n_pos, own).expand(value.shape)
        else:
            for rows in self.rows:
                yield self.reference.rows(c, rows[piece], n_pos)


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
    cache: ActivationCache,
    value_of: Metric,
    parts: list[Component],
    swap: _Swap,
    piece: slice,
) -> Float[Tensor, "kind component batch pos"]:
    """Direct, renormalised and total effects."""
    before = value_of(value_of.logits)
    effects = before.new_zeros(3, len(parts), *before.shape)
    jobs = _changes(model, cache, parts, swap, piece)
    for depth, group in groupby(jobs, key=lambda job: parts[job[0]].depth):
        while together := list(islice(group, max(1, TOGETHER // len(before)))):
            changes = torch.stack([change for _, change in together])
            differences = before - value_of(_logits(model, cache, value_of, changes, depth))
            for (i, _), difference in zip(together, differences.unbind(1), strict=True):
                effects[:, i] += difference / swap.draws
    return effects


def _changes(
    model: HookedGPT, cache: ActivationCache, parts: list[Component], swap: _Swap, piece: slice
) -> Iterator[tuple[int, Tensor]]:
    """Yields each component's number and what its replacement changes, once a draw."""
    for i, c in enumerate(parts):
        value = c.value(model, cache[c.hook])
        for new in swap.values(c, cache, value, piece):
            yield i, c.written(model, new - value)


def _logits(
    model: HookedGPT,
    cache: ActivationCache,
    value_of: Metric,
    changes: Float[Tensor, "job batch pos width"],
    depth: tuple[int, int],
) -> Float[Tensor, "kind job batch asked_pos d_vocab"]:
    """The logits with the changes made: everything frozen, LayerNorm recomputed, all run on."""
    if depth[0] == len(model.blocks):  # a bias behind the stream; nothing comes after it
        return (cache["hook_logits"] + changes)[:, :, : value_of.n_pos].expand(3, -1, -1, -1, -1)

    one_out = run_batch(model.unembed_residual, final_stream(model, cache), changes)
    all_run_on = run_batch(lambda x: run_from(model, x, depth), stream_at(cache, depth), changes)
    frozen = cache["hook_logits"] + _frozen(model, cache, changes)
    return torch.stack((frozen, one_out, all_run_on))[:, :, :, : value_of.n_pos]


def _frozen(model: HookedGPT, cache: ActivationCache, changes: Tensor) -> Tensor:
    """What changes of the stream add to the logits while the LayerNorm's scale stays."""
    if isinstance(model.ln_final, LayerNorm):
        changes = changes - changes.mean(-1, keepdim=True)
        changes = changes * model.ln_final.w / cache["ln_final.hook_scale"]
    added: Tensor = changes @ model.W_U
    return added
