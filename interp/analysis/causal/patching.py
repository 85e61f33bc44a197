"""Patching: where does the difference between two prompts sit, and along which path does it travel?

Two prompts of one length that differ in what matters. One is run with a piece of the other's
activations put in its place:

    denoise   the corrupted prompt is run with pieces of the clean run: what is enough to restore?
    noise     the clean prompt is run with pieces of the corrupted run: what is needed?

A value of 0 means that the patch changed nothing, 1 that it did as much as the whole other prompt.
Denoising and noising answer different questions and need not agree.

All patches of one place run together, from that place on: what comes before is not computed again.
(While hooks are attached, each patch is a whole run of its own.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import ConfigError, TokenError
from interp.gpt.model import HookedGPT, Input
from interp.results import intervals
from interp.results.provenance import Provenance
from interp.results.result import Result, to_numpy
from interp.stream.components import components
from interp.stream.interventions import intervene, receiver
from interp.stream.metric import Metric, MetricFunction, check_choice, make_metric
from interp.stream.resume import logits_at, run_with_input

Site = Literal["resid_pre", "resid_mid", "attn_out", "mlp_out", "head"]
Direction = Literal["denoise", "noise"]
TOGETHER = 16  # sequences in one run
NEEDED = [f"hook_{name}" for name in ("embed", "pos_embed", "resid_pre", "resid_mid", "resid_post",
                                      "attn_out", "mlp_out", "k", "v", "z")]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Patching(Result):
    """The metric after each patch, `values` [patch, sequence], and of both prompts unpatched.

    `labels` name the patches: components (`L1.H2`), or a site at a position
    (`L1.resid_pre at 5`); `layers` and `places` are their coordinates (places: positions or heads).
    """

    AXES: ClassVar = {
        "values": ("patch", "sequence"),
        "clean": ("sequence",),
        "corrupted": ("sequence",),
        "layers": ("patch",),
        "places": ("patch",),
        "clean_tokens": ("sequence", "pos"),
        "corrupted_tokens": ("sequence", "pos"),
    }
    NAMES: ClassVar = {"labels": "patch"}
    values: np.ndarray
    clean: np.ndarray
    corrupted: np.ndarray
    layers: np.ndarray
    places: np.ndarray
    clean_tokens: np.ndarray
    corrupted_tokens: np.ndarray
    labels: tuple[str, ...]
    characters: tuple[str, ...] | None
    what: str
    direction: str
    metric: str
    position: int
    target: str
    foil: str

    @property
    def shares(self) -> np.ndarray:
        """(patched − unpatched) / (other prompt − unpatched), means over sequences, [patch].

        NaN where the two prompts do not differ in the metric.
        """
        start, goal = self.corrupted.mean(), self.clean.mean()
        if self.direction == "noise":
            start, goal = goal, start
        difference = goal - start
        if abs(difference) <= 4 * np.finfo(self.values.dtype).eps * (abs(goal) + abs(start)):
            difference = np.nan  # equal but for rounding
        share: np.ndarray = (self.values.mean(1) - start) / difference
        return share

    def to_frame(self) -> pd.DataFrame:
        """Returns patch, layer, place, value, low, high (95 %, over sequences), share, n."""
        seed = self.provenance.seed or 0
        mean, low, high = intervals.mean_interval(self.values, seed=seed)
        return pd.DataFrame(
            {
                "patch": self.labels,
                "layer": self.layers,
                "place": self.places,
                "value": mean,
                "low": low,
                "high": high,
                "share": self.shares,
                "n": self.values.shape[1],
            }
        )


@torch.no_grad()
def activation_patching(
    model: HookedGPT,
    clean: Input,
    corrupted: Input,
    site: Site = "resid_pre",
    *,
    direction: Direction = "denoise",
    target: str | int | Int[Tensor, " batch"] | None = None,
    foil: str | int | Int[Tensor, " batch"] | None = None,
    metric: str | MetricFunction | None = None,
    position: int = -1,
) -> Patching:
    """Returns what patching each layer and position (or head) does to the prediction.

    Args:
        model: the model, in evaluation mode.
        clean: the prompt, or several of one length.
        corrupted: as many, of the same length.
        site: "resid_pre", "resid_mid", "attn_out" or "mlp_out", at each layer × position; or
            "head": each layer × head, at all positions.
        direction: see the module.
        target: the right next character, for all sequences or for each; by default the one that the
            model finds likeliest after the clean prompt.
        foil: the character it is compared with; by default the likeliest after the corrupted one.
        metric: by default "foil": logit of the target minus logit of the foil; or as in
            `interp.stream.metric`, without a foil.
        position: whose prediction is read.

    Raises:
        TokenError: prompts of different shapes; equal prompts; a position outside them; a target
            not in the vocabulary; target and foil the same.
        ConfigError: an unknown site or direction; training mode.

    Sources: Vig et al. 2020; Meng et al. 2022 (2202.05262); Heimersheim & Nanda 2024 (2404.15255).

    Example:
        >>> import interp
        >>> model = interp.HookedGPT.from_pretrained("models/shakespeare-char")
        >>> patched = interp.activation_patching(model, "the king", "the sing", "head")
        >>> patched.labels[:2]
        ('L0.H0', 'L0.H1')
    """
    check_choice("site", site, get_args(Site))
    if site == "resid_mid" and model.config.attn_only:
        raise ConfigError("a model without MLPs has no resid_mid; take resid_pre of the next block")
    if site == "mlp_out" and model.config.attn_only:
        raise ConfigError("a model without MLPs has no mlp_out")
    pair = _Pair(model, clean, corrupted, direction, target, foil, metric, position)
    jobs: list[_Job] = []
    for layer in range(model.config.n_layers):
        if site == "head":
            jobs += _heads(pair, layer)
        else:
            jobs += _positions(pair, layer, site)
    values = pair.run(jobs)
    return pair.result(values, jobs, f"{site} by {'head' if site == 'head' else 'position'}")


@torch.no_grad()
def path_patching(
    model: HookedGPT,
    clean: Input,
    corrupted: Input,
    into: str,
    *,
    direction: Direction = "denoise",
    target: str | int | Int[Tensor, " batch"] | None = None,
    foil: str | int | Int[Tensor, " batch"] | None = None,
    metric: str | MetricFunction | None = None,
    position: int = -1,
) -> Patching:
    """Returns what patching each direct path into one receiver does to the prediction.

    Only what the receiver reads from the sender is of the other prompt; everything else that reads
    the sender sees it as it was. What the receiver then writes differently goes on to all.

    Args:
        model: the model, in evaluation mode.
        clean: the prompt, or several of one length.
        corrupted: as many, of the same length.
        into: the receiver: "L2.H1.q" (or k, v), "L2.q" for all heads, "L2.mlp" or "logits".
        direction: see the module.
        target: as in `activation_patching`; so are the rest.
        foil: as there.
        metric: as there.
        position: as there.

    Raises:
        ConfigError: no such receiver.
        TokenError, ConfigError: as `activation_patching`.

    Source: Goldowsky-Dill et al. 2023 (2304.05969).
    """
    place = receiver(model, into)[2]
    pair = _Pair(model, clean, corrupted, direction, target, foil, metric, position)
    senders = components(model.config, "head", constants=False)
    jobs = []
    for c in senders:
        if c.depth < place:
            ours = c.value(model, pair.run_cache[c.hook])
            theirs = c.value(model, pair.other_cache[c.hook])
            change = c.written(model, theirs - ours)
            text = f"patch {c} into {into}"
            jobs.append(_Job(str(c), c.layer, c.index, change, c.depth, text))
    values = pair.run(jobs, into)
    return pair.result(values, jobs, f"paths into {into}")


@dataclass(frozen=True)
class _Job:
    """One patch: what it adds to the stream, [batch, pos, d_model], and after which depth.

    At one position only, `change` is [batch, 1, d_model]. `intervention` is the same patch as text.
    """

    label: str
    layer: int
    place: int
    change: Tensor
    depth: tuple[int, int]
    intervention: str
    first: int = 0  # position that changes

    def whole(self, n_pos: int) -> Float[Tensor, "batch pos d_model"]:
        after = n_pos - self.first - self.change.shape[1]
        return F.pad(self.change, (0, 0, self.first, after))


class _Pair:
    """Two prompts, which of them is run, and what is asked of the logits."""

    def __init__(
        self,
        model: HookedGPT,
        clean: Input,
        corrupted: Input,
        direction: Direction,
        target: Any,
        foil: Any,
        metric: str | MetricFunction | None,
        position: int,
    ) -> None:
        check_choice("direction", direction, get_args(Direction))
        if model.training and model.config.dropout > 0:
            raise ConfigError(
                "the model is in training mode, where dropout is random; call .eval()"
            )
        self.model, self.direction = model, direction
        self.tokens = [model.to_tokens(clean), model.to_tokens(corrupted)]
        if self.tokens[0].shape != self.tokens[1].shape:
            shapes = [tuple(t.shape) for t in self.tokens]
            raise TokenError(
                f"the prompts have shapes {shapes[0]} and {shapes[1]}; patching puts a place of "
                "one into the same place of the other, so they must be of one length"
            )
        if torch.equal(*self.tokens):
            raise TokenError("the two prompts are the same; there is nothing to patch")
        n_pos = self.tokens[0].shape[1]
        if not -n_pos <= position < n_pos:
            raise TokenError(f"position {position} is outside the prompt of {n_pos} tokens")
        self.position = position % n_pos
        both, cache = model.run_with_cache(
            torch.cat(self.tokens), names_filter=lambda name: name.rsplit(".", 1)[-1] in NEEDED
        )
        n = len(both) // 2
        halves = [slice(0, n), slice(n, 2 * n)]
        order = (1, 0) if direction == "denoise" else (0, 1)
        self.run_cache, self.other_cache = (
            cache.apply_slice_to_batch_dim(halves[i]) for i in order
        )
        logits = [both[half, self.position] for half in halves]
        self.value_of = self._readout(logits, target, foil, metric, both[halves[order[0]]])
        self.both = [to_numpy(self.value_of(one[:, None])[:, 0]) for one in logits]

    def _readout(
        self, logits: list[Tensor], target: Any, foil: Any, metric: Any, base: Tensor
    ) -> Metric:
        """What is asked at the one position."""
        metric = "foil" if metric is None else metric
        targets = self._characters(logits[0].argmax(-1) if target is None else target)
        foils = None
        if metric == "foil":
            foils = self._characters(logits[1].argmax(-1) if foil is None else foil)
            if bool((targets == foils).any()):
                raise TokenError(
                    "target and foil are the same character; give --target and --foil (or a metric "
                    "that compares with none)"
                )
        elif foil is not None:
            raise ConfigError('give a foil together with metric="foil", and only then')
        at = slice(self.position, self.position + 1)
        tokens = self.tokens[0][:, at]
        return make_metric(self.model, tokens, base[:, at], metric, targets, foils)

    def _characters(self, given: Any) -> Int[Tensor, "batch 1"]:
        batch = len(self.tokens[0])
        if isinstance(given, str):
            given = self.model.to_single_token(given)
        ids = torch.as_tensor(given, device=self.model.device)
        if ids.ndim > 1 or ids.numel() not in (1, batch):
            raise TokenError(
                f"target and foil must be one character or one for each of {batch} sequences, "
                f"got shape {tuple(ids.shape)}"
            )
        return ids.reshape(-1, 1).expand(batch, 1)

    def run(self, jobs: list[_Job], into: str | None = None) -> np.ndarray:
        """Returns the metric after each job, [job, sequence]; jobs of one depth run together."""
        if self.model.is_edited:  # hooks would act twice in a run from the middle
            return np.stack([self._alone(job) for job in jobs])
        batch, n_pos = self.tokens[0].shape
        unpatched = self.both[1 if self.direction == "denoise" else 0]
        values = np.tile(unpatched, (len(jobs), 1))
        # A patch that changes nothing, such as one before the prompts differ, need not be run.
        todo = [i for i, job in enumerate(jobs) if bool(job.change.any())]
        by_depth: dict[tuple[int, int], list[int]] = {}
        for i in todo:
            by_depth.setdefault(jobs[i].depth if into is None else (0, 0), []).append(i)
        size = max(1, TOGETHER // batch)
        for depth, numbers in by_depth.items():
            for start in range(0, len(numbers), size):
                some = numbers[start : start + size]
                changes = torch.stack([jobs[i].whole(n_pos) for i in some])
                if into is None:
                    first = min(jobs[i].first for i in some)
                    logits = logits_at(
                        self.model, self.run_cache, depth, changes, self.position, first
                    )
                else:
                    logits = run_with_input(self.model, self.run_cache, into, changes)
                    logits = logits[:, :, self.position]
                values[some] = to_numpy(self.value_of(logits[:, :, None])[..., 0])
        return values

    def _alone(self, job: _Job) -> np.ndarray:
        """The metric after one patch, made in a whole run."""
        tokens = self.tokens[1 if self.direction == "denoise" else 0]
        with intervene(self.model, job.intervention, source=self.other_cache):
            logits = self.model(tokens)[:, self.position]
        return to_numpy(self.value_of(logits[:, None])[:, 0])

    def result(self, values: np.ndarray, jobs: list[_Job], what: str) -> Patching:
        tokenizer = self.model.tokenizer
        foils = self.value_of.foils
        return Patching(
            values=values,
            clean=self.both[0],
            corrupted=self.both[1],
            layers=np.array([job.layer for job in jobs], dtype=int),
            places=np.array([job.place for job in jobs], dtype=int),
            clean_tokens=to_numpy(self.tokens[0]),
            corrupted_tokens=to_numpy(self.tokens[1]),
            labels=tuple(job.label for job in jobs),
            characters=None if tokenizer is None else tokenizer.characters,
            what=what,
            direction=self.direction,
            metric=self.value_of.name,
            position=self.position,
            target=self._text(self.value_of.targets),
            foil="" if foils is None else self._text(foils),
            provenance=Provenance.of(self.model, torch.stack(self.tokens), seed=0),
        )

    def _text(self, tokens: Int[Tensor, "batch 1"]) -> str:
        ids = tokens[:, 0].tolist()
        if self.model.tokenizer is None:
            return ",".join(map(str, ids))
        return self.model.tokenizer.decode(ids if len(set(ids)) > 1 else ids[:1])


def _heads(pair: _Pair, layer: int) -> Iterator[_Job]:
    model = pair.model
    difference = pair.other_cache["z", layer] - pair.run_cache["z", layer]
    for head in range(model.config.n_heads):
        change = difference[:, :, head] @ model.blocks[layer].attn.W_O[head]
        label = f"L{layer}.H{head}"
        yield _Job(label, layer, head, change, (layer, 0), f"patch {label}")


def _positions(pair: _Pair, layer: int, site: Site) -> Iterator[_Job]:
    depth = {"resid_pre": (layer - 1, 1), "mlp_out": (layer, 1)}.get(site, (layer, 0))
    difference = pair.other_cache[site, layer] - pair.run_cache[site, layer]
    for pos in range(pair.position + 1):  # a later one cannot reach the prediction
        change = difference[:, pos : pos + 1]
        text = f"patch blocks.{layer}.hook_{site} at {pos}"
        yield _Job(f"L{layer}.{site} at {pos}", layer, pos, change, depth, text, pos)
