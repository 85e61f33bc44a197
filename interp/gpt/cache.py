"""What a run of the model leaves behind: `ActivationCache`, its presets, names and sizes.

A cache of everything keeps in memory only what cannot be rebuilt cheaply: the contributions to
the residual stream, LayerNorm scales, q, k, v, z, patterns and logits. Every other activation is
rebuilt when it is asked for, by the model's own functions, so that its values are the ones the
run had. A run that somebody's hooks changed keeps every activation as it was, and rebuilds none.

Axes are those of `interp.gpt.layers`.
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Mapping
from typing import TYPE_CHECKING, Any

import torch
from einops import repeat
from torch import Tensor

from interp.errors import CacheError, nearest
from interp.gpt.config import GPTConfig
from interp.hooks import Slice, TLActivationCache, get_act_name

if TYPE_CHECKING:
    from interp.gpt.model import HookedGPT

PRESETS = ("all", "contributions", "residual", "attention")
_EXPANDED = ("hook_result", "hook_q_input", "hook_k_input", "hook_v_input")
_CONTRIBUTIONS = (
    "hook_embed", "hook_pos_embed", "hook_attn_out", "hook_mlp_out", "hook_scale", "hook_pattern",
    "hook_logits",
)  # fmt: skip
_STORED = (*_CONTRIBUTIONS, "hook_q", "hook_k", "hook_v", "hook_z")
_RESIDUAL = (
    "hook_embed", "hook_pos_embed", "hook_resid_pre", "hook_resid_mid", "hook_resid_post",
    "hook_attn_out", "hook_mlp_out", "hook_scale", "hook_logits",
)  # fmt: skip
_ATTENTION = ("hook_q", "hook_k", "hook_v", "hook_z", "hook_attn_scores", "hook_pattern")


def hook_shapes(cfg: GPTConfig, batch: int, pos: int) -> dict[str, tuple[int, ...]]:
    """Returns every hook name of a model with the shape of its activation, in model order."""
    residual, scale = (batch, pos, cfg.d_model), (batch, pos, 1)
    per_head, maps = (batch, pos, cfg.n_heads, cfg.d_head), (batch, cfg.n_heads, pos, pos)
    copies, neurons = (batch, pos, cfg.n_heads, cfg.d_model), (batch, pos, cfg.d_mlp)
    attention: dict[str, tuple[int, ...]] = {
        "ln1.hook_scale": scale,
        "ln1.hook_normalized": residual,
    }
    attention |= {f"attn.hook_{x}": per_head for x in "qkv"}
    attention |= {"attn.hook_attn_scores": maps, "attn.hook_pattern": maps}
    attention |= {"attn.hook_z": per_head, "attn.hook_result": copies}
    attention |= {"hook_resid_pre": residual, "hook_attn_out": residual}
    attention |= {f"hook_{x}_input": copies for x in "qkv"}
    mlp: dict[str, tuple[int, ...]] = {"ln2.hook_scale": scale, "ln2.hook_normalized": residual}
    mlp |= {"mlp.hook_pre": neurons, "mlp.hook_post": neurons, "hook_resid_mid": residual}
    mlp |= {"hook_mlp_in": residual, "hook_mlp_out": residual}
    block = {"hook_resid_post": residual, **attention, **({} if cfg.attn_only else mlp)}
    shapes: dict[str, tuple[int, ...]] = {"hook_embed": residual}
    if cfg.positional:
        shapes["hook_pos_embed"] = residual
    for layer in range(cfg.n_layers):
        shapes |= {f"blocks.{layer}.{name}": shape for name, shape in block.items()}
    if cfg.final_norm:
        shapes |= {"ln_final.hook_scale": scale, "ln_final.hook_normalized": residual}
    return shapes | {"hook_logits": (batch, pos, cfg.d_vocab)}


def preset_names(preset: str, names: Iterator[str] | list[str]) -> list[str]:
    """Returns the hook names that a preset keeps in memory.

    "all": everything (most of it rebuilt on demand); "contributions": the smallest set from which
    everything can be rebuilt exactly; "residual": the stream and what is written into it;
    "attention": q, k, v, z, scores, pattern.
    """
    kept = {"all": _STORED, "contributions": _CONTRIBUTIONS,
            "residual": _RESIDUAL, "attention": _ATTENTION}[preset]  # fmt: skip
    return [name for name in names if name.rsplit(".", 1)[-1] in kept]


def cache_bytes(
    cfg: GPTConfig, batch: int, pos: int, names: str = "all", bytes_per_number: int = 4
) -> int:
    """Returns how many bytes a cache of a preset will keep, without running the model.

    Example:
        >>> from interp import GPTConfig, cache_bytes
        >>> cfg = GPTConfig(n_layers=4, n_heads=4, d_model=128, n_ctx=128, d_vocab=65)
        >>> cache_bytes(cfg, batch=1, pos=128, names="contributions") // 1024
        1701
    """
    shapes = hook_shapes(cfg, batch, pos)
    numbers = 0
    for name in preset_names(names, list(shapes)):
        # One row of position embeddings serves the whole batch; neighbouring blocks share a stream.
        shape = shapes[name] if name != "hook_pos_embed" else shapes[name][1:]
        first = name == "blocks.0.hook_resid_pre" and cfg.positional
        if first or not name.endswith("resid_pre"):
            numbers += int(torch.Size(shape).numel())
    return numbers * bytes_per_number


def is_expanded(name: str) -> bool:
    """True for the per-head activations of width d_model, which are kept only when named."""
    return name.rsplit(".", 1)[-1] in _EXPANDED


class ActivationCache(TLActivationCache):
    """The activations of one run, by hook name (`"blocks.1.attn.hook_z"`) or short name (`"z", 1`).

    TransformerLens's cache, so that its methods and functions accept it, with these differences:
    values not kept are rebuilt on access; a value edited in place after the run, or rebuilt from
    weights that changed since, is refused; `logit_attrs` applies the final LayerNorm's gain.
    """

    model: HookedGPT  # type: ignore[assignment]  # not just any model of the protocol

    def __init__(
        self,
        cache_dict: Mapping[str, Tensor],
        model: HookedGPT,
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
            return self._rebuild(name)

    def _full_name(self, key: Any) -> str:
        if isinstance(key, str):
            return key if "hook_" in key else str(get_act_name(key))
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

    def _rebuild(self, name: str) -> Tensor:
        if name.startswith("ln_final."):
            return _normalised(self._stream(len(self.model.blocks)), self["ln_final.hook_scale"])
        _, index, part = name.split(".", 2)
        return self._rebuild_in_block(int(index), part)

    def _rebuild_in_block(self, layer: int, part: str) -> Tensor:
        block = self.model.blocks[layer]
        attn = block.attn
        match part.removeprefix("hook_"):
            case "resid_pre":
                return self._stream(layer)
            case "resid_mid" | "mlp_in":
                return self._stream(layer) + self["attn_out", layer]
            case "resid_post":
                return self._stream(layer + 1)
            case "q_input" | "k_input" | "v_input":
                return repeat(self._stream(layer), "... d -> ... head d", head=block.n_heads)
            case "ln1.hook_normalized":
                return _normalised(self._stream(layer), self["scale", layer, "ln1"])
            case "ln2.hook_normalized":
                return _normalised(self["resid_mid", layer], self["scale", layer, "ln2"])
            case "attn.hook_q" | "attn.hook_k" | "attn.hook_v":
                projected = attn.project(block.ln1.read(self._batched(self._stream(layer))))
                return self._unbatched(projected["qkv".index(part[-1])])
            case "attn.hook_attn_scores":
                q, k = self._batched(self["q", layer]), self._batched(self["k", layer])
                return self._unbatched(attn.scores(q, k))
            case "attn.hook_z":
                pattern, v = self._batched(self["pattern", layer]), self._batched(self["v", layer])
                return self._unbatched(attn.mix(pattern, v))
            case "attn.hook_result":
                return self._unbatched(attn.results(self._batched(self["z", layer])))
            case "mlp.hook_pre" if block.mlp is not None:
                x = self._batched(self["resid_mid", layer])
                return self._unbatched(block.mlp.pre(block.ln2.read(x)))
            case "mlp.hook_post" if block.mlp is not None:
                return block.mlp.act(self["pre", layer])
        raise AssertionError(f"no rule rebuilds {part!r}")

    def _stream(self, n_blocks: int) -> Tensor:
        """The residual stream after `n_blocks` blocks, summed in the order the model adds."""
        x = self["embed"]
        if self.model.config.positional:
            x = x + self["pos_embed"]
        for layer in range(n_blocks):
            x = x + self["attn_out", layer]
            if not self.model.config.attn_only:
                x = x + self["mlp_out", layer]
        return x

    def _batched(self, x: Tensor) -> Tensor:
        return x if self.has_batch_dim else x[None]

    def _unbatched(self, x: Tensor) -> Tensor:
        return x if self.has_batch_dim else x[0]


def _tensor(value: object) -> Tensor:
    assert isinstance(value, Tensor)
    return value


def _normalised(x: Tensor, scale: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / scale


def weights_version(model: HookedGPT) -> tuple[tuple[int, int], ...]:
    """Returns what changes whenever a weight is edited, moved or replaced."""
    return tuple((p.data_ptr(), p._version) for p in model.parameters())
