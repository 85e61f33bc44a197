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
from interp.gpt.cache import ActivationCache
from interp.gpt.model import HookedGPT, Input
from interp.hooks import HookPoint
from interp.stream.components import Component, component
from interp.stream.receivers import add_to_read, receiver
from interp.stream.references import ReferenceSet
from interp.training.held_out import held_out

How = Literal["zero", "mean", "resample", "patch"]

_TEXT = re.compile(r"(\w+) (\S+)(?: at (\d+(?:,\d+)*))?(?: into (\S+))?")


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
    kind: How
    positions: tuple[int, ...] | None = None
    into: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(How):
            raise ConfigError(
                f"{self.kind!r} is not an intervention; choose one of {', '.join(get_args(How))}"
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
        reference: for "mean" and "resample": a `ReferenceSet`, or its text or tokens; by default
            passages of the model's own held-out text, for a model that came from its folder.
        source: for "patch": the cache of another run of this model, of as many positions and of as
            many sequences, or of one.
        rows: for "resample": the reference sequence for each of the batch; by default drawn.
        seed: of that draw.

    Raises:
        ConfigError: no such component, hook or receiver; a receiver that comes before the sender;
            reference or source missing.
        TextError: the model's own text cannot be had.
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
    if reference is None:
        reference = _held_out(model, wanted)
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


def _held_out(model: HookedGPT, wanted: Sequence[Intervention]) -> Tensor | None:
    """The sequences to take values from where none were given; None if none are needed."""
    needing = [one for one in wanted if one.kind in ("mean", "resample")]
    if not needing:
        return None
    if model.folder is None:
        raise ConfigError(
            f"'{needing[0]}' needs reference=, the sequences to take values from (only a model "
            "that came from its folder has a default: its own held-out text)"
        )
    return held_out(model)


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
    assert reference is not None
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
        written.append(part.change(model, activation, _changed(one, new, value)))

    def add(read: Tensor, hook: HookPoint) -> Tensor:
        if not written:
            raise HookError(f"'{one}': this run starts after what {one.component} writes")
        return add_to_read(read, written.pop(), head)

    return [(part.hook, look), (hook_name, add)]
