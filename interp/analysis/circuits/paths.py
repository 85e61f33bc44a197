"""Who reads whom: the loss that each path from a head into a later reader carries.

What one head writes is taken away from what the queries, keys or values of later heads read, and
from nothing else. This is the measure of composition to go by: from the weights alone an idle head
can have as high a score as the one that carries the circuit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.errors import ConfigError, TokenError
from interp.figures.marks import HeatMap
from interp.gpt.model import HookedGPT, Input, next_token_loss
from interp.results import intervals
from interp.results.document import to_numpy
from interp.results.provenance import Provenance
from interp.results.result import Result
from interp.results.shown import Shown, kept
from interp.stream.batches import BATCH, runs
from interp.stream.components import Component, component
from interp.stream.receivers import receiver
from interp.stream.references import ReferenceSet
from interp.stream.replacing import Replacements
from interp.stream.resume import check_can_resume, run_with_input

CUT = 16  # paths cut in one run
Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class PathEffects(Result):
    """The loss that each path carries, in nats per token: [sender, receiver, sequence].

    Senders are heads; receivers are like "L1.q" (the queries of all heads of a layer) or "L1.H2.q".
    NaN: the receiver comes before the sender.
    """

    AXES: ClassVar = {"values": ("sender", "receiver", "sequence")}
    NAMES: ClassVar = {"senders": "sender", "receivers": "receiver"}
    SECTION: ClassVar = "paths"
    HEADING: ClassVar = "Who reads whom"
    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    values: np.ndarray

    def of(self, sender: str, receiver: str) -> float:
        """Returns the mean effect of one path."""
        at = self.senders.index(sender), self.receivers.index(receiver)
        return float(self.values[at].mean())

    @kept
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

    def figures(self) -> list[Shown]:
        """Returns what each path carries, sender by reader."""
        wide = self.to_frame().pivot(index="sender", columns="receiver", values="effect")
        values = wide.reindex(index=self.senders, columns=self.receivers).to_numpy()
        limit = float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) or 1.0
        mark = HeatMap(
            values=values, rows=self.senders, columns=self.receivers, low=-limit, high=limit,
            label="loss that the path carries (nats per token)",
            row_label="head taken away", column_label="reader",
            numbers=tuple(
                tuple(f"{x:.2g}" if np.isfinite(x) else "" for x in row) for row in values
            ),
        )  # fmt: skip
        caption = (
            "What is lost when one head's output is replaced by its mean in the input of one "
            f"reader only. n = {self.values.shape[-1]} sequences, seed {self.provenance.seed}."
        )
        return [Shown(name=self.name, caption=caption, mark=mark)]

    def summary(self) -> str:
        """Returns a headline, and the paths that carry most."""
        table = self.to_frame()
        largest = table.loc[table["effect"].abs().sort_values(ascending=False).index[:8]]
        lines = [f"{self.heading}: loss that a path carries, nats per token, with 95 % intervals; "
                 f"{self.provenance.line()}"]  # fmt: skip
        lines += [
            f"  {row['sender']} → {row['receiver']:<7} {row['effect']:+.4f} "
            f"[{row['low']:+.4f}, {row['high']:+.4f}]"
            for row in largest.to_dict("records")
        ]
        return "\n".join([*lines, f"the {len(largest)} largest of {len(table)} paths"])


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
    check_can_resume(model)
    senders, receivers = _ends(model, senders, receivers)
    parts = _heads(model, senders)
    places = [receiver(model, name)[2] for name in receivers]
    ids = model.to_tokens(tokens)
    counted = _counted(ids, where)
    if reference is None and len(ids) < 2:
        raise TokenError("one sequence has no others to take means over; give a reference set")
    replacements = Replacements(model, ids, reference=reference)
    values = np.full((len(parts), len(receivers), len(ids)), np.nan)
    done, of = 0, -(-len(ids) // BATCH) * len(receivers)
    for run in runs(model, ids):
        before = _loss(run.logits[None], run.tokens, counted[run.rows])
        changes = [change for _, change in replacements.changes(run.cache, parts, run.rows)]
        for r, (name, place) in enumerate(zip(receivers, places, strict=True)):
            early = [s for s, part in enumerate(parts) if part.depth < place]
            for few in (early[i : i + CUT] for i in range(0, len(early), CUT)):
                gone = torch.stack([changes[s] for s in few])
                after = run_with_input(model, run.cache, name, gone)
                values[few, r, run.rows] = to_numpy(
                    _loss(after, run.tokens, counted[run.rows]) - before
                )
            done += 1
            if progress is not None:
                progress(done, of)
    return PathEffects(
        senders=tuple(senders), receivers=tuple(receivers), values=values,
        provenance=Provenance.of(model, ids, seed=seed),
    )  # fmt: skip


def _ends(
    model: HookedGPT, senders: Sequence[str] | None, receivers: Sequence[str] | None
) -> tuple[Sequence[str], Sequence[str]]:
    """The senders and receivers asked for, or all."""
    n_layers, n_heads = model.config.n_layers, model.config.n_heads
    if senders is None:
        senders = [f"L{layer}.H{head}" for layer in range(n_layers - 1) for head in range(n_heads)]
    if receivers is None:
        receivers = [f"L{layer}.{letter}" for layer in range(1, n_layers) for letter in "qkv"]
    if not senders or not receivers:
        raise ConfigError("a path needs a head and a later head; the model has one layer of them")
    return senders, receivers


def _heads(model: HookedGPT, senders: Sequence[str]) -> list[Component]:
    parts = [component(model.config, name) for name in senders]
    wrong = [part.label for part in parts if part.kind != "head"]
    if wrong:
        raise ConfigError(f"senders are heads, such as L0.H3; {wrong[0]} is not one")
    return parts


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
