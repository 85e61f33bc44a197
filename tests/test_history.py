from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from interp import CheckpointError
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
def test_history_round_trips(tmp_path_factory, rows):
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
def test_file_that_is_not_a_history_is_refused(tmp_path, data):
    path = tmp_path / "history.csv"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="is not a training history"):
        read_history(path)


def test_missing_history_is_refused(tmp_path):
    with pytest.raises(CheckpointError):
        read_history(tmp_path / "history.csv")


def test_learning_rate_warms_up_in_a_line_to_the_peak():
    rates = [learning_rate_at(step, 1.0, 0.0, 4, 100) for step in range(5)]
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_learning_rate_ends_at_the_least():
    assert learning_rate_at(100, 1.0, 0.1, 10, 100) == pytest.approx(0.1, abs=1e-15)
    assert learning_rate_at(55, 1.0, 0.1, 10, 100) == pytest.approx(0.55)


def test_learning_rate_without_warm_up_starts_at_the_peak():
    assert learning_rate_at(0, 0.5, 0.0, 0, 10) == 0.5


@given(steps=st.integers(1, 300), warmup=st.integers(0, 400), peak=st.floats(1e-6, 1e3))
def test_learning_rate_stays_within_its_bounds(steps, warmup, peak):
    rates = [learning_rate_at(step, peak, peak / 10, warmup, steps) for step in range(steps)]
    assert all(0 < rate <= peak * (1 + 1e-12) for rate in rates)
    falling = rates[warmup:]
    assert falling == sorted(falling, reverse=True)


@given(steps=st.integers(1, 10_000), count=st.integers(2, 40))
def test_log_spaced_steps_hold_both_ends(steps, count):
    chosen = log_spaced_steps(steps, count)
    assert chosen == sorted(set(chosen))
    assert (chosen[0], chosen[-1]) == (0, steps)
    assert len(chosen) <= count + 1


def test_log_spaced_steps_double_when_asked_to():
    assert log_spaced_steps(64, 8) == [0, 1, 2, 4, 8, 16, 32, 64]
    assert log_spaced_steps(64, 1) == [64]
    assert log_spaced_steps(64, 0) == []


def test_rows_are_frozen():
    row = HistoryRow(
        step=1, tokens=2, learning_rate=0.1, train_loss=math.pi, validation_loss=1.0,
        grad_norm=1.0, seconds=0.5,
    )  # fmt: skip
    with pytest.raises(AttributeError):
        row.step = 2
