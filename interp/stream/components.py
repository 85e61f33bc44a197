"""The parts of a model that write into the residual stream: their names, places and values.

Labels are stable and mean one thing each, here and in every result:

    embed  pos_embed     token and position embeddings
    L0.attn              what the heads of block 0 wrote (without b_O)
    L0.H3                what head 3 of block 0 wrote; the heads sum to L0.attn
    L0.b_O               the constant of block 0's attention
    L0.mlp               what the neurons of block 0 wrote (without b_out)
    L0.N17               what neuron 17 of block 0 wrote; the neurons sum to L0.mlp
    L0.b_out             the constant of block 0's MLP
    ln_bias  b_U         the bias of the final LayerNorm, and of the unembedding

A component's *value* is what its activation holds: a head's z [batch, pos, d_head], a neuron's
output [batch, pos], anything else's vector [batch, pos, d_model]. `written` turns a value into what
is added to the stream, linearly: so a mean of values is the mean of what was written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from interp.errors import ConfigError, nearest
from interp.gpt.config import GPTConfig
from interp.gpt.layers import LayerNorm
from interp.gpt.model import HookedGPT
from interp.stream.metric import check_choice

Kind = Literal[
    "embed", "pos_embed", "attn", "head", "b_O", "mlp", "neuron", "b_out", "ln_bias", "b_U"
]
CONSTANTS = ("pos_embed", "b_O", "b_out", "ln_bias", "b_U")  # the same for every sequence

_N = "(0|[1-9][0-9]{0,8})"
_LABEL = re.compile(rf"L{_N}\.(attn|b_O|mlp|b_out|H{_N}|N{_N})")


@dataclass(frozen=True)
class Component:
    """One part of a model. `layer` is −1 for the embeddings and n_layers for what follows all."""

    label: str
    kind: Kind
    layer: int
    index: int = 0

    def __str__(self) -> str:
        return self.label

    @property
    def depth(self) -> tuple[int, int]:
        """Where it is written: (block, 0 by attention or 1 by the MLP), increasing with depth."""
        return self.layer, int(self.kind in ("embed", "pos_embed", "mlp", "neuron", "b_out"))

    @property
    def hook(self) -> str:
        """The hook point whose activation holds its value."""
        match self.kind:
            case "embed" | "pos_embed":
                return f"hook_{self.kind}"
            case "head":
                return f"blocks.{self.layer}.attn.hook_z"
            case "attn" | "b_O":
                return f"blocks.{self.layer}.hook_attn_out"
            case "neuron":
                return f"blocks.{self.layer}.mlp.hook_post"
            case "mlp" | "b_out":
                return f"blocks.{self.layer}.hook_mlp_out"
        return "hook_logits"

    def value(self, model: HookedGPT, activation: Tensor) -> Tensor:
        """Returns the component's value, taken out of the activation at `hook`."""
        match self.kind:
            case "head":
                return activation[:, :, self.index]
            case "neuron":
                return activation[..., self.index]
            case "attn" | "mlp":
                return activation - _constant(model, self)
            case "embed" | "pos_embed":
                return activation
        return _constant(model, self).expand(activation.shape)

    def put(self, model: HookedGPT, activation: Tensor, value: Tensor) -> Tensor:
        """Returns the activation with the component's value replaced."""
        match self.kind:
            case "head":
                changed = activation.clone()
                changed[:, :, self.index] = value
            case "neuron":
                changed = activation.clone()
                changed[..., self.index] = value
            case "embed" | "pos_embed":
                changed = value.expand(activation.shape)
            case "attn" | "mlp":
                changed = (value + _constant(model, self)).expand(activation.shape)
            case _:
                changed = activation + (value - _constant(model, self))
        return changed

    def change(self, model: HookedGPT, activation: Tensor, new: Tensor) -> Tensor:
        """Returns what is added to the stream when `new` takes the value's place.

        `new` may have fewer axes, or a single sequence, for all.
        """
        return self.written(model, new - self.value(model, activation))

    def written(self, model: HookedGPT, value: Tensor) -> Float[Tensor, "... d_model"]:
        """Returns what a value (or a difference of values) adds to the residual stream.

        `ln_bias` and `b_U` are added after the stream: they have no such vector.
        """
        block = model.blocks[self.layer] if 0 <= self.layer < len(model.blocks) else None
        if self.kind == "head" and block is not None:
            return value @ block.attn.W_O[self.index]
        if self.kind == "neuron" and block is not None and block.mlp is not None:
            return value[..., None] * block.mlp.W_out[self.index]
        return value


