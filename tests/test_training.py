# mypy: disable-error-code="attr-defined, index, operator, union-attr"
from __future__ import annotations

import dataclasses
import math
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import random_model
from helpers import assert_same_weights
from hypothesis import given, strategies as st

from interp import (
    ConfigError,
    Corpus,
    HookedGPT,
    NonFiniteLossError,
    OutputError,
    Recipe,
    TextError,
    TokenError,
    TrainingInterrupted,
    held_out,
    train,
    validation_loss,
)
from interp.data.batches import training_batch, validation_windows
from interp.training import loop
from interp.training.history import read_history
from interp.training.optimiser import make_optimizer
from interp.training.run_folder import STATE
from interp.training.schedule import log_spaced_steps

CORPUS = Corpus(text="the cat sat on the mat. " * 20, name="cats")
MODEL = {"n_layers": 1, "n_heads": 2, "d_model": 16, "n_ctx": 8}
TRAINING = {
    "steps": 30, "batch_size": 4, "learning_rate": 1e-2, "warmup_steps": 3, "eval_every": 20,
    "checkpoints": 0, "precision": "float32",
}  # fmt: skip
KILLED = """
import sys
import torch

from interp import Corpus, Recipe, train
from interp.training import loop

torch.set_num_threads(1)  # as in the tests: sums depend on how they are split
loop.LOG_EVERY = 1
text, recipe, folder = sys.argv[1:]
train(Recipe.load(recipe), folder, corpus=Corpus(text=text, name="cats"),
      progress=lambda step, *_: print(step, flush=True))
"""


def recipe_of(model: Any = None, seed: int = 0, **training: Any) -> Any:
    values = {"name": "tiny", "seed": seed, "model": MODEL | (model or {})}
    return Recipe.parse(values | {"training": TRAINING | training})


def run(folder: Path, recipe: Any = None, **options: Any) -> Any:
    return train(recipe or recipe_of(), folder, corpus=CORPUS, **options)


def losses_of(folder: Path) -> Any:
    """The history without its wall clock."""
    return [dataclasses.replace(row, seconds=0.0) for row in read_history(folder / "history.csv")]


def interrupt_at(at: Any) -> Any:
    def progress(step: Any, steps: Any, loss: Any, tokens_per_second: Any) -> None:
        if step == at:
            os.kill(os.getpid(), signal.SIGINT)

    return progress


def raise_at(at: Any) -> Any:
    def progress(step: Any, steps: Any, loss: Any, tokens_per_second: Any) -> None:
        if step == at:
            raise RuntimeError("power cut")

    return progress


# ---- batches and losses ----------------------------------------------------------------------


@given(length=st.integers(9, 60), seed=st.integers(0, 2**70), step=st.integers(0, 10**6))
def test_training_batch_is_a_pure_function_of_seed_and_step(
    length: int, seed: int, step: int
) -> None:
    tokens = torch.arange(length)
    batch = training_batch(tokens, 8, 5, seed=seed, step=step)
    assert batch.shape == (5, 9)
    assert batch.equal(training_batch(tokens, 8, 5, seed=seed, step=step))
    assert batch.min() >= 0
    assert batch.max() < length
    assert (batch.diff() == 1).all()


def test_training_batches_differ_by_seed_and_step() -> None:
    tokens = torch.arange(1000)
    one = training_batch(tokens, 8, 5, seed=1, step=2)
    assert not one.equal(training_batch(tokens, 8, 5, seed=1, step=3))
    assert not one.equal(training_batch(tokens, 8, 5, seed=2, step=1))


def test_training_batches_reach_both_ends() -> None:
    tokens = torch.arange(10)
    seen = training_batch(tokens, 8, 64, seed=0, step=0)
    assert set(seen.flatten().tolist()) == set(range(10))


@given(length=st.integers(2, 80), n_ctx=st.integers(1, 12), batch_size=st.integers(1, 5))
def test_validation_covers_each_token_but_the_first_once(
    length: int, n_ctx: int, batch_size: int
) -> None:
    windows = list(validation_windows(torch.arange(length), n_ctx, batch_size))
    targets = torch.cat([window[:, 1:].flatten() for window in windows])
    assert targets.tolist() == list(range(1, length))
    assert all(window.shape[1] <= n_ctx + 1 for window in windows)
    assert all(len(window) <= batch_size for window in windows)
    assert all((window.diff() == 1).all() for window in windows)


