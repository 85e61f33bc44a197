"""How heads work together: what they ask, what they write, and who reads it.

From the weights: the full QK circuit (which token asks for which) and OV circuit (what attending to
a token adds to the logits), as factors that are never multiplied out; copying; and composition
scores beside a null of random rotations. LayerNorm's centring and gain are folded in, its scale and
the biases left out.

From runs: `path_effects` takes what one head writes away from what the queries, keys or values of
later heads read, and from nothing else, and measures the loss. This is the measure of composition
to go by: an idle head can have as high a weight score as the one that carries the circuit.
`score_sources` asks whether a head's scores are about positions or about tokens.

Source: Elhage et al. 2021, A mathematical framework for transformer circuits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.errors import ConfigError, HookError, TokenError
from interp.gpt.layers import LayerNorm
from interp.gpt.model import HookedGPT, Input, next_token_loss
from interp.hooks import FactoredMatrix, HookPoint
from interp.results import intervals
from interp.results.provenance import Provenance
from interp.results.result import Result, to_numpy
from interp.stream.components import component
from interp.stream.batches import BATCH as PIECE
from interp.stream.receivers import receiver
from interp.stream.references import ReferenceSet
from interp.stream.resume import run_with_input

LETTERS = ("Q", "K", "V")
DRAWS = 200  # random rotations
JOBS = 16  # runs at a time in `path_effects`
Progress = Callable[[int, int], None]


# ---- the weights ------------------------------------------------------------------------------


def qk_circuit(model: HookedGPT, layer: int, head: int) -> FactoredMatrix:
    """Returns the part of a head's scores that is about tokens alone, [query token, key token].

    Raises:
        ConfigError: no such head; a model with qk_norm, whose scores are not a bilinear form.
    """
    _check_head(model, layer, head)
    if model.config.qk_norm:
        raise ConfigError("with qk_norm scores are no bilinear form of the stream")
    block = model.blocks[layer]
    asks = _read(block.ln1, model.W_E) @ block.attn.W_Q[head] / block.attn.attn_scale
    if block.attn.gain is not None:
        asks = asks * block.attn.gain[head]
    return FactoredMatrix(asks, (_read(block.ln1, model.W_E) @ block.attn.W_K[head]).T)


def ov_circuit(model: HookedGPT, layer: int, head: int) -> FactoredMatrix:
    """Returns what attending fully to a token adds to the logits, [key token, d_vocab].

    Raises:
        ConfigError: no such head.
    """
    _check_head(model, layer, head)
    block = model.blocks[layer]
    taken = _read(block.ln1, model.W_E) @ block.attn.W_V[head]
    written = _read(model.ln_final, block.attn.W_O[head]) @ model.W_U
    return FactoredMatrix(taken, written)


def _read(norm: torch.nn.Module, x: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_model"]:
    """Rows as a LayerNorm passes them on, its scale left out: centred, times its gain."""
    return (x - x.mean(-1, keepdim=True)) * norm.w if isinstance(norm, LayerNorm) else x


def _readers(
    norm: torch.nn.Module, W: Float[Tensor, "d_model d_head"]
) -> Float[Tensor, "d_model d_head"]:
    """What W makes of the stream before its LayerNorm, whose scale is left out."""
    if not isinstance(norm, LayerNorm):
        return W
    scaled = W * norm.w[:, None]
    return scaled - scaled.mean(0, keepdim=True)


def _check_head(model: HookedGPT, layer: int, head: int) -> None:
    component(model.config, f"L{layer}.H{head}")


@dataclass(frozen=True, kw_only=True)
class CopyingScores(Result):
    """How far each head's OV circuit raises the token attended to, [layer, head].

    `copying` is Σ Re λ / Σ |λ| over the eigenvalues of the OV circuit: 1 where every direction is
    copied, −1 where negated, near 0 by chance (Elhage et al. 2021). `own_logit` is the attended
    token's logit less the mean of its row, averaged over tokens; `own_rank` its mean rank among
    d_vocab logits, from 0 (the highest) to 1; by chance 0.5.
    """

    AXES: ClassVar = dict.fromkeys(("copying", "own_logit", "own_rank"), ("layer", "head"))
    copying: np.ndarray
    own_logit: np.ndarray
    own_rank: np.ndarray

    def to_frame(self) -> pd.DataFrame:
        """Returns layer, head, copying, own_logit, own_rank."""
        layer, head = np.indices(self.copying.shape)
        columns = {"layer": layer, "head": head}
        columns |= {name: getattr(self, name) for name in self.AXES}
        return pd.DataFrame({name: value.ravel() for name, value in columns.items()})


@torch.no_grad()
def copying_scores(model: HookedGPT) -> CopyingScores:
    """Returns how far each head copies the token that it attends to.

    Raises:
        ConfigError: a model without blocks.
    """
    if not model.blocks:
        raise ConfigError("a model without blocks has no heads")
    shape = (model.config.n_layers, model.config.n_heads)
    out = np.zeros((3, *shape))
    for layer, head in np.ndindex(shape):
        ov = ov_circuit(model, layer, head)
        out[0, layer, head] = copying_of(ov)
        own, rank = [], []
        for start in range(0, model.config.d_vocab, 1024):  # never all rows at once
            rows = ov.A[start : start + 1024] @ ov.B
            at = torch.arange(len(rows), device=rows.device)
            mine = rows[at, start + at]
            own.append(to_numpy(mine - rows.mean(1)))
            above = (rows > mine[:, None]).sum(1) + 0.5 * ((rows == mine[:, None]).sum(1) - 1)
            rank.append(to_numpy(above) / max(1, rows.shape[1] - 1))
        out[1:, layer, head] = np.concatenate(own).mean(), np.concatenate(rank).mean()
    none = torch.zeros(0, dtype=torch.long)
    return CopyingScores(
        copying=out[0], own_logit=out[1], own_rank=out[2], provenance=Provenance.of(model, none)
    )


def copying_of(ov: FactoredMatrix) -> float:
    """Returns Σ Re λ / Σ |λ| of an OV circuit; 0 for one that writes nothing."""
    small = to_numpy(ov.B @ ov.A).astype(np.float64)  # the same eigenvalues, [d_head d_head]
    values = np.linalg.eigvals(small)
    total = np.abs(values).sum()
    return float(values.real.sum() / total) if total > 0 else 0.0


@torch.no_grad()
def composition_scores(model: HookedGPT, *, draws: int = DRAWS, seed: int = 0) -> pd.DataFrame:
    """Returns how far the weights of each later head read what each earlier head writes.

    The score of a pair is ‖W_OV M‖ / (‖W_OV‖ ‖M‖) in Frobenius norms, with M the reader's W_QK for
    "Q", its transpose for "K" and its W_OV for "V". The null keeps both spectra and turns one
    against the other at random. A score far above it shows that the two overlap, not that anything
    depends on it: see `path_effects`.

    Args:
        model: the model.
        draws: random rotations a pair.
        seed: of them.

    Returns:
        A table: sender, receiver (labels), letter, score, null, null_std, z, p_value.

    Raises:
        ConfigError: a model with qk_norm.
    """
    if model.config.qk_norm:
        raise ConfigError("with qk_norm scores are no bilinear form of the stream")
    rng = np.random.default_rng(seed)
    d_model = model.config.d_model
    rows = []
    for layer, block in enumerate(model.blocks):
        attn = block.attn
        for head in range(model.config.n_heads):
            W_Q, W_K, W_V = (
                to_numpy(_readers(block.ln1, W[head])).astype(np.float64)
                for W in (attn.W_Q, attn.W_K, attn.W_V)
            )
            W_O = to_numpy(attn.W_O[head]).astype(np.float64)
            readers = {"Q": (W_Q, W_K.T), "K": (W_K, W_Q.T), "V": (W_V, W_O)}
            for letter, (left, right) in readers.items():
                M = np.linalg.svd(left @ right, full_matrices=False)
                rank = left.shape[1]
                for early, sender in np.ndindex(layer, model.config.n_heads):
                    theirs = model.blocks[early].attn
                    W_OV = to_numpy(theirs.W_V[sender] @ theirs.W_O[sender]).astype(np.float64)
                    U = np.linalg.svd(W_OV, full_matrices=False)
                    s, r = U[1][:rank], M[1][:rank]
                    size = np.linalg.norm(s) * np.linalg.norm(r)
                    score = np.linalg.norm(s[:, None] * (U[2][:rank] @ M[0][:, :rank]) * r) / size
                    null = np.array([np.linalg.norm(s[:, None] * _turn(rng, d_model, rank) * r)
                                     for _ in range(draws)]) / size  # fmt: skip
                    rows.append(
                        {
                            "sender": f"L{early}.H{sender}", "receiver": f"L{layer}.H{head}",
                            "letter": letter, "score": score, "null": null.mean(),
                            "null_std": null.std(ddof=1),
                            "z": (score - null.mean()) / null.std(ddof=1),
                            "p_value": (1 + (null >= score).sum()) / (1 + draws),
                        }
                    )  # fmt: skip
    names = ["sender", "receiver", "letter", "score", "null", "null_std", "z", "p_value"]
    return pd.DataFrame(rows, columns=names)


def _turn(rng: np.random.Generator, n: int, rank: int) -> np.ndarray:
    """A rank-by-rank block of a random rotation of n dimensions."""
    one, _ = np.linalg.qr(rng.standard_normal((n, rank)))
    out: np.ndarray = one[:rank]
    return out


# ---- positions or tokens ----------------------------------------------------------------------


@torch.no_grad()
def score_sources(model: HookedGPT, tokens: Input, *, seed: int = 0) -> pd.DataFrame:
    """Returns whether each head's scores are about positions or about tokens.

    The variance of the scores before the softmax, over all rows t ≥ 1, less each row's mean (which
    the softmax does not see), that is explained by the offset of query and key alone, by the pair
    of their tokens alone; and how far the pattern moves, in Jensen-Shannon divergence (bits, 0 to
    1; mean over rows t ≥ 1), when the tokens are put in random order and when the positions'
    embeddings are. 0: the head does not look at what was put in disorder.

    Args:
        model: the model, with at least one block.
        tokens: sequences of at least two tokens.
        seed: of the random orders.

    Returns:
        A table: layer, head, offset_share, token_share, tokens_moved, positions_moved (NaN for a
        model without positions), n (sequences).

    Raises:
        ConfigError: no blocks.
        TokenError: sequences of one token.
    """
    if not model.blocks:
        raise ConfigError("a model without blocks has no heads")
    ids = model.to_tokens(tokens)
    if ids.shape[1] < 2:
        raise TokenError("sequences of at least two tokens are needed: row 0 sees one key only")
    n, generator = ids.shape[1], torch.Generator().manual_seed(seed)
    order = torch.rand(ids.shape, generator=generator).argsort(1).to(ids.device)
    places = torch.randperm(n, generator=generator).to(ids.device)

    def moved(x: Tensor, hook: HookPoint) -> Tensor:
        return x[:, places]

    runs: dict[str, tuple[Tensor, list[Any]]] = {"as it is": (ids, [])}
    runs["tokens_moved"] = (ids.gather(1, order), [])
    if model.config.positional:
        runs["positions_moved"] = (ids, [("hook_pos_embed", moved)])
    total = {name: np.zeros((model.config.n_layers, model.config.n_heads)) for name in runs}
    shares = np.zeros((2, model.config.n_layers, model.config.n_heads))
    hooks = [f"blocks.{i}.attn.hook_attn_scores" for i in range(len(model.blocks))]
    q, k = np.tril_indices(n)
    q, k = q[q > 0], k[q > 0]
    pair = to_numpy(ids[:, q] * model.config.d_vocab + ids[:, k]).ravel()
    offset = np.broadcast_to(q - k, (len(ids), len(q))).ravel()
    found: dict[str, list[Tensor]] = {}
    for name, (given, changes) in runs.items():
        with model.hooks(fwd_hooks=changes):
            _, cache = model.run_with_cache(given, names_filter=hooks, return_type=None)
        found[name] = [cache[hook] for hook in hooks]
    for layer in range(len(model.blocks)):
        base = found["as it is"][layer]
        kept = to_numpy(base)[:, :, q, k].astype(np.float64)  # [batch head place]
        for head in range(model.config.n_heads):
            values = _less_row_means(kept[:, head], q).ravel()
            shares[:, layer, head] = [_explained(values, group) for group in (offset, pair)]
        for name in list(runs)[1:]:
            total[name][layer] = to_numpy(_divergence(base, found[name][layer]))
    layer, head = np.indices(shares.shape[1:])
    columns = {"layer": layer, "head": head, "offset_share": shares[0], "token_share": shares[1]}
    nothing = np.full(shares.shape[1:], np.nan)
    columns |= {name: total.get(name, nothing) for name in ("tokens_moved", "positions_moved")}
    table = pd.DataFrame({name: value.ravel() for name, value in columns.items()})
    return table.assign(n=len(ids))


def _less_row_means(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """[batch place] less the mean of its row; `rows` [place] says which."""
    out = np.empty_like(values)
    for row in np.unique(rows):
        at = rows == row
        out[:, at] = values[:, at] - values[:, at].mean(1, keepdims=True)
    return out


def _explained(values: np.ndarray, groups: np.ndarray) -> float:
    """The share of the variance that lies between groups, corrected for chance (ω²-like).

    Groups of their own for few values would explain much by chance: the mean square within groups
    is taken off for each.
    """
    _, group, counts = np.unique(groups, return_inverse=True, return_counts=True)
    total = np.square(values).sum()
    if total == 0:
        return 0.0
    means = np.bincount(group, values) / counts
    between = (counts * np.square(means)).sum()
    free = len(values) - len(counts)
    within = (total - between) / free if free > 0 else 0.0
    return float(np.clip((between - len(counts) * within) / total, 0, 1))


def _divergence(a: Tensor, b: Tensor) -> Float[Tensor, " head"]:
    """Jensen-Shannon divergence in bits of two score maps' softmaxes, mean over rows t ≥ 1."""
    p, q = (x[:, :, 1:].softmax(-1) for x in (a, b))
    of_mean, of_p, of_q = (torch.special.entr(x).sum(-1) for x in ((p + q) / 2, p, q))
    bits: Tensor = (of_mean - (of_p + of_q) / 2) / math.log(2)
    return bits.mean((0, 2))