def _constant(model: HookedGPT, component: Component) -> Tensor:
    """The constant in the component's activation: what it is, or what stands beside it."""
    match component.kind:
        case "attn" | "b_O":
            return model.blocks[component.layer].attn.b_O
        case "mlp" | "b_out":
            mlp = model.blocks[component.layer].mlp
            assert mlp is not None
            return mlp.b_out
        case "ln_bias":
            assert isinstance(model.ln_final, LayerNorm)
            return model.ln_final.b @ model.W_U
    assert model.b_U is not None
    return model.b_U


def components(
    cfg: GPTConfig, by: Literal["block", "head", "neuron"] = "block", constants: bool = True
) -> list[Component]:
    """Returns the components of a model, in the order in which they are written.

    Args:
        cfg: the model's config.
        by: whole attentions and MLPs, or the heads of each attention, or the neurons of each MLP.
        constants: include those that are the same for every sequence.

    Raises:
        ConfigError: an unknown `by`.
    """
    check_choice("by", by, ("block", "head", "neuron"))
    found = [Component("embed", "embed", -1), Component("pos_embed", "pos_embed", -1)]
    for layer in range(cfg.n_layers):
        if by == "head":
            found += [Component(f"L{layer}.H{h}", "head", layer, h) for h in range(cfg.n_heads)]
        else:
            found.append(Component(f"L{layer}.attn", "attn", layer))
        found.append(Component(f"L{layer}.b_O", "b_O", layer))
        if cfg.attn_only:
            continue
        if by == "neuron":
            found += [Component(f"L{layer}.N{n}", "neuron", layer, n) for n in range(cfg.d_mlp)]
        else:
            found.append(Component(f"L{layer}.mlp", "mlp", layer))
        found.append(Component(f"L{layer}.b_out", "b_out", layer))
    found += [Component("ln_bias", "ln_bias", cfg.n_layers), Component("b_U", "b_U", cfg.n_layers)]
    return [c for c in found if _exists(c, cfg) and (constants or c.kind not in CONSTANTS)]


def component(cfg: GPTConfig, label: str) -> Component:
    """Returns the component with a label.

    Raises:
        ConfigError: the model has no such component; the nearest labels are named.
    """
    named = {
        "embed": Component("embed", "embed", -1),
        "pos_embed": Component("pos_embed", "pos_embed", -1),
        "ln_bias": Component("ln_bias", "ln_bias", cfg.n_layers),
        "b_U": Component("b_U", "b_U", cfg.n_layers),
    }
    found = named.get(label)
    if parsed := _LABEL.fullmatch(label):
        layer, what, head, neuron = parsed.groups()
        if head is not None:
            found = Component(label, "head", int(layer), int(head))
        elif neuron is not None:
            found = Component(label, "neuron", int(layer), int(neuron))
        else:
            found = Component(label, what, int(layer))  # type: ignore[arg-type]  # by the pattern
    if found is None or not _exists(found, cfg):
        known = dict.fromkeys(str(c) for by in ("block", "head") for c in components(cfg, by))
        if found is not None and found.kind == "neuron" and found.layer < cfg.n_layers:
            where = f"; its neurons are N0 … N{cfg.d_mlp - 1}" if cfg.d_mlp else ""
        else:
            where = nearest(label, known)
        raise ConfigError(f"this model has no component {label!r}{where}")
    return found


def _exists(c: Component, cfg: GPTConfig) -> bool:
    match c.kind:
        case "embed":
            return True
        case "pos_embed":
            return cfg.positional
        case "ln_bias":
            return cfg.final_norm
        case "b_U":
            return cfg.unembed_bias
    if not 0 <= c.layer < cfg.n_layers:
        return False
    if c.kind == "head":
        return c.index < cfg.n_heads
    if c.kind in ("mlp", "neuron", "b_out"):
        return c.index < max(cfg.d_mlp, 0)
    return True
