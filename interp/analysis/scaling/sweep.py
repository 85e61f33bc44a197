"""The grid of the sqrt(d_k) question: arms by head widths, learning rates and seeds.

What a run is and what is measured stands in `interp.analysis.scaling.arms`; here are the grid, its
folder, from which a stopped sweep goes on, and its result.
"""

from __future__ import annotations

import json
import math
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int

from interp import files
from interp.analysis.scaling.arms import (
    ARMS,
    LOSS_WINDOWS,
    WEIGHTS,
    Run,
    build_arm,
    predicted_entropy,
    predicted_std,
    some_windows,
    train_run,
)
from interp.analysis.scaling.rescaled import QUANTILES
from interp.errors import ConfigError, OutputError, TrainingInterrupted
from interp.results import intervals
from interp.results.provenance import Provenance, versions
from interp.results.result import Result
from interp.training.recipe import AnyText, Recipe

D_HEADS = (8, 32, 128, 256)
LEARNING_RATES = (1e-3, 3e-3, 1e-2)
Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class ScalingSweep(Result):
    """A finished sweep. Losses in nats per token; entropies over ln(visible keys).

    `gradient` holds quantiles (5, 25, 50, 75, 95 %) of the sizes of the entries of ∂L/∂W_Q and
    ∂L/∂W_K. `predicted_std` and `predicted_entropy` are theory's, for step 0. NaN: a run
    whose loss was no longer finite.
    """

    AXES: ClassVar = {
        "d_heads": ("d_head",),
        "learning_rates": ("learning_rate",),
        "seeds": ("seed",),
        "steps": ("step",),
        "predicted_std": ("arm", "d_head"),
        "predicted_entropy": ("arm", "d_head"),
        "loss": ("arm", "d_head", "learning_rate", "seed", "step"),
        "entropy": ("arm", "d_head", "learning_rate", "seed", "step", "layer", "head"),
        "std": ("arm", "d_head", "learning_rate", "seed", "step", "layer", "head"),
        "gradient": (
            "arm", "d_head", "learning_rate", "seed", "step", "layer", "head", "weight", "quantile",
        ),
    }  # fmt: skip
    NAMES: ClassVar = {"arms": "arm"}
    arms: tuple[str, ...]
    d_heads: np.ndarray
    learning_rates: np.ndarray
    seeds: np.ndarray
    steps: np.ndarray
    predicted_std: np.ndarray
    predicted_entropy: np.ndarray
    loss: np.ndarray
    entropy: np.ndarray
    std: np.ndarray
    gradient: np.ndarray
    recipe: str
    text: str

    def to_frame(self) -> pd.DataFrame:
        """Returns one row an arm, d_head, learning_rate, seed, step, layer and head: loss, entropy,
        std, and gradient quantiles such as W_Q_q50.
        """
        names = self.AXES["entropy"]
        axes = [self.arms, self.d_heads, self.learning_rates, self.seeds, self.steps,
                *map(range, self.entropy.shape[5:])]  # fmt: skip
        index = pd.MultiIndex.from_product(axes, names=names)
        loss = np.broadcast_to(self.loss[..., None, None], self.entropy.shape)
        frame = pd.DataFrame(
            {
                "loss": loss.ravel(),
                "entropy_normalised": self.entropy.ravel(),
                "score_std": self.std.ravel(),
            },
            index=index,
        )
        for w, weight in enumerate(WEIGHTS):
            for q, quantile in enumerate(QUANTILES):
                column = f"{weight}_q{round(100 * quantile):02d}"
                frame[column] = self.gradient[..., w, q].ravel()
        return frame.reset_index()

    def best_rates(self) -> Int[np.ndarray, "arm d_head"]:
        """Returns, for each arm and width, which learning rate has the lowest mean last loss.

        A rate with a run that diverged is out, unless all are.
        """
        mean = self.loss[..., -1].mean(-1)  # NaN where a run diverged
        return np.asarray(np.where(np.isnan(mean), np.inf, mean).argmin(-1))

    def summary(self) -> pd.DataFrame:
        """Returns one row an arm and d_head, at its own best learning rate: loss at the last step
        with its 95 % interval over seeds, that of its difference from "sqrt" (each at its own best
        rate, paired by seed), and entropy and std at the first and last step, with theory's
        for the first. Choosing the rate by the same runs favours all arms alike.
        """
        best, rows = self.best_rates(), []
        last = {
            (arm, d): self.loss[arm, d, best[arm, d], :, -1]
            for arm in range(len(self.arms))
            for d in range(len(self.d_heads))
        }
        base = self.arms.index("sqrt") if "sqrt" in self.arms else None
        for (arm, d), losses in last.items():
            loss, low, high = intervals.mean_interval(losses)
            row = {
                "arm": self.arms[arm],
                "d_head": int(self.d_heads[d]),
                "learning_rate": float(self.learning_rates[best[arm, d]]),
                "loss": float(loss),
                "low": float(low),
                "high": float(high),
            }
            if base is not None:
                difference = intervals.mean_interval(losses - last[base, d])
                for name, value in zip(("", "_low", "_high"), difference, strict=True):
                    row[f"against_sqrt{name}"] = float(value)
            at = (arm, d, best[arm, d])
            row |= {
                "predicted_std": float(self.predicted_std[arm, d]),
                "std_first": float(self.std[at][:, 0].mean()),
                "predicted_entropy": float(self.predicted_entropy[arm, d]),
                "entropy_first": float(self.entropy[at][:, 0].mean()),
                "std_last": float(self.std[at][:, -1].mean()),
                "entropy_last": float(self.entropy[at][:, -1].mean()),
                "n": len(self.seeds),
            }
            rows.append(row)
        return pd.DataFrame(rows)


