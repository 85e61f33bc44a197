"""What a notebook shows of a result: its figures and the head of its table, in a frame of its own.

The frame is sandboxed and brings all that it needs, so nothing in it meets the notebook's styles or
scripts, and two results in one notebook do not meet each other.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence

import pandas as pd

from interp.figures.draw import draw, png
from interp.figures.marks import Mark

ROWS = 10
DPI = 110


def frame_of(
    heading: str, figures: Sequence[tuple[Mark, str]], table: pd.DataFrame, line: str
) -> str:
    """Returns an `<iframe>` with marks and their captions, and a table's first rows."""
    parts = [f"<h4>{html.escape(heading)}</h4>"]
    height = 60.0
    for mark, caption in figures:
        figure = draw(mark, line)
        data = base64.b64encode(png(figure, DPI)).decode("ascii")
        alt = html.escape(caption, quote=True)
        parts.append(
            f'<img src="data:image/png;base64,{data}" alt="{alt}"><p>{html.escape(caption)}</p>'
        )
        height += figure.get_figheight() * 96 + 60
    parts.append(table.head(ROWS).to_html(index=False, border=0, float_format="{:.4g}".format))
    if len(table) > ROWS:
        parts.append(f"<p>{len(table):,} rows; all of them: .to_frame()</p>")
    height += 30 * min(ROWS, len(table)) + 60
    page = (
        "<!doctype html><meta charset='utf-8'><style>body{font:13px sans-serif;background:#fff;"
        "color:#1a1a1a}img{max-width:100%}td,th{padding:1px 8px;text-align:right}</style>"
        + "".join(parts)
    )
    return (
        f'<iframe sandbox="" srcdoc="{html.escape(page, quote=True)}" '
        f'style="width:100%;height:{min(height, 900):.0f}px;border:0"></iframe>'
    )
