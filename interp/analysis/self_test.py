"""A self-test of a model and of this package on it: what must not change, does not.

Parity: different ways of computing the same thing agree (with and without a cache, in float32 and
float64, all at once and token by token, one sequence and many), and no position sees a later one.

Gauge (`interp.analysis.gauges`): weights that are written differently but mean the same give the
same probabilities and the same attributions. Done in float64 on copies of the model: the user's
is not touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from interp.analysis.gauges import GAUGES, DoesNotApply, gauge, plain_copy
from interp.errors import CompletenessError, TokenError
from interp.figures.marks import Dots, Series
from interp.gpt.layers import PastKeys
from interp.gpt.model import HookedGPT, Input
from interp.results.provenance import Provenance
from interp.results.result import Result
from interp.results.shown import Shown, kept
from interp.stream.resume import run_from, stream_at

# Relative to 1 + the largest number compared.
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-5}
ROUNDED = 1e-3  # float32 against float64: one rounding after another, through all blocks
Compute = Callable[[], tuple[Tensor, Tensor]]


@dataclass(frozen=True, kw_only=True)
class ModelChecks(Result):
    """Checks by name: the `errors` found, the `tolerances` they are held to, and whether passed.

    An error is the largest difference of two computations of the same thing, relative to 1 + the
    largest of its absolute values. NaN: the check does not apply to this model (`notes` says why).
    """

    AXES: ClassVar = {"errors": ("check",), "tolerances": ("check",)}
    NAMES: ClassVar = {"names": "check", "kinds": "check", "notes": "check"}
    HEADING: ClassVar = "Self-test of the model"
    errors: np.ndarray
    tolerances: np.ndarray
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """True when no check that applies failed."""
        return not any(outcome == "failed" for outcome in self.outcomes)

    @property
    def outcomes(self) -> tuple[str, ...]:
        """ "passed", "failed" or "does not apply", by check."""
        return tuple(
            "does not apply" if np.isnan(e) and note else "passed" if e <= t else "failed"
            for e, t, note in zip(self.errors, self.tolerances, self.notes, strict=True)
        )

    def checks(self) -> list[tuple[str, str]]:
        """Returns each check's outcome, with its error and tolerance or the note."""
        rows = zip(self.names, self.outcomes, self.errors, self.tolerances, self.notes, strict=True)
        return [
            (name, f"{outcome}: {note}" if note else f"{outcome}: largest relative difference "
             f"{error:.1e} (tolerance {tolerance:.0e})")
            for name, outcome, error, tolerance, note in rows
        ]  # fmt: skip

    def summary(self) -> str:
        """Returns one line per check: outcome, kind, name, error and tolerance."""
        lines = []
        for row in self.to_frame().to_dict("records"):
            how = row["note"] or f"{row['error']:.1e} (tolerance {row['tolerance']:.0e})"
            lines.append(f"{row['outcome']:<15} {row['kind']:<7} {row['check']:<40} {how}")
        return "\n".join(lines)

    def figures(self) -> list[Shown]:
        """Returns how much of its tolerance each check used, on a logarithmic scale."""
        held = [i for i, error in enumerate(self.errors) if np.isfinite(error)]
        used = self.errors[held] / np.maximum(self.tolerances[held], np.finfo(float).tiny)
        shown = np.where(self.errors[held] == 0, np.nan, used)
        caption = (
            "How much of its tolerance each check used; a check without a dot found no difference "
            f"at all. n = {len(held)} checks, seed {self.provenance.seed}."
        )
        dots = Dots(
            names=tuple(self.names[i] for i in held), label="largest difference / tolerance",
            series=(Series(name="difference", values=shown, marker="o"),), scale="log",
        )  # fmt: skip
        return [Shown(name="self-test", caption=caption, mark=dots, on_page=False)]

    @kept
    def to_frame(self) -> pd.DataFrame:
        """Returns columns kind, check, outcome, error, tolerance, note."""
        return pd.DataFrame(
            {
                "kind": self.kinds,
                "check": self.names,
                "outcome": self.outcomes,
                "error": self.errors,
                "tolerance": self.tolerances,
                "note": self.notes,
            }
        )


