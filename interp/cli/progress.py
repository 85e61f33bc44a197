"""What is said on stderr while a command works: bars, lines while training, warnings."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rich.progress import Progress

Advance = Callable[[int, int], None]
AdvanceTraining = Callable[[int, int, float, float], None]


def say(message: str) -> None:
    """Writes a line to stderr."""
    print(message, file=sys.stderr, flush=True)


@contextmanager
def said_warnings(reworded: Callable[[str], str]) -> Iterator[None]:
    """Makes each warning that is meant for users one line on stderr."""

    def show(message: Warning | str, *_: Any) -> None:
        say(f"warning: {' '.join(reworded(str(message)).splitlines())}")

    with warnings.catch_warnings():
        for category in (UserWarning, RuntimeWarning):
            warnings.simplefilter("always", category)
        warnings.showwarning = show  # type: ignore[assignment]
        yield


class Bars:
    """A bar for each piece of work, on a terminal; elsewhere silent, but for lines while training.

    They appear when the work starts: until then what is printed is left alone.
    """

    def __init__(self) -> None:
        self._shown: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown is not None:
            self._shown.stop()

    def of(self, what: str) -> Advance:
        """Returns a function of (done, of how many)."""
        advance = self._bar(what)
        return lambda done, of: advance(done, of, "")

    def training(self) -> AdvanceTraining:
        """Returns a function of step, steps, loss and tokens per second."""
        advance = self._bar("training")
        tenths = [-1]

        def report(step: int, steps: int, loss: float, rate: float) -> None:
            advance(step, steps, f"loss {loss:.3f}  {rate:,.0f} tokens/s")
            if not sys.stderr.isatty() and step * 10 // steps > tenths[0]:
                tenths[0] = step * 10 // steps
                say(f"step {step}/{steps}  loss {loss:.3f}  {rate:,.0f} tokens/s")

        return report

    def _bar(self, what: str) -> Callable[[int, int, str], None]:
        task: list[Any] = []

        def advance(done: int, of: int, note: str) -> None:
            if not sys.stderr.isatty():
                return
            if self._shown is None:
                self._shown = _progress()
                self._shown.start()
            if not task:
                task.append(self._shown.add_task(what, note=""))
            self._shown.update(task[0], completed=done, total=of, note=note)

        return advance


def _progress() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"), BarColumn(),
        TextColumn("{task.completed}/{task.total}  {task.fields[note]}"), TimeRemainingColumn(),
        console=Console(stderr=True),
    )  # fmt: skip
