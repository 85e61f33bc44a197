"""The card of one head: its labels, the evidence, what it attends to in context, what it writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from interp.analysis.circuits.weights import copying_of, ov_circuit
from interp.analysis.heads.card_results import EVIDENCE, HeadCard
from interp.analysis.heads.label_results import HeadLabels
from interp.analysis.heads.score_results import HeadScores
from interp.errors import ConfigError
from interp.figures.palette import visible
from interp.gpt.model import HookedGPT
from interp.hooks import FactoredMatrix
from interp.results.document import to_numpy
from interp.results.provenance import Provenance
from interp.stream.components import component

SCORES, EXAMPLES, WRITES, RAISED, CONTEXT = 8, 8, 6, 3, 12
SEQUENCES = 64  # that examples are taken from
Glyph = Callable[[int], str]


@torch.no_grad()
def head_card(
    model: HookedGPT, head: str, scores: HeadScores, labels: HeadLabels | None = None
) -> HeadCard:
    """Returns the card of one head.

    Args:
        model: the model.
        head: its label, such as "L1.H2".
        scores: of `head_scores` on this model; examples are from its sequences.
        labels: of `label_heads`.

    Raises:
        ConfigError: no such head.
    """
    part = component(model.config, head)
    if part.kind != "head":
        raise ConfigError(f"{head!r} is not a head; give one such as L0.H3")
    characters = None if model.tokenizer is None else model.tokenizer.characters

    def glyph(token: int) -> str:
        return visible(characters[token]) if characters else f"{token} "

    ov = ov_circuit(model, part.layer, part.index)
    ids = torch.from_numpy(np.array(scores.tokens))
    return HeadCard(
        head=head,
        copying=copying_of(ov),
        **_furthest(scores, part.layer, part.index),
        **_evidence(labels, part.layer, part.index),
        **_examples(model, part.layer, part.index, scores.tokens, glyph),
        **_writes(ov, np.unique(scores.tokens), glyph),
        provenance=Provenance.of(model, ids, seed=scores.provenance.seed),
    )


def _furthest(scores: HeadScores, layer: int, head: int) -> dict[str, Any]:
    """The scores furthest from uniform attention, in shares of it."""
    table = scores.to_frame().query("layer == @layer and `head` == @head")
    away = (table["value"] - table["null"]).abs() / table["null"].abs().clip(lower=0.02)
    most = table.loc[away.sort_values(ascending=False).index[:SCORES]]
    return {
        "score_names": tuple(most["score"]), "score": most["value"].to_numpy(),
        "score_low": most["low"].to_numpy(), "score_high": most["high"].to_numpy(),
        "score_null": most["null"].to_numpy(),
    }  # fmt: skip


def _evidence(labels: HeadLabels | None, layer: int, head: int) -> dict[str, Any]:
    """The labels, and what became of those that were tried."""
    if labels is None:
        return {"labels": (), "tried": (), "tried_numbers": np.zeros((0, len(EVIDENCE)))}
    table = labels.to_frame().query("layer == @layer and `head` == @head")
    return {
        "labels": tuple(labels.of(layer, head)),
        "tried": tuple(table["label"]),
        "tried_numbers": table[list(EVIDENCE)].to_numpy(dtype=np.float64),
    }


def _examples(
    model: HookedGPT, layer: int, head: int, tokens: np.ndarray, glyph: Glyph
) -> dict[str, Any]:
    """The largest weights beyond the query's own position and position 0; one per sequence."""
    ids = torch.from_numpy(np.array(tokens[:SEQUENCES])).to(model.device)
    name = f"blocks.{layer}.attn.hook_pattern"
    _, cache = model.run_with_cache(ids, names_filter=name, return_type=None)
    pattern = to_numpy(cache["pattern", layer][:, head]).copy()  # [batch pos key]
    n = pattern.shape[-1]
    pattern[:, np.arange(n), np.arange(n)] = 0
    pattern[:, :, 0] = 0
    flat = pattern.reshape(len(pattern), -1)
    of = np.argsort(-flat.max(1), kind="stable")[:EXAMPLES]  # the sequences
    pos, key = np.divmod(flat.argmax(1)[of], n)
    return {
        "example_weight": flat.max(1)[of], "example_back": pos - key,
        "example_sequence": of, "example_pos": pos,
        "example_key": tuple(glyph(int(t)) for t in tokens[of, key]),
        "example_text": tuple(
            "".join(glyph(int(t)) for t in tokens[b, max(0, t - CONTEXT) : t + 1])
            for b, t in zip(of, pos, strict=True)
        ),
    }  # fmt: skip


def _writes(ov: FactoredMatrix, seen: np.ndarray, glyph: Glyph) -> dict[str, Any]:
    """What attending to a token adds to the logits, for the tokens of which most is written."""
    sizes = to_numpy(ov.A.norm(dim=-1))
    strongest = seen[np.argsort(-sizes[seen], kind="stable")[:WRITES]]
    rows = [to_numpy(row - row.mean()) for row in (ov.A[int(t)] @ ov.B for t in strongest)]
    raised = np.stack([np.argsort(-row, kind="stable")[:RAISED] for row in rows])
    by = np.stack([row[top] for row, top in zip(rows, raised, strict=True)])
    return {
        "write_token": tuple(glyph(int(t)) for t in strongest), "write_token_ids": strongest,
        "write_raised": tuple(_in_words(*pair, glyph) for pair in zip(raised, by, strict=True)),
        "write_raised_ids": raised, "write_raised_by": by,
    }  # fmt: skip


def _in_words(raised: np.ndarray, by: np.ndarray, glyph: Glyph) -> str:
    """The tokens that are raised most, each with its logits."""
    pairs = zip(raised, by, strict=True)
    return "  ".join(f"{glyph(int(token))} {logits:+.3f}" for token, logits in pairs)