@torch.no_grad()
def check_model(model: HookedGPT, tokens: Input, *, seed: int = 0) -> ModelChecks:
    """Returns what must not change on this model, and by how much it did.

    Args:
        model: the model; not changed.
        tokens: sequences of at least two tokens.
        seed: of the random transformations.

    Raises:
        TokenError: sequences of one token.
    """
    ids = model.to_tokens(tokens)
    if ids.shape[1] < 2:
        raise TokenError("the checks need sequences of at least two tokens")
    own, single = plain_copy(model, model.dtype), plain_copy(model, torch.float32)
    wide = single if model.device.type == "mps" else plain_copy(model, torch.float64)
    tight = TOLERANCES.get(own.dtype, 2e-2)
    checks: list[tuple[str, str, float, Compute]] = [
        ("parity", "weights are finite numbers", 0.0, partial(_finite, own)),
        ("parity", "with and without a cache", tight, partial(_cached, own, ids)),
        ("parity", "run on from the middle", tight, partial(_from_the_middle, own, ids)),
        ("parity", "token by token and all at once", tight, partial(_one_by_one, own, ids)),
        ("parity", "one sequence and many", tight, partial(_alone, own, ids)),
        ("parity", "later tokens change nothing earlier", 0.0, partial(_causal, own, ids)),
        ("parity", "float32 and float64", ROUNDED, lambda: (single(ids).double(), wide(ids))),
    ]
    for name, change in GAUGES.items():
        generator = torch.Generator().manual_seed(seed)
        compute = partial(gauge, wide, ids, change, generator)
        checks.append(("gauge", name, TOLERANCES[wide.dtype], compute))
    rows = [_outcome(kind, name, limit, compute) for kind, name, limit, compute in checks]
    kinds, names, errors, limits, notes = zip(*rows, strict=True)
    return ModelChecks(
        errors=np.array(errors),
        tolerances=np.array(limits),
        names=names,
        kinds=kinds,
        notes=notes,
        provenance=Provenance.of(model, ids, seed=seed),
    )


def _outcome(
    kind: str, name: str, limit: float, compute: Compute
) -> tuple[str, str, float, float, str]:
    try:
        given, expected = compute()
    except DoesNotApply as reason:
        return kind, name, float("nan"), limit, str(reason)
    except CompletenessError as reason:
        return kind, name, float("inf"), limit, str(reason)
    size = 1 + float(expected.abs().max())
    error = float((given - expected).abs().max()) / size
    return kind, name, float("inf") if math.isnan(error) else error, limit, ""


# ---- parity ----------------------------------------------------------------------------------


def _finite(model: HookedGPT) -> tuple[Tensor, Tensor]:
    bad = sum(int((~p.isfinite()).sum()) for p in model.parameters())
    return torch.tensor(float(bad)), torch.zeros(())


def _cached(model: HookedGPT, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Attention in pieces, and written out, against fused attention."""
    runs = [model.run_with_cache(ids, names_filter=names)[0] for names in ("all", "attention")]
    return torch.stack(runs), model(ids).expand(2, *ids.shape, -1)


def _from_the_middle(model: HookedGPT, ids: Tensor) -> tuple[Tensor, Tensor]:
    logits, cache = model.run_with_cache(ids)
    depths = [(layer, half) for layer in range(len(model.blocks)) for half in (0, 1)]
    runs = [run_from(model, stream_at(cache, depth), depth) for depth in [(-1, 1), *depths]]
    return torch.stack(runs), logits.expand(len(runs), *logits.shape)


def _one_by_one(model: HookedGPT, ids: Tensor) -> tuple[Tensor, Tensor]:
    past = [PastKeys() for _ in model.blocks]
    if not past:
        raise DoesNotApply("the model has no blocks, so nothing is remembered")
    steps = [model(ids[:, i : i + 1], past=past) for i in range(ids.shape[1])]
    return torch.cat(steps, dim=1), model(ids)


def _alone(model: HookedGPT, ids: Tensor) -> tuple[Tensor, Tensor]:
    return torch.cat([model(row[None]) for row in ids]), model(ids)


def _causal(model: HookedGPT, ids: Tensor) -> tuple[Tensor, Tensor]:
    half = ids.shape[1] // 2
    other = ids.clone()
    other[:, half:] = (other[:, half:] + 1) % model.config.d_vocab
    return model(other)[:, :half], model(ids)[:, :half]
