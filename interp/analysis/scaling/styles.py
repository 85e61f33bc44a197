"""How the arms of the sqrt(d_k) question are written and drawn."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ArmStyle:
    """An arm's formula, its colour in the palette, and its marker."""

    name: str
    colour: str
    marker: str


ARM_STYLES = {
    "sqrt": ArmStyle("q·k / √d", "blue", "o"),
    "unscaled": ArmStyle("q·k", "vermilion", "s"),
    "inverse": ArmStyle("q·k / d", "green", "^"),
    "learned": ArmStyle("learned scale", "sky", "v"),
    "qk-norm": ArmStyle("QK-norm", "pink", "D"),
    "matched": ArmStyle("q·k, start matched", "amber", "P"),
}