# ---- paths ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PathEffects(Result):
    """The loss that each path carries, in nats a token: [sender, receiver, sequence].

    Senders are heads; receivers are like "L1.q" (the queries of all heads of a layer) or "L1.H2.q".
    NaN: the receiver comes before the sender.
    """

    AXES: ClassVar = {"values": ("sender", "receiver", "sequence")}
    NAMES: ClassVar = {"senders": "sender", "receivers": "receiver"}
    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    values: np.ndarray

    def of(self, sender: str, receiver: str) -> float:
        """Returns the mean effect of one path."""
        at = self.senders.index(sender), self.receivers.index(receiver)
        return float(self.values[at].mean())

    def to_frame(self) -> pd.DataFrame:
        """Returns sender, receiver, effect, low, high (95 %, over sequences), n."""
        mean, low, high = intervals.mean_interval(self.values, seed=self.provenance.seed or 0)
        index = pd.MultiIndex.from_product(
            [self.senders, self.receivers], names=["sender", "receiver"]
        )
        columns = {"effect": mean.ravel(), "low": low.ravel(), "high": high.ravel()}
        frame = pd.DataFrame(columns, index=index)
        frame["n"] = self.values.shape[-1]
        return frame.dropna(subset="effect").reset_index()


@torch.no_grad()
def path_effects(
    model: HookedGPT,
    tokens: Input,
    *,
    senders: Sequence[str] | None = None,
    receivers: Sequence[str] | None = None,
    where: Bool[Tensor, "batch pos"] | None = None,
    reference: ReferenceSet | Input | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> PathEffects:
    """Returns how much the loss rises when one reader alone reads a head's mean in its place.

    Args:
        model: the model.
        tokens: at least two sequences.
        senders: labels of heads; by default all but the last layer's.
        receivers: as in `Intervention.into`; by default the q, k and v of each layer but the first.
        where: the positions whose next token is counted; by default all. Of each sequence at least
            one, and not the last, which has no next token.
        reference: sequences to take means over; by default, for each, the other sequences.
        seed: of the intervals.
        progress: called with (paths done, of how many).

    Raises:
        ConfigError: no such head or receiver; a model of one layer.
        HookError: a model with hooks attached: runs from the middle would pass them twice.
        TokenError: fewer than two sequences without a reference; `where` leaves nothing.
    """
    if model.is_edited:
        raise HookError(
            "remove the model's hooks first: a run on from its middle passes them twice"
        )
    n_layers, n_heads = model.config.n_layers, model.config.n_heads
    if senders is None:
        senders = [f"L{layer}.H{head}" for layer in range(n_layers - 1) for head in range(n_heads)]
    if receivers is None:
        receivers = [f"L{layer}.{letter}" for layer in range(1, n_layers) for letter in "qkv"]
    if not senders or not receivers:
        raise ConfigError("a path needs a head and a later head; the model has one layer of them")
    parts = [component(model.config, name) for name in senders]
    wrong = [part.label for part in parts if part.kind != "head"]
    if wrong:
        raise ConfigError(f"senders are heads, such as L0.H3; {wrong[0]} is not one")
    ids = model.to_tokens(tokens)
    counted = _counted(ids, where)
    others = reference is None
    if others and len(ids) < 2:
        raise TokenError("one sequence has no others to take means over; give a reference set")
    means = ReferenceSet.of(model, ids if reference is None else reference)
    means.prepare([part.hook for part in parts])
    values = np.full((len(parts), len(receivers), len(ids)), np.nan)
    places = [receiver(model, name)[2] for name in receivers]
    done, of = 0, -(-len(ids) // PIECE) * len(receivers)
    for start in range(0, len(ids), PIECE):
        piece = ids[start : start + PIECE]
        at = slice(start, start + len(piece))
        logits, cache = model.run_with_cache(piece)
        before = _loss(logits[None], piece, counted[at])
        changes = []
        for part in parts:
            value = part.value(model, cache[part.hook])
            own = cache[part.hook] if others else None
            new = means.mean(part, piece.shape[1], own).expand(value.shape)
            changes.append(part.written(model, new - value))
        for r, (name, place) in enumerate(zip(receivers, places, strict=True)):
            early = [s for s, part in enumerate(parts) if part.depth < place]
            for few in (early[i : i + JOBS] for i in range(0, len(early), JOBS)):
                after = run_with_input(model, cache, name, torch.stack([changes[s] for s in few]))
                lost = to_numpy(_loss(after, piece, counted[at]) - before)
                values[few, r, at] = lost
            done += 1
            if progress is not None:
                progress(done, of)
    return PathEffects(
        senders=tuple(senders), receivers=tuple(receivers), values=values,
        provenance=Provenance.of(model, ids, seed=seed),
    )  # fmt: skip


def _counted(ids: Tensor, where: Tensor | None) -> Tensor:
    """[batch pos−1]: the positions whose prediction counts."""
    if where is None:
        where = torch.ones_like(ids, dtype=torch.bool)
    if where.shape != ids.shape:
        raise TokenError(f"where has shape {tuple(where.shape)}, the tokens {tuple(ids.shape)}")
    counted = where[:, :-1].to(ids.device)
    if not bool(counted.any(1).all()):
        raise TokenError("`where` leaves a sequence without a position that has a next token")
    return counted


def _loss(logits: Tensor, ids: Tensor, counted: Tensor) -> Float[Tensor, "job batch"]:
    """The mean loss over the counted positions of each sequence."""
    flat = logits.flatten(0, 1)
    losses = next_token_loss(flat, ids.repeat(len(logits), 1), per_token=True)
    by_job: Tensor = losses.unflatten(0, (len(logits), -1))
    return (by_job * counted).sum(-1) / counted.sum(-1)
