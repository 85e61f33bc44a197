"""What a run with a cache records: which activations, how much of each, and their gradients.

Axes: `interp.gpt.axes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from interp.errors import HookError, nearest
from interp.gpt.presets import PRESETS, is_expanded, preset_names
from interp.hooks import HookedModule, HookPoint, NamesFilter, Slice


def names_to_keep(model: HookedModule, names: NamesFilter, plain: bool) -> tuple[list[str], bool]:
    """Returns the hook names to record, and whether the rest can be rebuilt from them.

    Args:
        model: the model that will be run.
        names: a preset, or any filter of hook names; see `HookedGPT.run_with_cache`.
        plain: whether the run is the function of tokens and weights that rebuilding supposes.

    Raises:
        HookError: an unknown preset or hook name.
    """
    if isinstance(names, str) and names not in PRESETS and "hook_" not in names:
        raise HookError(f"unknown preset {names!r}{nearest(names, PRESETS)}; presets: {PRESETS}")
    wants_all = names is None or names == "all"
    if plain and (wants_all or names == "contributions"):
        return preset_names(str(names or "all"), list(model.hook_dict)), True
    if wants_all:
        points = model.hook_dict.items()
        return [name for name, p in points if not is_expanded(name) or p.edited], False
    if isinstance(names, str) and names in PRESETS:
        return preset_names(names, list(model.hook_dict)), False
    return model.resolve_names(names), False


def loss_and_gradients(
    model: HookedModule, names: Sequence[str], run: Callable[[], Tensor]
) -> tuple[Tensor, list[tuple[str, Tensor]]]:
    """Returns the loss of a run, and its gradient to each named activation that it depends on."""
    live: dict[str, Tensor] = {}

    def look(value: Tensor, hook: HookPoint) -> None:  # at the private copy that goes on
        live[str(hook.name)] = value

    with torch.enable_grad(), model.hooks([(name, look) for name in names]):
        loss = run()
    reached = {name: value for name, value in live.items() if value.requires_grad}
    grads = torch.autograd.grad(loss, list(reached.values()), allow_unused=True)
    pairs = zip(reached, grads, strict=True)
    return loss, [(name, grad) for name, grad in pairs if grad is not None]


def slice_positions(value: Tensor, name: str, pos_slice: Any) -> Tensor:
    """Returns some of the positions of an activation; a number keeps the axis, None keeps all."""
    if pos_slice is None:
        return value
    kind = name.rsplit(".", 1)[-1]
    per_head = kind in ("hook_q", "hook_k", "hook_v", "hook_z") or is_expanded(name)
    dim = value.ndim - (3 if per_head else 2)
    if isinstance(pos_slice, int):
        pos_slice = [pos_slice]
    sliced = Slice.unwrap(pos_slice).apply(value, dim=dim)
    assert isinstance(sliced, Tensor)
    return sliced


def own_memory(value: Tensor, whole: bool) -> Tensor:
    """Returns a copy if `value` is a small part of a larger tensor that it would keep alive.

    In a run that keeps q, k and v together (`whole`), the tensor they share is kept once.
    """
    smaller = value.numel() * value.element_size() < value.untyped_storage().nbytes()
    return value.clone() if smaller and not whole else value
