"""The training loop, with a state on disk that a killed run can go on from."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Int
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from interp import files
from interp.data.batches import validation_windows
from interp.errors import (
    CheckpointError,
    NonFiniteLossError,
    OutputError,
    TrainingInterrupted,
)
from interp.gpt import folder as folders
from interp.lesson.loading import Trainable, build_model
from interp.training.history import (
    HistoryRow,
    learning_rate_at,
    log_spaced_steps,
    read_history,
    write_history,
)
from interp.training.recipe import AnyText, Precision, Recipe

LOG_EVERY = 10
STATE = "training_state"


# What the loop tells whoever shows progress: step, steps, loss, tokens per second.
Progress = Callable[[int, int, float, float], None]


@dataclass
class _State:
    """A run in memory: the model, its optimizer, where it is, and what it recorded."""

    model: Trainable
    optimizer: torch.optim.Optimizer
    step: int = 0
    seconds: float = 0.0
    losses: list[Tensor] = field(default_factory=list)  # since the last row, on the device
    checked: int = 0  # of them, for being finite
    rows: list[HistoryRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.parameters = list(self.model.parameters())  # to walk a model takes 1 ms a step


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
        The trained model, in evaluation mode, on `device`.

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
    run.claim(fresh)
    state = run.resume()
    if state.rows:
        run.publish(state)  # a killed run may have left these behind its state
    with _global_state_untouched(device), _sigint() as interrupted:
        run.go(state, interrupted, progress)
    return state.model.eval()


class _Run:
    """One recipe, one text, one folder."""

    def __init__(self, recipe: Recipe, corpus: AnyText, folder: Path, device: torch.device) -> None:
        self.recipe, self.corpus, self.folder, self.device = recipe, corpus, folder, device
        self.settings = recipe.training
        self.tokenizer = corpus.tokenizer()
        self.config = recipe.config(len(self.tokenizer))
        self.autocast = autocast_for(self.settings.precision, device)

    # ---- the folder ----------------------------------------------------------------------

    def claim(self, fresh: bool) -> None:
        """Makes sure that the folder is ours to write, before any work is done."""
        identity = self._identity()
        path = self.folder / "recipe.toml"
        if self.folder.is_file():
            raise OutputError(f"cannot write {self.folder}: it is a file; choose another --out")
        if self.folder.is_dir() and any(map(_is_whole, self.folder.iterdir())):
            if not path.is_file():
                raise OutputError(
                    f"{self.folder} already holds something that is not a training run; "
                    "choose another --out"
                )
            held = path.read_text(encoding="utf-8", errors="replace")
            if held != identity and not fresh:
                raise OutputError(
                    f"{self.folder} already holds a different run; choose another --out, or give "
                    "--fresh to replace it"
                )
        if fresh:
            shutil.rmtree(self.folder / STATE, ignore_errors=True)
            shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)
            (self.folder / "history.csv").unlink(missing_ok=True)
        files.write_text(path, identity)

    def _identity(self) -> str:
        return (
            self.recipe.to_toml() + f"\n# text: {self.corpus.name}, sha256 {self.corpus.sha256}\n"
        )

    def resume(self) -> _State:
        """Returns the newest saved state, or a new one.

        A finished run that came without its training state, as a shipped model does, is finished.
        """
        model = build_model(self.config, self.tokenizer, seed=self.recipe.seed).to(self.device)
        s = self.settings
        optimizer = make_optimizer(model, s.learning_rate, s.weight_decay, (s.beta1, s.beta2))
        state = _State(model, optimizer)
        saved = sorted((self.folder / STATE).glob("step-*"))
        history = self.folder / "history.csv"
        if saved:
            _load_state(state, saved[-1])
        elif history.is_file():
            rows = read_history(history)
            if rows and rows[-1].step == s.steps:
                folders.load_weights(model, self.folder / folders.WEIGHTS)
                state.step, state.rows = s.steps, rows
        return state

    def save(self, state: _State) -> None:
        """Writes the state as one folder, then the model and history that users read."""
        newest = self.folder / STATE / f"step-{state.step:08d}"
        with files.write_folder(newest) as partial:
            _save_state(state, partial)
        for old in (self.folder / STATE).glob("step-*"):
            if old != newest:
                shutil.rmtree(old, ignore_errors=True)
        self.publish(state)

    def publish(self, state: _State) -> None:
        """Writes the files that users read: the model and its history."""
        write_history(state.rows, self.folder / "history.csv")
        folders.save_pretrained(state.model, self.folder)

    def checkpoint_folder(self, step: int) -> Path:
        return self.folder / "checkpoints" / f"step-{step:06d}"

    def save_checkpoint(self, state: _State) -> None:
        """Writes `checkpoints/step-…`, a model folder of its own."""
        with files.write_folder(self.checkpoint_folder(state.step)) as partial:
            folders.save_pretrained(state.model, partial)

    # ---- the loop ------------------------------------------------------------------------

    def go(self, state: _State, interrupted: Callable[[], bool], progress: Progress | None) -> None:
        """Trains from the state's step to the last."""
        s, n_ctx = self.settings, self.config.n_ctx
        wanted = set(log_spaced_steps(s.steps, s.checkpoints))
        if s.checkpoint_every is not None:
            wanted |= {*range(0, s.steps + 1, s.checkpoint_every), s.steps}
        norm = torch.zeros((), device=self.device)
        window_start, window_step = time.perf_counter(), state.step
        if state.step in wanted and not self.checkpoint_folder(state.step).is_dir():
            self.save_checkpoint(state)
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
                self.save(state)
            elif stop:
                self.save(state)
            if state.step in wanted:
                self.save_checkpoint(state)
            if stop and not done:
                raise TrainingInterrupted(
                    f"interrupted at step {state.step} of {s.steps}; the state is in "
                    f"{self.folder}: give the same command again to go on"
                )

    def _step(self, state: _State) -> tuple[Tensor, Tensor]:
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

    def _check_finite(self, state: _State) -> None:
        losses = state.losses[state.checked :]
        finite = torch.stack(losses).isfinite()
        state.checked = len(state.losses)
        if not bool(finite.all()):
            first = state.step - len(losses) + int((~finite).nonzero()[0]) + 1
            kept = sorted((self.folder / STATE).glob("step-*"))
            where = f"the last good state is {kept[-1]}" if kept else "no state was saved yet"
            raise NonFiniteLossError(
                f"the loss became {float(losses[int((~finite).nonzero()[0])])} at step {first}; "
                f"{where}; lower learning_rate"
            )

    def _row(self, state: _State, norm: Tensor) -> HistoryRow:
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


