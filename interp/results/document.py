"""Arrays as values that JSON can hold, and back.

Small arrays are lists; larger ones are compressed: all first bytes of the numbers, then all second
ones …, which pack better. A page may round a large array to whole steps (quanta).
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

INLINE = 4096  # numbers; larger arrays are compressed
INLINE_IN_PAGE = 256


def encode(value: Any, inline: int = INLINE, step: float = 0) -> Any:
    """Returns an array as a JSON object; a tuple as a list; anything else as it is.

    Args:
        value: the value.
        inline: an array of more numbers is compressed.
        step: a large finite array is rounded to multiples of this, or of what its largest number
            needs to fit in two bytes; 0 rounds nothing.
    """
    if not isinstance(value, np.ndarray):
        return list(value) if isinstance(value, tuple) else value
    header: dict[str, Any] = {"dtype": value.dtype.str, "shape": list(value.shape)}
    finite = value.dtype.kind in "iub" or bool(np.isfinite(value).all())
    if value.size <= inline and finite:
        return {**header, "values": value.flatten().tolist()}
    if step and value.size > INLINE and finite:
        step = max(step, float(np.abs(value).max()) / 32767)
        header["quantum"] = step
        value = np.round(value / step).astype("<i2")
    packed = base64.b64encode(zlib.compress(_planes(value), 9))
    return {**header, "planes": value.dtype.itemsize, "zlib": packed.decode("ascii")}


def _planes(value: np.ndarray) -> bytes:
    """All first bytes of an array's numbers, then all second bytes …: alike, they pack better."""
    raw = np.frombuffer(np.ascontiguousarray(value).tobytes(), np.uint8)
    return np.ascontiguousarray(raw.reshape(-1, value.dtype.itemsize).T).tobytes()


def decode(value: Any, is_array: bool) -> Any:
    """Returns what `encode` was given."""
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


def to_numpy(tensor: Tensor) -> np.ndarray:
    """Returns a tensor's values as numpy; bfloat16, which numpy lacks, as float32."""
    held = tensor.detach().cpu()
    array: np.ndarray = (held.float() if held.dtype == torch.bfloat16 else held).numpy()
    return array


def read_only(array: Any) -> np.ndarray:
    """Returns an array of its own that cannot be written to."""
    copy: np.ndarray = np.array(array)
    copy.flags.writeable = False
    return copy
