"""Weights that are written differently but mean the same: what must not change, by how much it did.

They give the same probabilities and the
same attributions. Done in float64 on copies of the model: the user's is not touched.

    a vector added to every column of W_U     centred scores cannot change
    a constant added to all of b_out          LayerNorm subtracts it
    W_Q → W_Q R, W_K → W_K R⁻ᵀ                only their product matters
    W_V → W_V R, W_O → R⁻¹ W_O                the same
    heads in another order                    rows of the attribution change places
    the final LayerNorm's gain and bias folded into W_U and b_U
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from jaxtyping import Int
from torch import Tensor

from interp.analysis.direct.attribution import logit_attribution
from interp.gpt.layers import LayerNorm
from interp.gpt.model import HookedGPT


class DoesNotApply(Exception):  # noqa: N818  # not a fault
    """A check that this model gives nothing to check."""


def plain_copy(model: HookedGPT, dtype: torch.dtype) -> HookedGPT:
    """A plain copy in evaluation mode, without anybody's hooks."""
    new = HookedGPT(model.config, model.tokenizer)
    new.load_state_dict(copy.deepcopy(model.state_dict()))
    return new.to(model.device, dtype).eval()


Rows = dict[str, Tensor]
Back = Callable[[Rows], Rows]  # names the rows of the changed model as those of the model


def gauge(
    model: HookedGPT,
    ids: Int[Tensor, "batch pos"],
    change: Callable[[HookedGPT, torch.Generator], Back],
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Probabilities and attribution rows of the changed copy, and of the model."""
    other = plain_copy(model, model.dtype)
    back = change(other, generator)
    before, after = _rows_of(model, ids), back(_rows_of(other, ids))
    return torch.stack([after[name] for name in before]), torch.stack(list(before.values()))


def _rows_of(model: HookedGPT, ids: Tensor) -> Rows:
    """Every row of the attribution by head, and the log-probability of the target.

    The two constants behind the stream are one row here: folding moves one into the other.
    """
    logits, cache = model.run_with_cache(ids)
    parts = logit_attribution(model, cache, "head", targets=ids[:, 1:])
    rows = {c: torch.from_numpy(parts.row(c).copy()) for c in parts.components}
    constants = [rows.pop(name) for name in ("ln_bias", "b_U") if name in rows]
    if constants:
        rows["constants"] = torch.stack(constants).sum(0)
    targets = ids[:, 1:, None]
    rows["log_prob"] = logits[:, :-1].log_softmax(-1).gather(-1, targets)[..., 0].cpu()
    return rows


def _unchanged(rows: Rows) -> Rows:
    return rows


def _random(generator: torch.Generator, *shape: int, like: Tensor) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(like)


def _invertible(generator: torch.Generator, n: int, like: Tensor) -> Tensor:
    """A random well-conditioned matrix: a rotation with its axes stretched by 1/2 to 2."""
    rotation = torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64))[0]
    stretch = torch.exp2(2 * torch.rand(n, generator=generator, dtype=torch.float64) - 1)
    matrix: Tensor = rotation * stretch
    return matrix.to(like)


def _shift_unembedding(model: HookedGPT, generator: torch.Generator) -> Back:
    if model.unembed.W_U is None:
        raise DoesNotApply("W_U is tied to W_E")
    model.unembed.W_U.add_(_random(generator, model.config.d_model, like=model.W_U)[:, None])
    return _unchanged


def _shift_stream(model: HookedGPT, generator: torch.Generator) -> Back:
    if not isinstance(model.ln_final, LayerNorm):
        raise DoesNotApply("without a final LayerNorm the unembedding sees the constant")
    if model.config.attn_only or not model.blocks:
        raise DoesNotApply("the model has no b_out")
    for block in model.blocks:
        assert block.mlp is not None
        block.mlp.b_out.add_(_random(generator, 1, like=block.mlp.b_out))
    return _unchanged


def _rotate_queries_keys(model: HookedGPT, generator: torch.Generator) -> Back:
    _needs_blocks(model)
    for block in model.blocks:
        for head in range(model.config.n_heads):
            R = _invertible(generator, model.config.d_head, like=block.attn.W_Q)
            if model.config.qk_norm:  # which only a rotation leaves alone
                R = torch.linalg.qr(R)[0]
            back = torch.linalg.inv(R).T
            for name, by in (("Q", R), ("K", back)):
                weight, bias = getattr(block.attn, f"W_{name}"), getattr(block.attn, f"b_{name}")
                weight[head] = weight[head] @ by
                if bias is not None:
                    bias[head] = bias[head] @ by
    return _unchanged


def _rotate_values(model: HookedGPT, generator: torch.Generator) -> Back:
    _needs_blocks(model)
    for block in model.blocks:
        attn = block.attn
        for head in range(model.config.n_heads):
            R = _invertible(generator, model.config.d_head, like=attn.W_V)
            attn.W_V[head] = attn.W_V[head] @ R
            attn.W_O[head] = torch.linalg.inv(R) @ attn.W_O[head]
            if attn.b_V is not None:
                attn.b_V[head] = attn.b_V[head] @ R
    return _unchanged


def _permute_heads(model: HookedGPT, generator: torch.Generator) -> Back:
    _needs_blocks(model)
    moved: dict[str, str] = {}
    for layer, block in enumerate(model.blocks):
        order = torch.randperm(model.config.n_heads, generator=generator)
        for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "gain"):
            weight = getattr(block.attn, name)
            if weight is not None:
                weight.copy_(weight[order].clone())
        moved |= {f"L{layer}.H{new}": f"L{layer}.H{old}" for new, old in enumerate(order.tolist())}
    return lambda rows: {moved.get(name, name): row for name, row in rows.items()}


def _fold(model: HookedGPT, generator: torch.Generator) -> Back:
    if not isinstance(model.ln_final, LayerNorm):
        raise DoesNotApply("there is no final LayerNorm")
    if model.unembed.W_U is None or model.unembed.b_U is None:
        raise DoesNotApply("folding needs a W_U that is not tied, and a b_U")
    model.unembed.b_U.add_(model.ln_final.b @ model.unembed.W_U)
    model.unembed.W_U.mul_(model.ln_final.w[:, None])
    model.ln_final.w.fill_(1.0)
    model.ln_final.b.zero_()
    return _unchanged


def _needs_blocks(model: HookedGPT) -> None:
    if not model.blocks:
        raise DoesNotApply("the model has no blocks")


GAUGES = {
    "a vector added to every column of W_U": _shift_unembedding,
    "a constant added to all of b_out": _shift_stream,
    "queries and keys in another basis": _rotate_queries_keys,
    "values in another basis": _rotate_values,
    "heads in another order": _permute_heads,
    "final gain and bias folded into W_U": _fold,
}
