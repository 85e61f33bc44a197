"""Replacing what a component wrote, and running the model on.

An `Intervention` says what is replaced and by what; it prints itself as the text it can be read
from:

    zero L0.H3                          by nothing
    mean L1.mlp                         by its mean at the same position over a reference set
    resample L0.H3 at 5,6               by its value in another sequence, at positions 5 and 6 only
    patch L0.attn                       by its value in another run
    mean L0.H3 into L1.H2.k             only in what the keys of head L1.H2 read: one path is cut

Zero is far from anything the model was trained on; the mean keeps what is the same in every
sequence; a resample also keeps the spread. Instead of a component's label, a hook name
(`blocks.1.hook_resid_pre`) replaces that whole activation.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import torch
from jaxtyping import Int
from torch import Tensor

from interp.errors import CacheError, ConfigError, HookError, TokenError, nearest
from interp.gpt.cache import ActivationCache, weights_version
from interp.gpt.model import HookedGPT, Input
from interp.hooks import HookPoint
from interp.stream.components import Component, component

Replacement = Literal["zero", "mean", "resample", "patch"]
PIECE = 16  # sequences run at a time

_TEXT = re.compile(r"(\w+) (\S+)(?: at (\d+(?:,\d+)*))?(?: into (\S+))?")
_RECEIVER = re.compile(r"L(\d+)(?:\.H(\d+))?\.([qkv])|L(\d+)\.mlp|logits")


@dataclass(frozen=True)
class Intervention:
    """What is replaced (`component`), by what (`kind`), where (`positions`; None: everywhere), and
    for whom (`into`; None: for all that comes after).

    Example:
        >>> from interp import Intervention
        >>> print(Intervention("L0.H3", "mean", into="L1.H2.k"))
        mean L0.H3 into L1.H2.k
        >>> Intervention.parse("zero L0.mlp at 3,4").positions
        (3, 4)
    """

    component: str
    kind: Replacement
    positions: tuple[int, ...] | None = None
    into: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Replacement):
            raise ConfigError(
                f"{self.kind!r} is not an intervention; choose one of "
                f"{', '.join(get_args(Replacement))}"
            )
        if self.positions is not None and (not self.positions or min(self.positions) < 0):
            raise ConfigError(f"positions {self.positions} must be one or more, counted from 0")

    def __str__(self) -> str:
        at = "" if self.positions is None else f" at {','.join(map(str, self.positions))}"
        return f"{self.kind} {self.component}{at}" + (f" into {self.into}" if self.into else "")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns the intervention that prints as `text`.

        Raises:
            ConfigError: not of the form `zero L0.H3 at 5,6 into L1.H2.k` (the last two optional).
        """
        found = _TEXT.fullmatch(text.strip())
        if found is None:
            raise ConfigError(
                f"{text!r} is not an intervention; write, for example, 'mean L0.H3', "
                "'zero L0.mlp at 5,6' or 'mean L0.H3 into L1.H2.k'"
            )
        kind, what, at, into = found.groups()
        positions = None if at is None else tuple(map(int, at.split(",")))
        return cls(what, kind, positions, into)  # type: ignore[arg-type]  # checked on construction