@pytest.mark.parametrize("length", [2, 16, 17, 18, 50])
@torch.no_grad()
def test_validation_loss_is_a_plain_mean_over_tokens(length: int) -> None:
    model = random_model(torch.float64)
    tokens = torch.randint(7, (length,), generator=torch.Generator().manual_seed(length))
    losses = []
    for t in range(1, length):
        start = (t - 1) // 16 * 16
        logits = model(tokens[None, start:t])[0, -1]
        losses.append(float(F.cross_entropy(logits, tokens[t]).detach()))
    assert validation_loss(model, tokens, batch_size=2) == pytest.approx(np.mean(losses), abs=1e-5)


def test_validation_loss_ignores_dropout_and_keeps_the_mode() -> None:
    model = random_model(dropout=0.5)
    tokens = torch.arange(40) % 7
    quiet = validation_loss(model, tokens)
    assert not model.training
    assert validation_loss(model.train(), tokens) == quiet
    assert model.training


@pytest.mark.parametrize("config", [{}, {"tied": True}, {"qkv_bias": True}, {"d_mlp": 0}])
def test_only_matrices_decay(config: Any) -> None:
    model = random_model(**config)
    optimizer = make_optimizer(model, 1e-3, 0.1, (0.9, 0.99))
    decays = {id(p): g["weight_decay"] for g in optimizer.param_groups for p in g["params"]}
    matrices = {"W_Q", "W_K", "W_V", "W_O", "W_in", "W_out", "W_U"}
    for name, parameter in model.named_parameters():
        expected = 0.1 if name.rsplit(".", 1)[-1] in matrices else 0.0
        assert decays.pop(id(parameter)) == expected, name
    assert not decays


# ---- a run -----------------------------------------------------------------------------------


def test_loss_goes_down_on_a_repetitive_text(tmp_path: Path) -> None:
    model = run(tmp_path / "run", recipe_of(steps=100, eval_every=10))
    rows = read_history(tmp_path / "run" / "history.csv")
    assert rows[-1].validation_loss < 0.5 * rows[0].validation_loss
    assert rows[-1].train_loss < 0.5 * rows[0].train_loss
    assert not model.training


def test_history_says_where_the_run_was(tmp_path: Path) -> None:
    model = run(tmp_path)
    rows = read_history(tmp_path / "history.csv")
    assert [row.step for row in rows] == [20, 30]
    assert [row.tokens for row in rows] == [20 * 4 * 8, 30 * 4 * 8]
    held_out = torch.tensor(model.tokenizer.encode(CORPUS.validation))
    assert rows[-1].validation_loss == validation_loss(model, held_out)
    assert all(row.grad_norm > 0 for row in rows)
    assert 0 <= rows[0].seconds <= rows[1].seconds


def test_trained_model_is_the_one_on_disk(tmp_path: Path) -> None:
    model = run(tmp_path)
    loaded = HookedGPT.from_pretrained(tmp_path)
    assert_same_weights(model, loaded)
    assert loaded.tokenizer == CORPUS.tokenizer()
    assert Recipe.load(tmp_path / "recipe.toml") == recipe_of()


