"""Sequences whose values stand in for the values that are taken away: their means, or draws."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from interp.errors import CacheError, TokenError
from interp.gpt.cache import weights_version
from interp.gpt.model import HookedGPT, Input
from interp.stream.batches import BATCH
from interp.stream.components import Component


class ReferenceSet:
    """Sequences whose values stand in for the values that are taken away.

    `prepare` runs the model on them. Of a mean only the sum is kept, of resamples the values of all
    sequences; they are computed again when the weights have changed, or hooks were attached.
    """

    def __init__(self, model: HookedGPT, tokens: Input) -> None:
        """
        Args:
            model: the model.
            tokens: text or [sequence, pos]; at least as long as the sequences looked at.

        Raises:
            TokenError: no sequences, or not the model's tokens.
        """
        if len(tokens) == 0:  # also an empty text
            raise TokenError("the reference set is empty; give at least one sequence")
        self.model = model
        self.tokens = model.to_tokens(tokens)
        self._sums: dict[str, Tensor] = {}
        self._values: dict[str, Tensor] = {}
        self._weights: object = None

    @classmethod
    def of(cls, model: HookedGPT, given: ReferenceSet | Input) -> ReferenceSet:
        """Returns `given` as a reference set of `model`.

        Raises:
            CacheError: a reference set of another model.
        """
        if not isinstance(given, ReferenceSet):
            return cls(model, given)
        if given.model is not model:
            raise CacheError("this reference set was made for another model; make one for this")
        return given

    def __len__(self) -> int:
        return len(self.tokens)

    def overlap(self, tokens: Int[Tensor, "batch pos"]) -> int:
        """Returns how many of the given sequences are also in the reference set."""
        n_pos = tokens.shape[1]
        own = {row.tobytes() for row in self.tokens[:, :n_pos].cpu().numpy()}
        return sum(row.tobytes() in own for row in tokens.cpu().numpy())

    @torch.no_grad()
    def prepare(self, hooks: Sequence[str], keep: bool = False) -> None:
        """Runs the model for these hook points, all at once; `keep` the values of all sequences."""
        weights = weights_version(self.model)
        if self.model.is_edited or weights != self._weights:
            self._sums, self._values = {}, {}
        self._weights = None if self.model.is_edited else weights
        done = self._values if keep else self._sums
        missing = [name for name in dict.fromkeys(hooks) if name not in done]
        if not missing:
            return
        kept: dict[str, list[Tensor]] = {name: [] for name in missing}
        for batch in self.tokens.split(BATCH):
            _, found = self.model.run_with_cache(batch, names_filter=missing, return_type=None)
            for name in missing:
                value = found[name]
                kept[name].append(value if keep else value.sum(0, keepdim=True))
        for name, pieces in kept.items():
            if keep:
                self._values[name] = torch.cat(pieces)
            self._sums[name] = torch.cat(pieces).sum(0)

    def mean(self, c: Component, n_pos: int, without: Tensor | None = None) -> Tensor:
        """Returns the component's mean value at each position, [pos, …].

        Args:
            c: the component.
            n_pos: of how many positions.
            without: activations [batch, pos, …] of sequences of this set; each then gets the mean
                over the others, [batch, pos, …].
        """
        self._check_length(n_pos)
        if c.hook not in self._sums:
            self.prepare([c.hook])
        total, n = self._sums[c.hook][:n_pos], len(self)
        if without is None:
            return c.value(self.model, (total / n)[None])[0]
        if n < 2:
            raise TokenError("one sequence has no others to take a mean over; give a reference set")
        return c.value(self.model, (total - without) / (n - 1))

    def rows(self, c: Component, rows: Int[Tensor, " batch"], n_pos: int) -> Tensor:
        """Returns the component's value in the given sequences, [batch, pos, …].

        Raises:
            TokenError: there is no such sequence.
        """
        self._check_length(n_pos)
        if c.hook not in self._values:
            self.prepare([c.hook], keep=True)
        if int(rows.min()) < 0 or int(rows.max()) >= len(self):
            raise TokenError(
                f"rows run from {int(rows.min())} to {int(rows.max())}; the reference set has "
                f"{len(self)} sequences"
            )
        return c.value(self.model, self._values[c.hook][rows, :n_pos])

    def draw(self, batch: int, seed: int, forbidden: Tensor | None = None) -> Int[Tensor, " batch"]:
        """Returns a random sequence of the set for each of `batch`; never a `forbidden` one.

        Args:
            batch: how many.
            seed: of the draw.
            forbidden: [batch, sequence], True where that sequence may not stand in.

        Raises:
            TokenError: a sequence has no other one to take its values from.
        """
        generator = torch.Generator().manual_seed(seed)
        weights = torch.ones(batch, len(self)) if forbidden is None else (~forbidden.cpu()).float()
        if not bool(weights.any(1).all()):
            raise TokenError(
                "a sequence has no other one to take values from; give a larger reference set"
            )
        return torch.multinomial(weights, 1, generator=generator)[:, 0].to(self.tokens.device)

    def _check_length(self, n_pos: int) -> None:
        if self.tokens.shape[1] < n_pos:
            raise TokenError(
                f"the reference sequences have {self.tokens.shape[1]} positions, but {n_pos} are "
                "looked at; give longer ones"
            )
