"""What results about a passage have in common: characters beside ids, one row drawn over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from interp.figures.marks import Lines, Series
from interp.figures.palette import visible

MANY = 40  # of more components, the largest are shown one by one and the others as their sum


def with_characters(
    columns: dict[str, Any], characters: Sequence[str] | None
) -> dict[str, np.ndarray]:
    """Returns columns of token ids, each followed by `…_char`, the characters made visible.

    Empty where an id is −1; no such columns where there are no characters.
    """
    if characters is None:
        return columns
    shown = np.array([*map(visible, characters), ""], dtype=object)  # −1 is the last
    out: dict[str, np.ndarray] = {}
    for name, ids in columns.items():
        out |= {name: ids, f"{name}_char": shown[ids]}
    return out


def over_the_passage(
    name: str, values: np.ndarray, characters: Sequence[str], label: str, x_label: str
) -> Lines:
    """Returns one row over the passage, with a character at each position."""
    at = np.arange(len(values), dtype=np.float64)
    return Lines(
        x=at,
        series=(Series(name=name, values=values, marker="o"),),
        x_label=x_label,
        y_label=label,
        ticks=tuple(zip(at.tolist(), characters, strict=True)),
        zero=True,
        legend=False,
        title=name,
    )


def largest_rows(names: Sequence[str], values: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Returns names and values [component, pos], in order; of too many the smallest added up."""
    if len(names) <= MANY:
        return list(names), values
    largest = np.sort(np.argsort(-np.abs(values).mean(1), kind="stable")[: MANY - 1])
    others = np.delete(values, largest, axis=0)
    return (
        [*(names[i] for i in largest), f"{len(others):,} others"],
        np.vstack((values[largest], others.sum(0))),
    )