class ReferenceSet:
    """Sequences whose values stand in for the values that are taken away.

    `prepare` runs the model on them. Of a mean only the sum is kept, of resamples the values of all
    sequences; they are computed again when the weights have changed, or hooks were attached.
    """

    def __init__(self, model: HookedGPT, tokens: Input) -> None:
        """
        Args:
            model: the model.
            tokens: text or [sequence, pos]; at least as long as the sequences looked at.

        Raises:
            TokenError: no sequences, or not the model's tokens.
        """
        if len(tokens) == 0:  # also an empty text
            raise TokenError("the reference set is empty; give at least one sequence")
        self.model = model
        self.tokens = model.to_tokens(tokens)
        self._sums: dict[str, Tensor] = {}
        self._values: dict[str, Tensor] = {}
        self._weights: object = None

    @classmethod
    def of(cls, model: HookedGPT, given: ReferenceSet | Input) -> ReferenceSet:
        """Returns `given` as a reference set of `model`.

        Raises:
            CacheError: a reference set of another model.
        """
        if not isinstance(given, ReferenceSet):
            return cls(model, given)
        if given.model is not model:
            raise CacheError("this reference set was made for another model; make one for this")
        return given

    def __len__(self) -> int:
        return len(self.tokens)

    def overlap(self, tokens: Int[Tensor, "batch pos"]) -> int:
        """Returns how many of the given sequences are also in the reference set."""
        n_pos = tokens.shape[1]
        own = {row.tobytes() for row in self.tokens[:, :n_pos].cpu().numpy()}
        return sum(row.tobytes() in own for row in tokens.cpu().numpy())

    @torch.no_grad()
    def prepare(self, hooks: Sequence[str], keep: bool = False) -> None:
        """Runs the model for these hook points, all at once; `keep` the values of all sequences."""
        weights = weights_version(self.model)
        if self.model.is_edited or weights != self._weights:
            self._sums, self._values = {}, {}
        self._weights = None if self.model.is_edited else weights
        done = self._values if keep else self._sums
        missing = [name for name in dict.fromkeys(hooks) if name not in done]
        if not missing:
            return
        kept: dict[str, list[Tensor]] = {name: [] for name in missing}
        for piece in self.tokens.split(PIECE):
            _, found = self.model.run_with_cache(piece, names_filter=missing, return_type=None)
            for name in missing:
                value = found[name]
                kept[name].append(value if keep else value.sum(0, keepdim=True))
        for name, pieces in kept.items():
            if keep:
                self._values[name] = torch.cat(pieces)
            self._sums[name] = torch.cat(pieces).sum(0)

    def mean(self, c: Component, n_pos: int, without: Tensor | None = None) -> Tensor:
        """Returns the component's mean value at each position, [pos, …].

        Args:
            c: the component.
            n_pos: of how many positions.
            without: activations [batch, pos, …] of sequences of this set; each then gets the mean
                over the others, [batch, pos, …].
        """
        self._check_length(n_pos)
        if c.hook not in self._sums:
            self.prepare([c.hook])
        total, n = self._sums[c.hook][:n_pos], len(self)
        if without is None:
            return c.value(self.model, (total / n)[None])[0]
        if n < 2:
            raise TokenError("one sequence has no others to take a mean over; give a reference set")
        return c.value(self.model, (total - without) / (n - 1))

    def rows(self, c: Component, rows: Int[Tensor, " batch"], n_pos: int) -> Tensor:
        """Returns the component's value in the given sequences, [batch, pos, …].

        Raises:
            TokenError: there is no such sequence.
        """
        self._check_length(n_pos)
        if c.hook not in self._values:
            self.prepare([c.hook], keep=True)
        if int(rows.min()) < 0 or int(rows.max()) >= len(self):
            raise TokenError(
                f"rows run from {int(rows.min())} to {int(rows.max())}; the reference set has "
                f"{len(self)} sequences"
            )
        return c.value(self.model, self._values[c.hook][rows, :n_pos])

    def draw(self, batch: int, seed: int, forbidden: Tensor | None = None) -> Int[Tensor, " batch"]:
        """Returns a random sequence of the set for each of `batch`; never a `forbidden` one.

        Args:
            batch: how many.
            seed: of the draw.
            forbidden: [batch, sequence], True where that sequence may not stand in.

        Raises:
            TokenError: a sequence has no other one to take its values from.
        """
        generator = torch.Generator().manual_seed(seed)
        weights = torch.ones(batch, len(self)) if forbidden is None else (~forbidden.cpu()).float()
        if not bool(weights.any(1).all()):
            raise TokenError(
                "a sequence has no other one to take values from; give a larger reference set"
            )
        return torch.multinomial(weights, 1, generator=generator)[:, 0].to(self.tokens.device)

    def _check_length(self, n_pos: int) -> None:
        if self.tokens.shape[1] < n_pos:
            raise TokenError(
                f"the reference sequences have {self.tokens.shape[1]} positions, but {n_pos} are "
                "looked at; give longer ones"
            )


