"""The exceptions users catch.

Each message is one line that says what was given, what was expected and what to do;
the command line prints it as it is and exits with status 2.

    InterpError
    ├── ConfigError        a config or recipe: unknown key, wrong type, impossible combination
    ├── TextError          a text source: missing, empty, binary, too short, unreachable
    ├── TokenError         tokens or a prompt: unknown characters, ids out of range, too long
    ├── CheckpointError    a model folder: missing, truncated, of another size, not ours
    ├── HookError          a hook: unknown name, return of the wrong shape or type
    ├── CacheError         an activation: absent, edited after it was cached, from other weights
    ├── CompletenessError  a decomposition whose rows do not add up to the model's own logits
    ├── OutputError        an output folder: unwritable, full, or holding a different run
    └── TrainingError      training stopped
        ├── NonFiniteLossError    the loss became NaN or infinite
        └── TrainingInterrupted   Ctrl-C; the state was saved
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InterpError(Exception):
    """Base of every error this package raises on purpose."""


class ConfigError(InterpError, ValueError):
    """A config or recipe holds an unknown key, a wrong type or an impossible combination."""


class TextError(InterpError, ValueError):
    """A text source is missing, empty, not UTF-8, too short or cannot be downloaded."""


class TokenError(InterpError, ValueError):
    """Tokens or a prompt do not fit the model's vocabulary or context."""


class CheckpointError(InterpError, ValueError):
    """A model folder is missing, damaged, or was not written by this package."""


class HookError(InterpError, ValueError):
    """A hook name is unknown, or a hook returned something of the wrong shape or type."""


class CacheError(InterpError, KeyError):
    """A cached activation is absent, was edited in place, or belongs to other weights."""

    def __str__(self) -> str:  # KeyError would print the message in quotes
        return str(self.args[0]) if self.args else ""


class CompletenessError(InterpError, ArithmeticError):
    """The rows of a decomposition do not add up to the model's own logits."""


class OutputError(InterpError, OSError):
    """An output folder cannot be written, is full, or holds a different run."""


class TrainingError(InterpError, RuntimeError):
    """Training stopped before its last step."""


class NonFiniteLossError(TrainingError):
    """The training loss became NaN or infinite."""


class TrainingInterrupted(TrainingError):  # noqa: N818  # not a fault
    """Training was interrupted; its state was saved and can be resumed."""


def nearest(given: str, known: Iterable[str], count: int = 3) -> str:
    """Returns `; did you mean 'a' or 'b'?` for the names most like `given`, or an empty string."""
    close = difflib.get_close_matches(given, list(known), n=count, cutoff=0.5)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
