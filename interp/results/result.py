"""What every analysis returns: a frozen record that checks itself, tells where it came from and
what it shows, turns into a table, and goes to disk and back.

A result's arrays are numpy, read-only, and have named axes; equal names have equal lengths. Nobody
else needs to know its class: its table, its figures, its summary and its finding are its own
methods, and `print`, notebooks, the command line and the report use only these.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

import interp
from interp import files
from interp.errors import CheckpointError, ConfigError, nearest
from interp.figures.palette import glyph
from interp.results.document import INLINE, INLINE_IN_PAGE, decode, encode, read_only
from interp.results.kinds import KINDS, kind_of
from interp.results.provenance import Provenance
from interp.results.shown import Finding, Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = "gpt-interp-result/2"
ROWS = 8  # of a table in a summary


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """Base of all results.

    A subclass lists the axes of its array fields in `AXES`, and in `NAMES` the axis along which
    each of its tuples of names runs; in `QUANTA` how finely large arrays are kept in a page. It
    gives `to_frame`, and as it likes `figures`, `summary`, `finding` and `checks`. `SECTION` is the
    id of its section in a report, `HEADING` that section's heading. `TABLE_IN_PAGE` False: its
    table is too long to be shown there. `VIEWS`: the page's instruments that make use of it.

    Example:
        >>> from dataclasses import dataclass
        >>> import interp, pandas as pd, torch
        >>> @dataclass(frozen=True, kw_only=True, repr=False)
        ... class Largest(interp.Result):
        ...     weight: float
        ...     def to_frame(self):
        ...         return pd.DataFrame({"weight": [self.weight]})
        >>> cfg = interp.GPTConfig(n_layers=1, n_heads=1, d_model=4, n_ctx=4, d_vocab=2)
        >>> model = interp.HookedGPT(cfg)
        >>> found = Largest(
        ...     weight=float(model.W_E.detach().abs().max()),
        ...     provenance=interp.Provenance.of(model, torch.tensor([[0, 1]])),
        ... )
        >>> found.name
        'largest'
    """

    AXES: ClassVar[dict[str, tuple[str, ...]]] = {}
    NAMES: ClassVar[dict[str, str]] = {}
    QUANTA: ClassVar[dict[str, float]] = {}
    SECTION: ClassVar[str] = ""
    HEADING: ClassVar[str] = ""
    TABLE_IN_PAGE: ClassVar[bool] = True
    VIEWS: ClassVar[tuple[str, ...]] = ()
    provenance: Provenance

    def __init_subclass__(cls) -> None:
        if cls.__name__ in interp.__all__ and not cls.__module__.startswith("interp."):
            raise TypeError(f"{cls.__name__} is one of this package's results; choose another name")
        KINDS[cls.__name__] = cls
        cls.__repr__ = Result.__repr__  # type: ignore[method-assign]  # not the dataclass's own

    def __post_init__(self) -> None:
        known: dict[str, tuple[int, str]] = {}
        for name, axes in self.AXES.items():
            array = read_only(getattr(self, name))
            object.__setattr__(self, name, array)
            if array.ndim != len(axes):
                raise ValueError(f"{name} has shape {array.shape}, expected axes {axes}")
            for axis, length in zip(axes, array.shape, strict=True):
                n, first = known.setdefault(axis, (length, name))
                if n != length:
                    raise ValueError(f"{name} has {length} along {axis!r}, but {first} has {n}")
        for name, axis in self.NAMES.items():
            n, first = known[axis]
            given = len(getattr(self, name))
            if given != n:
                raise ValueError(f"{name} has {given} names, but {first} has {n} along {axis!r}")

    # ---- what it shows -------------------------------------------------------------------

    @property
    def name(self) -> str:
        """What its files are called: its kind, and what tells it from others of that kind."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", type(self).__name__).lower()

    def to_frame(self) -> pd.DataFrame:
        """Returns a tidy table, one row per observation."""
        raise NotImplementedError

    def figures(self) -> list[Shown]:
        """Returns what is drawn of it: names, captions, and marks with the numbers."""
        return []

    def shown(self) -> list[Shown]:
        """Returns its figures with the line that says where they came from."""
        return [replace(one, line=one.line or self.provenance.line()) for one in self.figures()]

    def picture(self, what: str = "") -> Shown:
        """Returns one of its figures: by default the first, else the one of that name.

        Raises:
            ConfigError: it has none, or none of that name.
        """
        shown = {one.name: one for one in self.figures()}
        if not shown:
            raise ConfigError(f"a {type(self).__name__} has no figures; see to_frame()")
        if what and what not in shown:
            raise ConfigError(
                f"a {type(self).__name__} has no figure {what!r}{nearest(what, shown)}; "
                f"there are {', '.join(shown)}"
            )
        return shown[what] if what else next(iter(shown.values()))

    def plot(self, what: str = "") -> Figure:
        """Returns a matplotlib figure, with a line that says model, text, n and seed.

        Args:
            what: which figure (by default the first); some results also take a head ("L1.H2").

        Raises:
            ConfigError: there is no such figure.
        """
        from interp.figures.draw import draw  # noqa: PLC0415  # matplotlib takes a while

        return draw(self.picture(what).mark, self.provenance.line())

    def summary(self) -> str:
        """Returns what `print` shows and commands print: a headline, and the start of the table."""
        table = self.to_frame()
        shown = table.head(ROWS).to_string(index=False, float_format="{:.4g}".format)
        more = f"\n… {len(table):,} rows; all of them: to_frame()" if len(table) > ROWS else ""
        return f"{self.heading}; {self.provenance.line()}\n{shown}{more}"

    def finding(self) -> Finding | None:
        """Returns the one sentence worth knowing, if there is one."""
        return None

    def checks(self) -> list[tuple[str, str]]:
        """Returns what was checked on the way, as pairs of name and outcome, for a report."""
        return []

    @property
    def heading(self) -> str:
        """The heading of its section; by default its kind in words."""
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", type(self).__name__)
        return type(self).HEADING or words.capitalize()

    @property
    def section(self) -> str:
        """The id of its section in a report; by default its name."""
        return type(self).SECTION or self.name

    def glyphs(self, tokens: np.ndarray | Sequence[int]) -> list[str]:
        """Returns the characters of token ids made visible; the ids where there are none."""
        characters = getattr(self, "characters", None)
        return [glyph(characters, int(token)) for token in np.asarray(tokens).ravel()]

    def __repr__(self) -> str:
        sizes: dict[str, int] = {}
        for name, axes in self.AXES.items():
            sizes |= zip(axes, getattr(self, name).shape, strict=True)
        shape = ", ".join(f"{axis}={n}" for axis, n in sizes.items())
        seed = "" if self.provenance.seed is None else f", seed={self.provenance.seed}"
        named = self.provenance.name or self.provenance.model[:8]
        return f"{type(self).__name__}({shape}; model={named!r}{seed})"

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from interp.figures.notebook import frame_of  # noqa: PLC0415  # matplotlib takes a while

        drawn = [(one.mark, one.caption) for one in self.figures()]
        return frame_of(self.heading, drawn, self.to_frame(), self.provenance.line())

    # ---- to disk and back ----------------------------------------------------------------

    def to_document(self, quanta: float = 0) -> dict[str, Any]:
        """Returns everything in the result as values that JSON can hold.

        Args:
            quanta: for a page, how many of its `QUANTA` make the step to which a large array named
                there is rounded: it is off by at most half a step. 0 rounds nothing.
        """
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "provenance"}
        inline = INLINE_IN_PAGE if quanta else INLINE
        return {
            "format": FORMAT,
            "kind": type(self).__name__,
            "provenance": asdict(self.provenance),
            **{name: encode(value, inline, quanta * self.QUANTA.get(name, 0))
               for name, value in values.items()},
        }  # fmt: skip

    @classmethod
    def from_document(cls, document: Any) -> Result:
        """Returns the result that `to_document` wrote.

        Raises:
            CheckpointError: not such a document, or of a kind that is not known here.
        """
        try:
            if document["format"] != FORMAT:
                raise ValueError(
                    f"format {document['format']!r}, expected {FORMAT!r}; make it again"
                )
            kind: type[Result] = kind_of(document["kind"])
            values = {f.name: decode(document[f.name], f.name in kind.AXES)
                      for f in fields(kind) if f.name != "provenance"}  # fmt: skip
            return kind(provenance=Provenance(**document["provenance"]), **values)
        except (ArithmeticError, KeyError, TypeError, ValueError, zlib.error) as error:
            raise CheckpointError(f"not a result of this package: {error!r}") from error

    def save(self, path: str | Path) -> None:
        """Writes the result as one JSON file."""
        files.write_text(Path(path), json.dumps(self.to_document(), ensure_ascii=True) + "\n")

    @staticmethod
    def load(path: str | Path) -> Result:
        """Returns the result in a file that `save` wrote.

        Raises:
            CheckpointError: missing, damaged, or not a result.
        """
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path} is not a readable result: {error}") from error
        return Result.from_document(document)