@contextmanager
def intervene(
    model: HookedGPT,
    interventions: Sequence[Intervention | str] | Intervention | str,
    *,
    reference: ReferenceSet | Input | None = None,
    source: ActivationCache | None = None,
    rows: Int[Tensor, " batch"] | None = None,
    seed: int = 0,
) -> Iterator[HookedGPT]:
    """Makes the interventions inside a `with` block; they compose.

    They are made in the order given, but a constant (b_O, b_out) after what stands beside it.

    Args:
        model: the model.
        interventions: one or several, as objects or as their text.
        reference: for "mean" and "resample": a `ReferenceSet`, or its text or tokens.
        source: for "patch": the cache of another run of this model, of as many positions and of as
            many sequences, or of one.
        rows: for "resample": the reference sequence for each of the batch; by default drawn.
        seed: of that draw.

    Raises:
        ConfigError: no such component, hook or receiver; a receiver that comes before the sender;
            reference or source missing.
        CacheError: a source of another model.
        TokenError: while running: a position outside the prompt.

    Example:
        >>> import interp
        >>> model = interp.HookedGPT.from_pretrained("models/shakespeare-char")
        >>> with interp.intervene(model, ["zero L0.mlp", "mean L1.H2"], reference="O Romeo, Romeo"):
        ...     logits = model("wherefore art")
    """
    given = [interventions] if isinstance(interventions, Intervention | str) else interventions
    wanted = [Intervention.parse(i) if isinstance(i, str) else i for i in given]
    reference = None if reference is None else ReferenceSet.of(model, reference)
    if source is not None and source.model is not model:
        raise CacheError("the source cache was made by another model; run this one for it")
    hooks: list[tuple[str, Callable[..., Any]]] = []
    for one in sorted(wanted, key=lambda one: one.component.endswith((".b_O", ".b_out"))):
        part = _part(model, one.component)
        if one.positions is not None and part.hook.endswith(("attn_scores", "pattern")):
            raise ConfigError(
                f"'{one}': an attention map has two axes of positions; leave them out"
            )
        new = _replacement(one, part, reference, source, rows, seed)
        if one.into is None:
            hooks.append((part.hook, _replacing(model, part, one, new)))
        else:
            hooks += _path(model, part, one, new)
    with model.hooks(fwd_hooks=hooks):
        yield model


class _Whole(Component):
    """A hook point taken as a component whose value is the whole activation."""

    @property
    def hook(self) -> str:
        return self.label

    def value(self, model: HookedGPT, activation: Tensor) -> Tensor:
        return activation

    def put(self, model: HookedGPT, activation: Tensor, value: Tensor) -> Tensor:
        return value.expand(activation.shape)


def _part(model: HookedGPT, name: str) -> Component:
    if "hook_" not in name:
        return component(model.config, name)
    if name not in model.hook_dict:
        raise ConfigError(f"unknown hook name {name!r}{nearest(name, model.hook_dict)}")
    return _Whole(name, "embed", -1)


def _replacement(
    one: Intervention,
    part: Component,
    reference: ReferenceSet | None,
    source: ActivationCache | None,
    rows: Tensor | None,
    seed: int,
) -> Callable[[Tensor], Tensor]:
    """The function from a component's value in the run to what takes its place."""
    if one.kind == "zero":
        return torch.zeros_like
    if one.kind == "patch":
        if source is None:
            raise ConfigError(f"'{one}' needs source=, the cache of another run")
        theirs = part.value(source.model, source[part.hook])
        return lambda value: _fitting(theirs, value, one)
    if reference is None:
        raise ConfigError(f"'{one}' needs reference=, the sequences to take values from")
    reference.prepare([part.hook], keep=one.kind == "resample")  # before the run that it serves
    found = copy.copy(reference)  # what it holds now, whatever it is prepared for later
    if one.kind == "mean":
        return lambda value: found.mean(part, value.shape[1]).expand(value.shape)

    def drawn(value: Tensor) -> Tensor:
        chosen = found.draw(len(value), seed) if rows is None else rows
        if len(chosen) != len(value):
            raise TokenError(f"rows has {len(chosen)} entries, one for each of {len(value)}")
        return found.rows(part, chosen, value.shape[1])

    return drawn


