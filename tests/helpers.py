"""What several files of tests use: a shell, definitions of metrics, what "the same" means."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import VARIANTS, variant_id
from torch import Tensor

from interp import Result
from interp.cli import main

Metric = str | Callable[[Tensor, Tensor], Tensor]

each_variant = pytest.mark.parametrize("variant", VARIANTS, ids=variant_id)
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


class Shell:
    """Runs commands in this process; `folder` is the one that they must leave alone if refused."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys

    def __call__(self, *args: object) -> tuple[int, str, str]:
        """Returns the status, and what was written to stdout and to stderr."""
        before, sys.argv = sys.argv, ["interp", *map(str, args)]
        status = 0
        try:
            main()
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else 1
        finally:
            sys.argv = before
        return status, *self.capsys.readouterr()

    def fails(self, *args: object) -> str:
        """Runs what must be refused with one line and status 2; returns the line."""
        files = self.files()
        status, out, err = self(*args)
        assert (status, out) == (2, "")
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert "Traceback" not in err
        assert self.files() == files, "something was written"
        return err

    def files(self) -> dict[str, bytes]:
        return snapshot(self.folder)


def snapshot(folder: Path) -> dict[str, bytes]:
    """Returns every file below a folder, by its path in it."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def everything(name: str) -> bool:
    """A filter that every hook passes."""
    return True


def metric_of(
    metric: Metric, logits: Tensor, base: Tensor, targets: Tensor, foil: int = 3
) -> Tensor:
    """Returns a metric at each position by its definition.

    Args:
        metric: a name, or the caller's own function of logits and targets.
        logits: of the run that is judged, [..., pos, d_vocab].
        base: those of the run as it was; "probability" and "kl" compare with them.
        targets: [..., pos].
        foil: of "foil".
    """
    at_target = logits.gather(-1, targets[..., None])[..., 0]
    log_p, log_base = logits.log_softmax(-1), base.log_softmax(-1)
    log_p_target = log_p.gather(-1, targets[..., None])[..., 0]
    match metric:
        case "raw":
            return at_target
        case "centered":
            return at_target - logits.mean(-1)
        case "foil":
            return at_target - logits[..., foil]
        case "probability":
            return at_target - (log_base.exp() * logits).sum(-1)
        case "log_prob":
            return log_p_target
        case "loss":
            return -log_p_target
        case "kl":
            return -(log_base.exp() * (log_base - log_p)).sum(-1)
    assert callable(metric), f"no definition of {metric!r}"
    return metric(logits, targets)


def assert_same(given: Result, expected: Result) -> None:
    """The same kind of result with the same fields, arrays to the last bit and with their dtype."""
    assert type(given) is type(expected)
    for field in dataclasses.fields(expected):
        one, two = getattr(given, field.name), getattr(expected, field.name)
        if isinstance(two, np.ndarray):
            assert (one.dtype, one.shape) == (two.dtype, two.shape), field.name
            np.testing.assert_array_equal(one, two, err_msg=field.name)
        else:
            assert one == two, field.name


def assert_same_weights(given: torch.nn.Module, expected: torch.nn.Module) -> None:
    """Parameters of the same names, equal to the last bit."""
    others = dict(expected.named_parameters())
    assert [name for name, _ in given.named_parameters()] == list(others)
    for name, parameter in given.named_parameters():
        assert parameter.equal(others[name]), name
