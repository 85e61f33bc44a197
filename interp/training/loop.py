"""The training loop, with a state on disk that a killed run can go on from."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from interp.errors import NonFiniteLossError, TrainingInterrupted
from interp.gpt import folder as folders
from interp.lesson.loading import Trainable, build_model
from interp.training.history import HistoryRow, read_history
from interp.training.losses import cross_entropy, mean_loss
from interp.training.optimiser import autocast_for, make_optimizer, update
from interp.training.recipe import AnyText, Recipe
from interp.training.run_folder import RunFolder
from interp.training.schedule import learning_rate_at, log_spaced_steps
from interp.training.state import HISTORY, State, dropout_seed, load_state

LOG_EVERY = 10

# What the loop tells whoever shows progress: step, steps, loss, tokens per second.
Progress = Callable[[int, int, float, float], None]


def train(
    recipe: Recipe | str | Path,
    folder: str | Path | None = None,
    *,
    corpus: AnyText | None = None,
    device: str | torch.device = "cpu",
    fresh: bool = False,
    progress: Progress | None = None,
) -> Trainable:
    """Trains the model of a recipe, or goes on where an earlier run of it stopped.

    The batches, the initial weights and dropout are functions of the recipe's seed and the step, so
    a run that was stopped and resumed has the losses of one that was not, to the last bit on the
    same processor with the same number of threads (sums depend on how they are split).

    Args:
        recipe: a `Recipe` or the path of one.
        folder: where to write; `models/<name>` by default.
        corpus: the text; by default the recipe's.
        device: where to train.
        fresh: start again if `folder` already holds a run.
        progress: called every few steps with step, steps, loss and tokens per second.

    Returns:
        The trained model, in evaluation mode, on `device`; it knows its `folder` and `name`.

    Raises:
        ConfigError, TextError: see `Recipe.load` and `load_corpus`.
        OutputError: `folder` cannot be written or holds a different run.
        NonFiniteLossError: the loss became NaN or infinite; the last good state is kept.
        TrainingInterrupted: Ctrl-C; the state was saved.
    """
    recipe = recipe if isinstance(recipe, Recipe) else Recipe.load(recipe)
    folder = Path(folder or Path("models") / recipe.name)
    corpus = corpus or recipe.text.load()
    corpus.check_long_enough(recipe.config(d_vocab=1).n_ctx)
    device = torch.device(device)
    run = _Run(recipe, corpus, folder, device)
    run.folder.claim(recipe, corpus, fresh)
    state = run.resume()
    if state.rows:
        run.folder.publish(state)  # a killed run may have left these behind its state
    with _global_state_untouched(device), _sigint() as interrupted:
        run.go(state, interrupted, progress)
    model = state.model.eval()
    model.folder, model.name = folder, folder.resolve().name
    return model


class _Run:
    """One recipe, one text, one folder."""

    def __init__(self, recipe: Recipe, corpus: AnyText, folder: Path, device: torch.device) -> None:
        self.recipe, self.corpus, self.device = recipe, corpus, device
        self.folder = RunFolder(folder)
        self.settings = recipe.training
        self.tokenizer = corpus.tokenizer()
        self.config = recipe.config(len(self.tokenizer))
        self.autocast = autocast_for(self.settings.precision, device)

    def resume(self) -> State:
        """Returns the newest saved state, or a new one.

        A finished run that came without its training state, as a shipped model does, is finished.
        """
        model = build_model(self.config, self.tokenizer, seed=self.recipe.seed).to(self.device)
        s = self.settings
        optimizer = make_optimizer(model, s.learning_rate, s.weight_decay, (s.beta1, s.beta2))
        state = State(model, optimizer)
        saved = self.folder.states()
        history = self.folder.path / HISTORY
        if saved:
            load_state(state, saved[-1])
        elif history.is_file():
            rows = read_history(history)
            if rows and rows[-1].step == s.steps:
                folders.load_weights(model, self.folder.path / folders.WEIGHTS)
                state.step, state.rows = s.steps, rows
        return state

    def go(self, state: State, interrupted: Callable[[], bool], progress: Progress | None) -> None:
        """Trains from the state's step to the last."""
        s, n_ctx = self.settings, self.config.n_ctx
        wanted = set(log_spaced_steps(s.steps, s.checkpoints))
        if s.checkpoint_every is not None:
            wanted |= {*range(0, s.steps + 1, s.checkpoint_every), s.steps}
        norm = torch.zeros((), device=self.device)
        window_start, window_step = time.perf_counter(), state.step
        if state.step in wanted and not self.folder.checkpoint(state.step).is_dir():
            self.folder.save_checkpoint(state)
        while state.step < s.steps:
            started = time.perf_counter()
            loss, norm = self._step(state)
            state.losses.append(loss)
            state.step += 1
            done = state.step == s.steps
            stop = interrupted()
            evaluate = state.step % s.eval_every == 0 or done
            if state.step % LOG_EVERY == 0 or evaluate or stop or state.step in wanted:
                self._check_finite(state)
                if progress is not None:
                    now = time.perf_counter()
                    rate = (state.step - window_step) * s.batch_size * n_ctx / (now - window_start)
                    window_start, window_step = now, state.step
                    progress(state.step, s.steps, float(state.losses[-1]), rate)
            state.seconds += time.perf_counter() - started
            if evaluate:
                state.rows.append(self._row(state, norm))
                state.losses, state.checked = [], 0
                self.folder.save(state)
            elif stop:
                self.folder.save(state)
            if state.step in wanted:
                self.folder.save_checkpoint(state)
            if stop and not done:
                raise TrainingInterrupted(
                    f"interrupted at step {state.step} of {s.steps}; the state is in "
                    f"{self.folder.path}: give the same command again to go on"
                )

    def _step(self, state: State) -> tuple[Tensor, Tensor]:
        s, model = self.settings, state.model
        if not model.training:
            model.train()
        batch = self.corpus.batch(
            self.config.n_ctx, s.batch_size, seed=self.recipe.seed, step=state.step
        ).to(self.device)
        rate = learning_rate_at(
            state.step, s.learning_rate, s.min_learning_rate, s.warmup_steps, s.steps
        )
        if self.config.dropout > 0:
            self._seed(dropout_seed(self.recipe.seed, state.step))
        with self.autocast():
            loss = cross_entropy(model(batch[:, :-1]), batch[:, 1:])
        return loss.detach(), update(state.optimizer, loss, rate, state.parameters, s.grad_clip)

    def _seed(self, seed: int) -> None:
        if self.device.type == "cpu":
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would reach every device
        else:
            torch.manual_seed(seed)

    def _check_finite(self, state: State) -> None:
        losses = state.losses[state.checked :]
        finite = torch.stack(losses).isfinite()
        state.checked = len(state.losses)
        if not bool(finite.all()):
            first = state.step - len(losses) + int((~finite).nonzero()[0]) + 1
            kept = self.folder.states()
            where = f"the last good state is {kept[-1]}" if kept else "no state was saved yet"
            raise NonFiniteLossError(
                f"the loss became {float(losses[int((~finite).nonzero()[0])])} at step {first}; "
                f"{where}; lower learning_rate"
            )

    def _row(self, state: State, norm: Tensor) -> HistoryRow:
        s = self.settings
        loss = mean_loss(state.model, self.corpus.windows(self.config.n_ctx, 64))
        if not math.isfinite(loss):
            raise NonFiniteLossError(f"the validation loss is {loss} at step {state.step}")
        return HistoryRow(
            step=state.step,
            tokens=state.step * s.batch_size * self.config.n_ctx,
            learning_rate=float(state.optimizer.param_groups[0]["lr"]),
            train_loss=float(torch.stack(state.losses).mean()),
            validation_loss=loss,
            grad_norm=float(norm),
            seconds=round(state.seconds, 2),
        )


@contextlib.contextmanager
def _global_state_untouched(device: torch.device) -> Iterator[None]:
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        yield


@contextlib.contextmanager
def _sigint() -> Iterator[Callable[[], bool]]:
    """Turns the first Ctrl-C into a flag that is read between steps; the second one is as usual."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = signal.getsignal(signal.SIGINT)

    def note(_signal: int, _frame: object) -> None:
        asked.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)