def test_recipe_can_be_a_path(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(CORPUS.text, encoding="utf-8")
    recipe = Recipe.parse(recipe_of(steps=2).model_dump() | {"text": {"path": str(text)}})
    (tmp_path / "r.toml").write_text(recipe.to_toml(), encoding="utf-8")
    assert train(tmp_path / "r.toml", tmp_path / "run").config.n_ctx == 8


def test_missing_recipe_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        train(tmp_path / "none.toml", tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_short_text_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(TextError):
        train(recipe_of(), tmp_path / "run", corpus=Corpus(text="abc", name="short"))
    assert list(tmp_path.iterdir()) == []


def test_same_seed_gives_the_same_weights(tmp_path: Path) -> None:
    recipe = recipe_of({"dropout": 0.2}, steps=8)
    assert_same_weights(run(tmp_path / "a", recipe), run(tmp_path / "b", recipe))


def test_another_seed_gives_other_weights(tmp_path: Path) -> None:
    first = run(tmp_path / "a", recipe_of(steps=2))
    second = run(tmp_path / "b", recipe_of(steps=2, seed=1))
    assert not first.W_E.equal(second.W_E)


def test_long_seed_is_a_seed(tmp_path: Path) -> None:
    run(tmp_path, recipe_of({"dropout": 0.1}, steps=1, seed=20_250_101_123_456))


def test_global_random_state_is_untouched(tmp_path: Path) -> None:
    torch_before = torch.get_rng_state()
    numpy_before = np.random.get_state()[1].copy()
    run(tmp_path, recipe_of({"dropout": 0.2}, steps=3))
    assert torch.get_rng_state().equal(torch_before)
    assert (np.random.get_state()[1] == numpy_before).all()


def test_interrupt_handler_is_put_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    run(tmp_path, recipe_of(steps=2))
    assert signal.getsignal(signal.SIGINT) is before


def test_bfloat16_run_keeps_float32_weights(tmp_path: Path) -> None:
    model = run(tmp_path, recipe_of(steps=4, precision="bfloat16"))
    assert model.dtype == torch.float32
    assert math.isfinite(losses_of(tmp_path)[-1].validation_loss)


def test_log_spaced_checkpoints_exist_and_load(tmp_path: Path) -> None:
    model = run(tmp_path, recipe_of(checkpoints=6))
    folders = sorted((tmp_path / "checkpoints").iterdir())
    steps = [int(folder.name.removeprefix("step-")) for folder in folders]
    assert steps == log_spaced_steps(30, 6)
    loaded = [HookedGPT.from_pretrained(folder) for folder in folders]
    assert_same_weights(loaded[-1], model)
    assert not loaded[0].W_E.equal(loaded[1].W_E)
    start = HookedGPT(model.config, seed=0)
    assert_same_weights(loaded[0], start)


def test_progress_is_told_steps_and_losses(tmp_path: Path) -> None:
    told = []
    run(tmp_path, progress=lambda *values: told.append(values))
    assert [(step, steps) for step, steps, _, _ in told] == [(10, 30), (20, 30), (30, 30)]
    assert all(loss > 0 and rate > 0 for _, _, loss, rate in told)


# ---- stopping and going on ---------------------------------------------------------------------


@pytest.fixture(params=[0.0, 0.2], ids=["no dropout", "dropout"])
def recipe(request: pytest.FixtureRequest) -> Any:
    return recipe_of({"dropout": request.param}, checkpoints=5)


def test_interrupt_says_how_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(
        TrainingInterrupted, match=r"at step 11 of 30.*same command again"
    ) as caught:
        run(tmp_path, progress=interrupt_at(10))
    assert str(tmp_path) in str(caught.value)
    HookedGPT.from_pretrained(tmp_path)


def test_resumed_run_ends_with_the_same_weights(tmp_path: Path, recipe: Any) -> None:
    whole = run(tmp_path / "whole", recipe)
    with pytest.raises(TrainingInterrupted):
        run(tmp_path / "parts", recipe, progress=interrupt_at(10))
    assert_same_weights(whole, run(tmp_path / "parts", recipe))
    names = [sorted(p.name for p in (tmp_path / x / "checkpoints").iterdir())
             for x in ("whole", "parts")]  # fmt: skip
    assert names[0] == names[1]


def test_resumed_run_has_the_same_history(tmp_path: Path, recipe: Any) -> None:
    run(tmp_path / "whole", recipe)
    with pytest.raises(TrainingInterrupted):
        run(tmp_path / "parts", recipe, progress=interrupt_at(10))
    run(tmp_path / "parts", recipe)
    assert losses_of(tmp_path / "parts") == losses_of(tmp_path / "whole")


def test_crashed_run_goes_on_from_its_last_state(tmp_path: Path, recipe: Any) -> None:
    whole = run(tmp_path / "whole", recipe)
    with pytest.raises(RuntimeError, match="power cut"):
        run(tmp_path / "parts", recipe, progress=raise_at(30))
    assert_same_weights(whole, run(tmp_path / "parts", recipe))
    assert losses_of(tmp_path / "parts") == losses_of(tmp_path / "whole")


def test_interrupt_in_the_last_step_completes_the_run(tmp_path: Path) -> None:
    assert_same_weights(run(tmp_path / "a"), run(tmp_path / "b", progress=interrupt_at(30)))


def test_finished_run_returns_at_once(tmp_path: Path) -> None:
    model = run(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("step-*")}
    told = []
    again = run(tmp_path, progress=lambda *values: told.append(values))
    assert_same_weights(model, again)
    assert not again.training
    assert told == []
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("step-*")} == before


def test_files_missing_after_the_last_state_are_written_by_the_next_run(tmp_path: Path) -> None:
    recipe = recipe_of(checkpoints=3)
    model = run(tmp_path, recipe)
    for name in ("model.safetensors", "config.json", "tokenizer.json", "history.csv"):
        (tmp_path / name).unlink()
    run(tmp_path, recipe)
    assert_same_weights(model, HookedGPT.from_pretrained(tmp_path))
    assert len(read_history(tmp_path / "history.csv")) == 2


def test_checkpoint_missing_after_the_last_state_is_written_by_the_next_run(tmp_path: Path) -> None:
    recipe = recipe_of(checkpoints=3)
    model = run(tmp_path, recipe)
    shutil.rmtree(tmp_path / "checkpoints" / "step-000030")
    run(tmp_path, recipe)
    assert_same_weights(model, HookedGPT.from_pretrained(tmp_path / "checkpoints" / "step-000030"))


def test_run_killed_before_its_first_file_can_start_again(tmp_path: Path) -> None:
    (tmp_path / ".recipe.toml.partial").write_bytes(b"name =")
    run(tmp_path, recipe_of(steps=1))
    assert not list(tmp_path.rglob("*.partial"))


def test_other_recipe_in_the_folder_is_refused(tmp_path: Path) -> None:
    model = run(tmp_path, recipe_of(steps=2))
    with pytest.raises(OutputError, match=r"a different run.*fresh=True"):
        run(tmp_path, recipe_of(steps=3))
    assert_same_weights(model, HookedGPT.from_pretrained(tmp_path))


def test_other_text_in_the_folder_is_refused(tmp_path: Path) -> None:
    run(tmp_path, recipe_of(steps=2))
    with pytest.raises(OutputError, match="a different run"):
        train(recipe_of(steps=2), tmp_path, corpus=Corpus(text=CORPUS.text[:-1], name="cats"))


@pytest.mark.parametrize("name", ["thesis.txt", "recipe.toml"])
@pytest.mark.parametrize("data", [b"mine", b"\xff\xfe"], ids=["text", "binary"])
def test_folder_of_other_things_is_refused(tmp_path: Path, name: str, data: Any) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(OutputError, match="already holds"):
        run(tmp_path, recipe_of(steps=1))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == data


def test_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    for fresh in (False, True):
        with pytest.raises(OutputError):
            run(tmp_path / "file", recipe_of(steps=1), fresh=fresh)
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_fresh_run_replaces_another(tmp_path: Path) -> None:
    run(tmp_path / "a", recipe_of(checkpoints=4))
    second = run(tmp_path / "a", recipe_of(steps=4, eval_every=2, seed=5), fresh=True)
    alone = run(tmp_path / "b", recipe_of(steps=4, eval_every=2, seed=5))
    assert_same_weights(second, alone)
    assert losses_of(tmp_path / "a") == losses_of(tmp_path / "b")
    assert not (tmp_path / "a" / "checkpoints").exists()


def test_damaged_state_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingInterrupted):
        run(tmp_path, progress=interrupt_at(10))
    (state,) = (tmp_path / STATE).iterdir()
    for name in ("state.json", "optimizer.safetensors", "model.safetensors", "history.csv"):
        data = (state / name).read_bytes()
        (state / name).write_bytes(data[: len(data) // 2] if name != "history.csv" else b"x\n1\n")
        with pytest.raises(ValueError, match=str(state)):
            run(tmp_path)
        (state / name).write_bytes(data)
    run(tmp_path)


# ---- losses that blow up -----------------------------------------------------------------------


def test_infinite_learning_rate_names_the_step_and_leaves_no_state(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteLossError, match=r"at step 2; no state.*lower learning_rate"):
        run(tmp_path, recipe_of(learning_rate=1e30, warmup_steps=0))


@pytest.mark.parametrize("eval_every", [20, 7], ids=["at a logged step", "between logged steps"])
def test_blow_up_keeps_the_last_good_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eval_every: int
) -> None:
    good = loop.learning_rate_at
    monkeypatch.setattr(
        loop, "learning_rate_at", lambda step, *rest: 1e30 if step >= 22 else good(step, *rest)
    )
    last = 22 // eval_every * eval_every
    with pytest.raises(NonFiniteLossError) as caught:
        run(tmp_path, recipe_of(eval_every=eval_every))
    assert "step 24" in str(caught.value)
    assert f"step-{last:08d}" in str(caught.value)
    assert [row.step for row in losses_of(tmp_path)][-1] == last
    kept = HookedGPT.from_pretrained(tmp_path)
    assert all(parameter.isfinite().all() for parameter in kept.parameters())
    monkeypatch.undo()
    assert_same_weights(run(tmp_path, recipe_of(eval_every=eval_every)),
                        run(tmp_path / "alone", recipe_of(eval_every=eval_every)))  # fmt: skip


# ---- a killed process ----------------------------------------------------------------------------


def test_killed_run_can_be_read_and_completed(tmp_path: Path) -> None:
    recipe = recipe_of(steps=150, eval_every=1, checkpoints=8)
    (tmp_path / "r.toml").write_text(recipe.to_toml(), encoding="utf-8")
    folder = tmp_path / "run"
    command = [sys.executable, "-c", KILLED, CORPUS.text, str(tmp_path / "r.toml"), str(folder)]
    chance = random.Random(0)
    for _ in range(2):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        lines = 2 + chance.randrange(40)
        for _ in range(lines):
            assert process.stdout.readline()
        for _ in range(chance.randrange(100_000)):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert process.returncode == -signal.SIGKILL
        HookedGPT.from_pretrained(folder)
        for checkpoint in (folder / "checkpoints").glob("step-*"):
            HookedGPT.from_pretrained(checkpoint)
    resumed = run(folder, recipe)
    assert_same_weights(resumed, run(tmp_path / "alone", recipe))
    assert losses_of(folder) == losses_of(tmp_path / "alone")
    assert not list(folder.rglob("*.partial"))
    names = [sorted(p.name for p in (place / "checkpoints").iterdir())
             for place in (folder, tmp_path / "alone")]  # fmt: skip
    assert names[0] == names[1]


def test_finished_model_that_came_without_its_state_is_not_trained_again(tmp_path: Path) -> None:
    model = run(tmp_path)
    shutil.rmtree(tmp_path / "training_state")
    assert_same_weights(model, run(tmp_path, progress=raise_at(1)))


def test_fresh_does_not_touch_a_folder_that_is_not_a_run(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "mine.pt").write_bytes(b"weeks")
    with pytest.raises(OutputError, match="not a training run"):
        run(tmp_path, fresh=True)
    assert (tmp_path / "checkpoints" / "mine.pt").read_bytes() == b"weeks"


# ---- recipes of an earlier writer, and the text that was held out -------------------------------


def test_a_stopped_run_whose_recipe_was_written_otherwise_goes_on(tmp_path: Path) -> None:
    whole = run(tmp_path / "a")
    with pytest.raises(TrainingInterrupted):
        run(tmp_path / "b", progress=interrupt_at(10))
    path = tmp_path / "b" / "recipe.toml"
    held = path.read_text(encoding="utf-8").replace(
        "learning_rate = 0.01\n", "learning_rate = 1e-2\n"
    )
    path.write_text("# the same values, in another hand\n" + held, encoding="utf-8")
    assert_same_weights(run(tmp_path / "b"), whole)


def test_a_trained_model_knows_its_folder_and_what_was_held_out(tmp_path: Path) -> None:
    (tmp_path / "cats.txt").write_text(CORPUS.text, encoding="utf-8")
    recipe = Recipe.parse({
        "name": "tiny", "model": MODEL, "training": TRAINING | {"steps": 4, "checkpoints": 2},
        "text": {"path": str(tmp_path / "cats.txt")},
    })  # fmt: skip
    model = train(recipe, tmp_path / "run")
    assert (model.folder, model.name) == (tmp_path / "run", "run")
    expected = torch.tensor([model.tokenizer.encode(p) for p in CORPUS.passages(8, 3)])
    assert held_out(model, 3).equal(expected)
    assert held_out(tmp_path / "run", 3).equal(expected)
    assert held_out(tmp_path / "run" / "checkpoints" / "step-000004", 3).equal(expected)
    assert held_out(model, 3, n_pos=5).shape == (3, 5)
    drawn = held_out(model, 2, seed=1)
    assert drawn.equal(held_out(model, 2, seed=1))
    for row in drawn:
        assert model.to_string(row) in CORPUS.validation
    for wrong in ({"n": 0}, {"n_pos": 9}, {"n_pos": 0}):
        with pytest.raises(ConfigError, match="at least 1"):
            held_out(model, **wrong)


def test_a_model_from_nowhere_has_nothing_held_out(tmp_path: Path) -> None:
    with pytest.raises(TextError, match="comes from no folder"):
        held_out(random_model())
    model = random_model()
    model.tokenizer = None
    model.save_pretrained(tmp_path)
    with pytest.raises(TokenError, match="no tokenizer"):
        held_out(tmp_path)