# ---- pieces that are useful on their own ---------------------------------------------------


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Returns the mean cross-entropy in nats, taken in float32."""
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def update(
    optimizer: torch.optim.Optimizer,
    loss: Tensor,
    learning_rate: float,
    parameters: list[nn.Parameter],
    grad_clip: float,
) -> Tensor:
    """Takes one step down the loss's gradient, clipped, and returns the gradient's norm before."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(parameters, grad_clip)
    optimizer.step()
    return norm


@torch.no_grad()
def validation_loss(model: Trainable, tokens: Int[Tensor, " text"], batch_size: int = 64) -> float:
    """Returns the mean loss in nats per token over all of `tokens`, in float32 precision.

    The text is read in windows of n_ctx; every token but the first is predicted once, from the
    tokens before it in its window.
    """
    return mean_loss(model, validation_windows(tokens, model.config.n_ctx, batch_size))


@torch.no_grad()
def mean_loss(model: Trainable, windows: Iterable[Int[Tensor, "_batch _pos"]]) -> float:
    """Returns the mean loss in nats per token over windows of inputs and, shifted by one, targets.

    In float32 precision, with dropout off.
    """
    was_training = model.training
    model.eval()
    total, count = 0.0, 0
    for on_cpu in windows:
        window = on_cpu.to(model.device)
        n = window[:, 1:].numel()
        total += float(cross_entropy(model(window[:, :-1]), window[:, 1:])) * n
        count += n
    model.train(was_training)
    return total / count


def make_optimizer(
    model: nn.Module, learning_rate: float, weight_decay: float, betas: tuple[float, float]
) -> torch.optim.AdamW:
    """Returns AdamW that decays the weight matrices, and not norms, biases or embeddings."""
    named = list(model.named_parameters())
    decayed = [p for name, p in named if p.ndim > 1 and _is_matrix(name)]
    others = [p for name, p in named if not (p.ndim > 1 and _is_matrix(name))]
    groups = [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, fused=True)


def _is_matrix(name: str) -> bool:
    last = name.rsplit(".", 1)[-1]
    if last == "weight":  # the lesson's names
        return "embedding_table" not in name
    return last.startswith("W_") and last not in ("W_E", "W_pos")


def autocast_for(
    precision: Precision | str, device: torch.device
) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """Returns a context for the forward pass. "auto" is bfloat16 where the hardware computes in it.

    Weights, optimizer and validation stay in float32.
    """
    if precision == "float32" or (precision == "auto" and not _has_bfloat16(device)):
        return contextlib.nullcontext
    return lambda: torch.autocast(device.type, dtype=torch.bfloat16)


def _has_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        mkldnn = torch.backends.mkldnn.is_available()
        return mkldnn and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # no public way to ask
    return False


def _save_state(state: _State, folder: Path) -> None:
    folders.save_weights(state.model, folder / folders.WEIGHTS)
    write_history(state.rows, folder / "history.csv")
    moments = {
        f"{name}/{key}": value.detach().cpu().contiguous()
        for name, parameter in state.model.named_parameters()
        for key, value in state.optimizer.state[parameter].items()
    }
    files.write_file(folder / "optimizer.safetensors", lambda path: save_file(moments, path))
    numbers = {
        "step": state.step,
        "seconds": state.seconds,
        "losses": [float(loss) for loss in state.losses],
    }
    files.write_text(folder / "state.json", json.dumps(numbers) + "\n")


def _load_state(state: _State, folder: Path) -> None:
    try:
        numbers = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        moments = load_file(folder / "optimizer.safetensors")
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(
            f"{folder} is damaged: {error}; give --fresh to start again"
        ) from error
    folders.load_weights(state.model, folder / folders.WEIGHTS)
    for name, parameter in state.model.named_parameters():
        for key in ("step", "exp_avg", "exp_avg_sq"):
            if f"{name}/{key}" in moments:
                value = moments[f"{name}/{key}"].to(parameter.device)
                state.optimizer.state[parameter][key] = value
    state.step, state.seconds = int(numbers["step"]), float(numbers["seconds"])
    state.losses = [torch.tensor(x, device=state.model.device) for x in numbers["losses"]]
    state.rows = read_history(folder / "history.csv")


def _is_whole(path: Path) -> bool:
    """False for what a killed run left under a temporary name."""
    return not path.name.endswith(".partial")


def dropout_seed(seed: int, step: int) -> int:
    """Returns the seed of a step's dropout, a function of the recipe's seed and the step."""
    return int(np.random.SeedSequence([seed, step, 1]).generate_state(1, np.uint64)[0] >> 1)


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
