"""The command line: load, one library call, write."""

from __future__ import annotations

import sys
from typing import Any

import typer

from interp.cli import attention, looking, making, reporting
from interp.cli.common import app
from interp.errors import InterpError, TrainingInterrupted

__all__ = ["app", "attention", "looking", "main", "making", "reporting"]

ORDER = (  # of the commands in --help: a user's day
    "run", "train", "generate", "cache", "report", "compare", "attribute", "effects", "patch",
    "heads", "formation", "scaling", "scaling_sweep", "check",
)  # fmt: skip
app.registered_commands.sort(key=lambda command: ORDER.index(command.callback.__name__))  # type: ignore[union-attr]
_UsageError: Any = typer.BadParameter.__mro__[1]  # the parent: any wrong use of the command line


def main() -> None:
    """Runs the command line. Mistakes are one line and exit status 2; Ctrl-C is 130."""
    try:
        status = app(standalone_mode=len(sys.argv) < 2)  # alone, it shows the help
    except _UsageError as error:
        _fail(f"error: {error.format_message()}; see interp --help", 2)
    except typer.Abort:
        _fail("interrupted", 130)
    except TrainingInterrupted as stopped:
        _fail(str(stopped), 130)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except InterpError as error:
        _fail(f"error: {error}", 2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    else:
        sys.exit(status if isinstance(status, int) else 0)


def _fail(message: str, status: int) -> None:
    print(" ".join(message.split("\n")), file=sys.stderr)
    sys.exit(status)
