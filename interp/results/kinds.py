"""Which class a result's name stands for."""

from __future__ import annotations

from typing import Any

import interp

KINDS: dict[str, type[Any]] = {}  # every subclass of `Result` that is defined, also a user's


def kind_of(name: str) -> type[Any]:
    """Returns one of this package's public results, or a user's that is defined.

    Raises:
        ValueError: there is none of that name.
    """
    found = getattr(interp, name, None) if name in interp.__all__ else KINDS.get(name)
    if found is None or found is not KINDS.get(name):
        raise ValueError(f"no result is called {name!r} here; import the module that defines it")
    return KINDS[name]