def scaling_sweep(
    recipe: Recipe | str | Path,
    folder: str | Path,
    *,
    arms: Sequence[str] = ARMS,
    d_heads: Sequence[int] = D_HEADS,
    learning_rates: Sequence[float] = LEARNING_RATES,
    seeds: int = 5,
    jobs: int = 1,
    device: str = "cpu",
    corpus: AnyText | None = None,
    progress: Progress | None = None,
) -> ScalingSweep:
    """Trains the grid and returns its measures; given again after a stop, goes on.

    Each finished run is kept in `folder/runs`, so that a larger grid reuses a smaller one. Writes
    `folder/sweep.json` (the result) and `sweep.csv` (its table) at the end.

    Args:
        recipe: the model and how to train it; the grid's learning rates, seeds and head widths take
            the place of its own.
        folder: where to write.
        arms: which of `ARMS`.
        d_heads: head widths.
        learning_rates: peaks; the recipe's schedule is scaled to each.
        seeds: how many, from 0.
        jobs: processes at a time. With 1, runs are in this process, with all its threads.
        device: where to train.
        corpus: the text; by default the recipe's.
        progress: called with (runs done, of how many).

    Raises:
        ConfigError: an empty or repeated list, an unknown arm, a recipe that sets the scale itself.
        TextError: see `load_corpus`.
        OutputError: `folder` holds runs of another recipe or text.
        TrainingInterrupted: Ctrl-C; finished runs are kept.
    """
    recipe = recipe if isinstance(recipe, Recipe) else Recipe.load(recipe)
    grids = {"arms": arms, "d_heads": d_heads, "learning_rates": learning_rates}
    for name, values in grids.items():
        if not values or len(set(values)) < len(values):
            raise ConfigError(f"{name} = {list(values)} must have values, each once")
    wrong = [x for x in (*d_heads, *learning_rates, seeds, jobs) if not 0 < x < math.inf]
    if wrong:
        raise ConfigError(f"d_heads, learning_rates, seeds and jobs must be positive: {wrong[0]}")
    runs = [
        Run(arm=arm, d_head=d, learning_rate=rate, seed=seed)
        for arm in arms
        for d in d_heads
        for rate in learning_rates
        for seed in range(seeds)
    ]
    corpus = corpus or recipe.text.load()
    corpus.check_long_enough(recipe.config(d_vocab=1).n_ctx)
    d_vocab = len(corpus.tokenizer())
    configs = {(r.arm, r.d_head): build_arm(recipe, r, d_vocab).config for r in runs}
    folder = Path(folder)
    _claim(folder, recipe, corpus)
    with _no_later_than_ctrl_c(folder):
        _do(runs, recipe, corpus, folder, jobs, device, progress)
    found = [json.loads(_file(folder, run).read_text(encoding="utf-8")) for run in runs]
    shape = (len(arms), len(d_heads), len(learning_rates), seeds)

    def gathered(name: str) -> np.ndarray:
        values = np.array([one[name] for one in found], dtype=np.float32)
        return values.reshape(*shape, *values.shape[1:])

    stds = np.array([[predicted_std(configs[a, d], a) for d in d_heads] for a in arms])
    n_ctx = recipe.config(d_vocab=1).n_ctx
    result = ScalingSweep(
        arms=tuple(arms), d_heads=np.array(d_heads), learning_rates=np.array(learning_rates),
        seeds=np.arange(seeds), steps=np.array(found[0]["steps"]),
        predicted_std=stds,
        predicted_entropy=np.vectorize(lambda s: predicted_entropy(s, n_ctx)[0])(stds),
        **{name: gathered(name) for name in ("loss", "entropy", "std", "gradient")},
        recipe=recipe.to_toml(), text=corpus.name,
        provenance=Provenance(
            model=files.sha256(recipe.to_toml().encode()), tokens=corpus.sha256, dtype="float32",
            versions=dict(versions()),
        ),
    )  # fmt: skip
    result.save(folder / "sweep.json")
    files.write_text(folder / "sweep.csv", result.to_frame().to_csv(index=False))
    return result


