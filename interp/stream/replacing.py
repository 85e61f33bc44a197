"""What takes a component's place in given sequences, and what that changes in the stream.

    zero        nothing
    mean        its mean at the same position, over a reference set or over the other sequences
    resample    its value at the same position in another sequence, once per draw

With `run_changed` (in `interp.stream.resume`) this is all that an ablation needs:

    replacements = Replacements(model, tokens)
    for run in runs(model, tokens):
        for part, change in replacements.changes(run.cache, parts, run.rows):
            logits = run_changed(model, run.cache, part.depth, change[None])[0]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.gpt.cache import ActivationCache
from interp.gpt.model import HookedGPT, Input
from interp.stream.components import Component
from interp.stream.metric import check_choice
from interp.stream.references import ReferenceSet

Ablation = Literal["zero", "mean", "resample"]
ALL = slice(None)


class Replacements:
    """What takes the place of each component in each of `tokens`.

    `description` says it in words; `overlap` is how many sequences are also in the reference set,
    so that what takes their place is partly their own; `leave_self_out`: the sequences are their
    own reference set, and each gets what the others give.
    """

    def __init__(
        self,
        model: HookedGPT,
        tokens: Int[Tensor, "sequence pos"],
        ablate: Ablation = "mean",
        reference: ReferenceSet | Input | None = None,
        *,
        draws: int = 1,
        seed: int = 0,
    ) -> None:
        """
        Args:
            model: the model.
            tokens: the sequences in which components are replaced.
            ablate: see the module.
            reference: where means and resamples come from; by default, for each sequence, the
                others among `tokens`.
            draws: of "resample".
            seed: of the draws.

        Raises:
            ConfigError: an unknown `ablate`.
            CacheError: a reference set of another model.
            TokenError: an empty one; "resample" without another sequence to draw.
        """
        check_choice("ablate", ablate, get_args(Ablation))
        self.model, self.ablate = model, ablate
        self.draws = draws if ablate == "resample" else 1
        self.leave_self_out = reference is None and ablate != "zero"
        self.overlap, self.description = 0, "none"
        if ablate == "zero":
            return
        if reference is None:
            self.reference = ReferenceSet(model, tokens)
            self.description = f"for each sequence, the other {len(tokens) - 1}"
            self.overlap = len(tokens) - len({row.tobytes() for row in tokens.cpu().numpy()})
        else:
            self.reference = ReferenceSet.of(model, reference)
            self.description = f"{len(self.reference)} sequences"
            self.overlap = self.reference.overlap(tokens)
        if ablate == "resample":
            own = torch.eye(len(tokens), dtype=torch.bool) if self.leave_self_out else None
            self._rows = [self.reference.draw(len(tokens), seed + i, own) for i in range(draws)]

    def changes(
        self,
        cache: ActivationCache,
        parts: Sequence[Component],
        rows: slice = ALL,
        n_pos: int | None = None,
    ) -> Iterator[tuple[Component, Float[Tensor, "batch pos width"]]]:
        """Yields each component with what its replacement adds to the stream, once per draw.

        Args:
            cache: of the run of some of the sequences.
            parts: the components.
            rows: which of the sequences.
            n_pos: of how many positions; by default of all.

        Raises:
            TokenError: one sequence that has no others; reference sequences that are too short.
        """
        if self.ablate != "zero":
            self.reference.prepare([c.hook for c in parts], keep=self.ablate == "resample")
        for c in parts:
            activation = cache[c.hook][:, :n_pos]
            for new in self._values(c, activation, rows):
                yield c, c.change(self.model, activation, new)

    def _values(self, c: Component, activation: Tensor, rows: slice) -> Iterator[Tensor]:
        """What takes the component's place, once per draw."""
        n_pos = activation.shape[1]
        if self.ablate == "zero":
            yield activation.new_zeros(())
        elif self.ablate == "mean":
            own = activation if self.leave_self_out else None
            yield self.reference.mean(c, n_pos, own)
        else:
            for drawn in self._rows:
                yield self.reference.rows(c, drawn[rows], n_pos)
