"""The one table of colours, glyphs and units: of the figures, and, as JSON, of the page.

Signed numbers have a ramp from purple through white to orange, weights one from dark blue to
yellow (matplotlib's PuOr and cividis at a few stops, straight between them); single colours are
Okabe and Ito's. All can be told apart by the colour-blind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

Ramp = Literal["signed", "weight"]
RGB = tuple[int, int, int]

RAMPS: dict[Ramp, tuple[RGB, ...]] = {
    "signed": ((84, 39, 136), (178, 171, 210), (247, 247, 247), (253, 184, 99), (179, 88, 6)),
    "weight": ((0, 34, 78), (35, 62, 108), (87, 93, 109), (124, 123, 120), (165, 156, 116),
               (210, 192, 96), (254, 232, 56)),
}  # fmt: skip
COLOURS = {
    "for": "#b35806", "against": "#542788", "blue": "#0072b2", "vermilion": "#d55e00",
    "green": "#009e73", "pink": "#cc79a7", "sky": "#56b4e9", "amber": "#e69f00",
    "grey": "#666666", "black": "#1a1a1a",
}  # fmt: skip
SERIES = ("blue", "vermilion", "green", "pink", "amber", "sky", "grey", "black")
GLYPHS = {" ": "␣", "\n": "⏎", "\t": "⇥"}
UNITS = {"log_prob": "nats", "loss": "nats", "kl": "nats", "centered": "logits",
         "foil": "logits", "probability": "logits", "raw": "logits"}  # fmt: skip


def ramp(name: Ramp, x: float) -> RGB:
    """Returns the colour at `x` from 0 to 1."""
    stops = RAMPS[name]
    at = min(max(x, 0.0), 1.0) * (len(stops) - 1)
    i = min(int(at), len(stops) - 2)
    low, high = stops[i], stops[i + 1]
    red, green, blue = (round(a + (b - a) * (at - i)) for a, b in zip(low, high, strict=True))
    return red, green, blue


def colour(name: str) -> str:
    """Returns a colour as `#rrggbb`: one of `COLOURS`, or itself."""
    return COLOURS.get(name, name)


def of_layer(layer: int, n_layers: int) -> str:
    """Returns the colour of a layer, from dark (first) to bright (last): an ordinal ramp."""
    x = 0.05 + 0.8 * (layer / (n_layers - 1) if n_layers > 1 else 0.0)
    return "#{:02x}{:02x}{:02x}".format(*ramp("weight", x))


def of_series(number: int) -> str:
    """Returns the name of the colour of the series of a number."""
    return SERIES[number % len(SERIES)]


def visible(character: str) -> str:
    """Returns a character as something that can be seen: ␣ for a space, ⏎ for a newline."""
    known = GLYPHS.get(character, character)
    return known if known.isprintable() else f"\\u{ord(character):04x}"


def glyph(characters: Sequence[str] | None, token: int) -> str:
    """Returns a token's character made visible; its number where there are no characters."""
    return visible(characters[token]) if characters else str(token)


def unit_of(metric: str) -> str:
    """Returns the unit of a metric of the logits: "nats", "logits", or "" of a user's own."""
    return UNITS.get(metric, "")


def with_unit(metric: str) -> str:
    """Returns a metric's name with its unit behind it, if it has one."""
    return f"{metric} ({unit_of(metric)})" if unit_of(metric) else metric


def to_document() -> dict[str, Any]:
    """Returns the table as values that JSON can hold."""
    ramps = {name: [list(stop) for stop in stops] for name, stops in RAMPS.items()}
    return {"ramps": ramps, "colours": dict(COLOURS), "glyphs": dict(GLYPHS), "units": dict(UNITS)}
