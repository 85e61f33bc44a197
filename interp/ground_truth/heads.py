"""Hand-built attention models whose patterns, logits and paths are known in closed form.

As in `interp.ground_truth.effects`: ordinary `HookedGPT`s in float64, LayerNorms that only
subtract the mean, features that are pairs of coordinates. The stream has room for four things:
which token stands here (`token`), which was copied here by a first head (`moved`), which position
this is (`place`), and what is predicted (`out`), read by the unembedding with a gain of `gamma`.
Scores are `beta` where query and key match and 0 elsewhere.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from interp.gpt.config import GPTConfig
from interp.gpt.layers import LayerNorm
from interp.gpt.model import HookedGPT
from interp.ground_truth.effects import NEUTRAL_EPS, feature, neutralise

V, T = 8, 16  # tokens, positions
BETA, GAMMA = 30.0, 10.0
Space = Literal["token", "moved", "place", "out"]
_FIRST = {"token": 0, "moved": V, "place": 2 * V, "out": 2 * V + T}
_SIZE = {"token": V, "moved": V, "place": T, "out": V}


def uniform_head(gamma: float = GAMMA) -> HookedGPT:
    """One head without queries: weights 1/(t+1), logits gamma · the tokens' frequencies so far."""
    model = _model(n_layers=1, gamma=gamma)
    _moves(model, 0, "token", "out")
    return model


def back_head(k: int, beta: float = BETA, gamma: float = GAMMA) -> HookedGPT:
    """One head that looks k back: weight e^β/(e^β + t) at t − k for t ≥ k, else 1/(t+1) each."""
    model = _model(n_layers=1, gamma=gamma)
    _matches(model, 0, "place", "place", beta, shift=k)
    _moves(model, 0, "token", "out")
    return model


def duplicate_head(beta: float = BETA) -> HookedGPT:
    """One head that looks at copies of its own token, itself among them.

    With m earlier copies they have m e^β / ((m+1) e^β + t − m).
    """
    model = _model(n_layers=1)
    _matches(model, 0, "token", "token", beta)
    _moves(model, 0, "token", "out")
    return model


def induction(
    beta: float = BETA, gamma: float = GAMMA, route: Literal["k", "q"] = "k"
) -> HookedGPT:
    """L0.H0 copies the previous token, L1.H0 matches it; L0.H1 and L1.H1 are idle.

    By route "k" the match is between the query's token and what stands before a key: induction. On
    a permutation of the tokens twice, its weight at the key after the earlier copy is 1 (to e^−β),
    but ½ at t = V, since position 0 has to be its own predecessor; the next token's logit is gamma
    (gamma/2 there). Without L0.H0 its attention is uniform.

    By route "q" the match is between what stands before the query and a key's token: the head looks
    at copies of the previous token.
    """
    model = _model(n_layers=2, gamma=gamma)
    _matches(model, 0, "place", "place", beta, shift=1)
    _moves(model, 0, "token", "moved")
    asked: tuple[Space, Space] = ("token", "moved") if route == "k" else ("moved", "token")
    _matches(model, 1, *asked, beta)
    _moves(model, 1, "token", "out")
    return model


def two_hops(beta: float = BETA, gamma: float = GAMMA) -> HookedGPT:
    """Two heads that look one back, in turn: together they move the token from t − 2.

    All of it goes through what the second head's values read; its queries and keys read positions.
    """
    model = _model(n_layers=2, gamma=gamma)
    for layer, (reads, writes) in enumerate((("token", "moved"), ("moved", "out"))):
        _matches(model, layer, "place", "place", beta, shift=1)
        _moves(model, layer, reads, writes)  # type: ignore[arg-type]  # spaces
    return model


def bigram(log_p: Float[Tensor, "d_vocab d_vocab"]) -> HookedGPT:
    """A model without blocks whose logits after token i are row i of a table of log p."""
    n = len(log_p)
    cfg = GPTConfig(n_layers=0, n_heads=1, d_model=2 * n, n_ctx=T, d_vocab=n, positional=False,
                    unembed_bias=False, ln_eps=NEUTRAL_EPS)  # fmt: skip
    model = _zeros(cfg)
    for i in range(n):
        model.embed.W_E[i] = feature(i, n)
        model.W_U.add_(feature(i, n)[:, None] * log_p[i].double())
    return model


def _model(n_layers: int, gamma: float = GAMMA) -> HookedGPT:
    n = 2 * V + T + V
    cfg = GPTConfig(n_layers=n_layers, n_heads=2, d_model=2 * n, d_head=T, n_ctx=T, d_vocab=V,
                    d_mlp=0, unembed_bias=False, ln_eps=NEUTRAL_EPS)  # fmt: skip
    model = _zeros(cfg)
    for i in range(V):
        model.embed.W_E[i] = _feature("token", i)
        model.W_U[:, i] = gamma * _feature("out", i)
    for t in range(T):
        model.pos_embed.W_pos[t] = _feature("place", t)
    return model


def _zeros(cfg: GPTConfig) -> HookedGPT:
    model = HookedGPT(cfg).to(torch.float64).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        parameter.fill_(1.0 if name.endswith(".w") else 0.0)
    for module in model.modules():
        if isinstance(module, LayerNorm):
            neutralise(module)
    return model


def _feature(space: Space, i: int) -> Float[Tensor, " d_model"]:
    return feature(_FIRST[space] + i, 2 * V + T + V)


def _matches(
    model: HookedGPT, layer: int, query: Space, key: Space, beta: float, shift: int = 0
) -> None:
    """Head 0 scores `beta` where the query's feature i meets the key's feature i − shift."""
    attn = model.blocks[layer].attn
    for i in range(_SIZE[query]):
        attn.W_Q[0, :, i] += beta * attn.attn_scale * _feature(query, i)
        if i >= shift:
            attn.W_K[0, :, i] += _feature(key, i - shift)


def _moves(model: HookedGPT, layer: int, reads: Space, writes: Space) -> None:
    """Head 0 copies feature i of one space, at the key, to feature i of another, at the query."""
    attn = model.blocks[layer].attn
    for i in range(V):
        attn.W_V[0, :, i] = _feature(reads, i)
        attn.W_O[0, i] = _feature(writes, i)
