"""The three things worth knowing about a model, by stated rules, each from a result.

In this order, the first three that there are results for:

1. its loss between the count models of two orders;
2. the part whose removal costs most, the embeddings aside, and how many parts matter more than
   they show: a total effect above twice the direct one, its interval above zero;
3. how many heads have a name that survived intervention, and the one with the largest effect;
4. the multiplier of the attention scores at which its loss is least.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from interp.analysis.causal.effects import ComponentEffects
from interp.analysis.heads.label_results import HeadLabels
from interp.analysis.scaling.rescaled import AttentionScaling
from interp.lesson.ngrams import NGramLosses
from interp.results.result import Result
from interp.training.history import HistoryRow

MOST = 3


@dataclass(frozen=True)
class Finding:
    """A sentence, the section where its evidence stands, and what to select there."""

    text: str
    section: str
    select: str = ""


def findings(
    results: Sequence[Result],
    history: Sequence[HistoryRow] = (),
    baselines: NGramLosses | None = None,
) -> list[Finding]:
    """Returns up to three findings, by the rules above."""
    found: list[Finding] = []
    if history and baselines is not None:
        found.append(_against_counts(history[-1].validation_loss, baselines))
    for result in results:
        if isinstance(result, ComponentEffects):
            found.append(_effects(result))
            break
    for result in results:
        if isinstance(result, HeadLabels):
            found.append(_labels(result))
            break
    for result in results:
        if isinstance(result, AttentionScaling) and not result.each:
            found.append(_scaling(result))
            break
    return found[:MOST]


def _against_counts(loss: float, baselines: NGramLosses) -> Finding:
    pairs = sorted(zip(baselines.losses, baselines.orders, strict=True), reverse=True)
    beaten = [order for counted, order in pairs if counted > loss]
    if not beaten:
        worst = pairs[0]
        text = (
            f"It predicts worse than counting single characters does: {loss:.3f} nats a character, "
            f"against {worst[0]:.3f}."
        )
    elif len(beaten) == len(pairs):
        best = pairs[-1]
        text = (
            f"It predicts better than counts of up to {max(baselines.orders)} characters: "
            f"{loss:.3f} nats a character; the best of them, order {best[1]}, reach {best[0]:.3f}."
        )
    else:
        last, first = pairs[len(beaten) - 1], pairs[len(beaten)]
        text = (
            f"It predicts better than counts of order {last[1]} and worse than those of order "
            f"{first[1]}: {loss:.3f} nats a character, between {last[0]:.3f} and {first[0]:.3f}."
        )
    return Finding(text, "training")


def _effects(result: ComponentEffects) -> Finding:
    table = result.to_frame()
    unit = "nats" if result.metric in ("log_prob", "loss", "kl") else "logits"
    parts = table[~table["component"].isin(("embed", "pos_embed"))]
    parts = table if parts.empty else parts
    most = parts.iloc[int(parts["total"].abs().to_numpy().argmax())]
    above = table["total"] > 2 * table["direct"].clip(lower=0)
    hidden = int((above & (table["total_low"] > 0)).sum())
    name = most["component"]
    text = (
        f"Of its blocks' parts, removing {name} costs most: {most['total']:.2f} {unit} "
        f"[{most['total_low']:.2f}, {most['total_high']:.2f}], of which it wrote "
        f"{most['direct']:.2f} itself. {hidden} of {len(table)} parts matter more than twice as "
        "much as they show directly."
    )
    return Finding(text, "effects", f"head={name}" if ".H" in name else "")


def _labels(result: HeadLabels) -> Finding:
    named = {(int(a), int(b)) for a, b, ok in
             zip(result.layers, result.heads, result.confirmed, strict=True) if ok}  # fmt: skip
    seen = len(result.labels)
    if not named:
        text = (
            f"No head has a name that survives: {seen} scores stand above all their nulls, and "
            "none of those heads is needed for what its score is about more than for a control."
        )
        return Finding(text, "heads")
    best = int(np.where(result.confirmed, result.effect, -np.inf).argmax())
    head = f"L{result.layers[best]}.H{result.heads[best]}"
    text = (
        f"{len(named)} head{'s have' if len(named) > 1 else ' has'} a name that survived "
        f"intervention; {head}, “{result.labels[best]}”, matters most for what it is about: "
        f"{result.effect[best]:+.2f} nats [{result.effect_low[best]:+.2f}, "
        f"{result.effect_high[best]:+.2f}] without it."
    )
    return Finding(text, "heads", f"head={head}")


def _scaling(result: AttentionScaling) -> Finding:
    loss = result.loss[:, 0, 0].mean(-1)
    best = float(result.multipliers[int(loss.argmin())])
    own = float(loss[int(np.argmin(np.abs(result.multipliers - 1)))])
    text = (
        f"Its loss is least with its attention scores as they are ({own:.3f} nats)."
        if best == 1
        else f"Its loss is least with its attention scores multiplied by {best:g}: "
        f"{loss.min():.3f} nats against {own:.3f} as it is."
    )
    return Finding(text, "scaling")
