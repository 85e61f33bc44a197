"""What every analysis returns: a frozen record that checks itself, tells where it came from,
turns into a table, and goes to disk and back.

A result's arrays are numpy, read-only, and have named axes; equal names have equal lengths.
"""

from __future__ import annotations

import base64
import importlib
import json
import pkgutil
import platform
import zlib
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import interp
import interp.analysis
from interp import files
from interp.errors import CheckpointError
from interp.gpt.checkpoint import model_hash
from interp.gpt.ladder import AnyModel

FORMAT = "gpt-interp-result/1"
INLINE_NUMBERS = 4096  # larger arrays are written compressed
INLINE_IN_PAGE = 256

_KINDS: dict[str, type[Result]] = {}


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where a result came from: hashes of the model and of the tokens, seed, dtype, versions."""

    model: str
    tokens: str
    dtype: str
    seed: int | None = None
    versions: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, model: AnyModel, tokens: Tensor, seed: int | None = None) -> Self:
        """Returns the provenance of an analysis of `model` on `tokens`."""
        ids = np.ascontiguousarray(tokens.cpu().numpy().astype("<i8"))
        return cls(
            model=model_hash(model),
            tokens=files.sha256(str(ids.shape).encode() + ids.tobytes()),
            dtype=str(model.dtype).removeprefix("torch."),
            seed=seed,
            versions=dict(versions()),
        )


@cache
def versions() -> dict[str, str]:
    """Returns the versions that numbers can depend on."""
    return {
        "gpt-interp": interp.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "transformer-lens": metadata.version("transformer-lens"),
    }


@dataclass(frozen=True, kw_only=True)
class Result:
    """Base of all results.

    A subclass lists the axes of its array fields in `AXES`, and in `NAMES` the axis along which
    each of its tuples of names runs; in `QUANTA` how finely large arrays are kept in a page.
    """

    AXES: ClassVar[dict[str, tuple[str, ...]]] = {}
    NAMES: ClassVar[dict[str, str]] = {}
    QUANTA: ClassVar[dict[str, float]] = {}
    provenance: Provenance

    def __init_subclass__(cls) -> None:
        _KINDS[cls.__name__] = cls

    def __post_init__(self) -> None:
        known: dict[str, tuple[int, str]] = {}
        for name, axes in self.AXES.items():
            array = _read_only(getattr(self, name))
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

    def to_frame(self) -> pd.DataFrame:
        """Returns a tidy table, one row an observation."""
        raise NotImplementedError

    def to_document(self, quanta: float = 0) -> dict[str, Any]:
        """Returns everything in the result as values that JSON can hold.

        Args:
            quanta: for a page, how many of its `QUANTA` make the step to which a large array named
                there is rounded: it is off by at most half a step. 0 rounds nothing.
        """
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "provenance"}
        inline = INLINE_IN_PAGE if quanta else INLINE_NUMBERS
        return {
            "format": FORMAT,
            "kind": type(self).__name__,
            "provenance": asdict(self.provenance),
            **{name: _encode(value, inline, quanta * self.QUANTA.get(name, 0))
               for name, value in values.items()},
        }  # fmt: skip

    @classmethod
    def from_document(cls, document: Any) -> Result:
        """Returns the result that `to_document` wrote.

        Raises:
            CheckpointError: not such a document.
        """
        try:
            if document["format"] != FORMAT:
                raise ValueError(f"format {document['format']!r}")
            kind = _kinds()[document["kind"]]
            values = {f.name: _decode(document[f.name], f.name in kind.AXES)
                      for f in fields(kind) if f.name != "provenance"}  # fmt: skip
            return kind(provenance=Provenance(**document["provenance"]), **values)
        except (ArithmeticError, KeyError, TypeError, ValueError, zlib.error) as error:
            raise CheckpointError(f"not a result of this package: {error!r}") from error

    def _repr_html_(self) -> str:
        """What a notebook shows. (By name: `interp.report` stands above this package.)"""
        shown: str = importlib.import_module("interp.report.notebook").frame_of(self)
        return shown

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


def _kinds() -> dict[str, type[Result]]:
    """Every kind of result, whether or not its module was imported before."""
    for module in pkgutil.iter_modules(interp.analysis.__path__):
        importlib.import_module(f"interp.analysis.{module.name}")
    return _KINDS


def to_numpy(tensor: Tensor) -> np.ndarray:
    """Returns a tensor's values as numpy; bfloat16, which numpy lacks, as float32."""
    held = tensor.detach().cpu()
    array: np.ndarray = (held.float() if held.dtype == torch.bfloat16 else held).numpy()
    return array


def _read_only(array: Any) -> np.ndarray:
    copy: np.ndarray = np.array(array)
    copy.flags.writeable = False
    return copy


def _encode(value: Any, inline: int, step: float) -> Any:
    if not isinstance(value, np.ndarray):
        return list(value) if isinstance(value, tuple) else value
    header: dict[str, Any] = {"dtype": value.dtype.str, "shape": list(value.shape)}
    finite = value.dtype.kind in "iub" or bool(np.isfinite(value).all())
    if value.size <= inline and finite:
        return {**header, "values": value.flatten().tolist()}
    if step and value.size > INLINE_NUMBERS and finite:
        step = max(step, float(np.abs(value).max()) / 32767)
        header["quantum"] = step
        value = np.round(value / step).astype("<i2")
    packed = base64.b64encode(zlib.compress(_planes(value), 9))
    return {**header, "planes": value.dtype.itemsize, "zlib": packed.decode("ascii")}


def _planes(value: np.ndarray) -> bytes:
    """All first bytes of an array's numbers, then all second bytes …: alike, they pack better."""
    raw = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8)
    return np.ascontiguousarray(raw.reshape(-1, value.dtype.itemsize).T).tobytes()


def _decode(value: Any, is_array: bool) -> Any:
    if not is_array:
        return tuple(value) if isinstance(value, list) else value
    dtype, shape = np.dtype(value["dtype"]), value["shape"]
    if "values" in value:
        return np.array(value["values"], dtype=dtype).reshape(shape)
    raw = zlib.decompress(base64.b64decode(value["zlib"]))
    if "planes" in value:  # not in results of earlier versions
        planes = np.frombuffer(raw, np.uint8).reshape(value["planes"], -1)
        raw = np.ascontiguousarray(planes.T).tobytes()
    if "quantum" in value:
        steps = np.frombuffer(raw, dtype="<i2").reshape(shape)
        return (steps * value["quantum"]).astype(dtype)
    return np.frombuffer(raw, dtype=dtype).reshape(shape)
