"""What reads the residual stream, by name: a head's query, key or value, an MLP, the logits."""

from __future__ import annotations

import re

from torch import Tensor

from interp.errors import ConfigError
from interp.gpt.model import HookedGPT
from interp.stream.components import component

_RECEIVER = re.compile(r"L(\d+)(?:\.H(\d+))?\.([qkv])|L(\d+)\.mlp|logits")


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
