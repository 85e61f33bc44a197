"""Earlier names of arguments, still taken."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Returned = TypeVar("Returned")


def renamed(**names: str) -> Callable[[Callable[Given, Returned]], Callable[Given, Returned]]:
    """Lets a function take arguments by earlier names too, with a DeprecationWarning.

    Args:
        names: old name = new name.

    Raises:
        TypeError: when called with both.

    Example:
        >>> import warnings
        >>> @renamed(scalar="metric")
        ... def ask(metric="centered"):
        ...     return metric
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     ask(scalar="raw")
        'raw'
    """

    def decorate(function: Callable[Given, Returned]) -> Callable[Given, Returned]:
        @functools.wraps(function)
        def call(*args: Given.args, **kwargs: Given.kwargs) -> Returned:
            for old in names.keys() & kwargs.keys():
                new = names[old]
                if new in kwargs:
                    raise TypeError(
                        f"{function.__name__}() got {new} and also {old}, its earlier name"
                    )
                warnings.warn(
                    f"{function.__name__}: {old} is called {new} now", DeprecationWarning,
                    stacklevel=2,
                )  # fmt: skip
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate
