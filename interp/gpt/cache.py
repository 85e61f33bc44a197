"""What a run of the model leaves behind: `ActivationCache`.

A cache of everything keeps in memory only what cannot be rebuilt cheaply: the contributions to
the residual stream, LayerNorm scales, q, k, v, z, patterns and logits. Every other activation is
rebuilt when it is asked for, by the model's own functions, so that its values are the ones the
run had. A run that somebody's hooks changed keeps every activation as it was, and rebuilds none.

Axes: `interp.gpt.axes`.
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Mapping
from typing import Any

import torch
from torch import Tensor

from interp.errors import CacheError, nearest
from interp.gpt.presets import is_expanded
from interp.gpt.rebuild import Rebuilder
from interp.gpt.weights import TransformerWithWeights
from interp.hooks import Slice, TLActivationCache, get_act_name


class ActivationCache(TLActivationCache):
    """The activations of one run, by hook name (`"blocks.1.attn.hook_z"`) or short name (`"z", 1`).

    TransformerLens's cache, so that its methods and functions accept it, with these differences:
    values not kept are rebuilt on access; a value edited in place after the run, or rebuilt from
    weights that changed since, is refused; `logit_attrs` applies the final LayerNorm's gain.
    """

    model: TransformerWithWeights  # type: ignore[assignment]  # not just any model of the protocol

    def __init__(
        self,
        cache_dict: Mapping[str, Tensor],
        model: TransformerWithWeights,
        has_batch_dim: bool = True,
        *,
        tokens: Tensor | None = None,
        rebuilds: bool = False,
    ) -> None:
        """
        Args:
            cache_dict: activations by hook name.
            model: the model that made them.
            has_batch_dim: False when `remove_batch_dim` took it away.
            tokens: the tokens of the run, [batch, pos].
            rebuilds: True when what is missing can be rebuilt from what is there.
        """
        super().__init__(dict(cache_dict), model, has_batch_dim)
        self.tokens = tokens
        self.rebuilds = rebuilds
        self._versions = {name: value._version for name, value in self.cache_dict.items()}
        self._weights = weights_version(model)

    def __getitem__(self, key: Any) -> Tensor:
        """Returns an activation.

        Raises:
            CacheError: absent (with the nearest names), edited in place, or not to be rebuilt
                because the model's weights changed.
        """
        name = self._full_name(key)
        if name in self.cache_dict:
            value = self.cache_dict[name]
            if self._versions.get(name, value._version) != value._version:
                raise CacheError(
                    f"{name!r} was edited in place after it was cached; "
                    "run again, and edit a .clone() of it"
                )
            return value
        if not self._can_rebuild(name):
            kept = list(self.cache_dict)
            raise CacheError(
                f"{name!r} is not in this cache of {len(kept)} activations"
                f"{nearest(name, self.keys())}; name it in names_filter to keep it"
            )
        if weights_version(self.model) != self._weights:
            raise CacheError(
                f"{name!r} is rebuilt from the model's weights, and these changed after the run; "
                "run the model again"
            )
        with torch.no_grad():
            return Rebuilder(self.model, self.__getitem__, self.has_batch_dim)(name)

    def _full_name(self, key: Any) -> str:
        if isinstance(key, str):
            name = key if "hook_" in key else str(get_act_name(key))
            return self.model.aliases.get(name, name)
        name, *rest = key
        if rest and isinstance(rest[0], int) and rest[0] < 0:
            rest[0] += self.model.cfg.n_layers
        return str(get_act_name(name, *rest))

    def _can_rebuild(self, name: str) -> bool:
        return self.rebuilds and name in self.model.hook_dict

    def keys(self) -> KeysView[str]:
        """Returns the names of everything that can be asked for, but the expanded ones."""
        if not self.rebuilds:
            return self.cache_dict.keys()
        names = (n for n in self.model.hook_dict if n in self.cache_dict or not is_expanded(n))
        return dict.fromkeys(names, 0).keys()

    def values(self) -> Iterator[Tensor]:
        """Yields the activations, in the order of `keys`."""
        return (self[name] for name in self.keys())

    def items(self) -> Iterator[tuple[str, Tensor]]:
        """Yields pairs of name and activation, in the order of `keys`."""
        return ((name, self[name]) for name in self.keys())

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def __contains__(self, key: Any) -> bool:
        name = self._full_name(key)
        return name in self.cache_dict or self._can_rebuild(name)

    def __repr__(self) -> str:
        return (
            f"ActivationCache({len(self)} activations, {len(self.cache_dict)} in memory, "
            f"{self.nbytes / 1e6:.1f} MB)"
        )

    @property
    def nbytes(self) -> int:
        """The bytes this cache keeps alive; memory shared by several activations counts once."""
        storages = {v.untyped_storage().data_ptr(): v.untyped_storage().nbytes()
                    for v in self.cache_dict.values()}  # fmt: skip
        return sum(storages.values())

    def _like(self, values: Mapping[str, Tensor], has_batch_dim: bool) -> ActivationCache:
        new = ActivationCache(values, self.model, has_batch_dim, rebuilds=self.rebuilds)
        new._weights = self._weights
        return new

    def _check_all_unedited(self) -> None:
        for name in self.cache_dict:
            self[name]

    def to(self, device: str | torch.device) -> ActivationCache:
        """Returns this cache with its tensors moved to `device` (the model stays where it is)."""
        self._check_all_unedited()
        self.cache_dict = {name: value.to(device) for name, value in self.cache_dict.items()}
        self._versions = {name: value._version for name, value in self.cache_dict.items()}
        return self

    def remove_batch_dim(self, batch_size: int | None = None) -> ActivationCache:
        """Returns this cache without its batch axis, which must be of length 1.

        Raises:
            CacheError: the batch holds more than one sequence.
        """
        self._check_all_unedited()
        if self.has_batch_dim:
            if any(value.shape[0] != 1 for value in self.cache_dict.values()):
                size = max(value.shape[0] for value in self.cache_dict.values())
                raise CacheError(f"cannot remove a batch axis of length {size}; it must be 1")
            self.cache_dict = {name: value[0] for name, value in self.cache_dict.items()}
            self._versions = {name: value._version for name, value in self.cache_dict.items()}
            self.has_batch_dim = False
        return self

    def apply_slice_to_batch_dim(self, batch_slice: Any) -> ActivationCache:
        """Returns a new cache of some of the sequences."""
        self._check_all_unedited()
        sliced = super().apply_slice_to_batch_dim(batch_slice)
        new = self._like(sliced.cache_dict, sliced.has_batch_dim)
        if self.tokens is not None:
            new.tokens = Slice.unwrap(batch_slice).apply(self.tokens)
        return new

    def apply_ln_to_stack(
        self,
        residual_stack: Tensor,
        layer: int | None = None,
        mlp_input: bool = False,
        *args: Any,
        **kwargs: Any,
    ) -> Tensor:
        """As TransformerLens's; without a final LayerNorm, the stack into the unembedding as is."""
        is_final = layer is None or layer in (-1, self.model.cfg.n_layers)
        if is_final and not self.model.config.final_norm:
            if kwargs.get("batch_slice") is None or not kwargs.get("has_batch_dim", True):
                return residual_stack
            return _tensor(Slice.unwrap(kwargs["batch_slice"]).apply(residual_stack, dim=1))
        return _tensor(super().apply_ln_to_stack(residual_stack, layer, mlp_input, *args, **kwargs))

    def logit_attrs(self, residual_stack: Tensor, tokens: Any, incorrect_tokens: Any = None,
                    *args: Any, **kwargs: Any) -> Tensor:  # fmt: skip
        """As TransformerLens's, with the final LayerNorm's gain, which its own leaves out.

        The rows still lack the two constants `ln_bias` and `b_U`; `interp.logit_attribution` has
        them, and checks the sum.
        """
        with self.model.gain_in_directions():
            out = super().logit_attrs(residual_stack, tokens, incorrect_tokens, *args, **kwargs)
        return _tensor(out)


def _tensor(value: object) -> Tensor:
    assert isinstance(value, Tensor)
    return value


def weights_version(model: TransformerWithWeights) -> tuple[tuple[int, int], ...]:
    """Returns what changes whenever a weight is edited, moved or replaced."""
    return tuple((p.data_ptr(), p._version) for p in model.parameters())