def _claim(folder: Path, recipe: Recipe, corpus: AnyText) -> None:
    """Makes sure that runs in the folder are of this recipe and text."""
    identity = recipe.to_toml() + f"\n# text: {corpus.name}, sha256 {corpus.sha256}\n"
    path = folder / "recipe.toml"
    if path.is_file() and path.read_text(encoding="utf-8", errors="replace") != identity:
        raise OutputError(f"{folder} holds runs of another recipe or text; choose another --out")
    if not path.is_file() and folder.is_dir() and any(folder.iterdir()):
        raise OutputError(f"{folder} already holds something else; choose another --out")
    files.write_text(path, identity)


def _file(folder: Path, run: Run) -> Path:
    return folder / "runs" / f"{run.name}.json"


@contextmanager
def _no_later_than_ctrl_c(folder: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as error:
        raise TrainingInterrupted(
            f"interrupted; finished runs are kept in {folder / 'runs'}: give the same command "
            "again to go on"
        ) from error


def _do(
    runs: list[Run],
    recipe: Recipe,
    corpus: AnyText,
    folder: Path,
    jobs: int,
    device: str,
    progress: Progress | None,
) -> None:
    """Trains what is not yet there, the widest first."""
    missing = [run for run in runs if not _file(folder, run).is_file()]
    missing.sort(key=lambda run: -run.d_head)
    done = len(runs) - len(missing)

    def finished() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, len(runs))

    if progress is not None:
        progress(done, len(runs))
    if jobs == 1 or not missing:
        worker = _Worker(recipe, corpus, folder, device)
        for run in missing:
            worker.do(run)
            finished()
        return
    pool = ProcessPoolExecutor(
        jobs, mp_context=multiprocessing.get_context("spawn"),
        initializer=_start, initargs=(recipe, corpus, folder, device),
    )  # fmt: skip
    waiting = {pool.submit(_do_one, run) for run in missing}
    try:
        while waiting:
            ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in ready:
                future.result()
                finished()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


class _Worker:
    """What a process needs to do any run of the grid."""

    def __init__(self, recipe: Recipe, corpus: AnyText, folder: Path, device: str) -> None:
        self.recipe, self.folder, self.device, self.text = recipe, folder, device, corpus
        self.d_vocab = len(corpus.tokenizer())
        self.windows = some_windows(corpus, recipe.config(d_vocab=1).n_ctx, LOSS_WINDOWS)

    def do(self, run: Run) -> None:
        found = train_run(self.recipe, run, self.text, self.windows, self.d_vocab, self.device)
        files.write_text(_file(self.folder, run), json.dumps(found))


_worker: _Worker | None = None


def _start(recipe: Recipe, corpus: AnyText, folder: Path, device: str) -> None:
    global _worker  # noqa: PLW0603  # a process of the pool has one
    torch.set_num_threads(1)
    _worker = _Worker(recipe, corpus, folder, device)


def _do_one(run: Run) -> None:
    assert _worker is not None
    _worker.do(run)
