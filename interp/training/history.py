"""The record of a training run: one row a logged step."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from interp import files
from interp.errors import CheckpointError


@dataclass(frozen=True, kw_only=True)
class HistoryRow:
    """One evaluation. Losses in nats per token; seconds since training began, pauses left out."""

    step: int
    tokens: int
    learning_rate: float
    train_loss: float
    validation_loss: float
    grad_norm: float
    seconds: float


COLUMNS = tuple(field.name for field in fields(HistoryRow))


def write_history(rows: list[HistoryRow], path: Path) -> None:
    """Writes `history.csv`, all of it or nothing."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(astuple(row) for row in rows)
    files.write_text(path, out.getvalue())


def read_history(path: Path) -> list[HistoryRow]:
    """Returns the rows of a `history.csv`.

    Raises:
        CheckpointError: missing or not such a file.
    """
    try:
        with path.open(encoding="utf-8", newline="") as handle:
            reader = csv.DictReader(handle)
            if tuple(reader.fieldnames or ()) != COLUMNS:
                raise ValueError(f"its columns are not {', '.join(COLUMNS)}")
            return [_row(values) for values in reader]
    except (OSError, KeyError, ValueError, TypeError, csv.Error) as error:
        raise CheckpointError(f"{path} is not a training history: {error}") from error


def _row(values: dict[str, str]) -> HistoryRow:
    step, tokens = int(values["step"]), int(values["tokens"])
    rest = {name: float(values[name]) for name in COLUMNS[2:]}
    return HistoryRow(step=step, tokens=tokens, **rest)


def learning_rate_at(step: int, peak: float, least: float, warmup: int, steps: int) -> float:
    """Returns the learning rate of a step (from 0): linear warm-up, then cosine to `least`."""
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    return least + 0.5 * (peak - least) * (1 + math.cos(math.pi * progress))


def log_spaced_steps(steps: int, count: int) -> list[int]:
    """Returns about `count` distinct steps from 0 to `steps`, denser at the start.

    Example:
        >>> log_spaced_steps(2000, 12)
        [0, 1, 2, 5, 10, 21, 45, 96, 205, 437, 935, 2000]
    """
    if count == 0:
        return []
    if count == 1:
        return [steps]
    ratios = [steps ** (i / max(1, count - 2)) for i in range(count - 1)]
    return sorted({0, steps, *(round(ratio) for ratio in ratios)})
