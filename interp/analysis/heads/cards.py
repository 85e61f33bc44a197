"""The card of one head: its labels, the evidence, what it attends to in context, what it writes."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from interp.analysis.circuits.circuits import copying_of, ov_circuit
from interp.analysis.heads.labels import HeadLabels
from interp.analysis.heads.scores import HeadScores
from interp.errors import ConfigError
from interp.figures.palette import visible
from interp.gpt.model import HookedGPT
from interp.results.result import to_numpy
from interp.stream.components import component

EXAMPLES, WRITES, CONTEXT = 8, 6, 12


@dataclass(frozen=True, kw_only=True)
class Example:
    """A query and the key that it gives most weight, in context: text up to the query."""

    sequence: int
    query: int
    key: int
    weight: float


@dataclass(frozen=True, kw_only=True)
class Write:
    """What attending to a token adds to the logits: the token, the most raised ones, by how much
    (logits over the mean, before LayerNorm's scales)."""

    token: int
    raised: tuple[int, ...]
    by: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class HeadCard:
    """Everything that is known of one head. `str()` gives it as text."""

    head: str
    labels: tuple[str, ...]
    evidence: tuple[dict[Hashable, Any], ...]
    scores: tuple[dict[Hashable, Any], ...]
    copying: float
    examples: tuple[Example, ...]
    writes: tuple[Write, ...]
    characters: tuple[str, ...] | None
    tokens: np.ndarray

    def __str__(self) -> str:
        lines = [f"{self.head}: {', '.join(self.labels) or 'no confirmed label'}"]
        for row in self.evidence:
            lines.append(
                f"  {row['label']}: score {row['score']:.2f} (null {row['null']:.2f}), effect "
                f"{row['effect']:+.3f} [{row['effect_low']:+.3f}, {row['effect_high']:+.3f}] nats, "
                f"control {row['control']:+.3f}, {'' if row['confirmed'] else 'not '}confirmed"
            )
        lines.append("  scores furthest from their nulls:")
        for row in self.scores:
            lines.append(
                f"    {row['score']:<14} {row['value']:.3f} [{row['low']:.3f}, {row['high']:.3f}]  "
                f"null {row['null']:.3f}"
            )
        lines.append("  attends most, in context (key ← query):")
        for one in self.examples:
            text = self.text(one.sequence, max(0, one.query - CONTEXT), one.query + 1)
            key = self.text(one.sequence, one.key, one.key + 1)
            lines.append(f"    {one.weight:.2f}  {key} at −{one.query - one.key}  …{text}")
        lines.append(
            f"  writes (OV circuit; copying {self.copying:+.2f}), on attending to a token (logits "
            "over the mean, before LayerNorm's scales):"
        )
        lines += [f"    {self.glyph(write.token)}: {self.raised(write)}" for write in self.writes]
        return "\n".join(lines)

    def raised(self, write: Write) -> str:
        """Returns the tokens that a write raises most, each with its logits."""
        pairs = zip(write.raised, write.by, strict=True)
        return "  ".join(f"{self.glyph(token)} {by:+.3f}" for token, by in pairs)

    def text(self, sequence: int, start: int, stop: int) -> str:
        """Returns a piece of a sequence, spaces and newlines made visible."""
        return "".join(self.glyph(int(t)) for t in self.tokens[sequence, start:stop])

    def glyph(self, token: int) -> str:
        """Returns a token's character made visible; its number where there are no characters."""
        return visible(self.characters[token]) if self.characters else f"{token} "


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
    layer, index = part.layer, part.index
    table = scores.to_frame().query("layer == @layer and `head` == @index")
    away = (table["value"] - table["null"]).abs() / table["null"].abs().clip(lower=0.02)
    furthest = table.loc[away.sort_values(ascending=False).index[:8]]
    rows = []
    if labels is not None:
        rows = labels.to_frame().query("layer == @layer and `head` == @index").to_dict("records")
    ov = ov_circuit(model, layer, index)
    sizes = to_numpy(ov.A.norm(dim=-1))
    seen = np.unique(scores.tokens)
    strongest = seen[np.argsort(-sizes[seen], kind="stable")[:WRITES]]
    return HeadCard(
        head=head,
        labels=tuple(labels.of(layer, index)) if labels is not None else (),
        evidence=tuple(rows),
        scores=tuple(furthest[["score", "value", "low", "high", "null"]].to_dict("records")),
        copying=copying_of(ov),
        examples=_examples(model, layer, index, scores.tokens),
        writes=tuple(_write(ov.A[int(t)] @ ov.B, int(t)) for t in strongest),
        characters=None if model.tokenizer is None else model.tokenizer.characters,
        tokens=scores.tokens,
    )


def _examples(model: HookedGPT, layer: int, head: int, tokens: np.ndarray) -> tuple[Example, ...]:
    """The strongest weights beyond the query's own position and position 0; one a sequence."""
    ids = torch.from_numpy(np.array(tokens[:64])).to(model.device)
    name = f"blocks.{layer}.attn.hook_pattern"
    _, cache = model.run_with_cache(ids, names_filter=name, return_type=None)
    pattern = to_numpy(cache["pattern", layer][:, head]).copy()  # [batch pos key]
    n = pattern.shape[-1]
    pattern[:, np.arange(n), np.arange(n)] = 0
    pattern[:, :, 0] = 0
    best = pattern.reshape(len(pattern), -1).argmax(1)
    weights = pattern.reshape(len(pattern), -1).max(1)
    order = np.argsort(-weights, kind="stable")[:EXAMPLES]
    return tuple(
        Example(sequence=int(b), query=int(best[b] // n), key=int(best[b] % n),
                weight=float(weights[b]))
        for b in order
    )  # fmt: skip


def _write(row: torch.Tensor, token: int) -> Write:
    centred = to_numpy(row - row.mean())
    top = np.argsort(-centred, kind="stable")[:3]
    return Write(token=token, raised=tuple(map(int, top)), by=tuple(map(float, centred[top])))
