"""Attention patterns as a result: what every head looks at, over one passage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from interp.errors import ConfigError, TokenError
from interp.figures.marks import HeatMap, Panels
from interp.gpt.cache import ActivationCache
from interp.gpt.model import HookedGPT
from interp.results.document import to_numpy
from interp.results.provenance import Provenance
from interp.results.result import Result
from interp.results.shown import Shown, kept
from interp.stream.metric import tokens_of


@dataclass(frozen=True, kw_only=True)
class AttentionPatterns(Result):
    """`patterns` [layer, head, pos, key]: the weight of `key` in the query at `pos`; 0 above it.

    Rows sum to 1. `tokens` [pos] is the passage.
    """

    AXES: ClassVar = {"patterns": ("layer", "head", "pos", "key"), "tokens": ("pos",)}
    QUANTA: ClassVar = {"patterns": 1 / 32767}
    SECTION: ClassVar = "heads"
    HEADING: ClassVar = "What the heads look at"
    TABLE_IN_PAGE: ClassVar = False
    VIEWS: ClassVar = ("explorer", "atlas")
    patterns: np.ndarray
    tokens: np.ndarray
    characters: tuple[str, ...] | None

    @property
    def heads(self) -> tuple[str, ...]:
        """The labels of all heads, layer by layer."""
        return tuple(f"L{layer}.H{head}" for layer, head in np.ndindex(self.patterns.shape[:2]))

    @kept
    def to_frame(self) -> pd.DataFrame:
        """Returns layer, head, pos, key, weight, character and key_character; a row per visible
        key.
        """
        layers, heads, n, _ = self.patterns.shape
        pos, key = np.tril_indices(n)
        grid = pd.MultiIndex.from_product(
            [range(layers), range(heads), range(len(pos))], names=["layer", "head", "i"]
        ).to_frame(index=False)
        pos, key = pos[grid["i"]], key[grid["i"]]
        glyphs = np.array(self.glyphs(self.tokens), dtype=object)
        return pd.DataFrame(
            {
                "layer": grid["layer"], "head": grid["head"], "pos": pos, "key": key,
                "weight": self.patterns[grid["layer"], grid["head"], pos, key],
                "character": glyphs[pos], "key_character": glyphs[key],
            }
        )  # fmt: skip

    def figures(self) -> list[Shown]:
        """Returns the pattern of every head over the passage, one row of maps per layer."""
        heads = self.patterns.shape[1]
        mark = Panels(marks=tuple(map(self._map, self.heads)), columns=heads, share=True)
        caption = (
            f"Attention patterns of all heads over one passage of n = {len(self.tokens)} "
            "characters. The query at t predicts the character at t + 1; keys after it are masked "
            "(left empty)."
        )
        return [Shown(name=self.name, caption=caption, mark=mark, on_page=False)]

    def picture(self, what: str = "") -> Shown:
        """Returns its figure; of a head ("L1.H2"), that head's own map.

        Raises:
            ConfigError: there is no such figure.
        """
        if what not in self.heads:
            return super().picture(what)
        caption = (
            f"Attention pattern of {what} over one passage of n = {len(self.tokens)} characters. "
            "Keys after the query are masked (left empty)."
        )
        return Shown(name=f"{self.name}-{what}", caption=caption, mark=self._map(what))

    def _map(self, head: str) -> HeatMap:
        glyphs = tuple(self.glyphs(self.tokens))
        n = len(glyphs)
        pattern = self.patterns[divmod(self.heads.index(head), self.patterns.shape[1])]
        return HeatMap(
            values=np.where(np.tri(n, dtype=bool), pattern, np.nan), rows=glyphs, columns=glyphs,
            label="attention weight", low=0.0, high=1.0, palette="weight", scale="root",
            row_label="query position (attending)", column_label="key position (attended to)",
            columns_are="positions", title=head,
        )  # fmt: skip

    def summary(self) -> str:
        """Returns, for each head, the key that gets most weight beyond the query's own and 0."""
        n = len(self.tokens)
        counted = np.tri(n, k=-1, dtype=bool)
        counted[:, 0] = False
        glyphs = self.glyphs(self.tokens)
        lines = [
            f"{self.heading}: {len(self.heads)} heads over n = {n} characters; the largest weight "
            f"beyond the query's own position and position 0; {self.provenance.line()}"
        ]
        for head, pattern in zip(self.heads, self.patterns.reshape(-1, n, n), strict=True):
            pos, key = divmod(int(np.where(counted, pattern, 0).argmax()), n)
            lines.append(
                f"  {head}  {pattern[pos, key]:.3f}  query {pos} ({glyphs[pos]}), key {key} "
                f"({glyphs[key]})"
            )
        return "\n".join(lines)


def attention_patterns(
    model: HookedGPT, cache: ActivationCache, sequence: int = 0
) -> AttentionPatterns:
    """Returns the patterns of every head on one sequence of the cache.

    Args:
        model: the model, with at least one block.
        cache: of a run of it.
        sequence: which sequence of the batch.

    Raises:
        CacheError: another model's cache, or one without patterns.
        TokenError: there is no such sequence.
        ConfigError: the model has no blocks.
    """
    tokens = tokens_of(model, cache)
    if not 0 <= sequence < len(tokens):
        raise TokenError(f"sequence {sequence} is outside the batch of {len(tokens)}")
    if not model.blocks:
        raise ConfigError("a model without blocks has no attention patterns")
    patterns = [to_numpy(cache["pattern", layer][sequence]) for layer in range(len(model.blocks))]
    return AttentionPatterns(
        patterns=np.stack(patterns),
        tokens=to_numpy(tokens[sequence]),
        characters=None if model.tokenizer is None else model.tokenizer.characters,
        provenance=Provenance.of(model, tokens),
    )
