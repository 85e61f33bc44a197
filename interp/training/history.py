"""The record of a training run, one row per evaluation, beside what counting characters reaches."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

from interp import files
from interp.errors import CheckpointError, ConfigError
from interp.figures.marks import Lines, Series
from interp.gpt.folder import AnyModel, model_hash
from interp.lesson.ngrams import NGramLosses
from interp.results.provenance import Provenance, versions
from interp.results.result import Result
from interp.results.shown import Finding, Shown

APART = 0.06  # nats: lines of count models that are nearer to one with a tag have none


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
    table = pd.DataFrame([asdict(row) for row in rows], columns=list(COLUMNS), dtype=object)
    files.write_text(path, table.to_csv(index=False, lineterminator="\n", na_rep="nan"))


def read_history(path: Path) -> list[HistoryRow]:
    """Returns the rows of a `history.csv`.

    Raises:
        CheckpointError: missing or not such a file.
    """
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8")
        if tuple(table.columns) != COLUMNS or not isinstance(table.index, pd.RangeIndex):
            raise ValueError(f"its columns are not {', '.join(COLUMNS)}")
        if table.isna().to_numpy().any():
            raise ValueError("a row is shorter than the others")
        return [_row(values) for values in table.to_dict("records")]
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} is not a training history: {error}") from error


def _row(values: Mapping[Hashable, str]) -> HistoryRow:
    step, tokens = int(values["step"]), int(values["tokens"])
    rest = {name: float(values[name]) for name in COLUMNS[2:]}
    return HistoryRow(step=step, tokens=tokens, **rest)


@dataclass(frozen=True, kw_only=True, repr=False)
class TrainingHistory(Result):
    """How the losses fell, in nats per token, [row]; `seconds` leave pauses out.

    `baseline_losses` [baseline] are those of count models of `baseline_orders` on the same
    validation text, `baseline_constant` what their smoothing adds to each count; empty where they
    were not asked for.
    """

    AXES: ClassVar = {
        **dict.fromkeys(COLUMNS, ("row",)),
        "baseline_orders": ("baseline",),
        "baseline_losses": ("baseline",),
    }
    SECTION: ClassVar = "training"
    HEADING: ClassVar = "How good it is"
    step: np.ndarray
    tokens: np.ndarray
    learning_rate: np.ndarray
    train_loss: np.ndarray
    validation_loss: np.ndarray
    grad_norm: np.ndarray
    seconds: np.ndarray
    baseline_orders: np.ndarray
    baseline_losses: np.ndarray
    baseline_constant: float = 0.0

    def to_frame(self) -> pd.DataFrame:
        """Returns the columns of `history.csv`, one row per evaluation."""
        return pd.DataFrame({name: getattr(self, name) for name in COLUMNS})

    def figures(self) -> list[Shown]:
        """Returns the loss by step, beside the count models'."""
        series = [
            Series(name="whole validation split", values=self.validation_loss, marker="o",
                   tag=f"{self.validation_loss[-1]:.3f}"),
            Series(name="training batches since the last point", values=self.train_loss,
                   colour="grey", marker="o", dashed=True),
            *self._counted(),
        ]  # fmt: skip
        mark = Lines(
            x=self.step, series=tuple(series), x_label="step", y_label="loss (nats per character)"
        )
        return [Shown(name="loss", caption=self._caption(), mark=mark)]

    def _counted(self) -> Iterator[Series]:
        """A constant line per count model; where lines are near each other the first has a tag."""
        for i, (order, loss) in enumerate(
            zip(self.baseline_orders, self.baseline_losses, strict=True)
        ):
            apart = (np.abs(self.baseline_losses[:i] - loss) >= APART).all()
            yield Series(
                name="", values=np.full(len(self.step), loss), colour="grey", dashed=True,
                faint=True, tag=f"counts of order {order}" if apart else "",
            )  # fmt: skip

    def _caption(self) -> str:
        caption = (
            f"Loss while training: {self.validation_loss[-1]:.3f} nats a character after "
            f"{self.step[-1]:,} steps ({self.tokens[-1]:,} characters). The validation split is "
            "read whole, each character predicted once."
        )
        if len(self.baseline_orders):
            caption += (
                " Dashed, level: counts of the characters before, up to order "
                f"{self.baseline_orders.max()} (add-{self.baseline_constant:g})."
            )
        return caption

    def summary(self) -> str:
        """Returns the last losses, in perplexity too, and the count models'."""
        loss = float(self.validation_loss[-1])
        lines = [
            f"{self.provenance.name or 'the model'} after {self.step[-1]:,} steps "
            f"({self.tokens[-1]:,} tokens, {self.seconds[-1]:,.0f} s): validation loss "
            f"{loss:.4f} nats per token (perplexity {math.exp(loss):.2f}), training loss "
            f"{self.train_loss[-1]:.4f}; {len(self.step)} evaluations"
        ]
        for order, counted in zip(self.baseline_orders, self.baseline_losses, strict=True):
            lines.append(f"  counts of order {order}  {counted:.4f}")
        return "\n".join(lines)

    def finding(self) -> Finding | None:
        """Returns between which count models its loss lies, if there are any to compare with."""
        if not len(self.baseline_orders):
            return None
        pairs = zip(self.baseline_losses.tolist(), self.baseline_orders.tolist(), strict=True)
        loss, counts = float(self.validation_loss[-1]), sorted(pairs, reverse=True)
        return Finding(text=_against_counts(loss, counts), rank=0)


