"""Hook points: where a model can be looked into and changed. The only importer of transformer_lens.

TransformerLens's `HookPoint` and `HookedRootModule` are hardened here:

- a hook works on a private copy, so that an edit in place and a returned edit do the same thing,
  with and without gradients, and never reach a parameter or another part of the model;
- what a hook returns must have the activation's shape, dtype and device;
- a hook name that does not exist is an error that names the nearest ones, in every way of asking;
- hooks are removed by handle, also after an exception; other people's hooks stay;
- recording an activation is not a hook: it sees the value that goes on, after every hook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Literal

from torch import Tensor
from transformer_lens import ActivationCache as TLActivationCache, FactoredMatrix, HookedRootModule
from transformer_lens.hook_points import HookPoint as TLHookPoint, LensHandle
from transformer_lens.model_bridge.composition_scores import CompositionScores
from transformer_lens.utilities import Slice, composition_scores, get_act_name

from interp.errors import HookError, nearest

__all__ = [
    "CompositionScores",
    "FactoredMatrix",
    "HookPoint",
    "HookedModule",
    "NamesFilter",
    "Slice",
    "TLActivationCache",
    "composition_scores",
    "get_act_name",
]

NamesFilter = str | Sequence[str] | Callable[[str], bool] | None
Hook = Callable[..., Tensor | None]
Direction = Literal["fwd", "bwd"]
Recorder = Callable[[str, Tensor], None]


class HookPoint(TLHookPoint):
    """An identity that hooks can be attached to; costs next to nothing while none is."""

    recorder: Recorder | None = None

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __call__(self, x: Tensor) -> Tensor:
        """Returns `x` as the hooks leave it, and shows that to the recorder."""
        if self.edited:
            x = super().__call__(x)
        if self.recorder is not None:
            self.recorder(str(self.name), x)
        return x

    @property
    def edited(self) -> bool:
        """True when a forward or backward hook is attached."""
        return bool(self._forward_hooks or self._backward_hooks or self._backward_pre_hooks)

    @property
    def watched(self) -> bool:
        """True when a hook is attached or the activation is being recorded."""
        return self.recorder is not None or self.edited

    def forward(self, x: Tensor) -> Tensor:
        """Returns a private copy for the hooks to work on."""
        return x.clone() if self._forward_hooks else x

    def add_hook(
        self,
        hook: Hook,
        dir: Direction = "fwd",
        is_permanent: bool = False,
        level: int | None = None,
        prepend: bool = False,
        alias_names: list[str] | None = None,
    ) -> LensHandle:
        """Attaches `hook(activation, hook=self)` and returns its handle.

        Raises:
            HookError: while running, if the hook returns anything but None or a tensor of the
                activation's shape, dtype and device.
        """

        user_hook = hook

        def checked(tensor: Tensor, *, hook: TLHookPoint) -> Tensor | None:
            return _checked_return(user_hook(tensor, hook=hook), tensor, hook)

        handle = super().add_hook(checked, dir, is_permanent, level, prepend, alias_names)
        handle.user_hook = user_hook
        return handle


def _checked_return(returned: Any, activation: Tensor, hook: TLHookPoint) -> Tensor | None:
    if isinstance(returned, tuple) and len(returned) == 1:
        returned = returned[0]
    if returned is None:
        return None
    if not isinstance(returned, Tensor):
        raise HookError(
            f"the hook on {hook.name!r} returned {type(returned).__name__}; "
            "return a tensor, or None to change nothing"
        )
    for quality in ("shape", "dtype", "device"):
        given, expected = getattr(returned, quality), getattr(activation, quality)
        if given != expected:
            given, expected = (
                (tuple(given), tuple(expected)) if quality == "shape" else (given, expected)
            )
            raise HookError(
                f"the hook on {hook.name!r} returned a tensor of {quality} {given}; "
                f"expected {expected}"
            )
    return returned


class HookedModule(HookedRootModule):
    """A module with named hook points. Call `setup()` at the end of `__init__`."""

    hook_dict: dict[str, HookPoint]  # type: ignore[assignment]  # all our points are our own class
    aliases: Mapping[str, str] = MappingProxyType({})  # other names to ask by, and what they mean

    def resolve_names(self, names: NamesFilter) -> list[str]:
        """Returns the hook names that a filter selects, in the order of the model.

        Args:
            names: None for all; one name or several, each a hook name or an alias of one; or a
                function from name to bool, which is shown aliases only if it selects no hook name.

        Raises:
            HookError: a name that does not exist, or a function that selects none.
        """
        if names is None:
            return list(self.hook_dict)
        if callable(names):
            selected = [name for name in self.hook_dict if names(name)]
            if not selected:
                by_alias = {name for alias, name in self.aliases.items() if names(alias)}
                selected = [name for name in self.hook_dict if name in by_alias]
            if not selected:
                raise HookError("the filter function selects none of the model's hook names")
            return selected
        wanted = [names] if isinstance(names, str) else list(names)
        for name in wanted:
            if name not in self.hook_dict and name not in self.aliases:
                known = [*self.hook_dict, *self.aliases]
                raise HookError(f"unknown hook name {name!r}{nearest(name, known)}")
        resolved = {self.aliases.get(name, name) for name in wanted}
        return [name for name in self.hook_dict if name in resolved]

    def add_hook(
        self,
        name: str | Callable[[str], bool],
        hook: Hook,
        dir: Direction = "fwd",
        is_permanent: bool = False,
        level: int | None = None,
        prepend: bool = False,
    ) -> None:
        """Attaches a hook to every point that `name` selects, until `reset_hooks`."""
        for resolved in self.resolve_names(name):
            self.hook_dict[resolved].add_hook(hook, dir, is_permanent, level, prepend)

    @contextmanager
    def hooks(
        self,
        fwd_hooks: Sequence[tuple[str | Callable[[str], bool], Hook]] = (),
        bwd_hooks: Sequence[tuple[str | Callable[[str], bool], Hook]] = (),
        reset_hooks_end: bool = True,
        clear_contexts: bool = False,
    ) -> Iterator[HookedModule]:
        """Attaches hooks for the length of a `with` block; just these are removed at its end."""
        wanted = [(n, h, "fwd") for n, h in fwd_hooks] + [(n, h, "bwd") for n, h in bwd_hooks]
        resolved = [(self.resolve_names(names), hook, way) for names, hook, way in wanted]
        added: list[tuple[HookPoint, LensHandle]] = []
        try:
            for names, hook, way in resolved:
                for name in names:
                    point = self.hook_dict[name]
                    added.append((point, point.add_hook(hook, dir=way)))  # type: ignore[arg-type]
            yield self
        finally:
            if reset_hooks_end:
                for point, handle in added:
                    _remove(point, handle)
                if clear_contexts:
                    self.clear_contexts()  # type: ignore[no-untyped-call]

    @contextmanager
    def recording(self, names: Sequence[str], recorder: Recorder) -> Iterator[None]:
        """Shows the value of each named point to `recorder(name, value)` inside the block."""
        points = [self.hook_dict[name] for name in names]
        if any(point.recorder is not None for point in points):
            raise HookError("a run that records activations cannot be nested in another one")
        try:
            for point in points:
                point.recorder = recorder
            yield
        finally:
            for point in points:
                point.recorder = None

    @property
    def is_edited(self) -> bool:
        """True when any hook is attached anywhere."""
        return any(point.edited for point in self.hook_dict.values())


def _remove(point: HookPoint, handle: LensHandle) -> None:
    handle.hook.remove()
    for handles in (point.fwd_hooks, point.bwd_hooks):
        handles[:] = [other for other in handles if other is not handle]
