"""Two prompts, and runs of one of them with pieces of the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, Self, get_args

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import ConfigError, TokenError
from interp.gpt.cache import ActivationCache
from interp.gpt.model import HookedGPT, Input
from interp.hooks import HookPoint
from interp.results.document import to_numpy
from interp.stream.batches import BATCH
from interp.stream.components import Component
from interp.stream.interventions import intervene
from interp.stream.metric import (
    Metric,
    MetricFunction,
    check_choice,
    make_metric,
)
from interp.stream.resume import (
    check_not_random,
    logits_at,
    run_from,
    run_with_input,
    stream_at,
)
from interp.stream.token_ids import TokensGiven, token_per_sequence

Direction = Literal["denoise", "noise"]
BY_HEAD = ("head", "q", "k", "v", "z", "pattern")
HEAD_AXIS = {"q": 2, "k": 2, "v": 2, "pattern": 1}
NEEDED = ("embed", "pos_embed", "resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out", "k",
          "v", "z")  # fmt: skip


@dataclass(frozen=True)
class Patch:
    """One patch: what it adds to the stream, [batch, pos, d_model], and after which depth.

    At one position only, `change` is [batch, 1, d_model] and `first` that position. `text` is the
    same patch as an intervention. With a `site` ("q", "k", "v", "pattern") nothing is added: the
    head's activation there is replaced, in a run on from `depth`.
    """

    label: str
    layer: int
    place: int
    depth: tuple[int, int]
    text: str
    change: Tensor | None = None
    first: int = 0
    site: str = ""

    def whole(self, n_pos: int) -> Float[Tensor, "batch pos d_model"]:
        """Returns the change at every position."""
        assert self.change is not None
        after = n_pos - self.first - self.change.shape[1]
        return F.pad(self.change, (0, 0, self.first, after))

    @property
    def is_nothing(self) -> bool:
        """True of a patch that changes nothing, such as one before the prompts differ."""
        return self.change is not None and not bool(self.change.any())


@dataclass(frozen=True)
class Pair:
    """Two prompts, the caches of the one that is run and of the other, and what is asked.

    `unpatched`: the metric of the "clean" and of the "corrupted" prompt, [batch].
    """

    model: HookedGPT
    clean: Int[Tensor, "batch pos"]
    corrupted: Int[Tensor, "batch pos"]
    direction: Direction
    position: int
    run_cache: ActivationCache
    other_cache: ActivationCache
    value_of: Metric
    unpatched: dict[str, np.ndarray]

    @classmethod
    def of(
        cls,
        model: HookedGPT,
        clean: Input,
        corrupted: Input,
        direction: Direction,
        target: TokensGiven | None,
        foil: TokensGiven | None,
        metric: str | MetricFunction | None,
        position: int,
        site: str = "",
    ) -> Self:
        """Runs both prompts; keeps what running on from any place needs, and the `site`."""
        check_choice("direction", direction, get_args(Direction))
        check_not_random(model)
        prompts = model.to_tokens(clean), model.to_tokens(corrupted)
        position = _checked(*prompts, position)
        needed = {f"hook_{name}" for name in (*NEEDED, site)}
        both, cache = model.run_with_cache(
            torch.cat(prompts), names_filter=lambda name: name.rsplit(".", 1)[-1] in needed
        )
        n = len(both) // 2
        halves = [slice(0, n), slice(n, 2 * n)]
        run, other = (1, 0) if direction == "denoise" else (0, 1)
        logits = [both[half, position : position + 1] for half in halves]
        value_of = _metric(model, prompts[0][:, :1], logits, target, foil, metric, logits[run])
        return cls(
            model=model,
            clean=prompts[0],
            corrupted=prompts[1],
            direction=direction,
            position=position,
            run_cache=cache.apply_slice_to_batch_dim(halves[run]),
            other_cache=cache.apply_slice_to_batch_dim(halves[other]),
            value_of=value_of,
            unpatched={name: to_numpy(value_of(one)[:, 0])
                       for name, one in zip(("clean", "corrupted"), logits, strict=True)},
        )  # fmt: skip

    @property
    def start(self) -> tuple[Int[Tensor, "batch pos"], np.ndarray]:
        """The prompt that is run, and its metric unpatched."""
        if self.direction == "denoise":
            return self.corrupted, self.unpatched["corrupted"]
        return self.clean, self.unpatched["clean"]

    def change(self, c: Component) -> Float[Tensor, "batch pos d_model"]:
        """Returns what the other run's value of a component adds to the stream in place of ours."""
        theirs = c.value(self.model, self.other_cache[c.hook])
        return c.change(self.model, self.run_cache[c.hook], theirs)


