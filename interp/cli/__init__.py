"""The command line: each command is one library call, whose result says itself what to print.

The order of the modules, and of the commands in each, is that of a user's day, and of `--help`.
"""

from __future__ import annotations

import sys
from typing import Any

import typer

from interp.cli.options import app
from interp.errors import InterpError, TrainingInterrupted

# The order of the commands in --help:
# isort: off
from interp.cli import model, report, analyses
# isort: on

__all__ = ["analyses", "app", "main", "model", "report"]

_UsageError: Any = typer.BadParameter.__mro__[1]  # the parent: any wrong use of the command line


def main() -> None:
    """Runs the command line. Mistakes are one line and exit status 2; Ctrl-C is 130."""
    try:
        status = app(standalone_mode=len(sys.argv) < 2)  # alone, it shows the help
    except _UsageError as error:
        message = error.format_message().replace("Value error, ", "").rstrip(".")
        _fail(f"error: {message}; see interp --help", 2)
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
