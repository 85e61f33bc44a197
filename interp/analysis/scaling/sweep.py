"""The grid of the sqrt(d_k) question: arms by head widths, learning rates and seeds.

What a run is and what is measured stands in `interp.analysis.scaling.arms`; here are the grid, its
folder, from which a stopped sweep goes on, and its result.
"""

from __future__ import annotations

import itertools
import json
import math
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from interp import files
from interp.analysis.scaling.arms import (
    ARMS,
    LOSS_WINDOWS,
    Run,
    build_arm,
    some_windows,
    train_run,
)
from interp.analysis.scaling.initial import predicted_entropy, predicted_std
from interp.analysis.scaling.sweep_result import ScalingSweep
from interp.errors import ConfigError, OutputError, TrainingInterrupted
from interp.results.provenance import Provenance, versions
from interp.training.recipe import AnyText, Recipe

D_HEADS = (8, 32, 128, 256)
LEARNING_RATES = (1e-3, 3e-3, 1e-2)
Progress = Callable[[int, int], None]


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
    grid = _Grid(tuple(arms), tuple(d_heads), tuple(learning_rates), seeds)
    grid.check(jobs)
    corpus = corpus or recipe.text.load()
    corpus.check_long_enough(recipe.config(d_vocab=1).n_ctx)
    d_vocab = len(corpus.tokenizer())
    configs = {(r.arm, r.d_head): build_arm(recipe, r, d_vocab).config for r in grid.runs()}
    folder = Path(folder)
    _claim(folder, recipe, corpus)
    with _no_later_than_ctrl_c(folder):
        _do(grid.runs(), recipe, corpus, folder, jobs, device, progress)
    found = [json.loads(_file(folder, run).read_text(encoding="utf-8")) for run in grid.runs()]
    stds = np.array([[predicted_std(configs[a, d], a) for d in d_heads] for a in arms])
    n_ctx = recipe.config(d_vocab=1).n_ctx
    result = ScalingSweep(
        arms=grid.arms, d_heads=np.array(d_heads), learning_rates=np.array(learning_rates),
        seeds=np.arange(seeds), steps=np.array(found[0]["steps"]), predicted_std=stds,
        predicted_entropy=np.vectorize(lambda s: predicted_entropy(s, n_ctx)[0])(stds),
        **{name: grid.gathered(found, name) for name in ("loss", "entropy", "std", "gradient")},
        recipe=recipe.to_toml(), text=corpus.name,
        provenance=Provenance(
            model=files.sha256(recipe.to_toml().encode()), tokens=corpus.sha256, dtype="float32",
            versions=dict(versions()),
        ),
    )  # fmt: skip
    result.save(folder / "sweep.json")
    files.write_text(folder / "sweep.csv", result.to_frame().to_csv(index=False))
    return result


@dataclass(frozen=True)
class _Grid:
    """The cells of a sweep."""

    arms: tuple[str, ...]
    d_heads: tuple[int, ...]
    learning_rates: tuple[float, ...]
    seeds: int

    def check(self, jobs: int) -> None:
        """Raises ConfigError unless there is something of everything, each once."""
        for name in ("arms", "d_heads", "learning_rates"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ConfigError(f"{name} = {list(values)} must have values, each once")
        numbers = (*self.d_heads, *self.learning_rates, self.seeds, jobs)
        wrong = [x for x in numbers if not 0 < x < math.inf]
        if wrong:
            raise ConfigError(
                f"d_heads, learning_rates, seeds and jobs must be positive: {wrong[0]}"
            )

    def runs(self) -> list[Run]:
        """Returns the runs, in the order of the result's axes."""
        cells = itertools.product(self.arms, self.d_heads, self.learning_rates, range(self.seeds))
        return [Run(arm=a, d_head=d, learning_rate=rate, seed=s) for a, d, rate, s in cells]

    def gathered(self, found: list[dict[str, Any]], name: str) -> np.ndarray:
        """Returns one measure of all runs, along the result's axes."""
        values = np.array([one[name] for one in found], dtype=np.float32)
        shape = (len(self.arms), len(self.d_heads), len(self.learning_rates), self.seeds)
        return values.reshape(*shape, *values.shape[1:])


def _claim(folder: Path, recipe: Recipe, corpus: AnyText) -> None:
    """Makes sure that runs in the folder are of this recipe and text."""
    identity = recipe.to_toml() + f"\n# text: {corpus.name}, sha256 {corpus.sha256}\n"
    path = folder / "recipe.toml"
    if path.is_file() and path.read_text(encoding="utf-8", errors="replace") != identity:
        raise OutputError(f"{folder} holds runs of another recipe or text; choose another folder")
    if not path.is_file() and folder.is_dir() and any(folder.iterdir()):
        raise OutputError(f"{folder} already holds something else; choose another folder")
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