def _checked(clean: Tensor, corrupted: Tensor, position: int) -> int:
    """The position, counted from 0."""
    if clean.shape != corrupted.shape:
        raise TokenError(
            f"the prompts have shapes {tuple(clean.shape)} and {tuple(corrupted.shape)}; patching "
            "puts a place of one into the same place of the other, so they must be of one length"
        )
    if torch.equal(clean, corrupted):
        raise TokenError("the two prompts are the same; there is nothing to patch")
    n_pos = clean.shape[1]
    if not -n_pos <= position < n_pos:
        raise TokenError(f"position {position} is outside the prompt of {n_pos} tokens")
    return position % n_pos


def _metric(
    model: HookedGPT,
    tokens: Int[Tensor, "batch 1"],
    logits: Sequence[Float[Tensor, "batch 1 d_vocab"]],
    target: TokensGiven | None,
    foil: TokensGiven | None,
    metric: str | MetricFunction | None,
    base: Float[Tensor, "batch 1 d_vocab"],
) -> Metric:
    """What is asked at the one position, of `logits` after the clean and the corrupted prompt."""
    metric = "foil" if metric is None else metric
    batch = len(tokens)

    def asked(given: TokensGiven | None, likeliest: Tensor, name: str) -> Tensor:
        if given is None:
            return likeliest.argmax(-1)
        return token_per_sequence(model, given, batch, name)[:, None]

    targets = asked(target, logits[0], "target")
    if metric != "foil":
        if foil is not None:
            raise ConfigError('give a foil together with metric="foil", and only then')
        return make_metric(model, tokens, base, metric, targets)
    foils = asked(foil, logits[1], "foil")
    if bool((targets == foils).any()):
        raise TokenError(
            "target and foil are the same character; give target and foil (or a metric that "
            "compares with none)"
        )
    return make_metric(model, tokens, base, metric, targets, foils)


def run_patches(
    pair: Pair, patches: Sequence[Patch], into: str | None = None
) -> Float[np.ndarray, "patch batch"]:
    """Returns the metric after each patch; those of one place run together, from there on.

    Args:
        pair: the prompts.
        patches: in order of their depths.
        into: the one receiver that reads the changes; by default all that comes after reads them.
    """
    if pair.model.is_edited and patches:  # hooks would act twice in a run from the middle
        return np.stack([_alone(pair, patch) for patch in patches])
    values = np.tile(pair.start[1], (len(patches), 1))
    todo = [i for i, patch in enumerate(patches) if not patch.is_nothing]
    size = max(1, BATCH // len(pair.clean))
    for _, group in groupby(todo, key=lambda i: patches[i].depth if into is None else (0, 0)):
        numbers = list(group)
        for some in (numbers[at : at + size] for at in range(0, len(numbers), size)):
            logits = _together(pair, [patches[i] for i in some], into)
            values[some] = to_numpy(pair.value_of(logits[:, :, None])[..., 0])
    return values


def _together(
    pair: Pair, patches: Sequence[Patch], into: str | None
) -> Float[Tensor, "patch batch d_vocab"]:
    """The logits at the position that is read, of patches at one depth."""
    model, cache, n_pos = pair.model, pair.run_cache, pair.clean.shape[1]
    depth = patches[0].depth
    if patches[0].site:
        stream = stream_at(cache, depth)
        repeated = stream.expand(len(patches), *stream.shape).flatten(0, 1)
        with _replaced(pair, patches):
            logits = run_from(model, repeated, depth)
        read: Tensor = logits[:, pair.position].unflatten(0, (len(patches), -1))
        return read
    changes = torch.stack([patch.whole(n_pos) for patch in patches])
    if into is None:
        first = min(patch.first for patch in patches)
        return logits_at(model, cache, depth, changes, pair.position, first)
    return run_with_input(model, cache, into, changes)[:, :, pair.position]


@contextmanager
def _replaced(pair: Pair, patches: Sequence[Patch]) -> Iterator[None]:
    """Gives each patch its own copy of the batch, with the other run's activation of one head."""
    layer, site = patches[0].layer, patches[0].site
    theirs, axis = pair.other_cache[site, layer], HEAD_AXIS[site]

    def replace(activation: Tensor, hook: HookPoint) -> Tensor:
        out = activation.clone()
        for copy, patch in zip(out.chunk(len(patches)), patches, strict=True):
            copy.select(axis, patch.place).copy_(theirs.select(axis, patch.place))
        return out

    with pair.model.hooks(fwd_hooks=[(f"blocks.{layer}.attn.hook_{site}", replace)]):
        yield


def _alone(pair: Pair, patch: Patch) -> np.ndarray:
    """The metric after one patch, made in a whole run."""
    made = (
        _replaced(pair, [patch])
        if patch.site
        else intervene(pair.model, patch.text, source=pair.other_cache)
    )
    with made:
        logits = pair.model(pair.start[0])[:, pair.position]
    return to_numpy(pair.value_of(logits[:, None])[:, 0])
