"""What heads look at, against what chance would give.

A score is the attention that a query gives to the keys of one kind (see
`interp.analysis.heads.attention_targets`), averaged over the queries that have such a key and one
that is none (the eligible ones):

    previous, back-2 …      the key one, two … positions back
    self, sink, local-4     the query's own position; position 0; the last four
    duplicate               earlier copies of the query's token
    induction               the keys that follow an earlier copy (Olsson et al. 2022)
    space, newline, punctuation, capital, vowel        keys that are such a character
    same-letter             the query's letter in the other case
    last-space, last-newline    the nearest one behind
    word-start              the first letter of the word that the query is in
    speaker-name            a character of a line that ends in a colon

and, of the whole row: sink-value (the share of position 0 in Σ weight · ‖value W_O‖, after
Kobayashi et al. 2020), confidence (its largest weight), entropy (over ln of the visible keys), span
(e to its entropy, in nats), distance (mean positions back).

Three nulls stand beside each score. *Uniform*: attention that is equal over the visible keys, in
closed form, on the same queries. *Untrained*: the heads of one layer in models of the same shape
that were never trained. *Permuted*: the same attention, its kinds of keys taken from the tokens in
random order, which keeps what a head does by position alone; scores about positions have none. (To
run the model on such tokens is no null: a head that looks for spaces finds them in any order.)
Sequences are the unit. The p-value is the largest of the tests against each null, so it is small
only where all are left behind; q-values control the false discovery rate over all heads and scores
(Benjamini and Hochberg).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.analysis.heads.attention_targets import BACK, is_positional
from interp.analysis.heads.measures import Measured, measure
from interp.analysis.heads.score_results import HeadScores
from interp.errors import ConfigError, TokenError
from interp.gpt.model import HookedGPT, Input
from interp.results.document import to_numpy
from interp.results.provenance import Provenance

UNTRAINED = 20  # models
UNTRAINED_SEQUENCES = 32
Progress = Callable[[int, int], None]


def head_scores(
    model: HookedGPT,
    tokens: Input,
    *,
    back: int = BACK,
    untrained: int = UNTRAINED,
    permuted: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> HeadScores:
    """Returns what every head looks at, beside what chance gives. Changes no cache.

    A score that these sequences or this vocabulary cannot have (no newline, too short) is absent.

    Args:
        model: the model, with at least one block.
        tokens: sequences of at least two tokens; five or more for intervals worth the name.
        back: up to how many positions back the k-back scores go.
        untrained: how many untrained models of the same shape to compare with, on the first 32
            sequences; 0 leaves that null out.
        permuted: whether to measure that null.
        seed: of the permutations, of the untrained models (seed + 1, …) and of the intervals.
        progress: called with (sequences done, of how many).

    Raises:
        ConfigError: no blocks; `back` or `untrained` out of range.
        TokenError: sequences of one token.

    Example:
        >>> import interp
        >>> model = interp.HookedGPT.from_pretrained("models/shakespeare-char")
        >>> found = interp.head_scores(model, ["First Citizen:\\nBefore"] * 2, untrained=0)
        >>> found.of("previous").shape
        (4, 4)
    """
    ids = _checked(model, tokens, back, untrained)
    few = ids[:UNTRAINED_SEQUENCES]
    total, count = len(ids) + untrained * len(few), 0

    def done(n: int) -> None:
        nonlocal count
        count += n
        if progress is not None:
            progress(count, total)

    was_training = model.training
    model.eval()
    try:
        own = measure(model, ids, back, _permuted(ids, seed) if permuted else None, done)
    finally:
        model.train(was_training)
    nulls = [_untrained(model, few, back, seed + 1 + i, done) for i in range(untrained)]
    null = np.concatenate(nulls, -1) if nulls else np.zeros((*own.values.shape[:2], 0))
    own.permuted[[is_positional(name) for name in own.names]] = np.nan
    return _present(own, null, ids, Provenance.of(model, ids, seed=seed))


def _checked(model: HookedGPT, tokens: Input, back: int, untrained: int) -> Tensor:
    """The token ids, if they and the model can be scored."""
    if not model.blocks:
        raise ConfigError("a model without blocks has no heads")
    if back < 1 or untrained < 0:
        raise ConfigError(f"back = {back} must be at least 1, untrained = {untrained} at least 0")
    ids = model.to_tokens(tokens)
    if ids.shape[1] < 2:
        raise TokenError(
            f"the sequences have {ids.shape[1]} token; every score needs a query with two keys, so "
            "at least 2"
        )
    return ids


def _untrained(
    model: HookedGPT, ids: Int[Tensor, "batch pos"], back: int, seed: int,
    done: Callable[[int], None],
) -> Float[np.ndarray, "score layer head"]:  # fmt: skip
    """Means over sequences of every score in an untrained model of the same shape."""
    fresh = HookedGPT(model.config, model.tokenizer, seed=seed).to(model.device, model.dtype)
    found = measure(fresh.eval(), ids, back, done=done)
    use = np.isfinite(found.values).all((1, 2))  # [score sequence]
    total = np.where(use[:, None, None], found.values, 0.0).sum(-1)
    n = use.sum(-1)[:, None, None]
    return np.where(n > 0, total / np.maximum(n, 1), np.nan)


def _present(own: Measured, null: np.ndarray, ids: Tensor, provenance: Provenance) -> HeadScores:
    """The result, without scores that no sequence has a query for."""
    present = np.isfinite(own.values).any((1, 2, 3))
    return HeadScores(
        scores=tuple(name for name, here in zip(own.names, present, strict=True) if here),
        values=own.values[present], uniform=own.uniform[present], permuted=own.permuted[present],
        untrained=null[present], queries=own.queries[present], tokens=to_numpy(ids),
        provenance=provenance,
    )  # fmt: skip


def _permuted(tokens: Tensor, seed: int) -> Tensor:
    """Each sequence in a random order of its own."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(tokens.shape, generator=generator).argsort(1).to(tokens.device)
    return tokens.gather(1, order)
