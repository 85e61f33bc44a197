"""The parts of the residual stream, each read along one direction.

The stream after n blocks is a sum: embeddings, what every head and every MLP wrote, and the
constants b_O and b_out. A *direction* [batch, pos, d_model] turns each part into one number per
position. Parts are projected before they are told apart, so nothing of size heads × d_model is
ever held.

Labels are stable and mean one thing each:

    embed  pos_embed     token and position embeddings
    L0.attn              what the heads of block 0 wrote (without b_O)
    L0.H3                what head 3 of block 0 wrote; the heads sum to L0.attn
    L0.b_O               the constant of block 0's attention
    L0.mlp               what the neurons of block 0 wrote (without b_out)
    L0.b_out             the constant of block 0's MLP
"""

from __future__ import annotations

from typing import Literal

from einops import einsum
from jaxtyping import Float
from torch import Tensor

from interp.gpt.activations import ActivationCache
from interp.gpt.model import HookedGPT

By = Literal["block", "head"]
Direction = Float[Tensor, "batch pos d_model"]
Reading = Float[Tensor, "batch pos"]


def read_stream(
    model: HookedGPT,
    cache: ActivationCache,
    direction: Direction,
    by: By = "block",
    n_blocks: int | None = None,
) -> dict[str, Reading]:
    """Returns label → the part's component along `direction`, [batch, pos]; the parts sum to all.

    Args:
        model: the model.
        cache: of a run in evaluation mode, with its batch axis.
        direction: what each position is read along.
        by: "block", or "head" to tell the heads apart.
        n_blocks: the stream after this many blocks; by default after all.
    """
    n_pos = direction.shape[1]
    readings: dict[str, Reading] = {"embed": _along(cache["embed"][:, :n_pos], direction)}
    if model.config.positional:
        readings["pos_embed"] = _along(cache["pos_embed"][:, :n_pos], direction)
    for layer, block in enumerate(model.blocks[:n_blocks]):
        b_O = direction @ block.attn.b_O
        if by == "head":
            for head in range(model.config.n_heads):
                z = cache["z", layer][:, :n_pos, head]
                readings[f"L{layer}.H{head}"] = _along(z, direction @ block.attn.W_O[head].T)
        else:
            readings[f"L{layer}.attn"] = (
                _along(cache["attn_out", layer][:, :n_pos], direction) - b_O
            )
        readings[f"L{layer}.b_O"] = b_O
        if block.mlp is not None:
            b_out = direction @ block.mlp.b_out
            mlp_out = _along(cache["mlp_out", layer][:, :n_pos], direction)
            readings[f"L{layer}.mlp"] = mlp_out - b_out
            readings[f"L{layer}.b_out"] = b_out
    return readings


def _along(x: Float[Tensor, "batch pos d"], direction: Float[Tensor, "batch pos d"]) -> Reading:
    return einsum(x, direction, "batch pos d, batch pos d -> batch pos")