def _against_counts(loss: float, counts: list[tuple[float, int]]) -> str:
    """`counts` are (loss, order), the worst first."""
    beaten = sum(counted > loss for counted, _ in counts)
    if not beaten:
        return (
            f"It predicts worse than counting single characters does: {loss:.3f} nats a character, "
            f"against {counts[0][0]:.3f}."
        )
    if beaten == len(counts):
        best, order = counts[-1]
        return (
            f"It predicts better than counts of up to {max(n for _, n in counts)} characters: "
            f"{loss:.3f} nats a character; the best of them, order {order}, reach {best:.3f}."
        )
    (last, order), (first, better) = counts[beaten - 1], counts[beaten]
    return (
        f"It predicts better than counts of order {order} and worse than those of order "
        f"{better}: {loss:.3f} nats a character, between {last:.3f} and {first:.3f}."
    )


def training_history(
    folder: str | Path, model: AnyModel, baselines: NGramLosses | None = None
) -> TrainingHistory:
    """Returns what a model's folder tells of its training.

    Args:
        folder: the model's folder, with its `history.csv`.
        model: the model.
        baselines: losses of count models on the same validation text.

    Raises:
        CheckpointError: no history there, or not such a file.
        ConfigError: a history without a row.

    Example:
        >>> import interp
        >>> model = interp.HookedGPT.from_pretrained("models/shakespeare-char")
        >>> history = interp.training_history("models/shakespeare-char", model)
        >>> int(history.step[-1])
        2000
    """
    rows = read_history(Path(folder) / "history.csv")
    if not rows:
        raise ConfigError(f"{Path(folder) / 'history.csv'} has no rows yet; train on, then ask")
    return history_of(rows, model, baselines)


def history_of(
    rows: Sequence[HistoryRow], model: AnyModel, baselines: NGramLosses | None = None
) -> TrainingHistory:
    """Returns the history of at least one row; arguments as of `training_history`."""
    return TrainingHistory(
        **{name: np.array([getattr(row, name) for row in rows]) for name in COLUMNS},
        baseline_orders=np.zeros(0, np.int64) if baselines is None else baselines.orders,
        baseline_losses=np.zeros(0) if baselines is None else baselines.losses,
        baseline_constant=0.0 if baselines is None else baselines.constant,
        provenance=Provenance(
            model=model_hash(model),
            tokens="" if baselines is None else baselines.provenance.tokens,
            dtype=str(model.dtype).removeprefix("torch."), versions=dict(versions()),
            name=getattr(model, "name", ""),
        ),
    )  # fmt: skip
