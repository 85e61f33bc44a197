"""How an activation that a cache did not keep is made again from those that it kept.

By the model's own functions, on the values that the run had: what comes out is what the run had.

Axes: `interp.gpt.axes`; a cache without a batch axis lacks `batch`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from einops import repeat
from torch import Tensor

from interp.gpt.transformer import Transformer


@dataclass(frozen=True)
class Rebuilder:
    """Rebuilds activations by hook name.

    `get` is the cache's own look-up, by ("name",) or ("short name", layer, …). It may ask this
    object in turn: each rule below asks only for activations that come earlier in the model.
    """

    model: Transformer
    get: Callable[[tuple[Any, ...]], Tensor]
    has_batch_dim: bool

    def __call__(self, name: str) -> Tensor:
        """Returns the activation with a full hook name."""
        if name.startswith("ln_final."):
            stream = self._stream(len(self.model.blocks))
            return _normalised(stream, self._at("ln_final.hook_scale"))
        _, index, part = name.split(".", 2)
        return self._in_block(int(index), part)

    def _in_block(self, layer: int, part: str) -> Tensor:
        block = self.model.blocks[layer]
        attn = block.attn
        match part.removeprefix("hook_"):
            case "resid_pre":
                return self._stream(layer)
            case "resid_mid" | "mlp_in":
                return self._stream(layer) + self._at("attn_out", layer)
            case "resid_post":
                return self._stream(layer + 1)
            case "q_input" | "k_input" | "v_input":
                return repeat(self._stream(layer), "... d -> ... head d", head=block.n_heads)
            case "ln1.hook_normalized":
                return _normalised(self._stream(layer), self._at("scale", layer, "ln1"))
            case "ln2.hook_normalized":
                return _normalised(self._at("resid_mid", layer), self._at("scale", layer, "ln2"))
            case "attn.hook_q" | "attn.hook_k" | "attn.hook_v":
                projected = attn.project(block.ln1.read(self._batched(self._stream(layer))))
                return self._unbatched(projected["qkv".index(part[-1])])
            case "attn.hook_attn_scores":
                q, k = self._at("q", layer), self._at("k", layer)
                return self._unbatched(attn.scores(self._batched(q), self._batched(k)))
            case "attn.hook_z":
                pattern, v = (
                    self._batched(self._at("pattern", layer)),
                    self._batched(self._at("v", layer)),
                )
                return self._unbatched(attn.mix(pattern, v))
            case "attn.hook_result":
                return self._unbatched(attn.results(self._batched(self._at("z", layer))))
            case "mlp.hook_pre" if block.mlp is not None:
                x = self._batched(self._at("resid_mid", layer))
                return self._unbatched(block.mlp.pre(block.ln2.read(x)))
            case "mlp.hook_post" if block.mlp is not None:
                return block.mlp.act(self._at("pre", layer))
        raise AssertionError(f"no rule rebuilds {part!r}")

    def _stream(self, n_blocks: int) -> Tensor:
        """The residual stream after `n_blocks` blocks, summed in the order the model adds."""
        x = self._at("embed")
        if self.model.config.positional:
            x = x + self._at("pos_embed")
        for layer in range(n_blocks):
            x = x + self._at("attn_out", layer)
            if not self.model.config.attn_only:
                x = x + self._at("mlp_out", layer)
        return x

    def _at(self, *key: Any) -> Tensor:
        return self.get(key)

    def _batched(self, x: Tensor) -> Tensor:
        return x if self.has_batch_dim else x[None]

    def _unbatched(self, x: Tensor) -> Tensor:
        return x if self.has_batch_dim else x[0]


def _normalised(x: Tensor, scale: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / scale
