"""The transformer's weights under the names, and in the shapes, that TransformerLens gives them.

Axes: `interp.gpt.axes`; `layer` comes first in what is stacked over the blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import ConfigError
from interp.gpt.layers import LayerNorm
from interp.gpt.text import TextTransformer
from interp.hooks import CompositionScores, FactoredMatrix, composition_scores

HeadWeights = Float[Tensor, "layer head d_model d_head"]
HeadBiases = Float[Tensor, "layer head d_head"]


class TransformerWithWeights(TextTransformer):
    """What TransformerLens's functions ask of a model, besides running it.

    Weights come as copies stacked over the layers, in the model's dtype, with gradients to the
    model's own. A bias that the model does not have is zeros, and an MLP that it does not have is
    of width 0 (`d_mlp = 0`) with a `b_out` of zeros.
    """

    _gain_in_directions = False

    def _stacked(self, rows: Iterable[Tensor | None], *shape: int) -> Tensor:
        zeros = self.W_E.new_zeros(shape)
        per_layer = [zeros if row is None else row for row in rows]
        return torch.stack(per_layer) if per_layer else self.W_E.new_zeros(0, *shape)

    def _of_heads(self, name: str, *shape: int) -> Tensor:
        rows = (getattr(block.attn, name) for block in self.blocks)
        return self._stacked(rows, self.config.n_heads, *shape)

    def _of_mlps(self, name: str, *shape: int) -> Tensor:
        return self._stacked((getattr(block.mlp, name, None) for block in self.blocks), *shape)

    @property
    def W_Q(self) -> HeadWeights:
        return self._of_heads("W_Q", self.config.d_model, self.config.d_head)

    @property
    def W_K(self) -> HeadWeights:
        return self._of_heads("W_K", self.config.d_model, self.config.d_head)

    @property
    def W_V(self) -> HeadWeights:
        return self._of_heads("W_V", self.config.d_model, self.config.d_head)

    @property
    def W_O(self) -> Float[Tensor, "layer head d_head d_model"]:
        return self._of_heads("W_O", self.config.d_head, self.config.d_model)

    @property
    def b_Q(self) -> HeadBiases:
        """Zeros where `qkv_bias` is off."""
        return self._of_heads("b_Q", self.config.d_head)

    @property
    def b_K(self) -> HeadBiases:
        """Zeros where `qkv_bias` is off."""
        return self._of_heads("b_K", self.config.d_head)

    @property
    def b_V(self) -> HeadBiases:
        """Zeros where `qkv_bias` is off."""
        return self._of_heads("b_V", self.config.d_head)

    @property
    def b_O(self) -> Float[Tensor, "layer d_model"]:
        return self._stacked((block.attn.b_O for block in self.blocks), self.config.d_model)

    @property
    def W_in(self) -> Float[Tensor, "layer d_model d_mlp"]:
        return self._of_mlps("W_in", self.config.d_model, self.config.d_mlp)

    @property
    def b_in(self) -> Float[Tensor, "layer d_mlp"]:
        return self._of_mlps("b_in", self.config.d_mlp)

    @property
    def W_out(self) -> Float[Tensor, "layer d_mlp d_model"]:
        return self._of_mlps("W_out", self.config.d_mlp, self.config.d_model)

    @property
    def b_out(self) -> Float[Tensor, "layer d_model"]:
        """Zeros in a model without MLPs."""
        return self._of_mlps("b_out", self.config.d_model)

    # ---- circuits ------------------------------------------------------------------------

    @property
    def OV(self) -> FactoredMatrix:
        """W_V W_O, [layer, head, d_model, d_model] in two factors: what a head moves, read to
        written, without LayerNorm (`interp.ov_circuit` has its gain, and the embeddings)."""
        return FactoredMatrix(self.W_V, self.W_O)

    @property
    def QK(self) -> FactoredMatrix:
        """W_Q W_K^T, [layer, head, d_model, d_model] in two factors: what a head compares, query
        by key, without LayerNorm, biases, `attn_scale` or gain (see `interp.qk_circuit`)."""
        return FactoredMatrix(self.W_Q, self.W_K.transpose(-2, -1))

    @property
    def all_head_labels(self) -> list[str]:
        """The names that TransformerLens gives the heads: "L0H0", "L0H1", …"""
        return [
            f"L{n}H{h}" for n in range(self.config.n_layers) for h in range(self.config.n_heads)
        ]

    def all_composition_scores(self, mode: str) -> CompositionScores:
        """Returns how much each head can read of what each earlier head writes.

        ‖OV C‖ / (‖OV‖ ‖C‖) with Frobenius norms, where C is QK for "Q", its transpose for "K", and
        OV for "V" (Elhage et al. 2021). [layer, head, layer, head], sender first; 0 where the
        sender is not in an earlier layer. LayerNorm's gain is left out, and what random weights
        would score is not taken away (`interp.composition_scores` does both).

        Raises:
            ConfigError: an unknown mode, or a model without blocks.
        """
        if mode not in ("Q", "K", "V"):
            raise ConfigError(f"unknown mode {mode!r}; expected 'Q', 'K' or 'V'")
        if not self.config.n_layers:
            raise ConfigError("a model without blocks has no heads to compose")
        reads = {"Q": self.QK, "K": self.QK.T, "V": self.OV}[mode]
        scores = composition_scores(self.OV, reads, broadcast_dims=True)
        layers = torch.arange(self.config.n_layers, device=self.device)
        earlier = layers[:, None, None, None] < layers[:, None]
        scores = scores.where(earlier, torch.zeros_like(scores))
        return CompositionScores(scores, layers.tolist(), self.all_head_labels)

    # ---- what TransformerLens's functions ask for ----------------------------------------

    @property
    def cfg(self) -> SimpleNamespace:
        """The config under the attribute names that TransformerLens's utilities read."""
        return SimpleNamespace(
            **self.config.model_dump(),
            attn_only=self.config.attn_only,
            device=self.device,
            dtype=self.dtype,
            normalization_type="LN",
            positional_embedding_type="standard",
            n_key_value_heads=None,
            model_name="HookedGPT",
            default_prepend_bos=False,
            use_attn_result=True,
            use_split_qkv_input=True,
            use_hook_mlp_in=True,
            use_attn_in=False,
        )

    def set_use_attn_result(self, use_attn_result: bool) -> None:
        """Does nothing: `hook_result` is always there, and costs nothing while nobody looks."""

    def set_use_split_qkv_input(self, use_split_qkv_input: bool) -> None:
        """Does nothing: `hook_q_input` and its like are always there, as `hook_result` is."""

    def set_use_hook_mlp_in(self, use_hook_mlp_in: bool) -> None:
        """Does nothing: `hook_mlp_in` is always there."""

    @contextmanager
    def gain_in_directions(self) -> Iterator[None]:
        """Makes `tokens_to_residual_directions` include the final LayerNorm's gain."""
        self._gain_in_directions = True
        try:
            yield
        finally:
            self._gain_in_directions = False

    def tokens_to_residual_directions(self, tokens: Any) -> Tensor:
        """Returns the columns of W_U of the given tokens (text, id or ids), [..., d_model]."""
        if isinstance(tokens, str):
            tokens = self.to_single_token(tokens)
        directions = self.W_U.T[torch.as_tensor(tokens, device=self.device)]
        if self._gain_in_directions and isinstance(self.ln_final, LayerNorm):
            directions = directions * self.ln_final.w
        return directions

    def accumulated_bias(
        self, layer: int, mlp_input: bool = False, include_mlp_biases: bool = True
    ) -> Float[Tensor, " d_model"]:
        """Returns the sum of the biases written into the stream before block `layer`."""
        total = torch.zeros_like(self.embed.W_E[0])
        for block in self.blocks[:layer]:
            total = total + block.attn.b_O
            if block.mlp is not None and include_mlp_biases:
                total = total + block.mlp.b_out
        if mlp_input:
            total = total + self.blocks[layer].attn.b_O
        return total
