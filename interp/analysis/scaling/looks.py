"""What figures of the scale of attention scores share: how an arm looks, and where ticks are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ENTROPY = "entropy / ln(visible keys)"


@dataclass(frozen=True)
class Look:
    """How an arm appears in figures."""

    name: str
    colour: str
    marker: str


LOOKS = {
    "sqrt": Look("q·k / √d", "blue", "o"),
    "unscaled": Look("q·k", "vermilion", "s"),
    "inverse": Look("q·k / d", "green", "^"),
    "learned": Look("learned scale", "sky", "v"),
    "qk-norm": Look("QK-norm", "pink", "D"),
    "matched": Look("q·k, start matched", "amber", "P"),
}


def ticks_of(values: np.ndarray) -> tuple[tuple[float, str], ...]:
    """Returns a tick at each value, with its number."""
    return tuple((float(value), f"{value:g}") for value in values)
