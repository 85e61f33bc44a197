"""Effects of heads on behaviours: what each loses where its label says it matters, and elsewhere.

The behaviours are told in `interp.analysis.heads.labels`.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.analysis.heads.attention_targets import key_masks
from interp.data.repeated import repeated_sequences, repeats_for
from interp.gpt.model import HookedGPT, next_token_loss
from interp.results.document import to_numpy
from interp.stream.batches import BATCH, runs
from interp.stream.components import component
from interp.stream.replacing import Replacements
from interp.stream.resume import run_changed

REPEATS = 64  # random repeating sequences
CHANGED = 64  # changed sequences in one run
QUERIES = 8  # random queries of each sequence, whose keys are replaced
REPEATING = ("induction", "duplicate")
Head = tuple[int, int]  # layer and index
Split = tuple[np.ndarray, np.ndarray]  # effects of a head at matching, at control queries


class Behaviours:
    """Effects of each head on matching and control behaviour, [sequence] each, for any label."""

    def __init__(
        self, model: HookedGPT, ids: Int[Tensor, "batch pos"], heads: list[Head], seed: int
    ) -> None:
        self.model, self.ids, self.heads, self.seed = model, ids, heads, seed
        self.loss, self.effect = ablation_losses(model, ids, heads)

    def of(self, label: str) -> dict[str, dict[Head, Split]]:
        """Returns the behaviours that a label may be confirmed by, and every head's effects."""
        tried = {} if label in REPEATING else {"dependence": self.dependent(label)}
        if label in REPEATING or label == "previous" or label.startswith("back-"):
            tried["repeats"] = self.repeats
        return tried

    @cached_property
    def repeats(self) -> dict[Head, Split]:
        """Matching: the second copy of random tokens and later; control: the first."""
        length, d_vocab = self.ids.shape[1], self.model.config.d_vocab
        reach = repeats_for(length, d_vocab)
        if reach is None:
            nothing = np.full(REPEATS, np.nan)
            return dict.fromkeys(self.heads, (nothing, nothing))
        rng = np.random.default_rng([self.seed, 2])
        tokens, periods = repeated_sequences(d_vocab, REPEATS, length, reach, rng)
        _, effect = ablation_losses(self.model, tokens.to(self.model.device), self.heads)
        at, period = np.arange(length - 1), periods.numpy()[:, None]
        return self._split(effect, at >= period, at < period - 1)

    def dependent(self, label: str) -> dict[Head, Split]:
        """Matching: queries whose loss rises most when the keys in question are others.

        Those above the median rise; the control is the others that were tried.
        """
        n = self.ids.shape[1]
        rng = np.random.default_rng([self.seed, 3])
        rise = np.full((len(self.ids), n - 1), np.nan)
        for start in range(0, len(self.ids), BATCH):
            keys = self._keys(start, label)
            of, at = _drawn_queries(keys, rng)
            if len(at):
                rise[start + of, at] = self._rise(start + of, at, keys[of, at], rng)
        middle = np.nanmedian(rise) if np.isfinite(rise).any() else 0.0
        return self._split(self.effect, rise > middle, rise <= middle)

    def _split(
        self, effect: np.ndarray, match: np.ndarray, control: np.ndarray
    ) -> dict[Head, Split]:
        """Each head's mean effect on the two kinds of queries."""
        return {
            head: (_mean(effect[i], match), _mean(effect[i], control))
            for i, head in enumerate(self.heads)
        }

    def _keys(self, start: int, label: str) -> Bool[np.ndarray, "batch pos key"]:
        """The keys that a label is about, of the sequences from `start` on, as many as fit."""
        characters = None if self.model.tokenizer is None else self.model.tokenizer.characters
        piece = self.ids[start : start + BATCH]
        names, masks = key_masks(piece, characters, back=self.ids.shape[1] - 1)
        keys: np.ndarray = masks[..., names.index(label)].cpu().numpy()
        return keys

    @torch.no_grad()
    def _rise(
        self, of: np.ndarray, at: np.ndarray, keys: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """How much the loss at queries `at` of sequences `of` rises when their keys' tokens change.

        The new tokens are drawn from the same sequence.
        """
        given = self.ids[torch.from_numpy(of).to(self.ids.device)].cpu().numpy()
        places = rng.integers(given.shape[1], size=given.shape)
        drawn = np.take_along_axis(given, places, axis=1)
        changed = torch.from_numpy(np.where(keys, drawn, given)).to(self.ids.device)
        targets = torch.from_numpy(given[np.arange(len(at)), at + 1]).to(self.ids.device)
        out = []
        for piece in range(0, len(at), CHANGED):
            some = slice(piece, piece + CHANGED)
            logits = self.model(changed[some])
            rows = torch.arange(len(logits), device=logits.device)
            query = torch.from_numpy(at[some]).to(logits.device)
            log_p = logits[rows, query].log_softmax(-1)
            out.append(-to_numpy(log_p.gather(-1, targets[some, None])[:, 0]))
        rise: np.ndarray = np.concatenate(out) - self.loss[of, at]
        return rise


def _drawn_queries(
    keys: Bool[np.ndarray, "batch pos key"], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Sequence and position of a few random queries that can choose and have a next token."""
    n = keys.shape[1]
    count = keys.sum(-1)  # [batch pos]
    eligible = (count > 0) & (count < np.arange(1, n + 1))
    queries = [
        (b, int(t))
        for b, row in enumerate(eligible[:, : n - 1])
        for t in rng.permutation(np.flatnonzero(row))[:QUERIES]
    ]
    of, at = np.array(queries, dtype=np.int64).reshape(-1, 2).T
    return of, at


def _mean(effect: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """[sequence]: the mean over the masked positions, NaN where there are none."""
    count = mask.sum(-1)
    total = np.where(mask, effect, 0.0).sum(-1)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))


@torch.no_grad()
def ablation_losses(
    model: HookedGPT, ids: Int[Tensor, "batch pos"], heads: list[tuple[int, int]]
) -> tuple[Float[np.ndarray, "batch asked"], Float[np.ndarray, "head batch asked"]]:
    """Returns each next token's loss, and how much replacing each head by its mean adds to it.

    The mean is over the other sequences, at the same position. The last position is left out.
    """
    parts = [component(model.config, f"L{layer}.H{head}") for layer, head in heads]
    replacements = Replacements(model, ids)
    losses, effects = [], []
    for run in runs(model, ids):
        loss = next_token_loss(run.logits, run.tokens, per_token=True)
        rises = []
        for part, change in replacements.changes(run.cache, parts, run.rows):
            after = run_changed(model, run.cache, part.depth, change[None])[0]
            rises.append(next_token_loss(after, run.tokens, per_token=True) - loss)
        losses.append(to_numpy(loss))
        effects.append(to_numpy(torch.stack(rises)))
    return np.concatenate(losses), np.concatenate(effects, axis=1)