def _fitting(theirs: Tensor, value: Tensor, one: Intervention) -> Tensor:
    if theirs.shape[1:] != value.shape[1:] or len(theirs) not in (1, len(value)):
        raise CacheError(
            f"'{one}': the source run has shape {tuple(theirs.shape)} there, this run "
            f"{tuple(value.shape)}; they must agree, or the source be one sequence"
        )
    return theirs.expand(value.shape)


def _changed(one: Intervention, new: Callable[[Tensor], Tensor], value: Tensor) -> Tensor:
    """The value after the intervention: the new one at the positions, the old one elsewhere."""
    replaced = new(value)
    if one.positions is None:
        return replaced
    n_pos = value.shape[1]
    if max(one.positions) >= n_pos:
        raise TokenError(
            f"'{one}': position {max(one.positions)} is outside the prompt of {n_pos} tokens"
        )
    out = value.clone()
    at = list(one.positions)
    out[:, at] = replaced[:, at]
    return out


def _replacing(
    model: HookedGPT, part: Component, one: Intervention, new: Callable[[Tensor], Tensor]
) -> Callable[..., Tensor]:
    def replace(activation: Tensor, hook: HookPoint) -> Tensor:
        return part.put(model, activation, _changed(one, new, part.value(model, activation)))

    return replace


def _path(
    model: HookedGPT, part: Component, one: Intervention, new: Callable[[Tensor], Tensor]
) -> list[tuple[str, Callable[..., Any]]]:
    """Hooks that change what one receiver reads by the difference in what the sender writes."""
    hook_name, head, place = receiver(model, str(one.into))
    if isinstance(part, _Whole) or part.kind in ("ln_bias", "b_U") or part.depth >= place:
        raise ConfigError(f"'{one}': {one.into} does not read what {one.component} writes")
    written: list[Tensor] = []

    def look(activation: Tensor, hook: HookPoint) -> None:
        value = part.value(model, activation)
        written.append(part.written(model, _changed(one, new, value) - value))

    def add(read: Tensor, hook: HookPoint) -> Tensor:
        if not written:
            raise HookError(f"'{one}': this run starts after what {one.component} writes")
        return add_to_read(read, written.pop(), head)

    return [(part.hook, look), (hook_name, add)]


def add_to_read(read: Tensor, written: Tensor, head: int | None) -> Tensor:
    """Returns what a receiver reads with `written` [batch, pos, d_model] added.

    Args:
        read: [batch, pos, d_model], or [batch, pos, head, d_model] where each head has its copy.
        written: what is added.
        head: to the copy of this head only.
    """
    if read.ndim == written.ndim:
        return read + written
    if head is None:
        return read + written[:, :, None]
    out = read.clone()
    out[:, :, head] += written
    return out


def receiver(model: HookedGPT, name: str) -> tuple[str, int | None, tuple[int, int]]:
    """Returns the hook point, head and place of what reads the stream under a name.

    Args:
        model: the model.
        name: "L1.H2.q" (or k, v), "L1.q" for all heads, "L1.mlp", or "logits".

    Raises:
        ConfigError: there is no such receiver.
    """
    found = _RECEIVER.fullmatch(name)
    if found is not None:
        layer, head, letter, mlp = found.groups()
        if letter and head is not None:
            part = component(model.config, f"L{layer}.H{head}")
            return f"blocks.{layer}.hook_{letter}_input", part.index, (part.layer, 0)
        if letter:
            component(model.config, f"L{layer}.attn")
            return f"blocks.{layer}.hook_{letter}_input", None, (int(layer), 0)
        if mlp:
            component(model.config, f"L{mlp}.mlp")
            return f"blocks.{mlp}.hook_mlp_in", None, (int(mlp), 1)
        last = len(model.blocks) - 1
        if last >= 0:
            return f"blocks.{last}.hook_resid_post", None, (last + 1, 0)
    raise ConfigError(
        f"{name!r} does not name a reader of the stream; give L1.H2.q (or k, v), L1.q, L1.mlp or "
        "logits"
    )
