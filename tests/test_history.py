from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import random_model
from hypothesis import given, strategies as st

from interp import CheckpointError, ConfigError, Result, ngram_losses, training_history
from interp.training.history import (
    COLUMNS,
    HistoryRow,
    read_history,
    write_history,
)
from interp.training.schedule import learning_rate_at, log_spaced_steps

FLOATS = st.floats(allow_nan=False)
ROWS = st.builds(
    HistoryRow, step=st.integers(0), tokens=st.integers(0), learning_rate=FLOATS,
    train_loss=FLOATS, validation_loss=FLOATS, grad_norm=FLOATS, seconds=FLOATS,
)  # fmt: skip


@given(rows=st.lists(ROWS, max_size=5))
def test_history_round_trips(tmp_path_factory: pytest.TempPathFactory, rows: Any) -> None:
    path = tmp_path_factory.mktemp("history") / "history.csv"
    write_history(rows, path)
    assert read_history(path) == rows
    assert path.read_bytes().startswith(",".join(COLUMNS).encode() + b"\n")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"a,b\n1,2\n",
        b"a,b\n",
        b"\xff\xfe",
        ",".join(COLUMNS).encode() + b"\n1,2\n",
        ",".join(COLUMNS).encode() + b"\nx,2,3,4,5,6,7\n",
        b"x" * 200_000,
    ],
    ids=["empty", "other columns", "other header", "binary", "short row", "words", "long line"],
)
def test_file_that_is_not_a_history_is_refused(tmp_path: Path, data: Any) -> None:
    path = tmp_path / "history.csv"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="is not a training history"):
        read_history(path)


def test_missing_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        read_history(tmp_path / "history.csv")


def test_learning_rate_warms_up_in_a_line_to_the_peak() -> None:
    rates = [learning_rate_at(step, 1.0, 0.0, 4, 100) for step in range(5)]
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_learning_rate_ends_at_the_least() -> None:
    assert learning_rate_at(100, 1.0, 0.1, 10, 100) == pytest.approx(0.1, abs=1e-15)
    assert learning_rate_at(55, 1.0, 0.1, 10, 100) == pytest.approx(0.55)


def test_learning_rate_without_warm_up_starts_at_the_peak() -> None:
    assert learning_rate_at(0, 0.5, 0.0, 0, 10) == 0.5


@given(steps=st.integers(1, 300), warmup=st.integers(0, 400), peak=st.floats(1e-6, 1e3))
def test_learning_rate_stays_within_its_bounds(steps: int, warmup: int, peak: float) -> None:
    rates = [learning_rate_at(step, peak, peak / 10, warmup, steps) for step in range(steps)]
    assert all(0 < rate <= peak * (1 + 1e-12) for rate in rates)
    falling = rates[warmup:]
    assert falling == sorted(falling, reverse=True)


@given(steps=st.integers(1, 10_000), count=st.integers(2, 40))
def test_log_spaced_steps_hold_both_ends(steps: int, count: int) -> None:
    chosen = log_spaced_steps(steps, count)
    assert chosen == sorted(set(chosen))
    assert (chosen[0], chosen[-1]) == (0, steps)
    assert len(chosen) <= count + 1


def test_log_spaced_steps_double_when_asked_to() -> None:
    assert log_spaced_steps(64, 8) == [0, 1, 2, 4, 8, 16, 32, 64]
    assert log_spaced_steps(64, 1) == [64]
    assert log_spaced_steps(64, 0) == []


def test_rows_are_frozen() -> None:
    row = HistoryRow(
        step=1, tokens=2, learning_rate=0.1, train_loss=math.pi, validation_loss=1.0,
        grad_norm=1.0, seconds=0.5,
    )  # fmt: skip
    with pytest.raises(AttributeError):
        row.step = 2  # type: ignore[misc]


# ---- the history as a result -------------------------------------------------------------------


def rows_of(*losses: float) -> list[HistoryRow]:
    return [
        HistoryRow(step=10 * (i + 1), tokens=100 * (i + 1), learning_rate=0.1, train_loss=loss + 1,
                   validation_loss=loss, grad_norm=1.0, seconds=2.0)
        for i, loss in enumerate(losses)
    ]  # fmt: skip


def history_of(folder: Path, *losses: Any, baselines: Any = None) -> Any:
    write_history(rows_of(*losses), folder / "history.csv")
    return training_history(folder, random_model(), baselines)


def counts(*losses: float) -> Any:
    found = ngram_losses([0, 1] * 20, [0, 1] * 9, 2, orders=tuple(range(1, len(losses) + 1)))
    return dataclasses.replace(found, losses=np.array(losses))


def test_history_is_read_drawn_and_kept(tmp_path: Path) -> None:
    history = history_of(tmp_path, 3.0, 2.0)
    assert history.to_frame()["validation_loss"].tolist() == [3.0, 2.0]
    history.save(tmp_path / "h.json")
    assert Result.load(tmp_path / "h.json").to_document() == history.to_document()
    (shown,) = history.figures()
    validation, train = shown.mark.series
    assert (validation.values.tolist(), train.values.tolist()) == ([3.0, 2.0], [4.0, 3.0])
    assert shown.mark.x.tolist() == [10, 20]
    assert history.finding() is None
    assert f"{math.exp(2.0):.2f}" in history.summary()


@pytest.mark.parametrize(
    ("loss", "said"),
    [(4.0, "worse than counting"), (2.5, "order 1 and worse than those of order 2"),
     (1.0, "better than counts of up to 2")],
    ids=["above", "between", "below"],
)  # fmt: skip
def test_the_finding_is_between_which_count_models_the_loss_lies(
    tmp_path: Path, loss: float, said: str
) -> None:
    history = history_of(tmp_path, 9.0, loss, baselines=counts(3.0, 2.0))
    assert said in history.finding().text
    assert f"{loss:.3f} nats" in history.finding().text
    assert history.finding().rank == 0


def test_count_models_are_level_lines_and_near_ones_share_a_tag(tmp_path: Path) -> None:
    history = history_of(tmp_path, 3.0, 1.0, baselines=counts(3.0, 2.0, 1.99))
    lines = history.figures()[0].mark.series[2:]
    assert [line.values.tolist() for line in lines] == [[3.0] * 2, [2.0] * 2, [1.99] * 2]
    assert [line.tag for line in lines] == ["counts of order 1", "counts of order 2", ""]


def test_a_history_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no rows yet"):
        history_of(tmp_path)


def test_rows_that_are_all_too_long_are_refused(tmp_path: Path) -> None:
    """pandas would take their first column for row names, and shift the others."""
    path = tmp_path / "history.csv"
    path.write_text(",".join(COLUMNS) + "\n1,2,3,4,5,6,7,8\n", encoding="utf-8")
    with pytest.raises(CheckpointError, match="is not a training history"):
        read_history(path)
