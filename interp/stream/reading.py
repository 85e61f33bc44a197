"""The parts of the residual stream, each read along one direction.

The stream at any depth is a sum of what `interp.stream.components` lists. A *direction*
[batch, pos, d_model] turns each part into one number per position. Parts are projected before they
are told apart: nothing of size heads, neurons or keys × d_model is ever held.

Each way of telling apart refines one kind of part and leaves every other row as it was:

    by="block"    L0.attn, L0.mlp
    by="head"     L0.attn into L0.H0, L0.H1, …
    by="source"   and L0.H3 into L0.H3.S0, L0.H3.S1, …: through which key position
    by="neuron"   L0.mlp into L0.N0, L0.N1, …
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

from interp.gpt.cache import ActivationCache
from interp.gpt.layers import MLP, Attention
from interp.gpt.model import HookedGPT

By = Literal["block", "head", "source", "neuron"]
Direction = Float[Tensor, "batch pos d_model"]
Readings = Float[Tensor, "component batch pos"]


def read_stream(
    model: HookedGPT,
    cache: ActivationCache,
    direction: Direction,
    by: By = "block",
    before: tuple[int, int] | None = None,
) -> tuple[list[str], Readings]:
    """Returns labels and each part's component along `direction`; the parts sum to the stream's.

    Args:
        model: the model.
        cache: of a run in evaluation mode, with its batch axis.
        direction: what each position is read along.
        by: what to tell apart; see the module.
        before: the stream as it enters this place, (block, 0 for its attention, 1 for its MLP);
            by default after all blocks.
    """
    n_pos = direction.shape[1]
    labels: list[str] = []
    pieces: list[Tensor] = []
    for names, piece in _pieces(
        model, cache, direction, n_pos, by, before or (len(model.blocks), 0)
    ):
        labels += names
        pieces.append(piece)
    return labels, torch.cat(pieces)


def _pieces(
    model: HookedGPT,
    cache: ActivationCache,
    direction: Direction,
    n_pos: int,
    by: By,
    before: tuple[int, int],
) -> Iterator[tuple[list[str], Readings]]:
    for name in ("embed", "pos_embed") if model.config.positional else ("embed",):
        yield [name], _along(cache[name][:, :n_pos], direction)
    for layer, block in enumerate(model.blocks):
        if before <= (layer, 0):
            return
        b_O = (direction @ block.attn.b_O)[None]
        if by == "source":
            for head in range(model.config.n_heads):
                v, pattern = cache["v", layer][:, :n_pos, head], cache["pattern", layer][:, head]
                names = [f"L{layer}.H{head}.S{key}" for key in range(n_pos)]
                yield names, _by_source(block.attn, head, v, pattern[:, :n_pos, :n_pos], direction)
        elif by == "head":
            names = [f"L{layer}.H{head}" for head in range(model.config.n_heads)]
            yield names, _by_head(block.attn, cache["z", layer][:, :n_pos], direction)
        else:
            whole = _along(cache["attn_out", layer][:, :n_pos], direction)
            yield [f"L{layer}.attn"], whole - b_O
        yield [f"L{layer}.b_O"], b_O
        if block.mlp is None:
            continue
        if before <= (layer, 1):
            return
        b_out = (direction @ block.mlp.b_out)[None]
        if by == "neuron":
            names = [f"L{layer}.N{neuron}" for neuron in range(model.config.d_mlp)]
            yield names, _by_neuron(block.mlp, cache["post", layer][:, :n_pos], direction)
        else:
            whole = _along(cache["mlp_out", layer][:, :n_pos], direction)
            yield [f"L{layer}.mlp"], whole - b_out
        yield [f"L{layer}.b_out"], b_out


def _along(x: Float[Tensor, "batch pos d_model"], direction: Direction) -> Readings:
    return einsum(x, direction, "batch pos d, batch pos d -> batch pos")[None]


def _by_head(
    attn: Attention, z: Float[Tensor, "batch pos head d_head"], direction: Direction
) -> Readings:
    into_z = einsum(
        direction, attn.W_O, "batch pos d_model, head d_head d_model -> batch pos head d_head"
    )
    return einsum(z, into_z, "batch pos head d_head, batch pos head d_head -> head batch pos")


def _by_source(
    attn: Attention,
    head: int,
    v: Float[Tensor, "batch key d_head"],
    pattern: Float[Tensor, "batch pos key"],
    direction: Direction,
) -> Readings:
    into_v = direction @ attn.W_O[head].T  # [batch pos d_head]
    return rearrange(pattern * (into_v @ v.mT), "batch pos key -> key batch pos")


def _by_neuron(mlp: MLP, post: Float[Tensor, "batch pos d_mlp"], direction: Direction) -> Readings:
    return rearrange(post * (direction @ mlp.W_out.T), "batch pos neuron -> neuron batch pos")
