"""What a result shows: figures with captions, and a finding; and how a method computes once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pandas as pd

from interp.figures.marks import Mark

Kept = TypeVar("Kept")


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A figure of a result: its name (that of its files), its caption, and what it says.

    `on_page` False: a report draws the same as one of its views, so only the files have it.
    `detail`: one of many of its kind, drawn when asked for (`Result.plot`), by no report.
    `line`: small print in the drawing (model, text, n, seed).
    """

    name: str
    caption: str
    mark: Mark
    on_page: bool = True
    detail: bool = False
    line: str = ""

    def called(self, name: str) -> Shown:
        """Returns the same figure under another name."""
        return replace(self, name=name)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One sentence worth knowing, and what to select where its evidence stands ("head=L1.H2").

    The lowest `rank`s come first in a report.
    """

    text: str
    select: str = ""
    rank: int = 10


def kept(method: Callable[[Any], Kept]) -> Callable[[Any], Kept]:
    """Makes a method without arguments compute once; a table is handed out as a copy."""
    key = f"_kept_{method.__name__}"

    @functools.wraps(method)
    def once(self: Any) -> Any:
        if key not in self.__dict__:
            object.__setattr__(self, key, method(self))
        found = self.__dict__[key]
        return found.copy() if isinstance(found, pd.DataFrame) else found

    return once
