"""The ladder: each rung against a plain computation, trained, stopped, saved, loaded, refused."""

# mypy: disable-error-code="arg-type, attr-defined, no-any-return"

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import signal
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import assert_close
from helpers import Shell, assert_same_weights
from torch import Tensor

import interp
from interp import (
    CharTokenizer,
    CheckpointError,
    ConfigError,
    Corpus,
    GPTConfig,
    HookedGPT,
    LadderConfig,
    LadderModel,
    OutputError,
    Recipe,
    TokenError,
    TrainingInterrupted,
    build_model,
    load_model,
    model_hash,
    to_reference,
    train,
    validation_loss,
)
from interp.data.batches import training_batch
from interp.gpt.folder import save_pretrained
from interp.lesson.ladder import AVERAGES, RUNGS, Average, OneHead, Stack
from interp.lesson.loading import config_of
from interp.training.history import read_history

VOCAB, N_CTX, WIDTH = 7, 6, 12
NAMES = list(RUNGS)
MASKED = ["head", "heads", "block", "stack"]
TEXT = "the cat sat on the mat. a rat at the hat ran. " * 12
CORPUS = Corpus(text=TEXT, name="cats")
TRAINING = {
    "steps": 24, "batch_size": 4, "learning_rate": 1e-2, "warmup_steps": 3, "eval_every": 12,
    "checkpoints": 0, "precision": "float32",
}  # fmt: skip
RECIPES = sorted((Path(__file__).parents[1] / "models" / "recipes").glob("ladder-*.toml"))


def config(name: str, **changes: Any) -> LadderConfig:
    shape = {"d_vocab": VOCAB, "n_ctx": N_CTX, "d_model": WIDTH, "n_heads": 3, "n_layers": 2}
    return LadderConfig.parse({"rung": name} | shape | changes)


def rung(name: str, dtype: torch.dtype = torch.float64, seed: int = 0, **changes: Any) -> Any:
    """Returns a rung in evaluation mode with noise on every weight."""
    model = build_model(config(name, **changes), seed=seed).to(dtype).eval()
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=dtype)
            parameter.add_(0.3 * noise)
    return model


def tokens(batch: int = 3, pos: int = N_CTX, seed: int = 0) -> Tensor:
    return torch.randint(VOCAB, (batch, pos), generator=torch.Generator().manual_seed(seed))


def recipe_of(name: str, model: dict[str, Any] | None = None, **training: Any) -> Recipe:
    shape = {"rung": name, "n_ctx": 8, "d_model": 8, "n_heads": 2, "n_layers": 2}
    values = {"name": "rung", "seed": 3, "model": shape | (model or {})}
    return Recipe.parse(values | {"training": TRAINING | training})


def losses_of(folder: Path) -> list[Any]:
    """The history without its wall clock."""
    return [dataclasses.replace(row, seconds=0.0) for row in read_history(folder / "history.csv")]


def interrupt_at(at: int) -> Any:
    def progress(step: int, steps: int, loss: float, tokens_per_second: float) -> None:
        if step == at:
            os.kill(os.getpid(), signal.SIGINT)

    return progress


# ---- each rung against a plain computation ---------------------------------------------------


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max())
    return e / e.sum()


def plain_head(x: np.ndarray, state: dict[str, np.ndarray], prefix: str) -> np.ndarray:
    """One sequence through one head, one position at a time, looking at no later one."""
    q, k, v = (x @ state[f"{prefix}{name}.weight"].T for name in ("query", "key", "value"))
    rows = []
    for t in range(len(x)):
        p = softmax(np.array([q[t] @ k[s] for s in range(t + 1)]) / math.sqrt(q.shape[1]))
        rows.append(sum(p[s] * v[s] for s in range(t + 1)))
    return np.stack(rows)


def plain_heads(x: np.ndarray, state: dict[str, np.ndarray], prefix: str) -> np.ndarray:
    n = len({name for name in state if name.startswith(f"{prefix}heads.") and "query" in name})
    z = [plain_head(x, state, f"{prefix}heads.{h}.") for h in range(n)]
    weight, bias = state[f"{prefix}proj.weight"], state[f"{prefix}proj.bias"]
    out: np.ndarray = np.concatenate(z, axis=1) @ weight.T + bias
    return out


def plain_norm(x: np.ndarray, state: dict[str, np.ndarray], name: str) -> np.ndarray:
    centred = x - x.mean(1, keepdims=True)
    scale = np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    out: np.ndarray = centred / scale * state[f"{name}.weight"] + state[f"{name}.bias"]
    return out


def lessons_weights(model: LadderModel) -> dict[str, np.ndarray]:
    """The weights under the lesson's names; a block's and a stack's through `to_reference`."""
    state = dict(model.state_dict())
    if isinstance(getattr(model, "gpt", None), HookedGPT):
        state = {f"gpt.{key}": v for key, v in to_reference(model.gpt).state_dict().items()}
    return {key: value.numpy() for key, value in state.items()}


def plain(name: str, state: dict[str, np.ndarray], idx: np.ndarray) -> np.ndarray:
    """The logits of one sequence, from nothing but the rung's name and its weights."""
    pre = "gpt." if name in ("block", "stack") else ""
    x = state[f"{pre}token_embedding_table.weight"][idx]
    if name in ("bigram", "averages"):
        return x
    if name != "dense":
        table = state[f"{pre}position_embedding_table.weight"]
        x = x + np.stack([table[t % len(table)] for t in range(len(idx))])
    if name == "average":
        x = np.stack([x[: t + 1].mean(0) for t in range(len(x))])
    elif name == "head":
        x = plain_head(x, state, "attention_head.")
    elif name == "heads":
        x = plain_heads(x, state, "sa.")
    elif pre:
        for i in range(len({key.split(".")[2] for key in state if key.startswith("gpt.blocks.")})):
            at = f"gpt.blocks.{i}."
            x = x + plain_heads(plain_norm(x, state, f"{at}ln1"), state, f"{at}sa.")
            hidden = plain_norm(x, state, f"{at}ln2") @ state[f"{at}ffwd.net.0.weight"].T
            hidden = np.maximum(hidden + state[f"{at}ffwd.net.0.bias"], 0)
            x = x + hidden @ state[f"{at}ffwd.net.2.weight"].T + state[f"{at}ffwd.net.2.bias"]
        x = plain_norm(x, state, "gpt.ln_f")
    out = f"{pre}lm_head" if pre else "LM_head"
    logits: np.ndarray = x @ state[f"{out}.weight"].T + state[f"{out}.bias"]
    return logits


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pos", [1, 4, N_CTX])
@torch.no_grad()
def test_forward_is_the_plain_computation_from_its_weights(name: str, pos: int) -> None:
    model, idx = rung(name), tokens(pos=pos)
    state = lessons_weights(model)
    expected = torch.stack([torch.from_numpy(plain(name, state, row.numpy())) for row in idx])
    assert model(idx).shape == (3, pos, VOCAB)
    assert_close(model(idx), expected, name)


@pytest.mark.parametrize("name", ["bigram", "averages", "dense", "positions", "average"])
@torch.no_grad()
def test_rungs_without_a_mask_read_past_n_ctx(name: str) -> None:
    model, idx = rung(name), tokens(pos=3 * N_CTX + 1)
    state = {key: value.numpy() for key, value in model.state_dict().items()}
    expected = torch.stack([torch.from_numpy(plain(name, state, row.numpy())) for row in idx])
    assert_close(model(idx), expected, name)


@pytest.mark.parametrize("how", AVERAGES)
@torch.no_grad()
def test_averages_have_the_bigrams_logits_to_the_last_bit(how: str) -> None:
    for dtype in (torch.float32, torch.float64):
        bigram, averages = rung("bigram", dtype), rung("averages", dtype)
        assert_same_weights(bigram, averages)
        averages.how = how
        assert averages(tokens()).equal(bigram(tokens()))


@torch.no_grad()
def test_dense_is_positions_whose_table_is_zero() -> None:
    dense, positions = rung("dense"), rung("positions")
    positions.load_state_dict(dense.state_dict(), strict=False)
    positions.position_embedding_table.weight.zero_()
    assert positions(tokens()).equal(dense(tokens()))


@torch.no_grad()
def test_head_of_no_queries_is_the_average_of_its_values() -> None:
    head, average = rung("head"), rung("average")
    average.load_state_dict(head.state_dict(), strict=False)
    head.attention_head.query.weight.zero_()
    head.attention_head.value.weight.copy_(torch.eye(WIDTH))
    assert_close(head(tokens()), average(tokens()))


@torch.no_grad()
def test_one_parallel_head_with_the_identity_after_it_is_the_head() -> None:
    head, heads = rung("head"), rung("heads", n_heads=1)
    state = {key.replace("attention_head", "sa.heads.0"): value
             for key, value in head.state_dict().items()}  # fmt: skip
    heads.load_state_dict(state, strict=False)
    heads.sa.proj.weight.copy_(torch.eye(WIDTH))
    heads.sa.proj.bias.zero_()
    assert_close(heads(tokens()), head(tokens()))


@torch.no_grad()
def test_block_is_a_stack_of_one() -> None:
    block, stack = rung("block"), rung("stack", n_layers=1)
    stack.load_state_dict(block.state_dict())
    assert stack(tokens()).equal(block(tokens()))
    assert len(block.gpt.blocks) == 1
    assert len(rung("stack", n_layers=3).gpt.blocks) == 3


@pytest.mark.parametrize("name", ["block", "stack"])
@torch.no_grad()
def test_stack_is_a_hooked_model(name: str) -> None:
    model = rung(name)
    hooked = model.gpt
    assert isinstance(hooked, HookedGPT)
    assert_close(to_reference(hooked)(tokens()), model(tokens()))
    n = sum(p.numel() for p in model.parameters())
    assert sum(p.numel() for p in hooked.parameters()) == n
    logits, cache = hooked.run_with_cache(tokens())
    parts = interp.logit_attribution(hooked, cache, "head", targets=tokens()[:, 1:])
    y = tokens()[:, 1:, None]
    chosen = model(tokens())[:, :-1].gather(-1, y)[..., 0] - model(tokens())[:, :-1].mean(-1)
    np.testing.assert_allclose(parts.values.sum(0), chosen, atol=1e-11, rtol=0)
    assert_close(logits, model(tokens()))


@pytest.mark.parametrize("name", NAMES)
def test_every_weight_has_a_gradient(name: str) -> None:
    model = rung(name).train()
    idx = tokens(batch=8)
    F.cross_entropy(model(idx)[:, :-1].flatten(0, 1), idx[:, 1:].flatten()).backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        if not key.endswith("key.weight"):
            assert parameter.grad.abs().sum() > 0, key


# ---- seeds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_gives_the_same_weights_and_leaves_the_global_generator_alone(name: str) -> None:
    before = torch.get_rng_state()
    one, two, other = (build_model(config(name), seed=seed) for seed in (5, 5, 6))
    assert torch.get_rng_state().equal(before)
    assert_same_weights(one, two)
    assert model_hash(one) == model_hash(two) != model_hash(other)
    for key, parameter in one.named_parameters():
        constant = "ln" in key
        assert parameter.equal(dict(other.named_parameters())[key]) == constant, key


# ---- configs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rung": "headd"}, "rung = 'headd' is wrong: Input should be 'bigram'"),
        ({"n_embd": 8}, "unknown key 'n_embd'"),
        ({"n_head": 2}, "unknown key 'n_head'; did you mean 'n_heads'"),
        ({"d_mlp": 8}, "unknown key 'd_mlp'"),
        ({"d_model": 0}, "d_model = 0 is wrong"),
        ({"d_model": "8"}, "d_model = '8' is wrong"),
        ({"d_model": 13}, "d_model = 13 is not divisible by n_heads = 3"),
        ({"n_ctx": 0}, "n_ctx = 0 is wrong"),
        ({"d_vocab": 0}, "d_vocab = 0 is wrong"),
        ({"n_layers": 0}, "n_layers = 0 is wrong"),
        ({"dropout": 1.0}, "dropout = 1.0 is wrong"),
        ({"dropout": float("nan")}, "dropout = nan is wrong"),
    ],
)
def test_wrong_configs_are_refused_in_one_line(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{said}") as caught:
        config("heads", **changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["bigram", "averages", "dense", "positions", "average", "head"])
def test_heads_need_not_divide_the_width_where_there_are_none_side_by_side(name: str) -> None:
    assert config(name, d_model=13, n_heads=3).d_model == 13


def test_config_is_a_ladders_if_it_names_a_rung() -> None:
    assert config_of({"rung": "head", "d_vocab": 5}) == LadderConfig(rung="head", d_vocab=5)
    shape = {"n_layers": 1, "n_heads": 1, "d_model": 4, "n_ctx": 4, "d_vocab": 5}
    assert config_of(shape) == GPTConfig(**shape)
    assert isinstance(build_model(config_of(shape)), HookedGPT)
    with pytest.raises(ConfigError, match=r"^here: the key 'd_vocab' is missing"):
        config_of({"rung": "head"}, "here")


@pytest.mark.parametrize("name", NAMES)
def test_tokenizer_of_another_size_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="the tokenizer has 3 characters, but d_vocab = 7"):
        build_model(config(name), CharTokenizer("abc"))


def test_recipe_with_a_rung_writes_itself_and_refuses_a_vocabulary() -> None:
    recipe = recipe_of("heads")
    assert Recipe.parse(tomllib.loads(recipe.to_toml())) == recipe
    assert recipe.config(d_vocab=9) == LadderConfig(
        rung="heads", n_ctx=8, d_vocab=9, d_model=8, n_heads=2, n_layers=2
    )
    with pytest.raises(ConfigError, match=r"model\.d_vocab is given by the text"):
        recipe_of("head", {"d_vocab": 5})
    with pytest.raises(ConfigError, match="not divisible"):
        recipe_of("heads", {"n_heads": 3})
    with pytest.raises(ConfigError, match="unknown key 'd_head'"):
        recipe_of("head", {"d_head": 3})


# ---- writing text ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_generate_goes_past_n_ctx_and_is_reproducible(name: str) -> None:
    model, start = rung(name, torch.float32), tokens(batch=2, pos=2)
    before = torch.get_rng_state()
    text = model.generate(start, 3 * N_CTX, seed=4)
    assert torch.get_rng_state().equal(before)
    assert text.shape == (2, 2 + 3 * N_CTX)
    assert text[:, :2].equal(start)
    assert int(text.min()) >= 0
    assert int(text.max()) < VOCAB
    assert text.equal(model.generate(start, 3 * N_CTX, seed=4))
    assert not text.equal(model.generate(start, 3 * N_CTX, seed=5))
    assert model.generate(start, 0).equal(start)


@pytest.mark.parametrize("name", NAMES)
def test_crop_changes_nothing_up_to_n_ctx(name: str) -> None:
    model, start = rung(name), tokens(batch=2, pos=2)
    cropped, whole = (model.generate(start, N_CTX - 1, crop=crop) for crop in (True, False))
    assert cropped.equal(whole)


@pytest.mark.parametrize("name", MASKED)
def test_without_the_crop_a_mask_ends_at_n_ctx(name: str) -> None:
    model, start = rung(name), tokens(batch=1, pos=N_CTX)
    assert model.generate(start, 1, crop=False).shape == (1, N_CTX + 1)
    ends = rf"holds {N_CTX} positions, but {N_CTX + 1}|has {N_CTX + 1} tokens.*n_ctx = {N_CTX}"
    with pytest.raises(TokenError, match=ends):
        model.generate(start, 2, crop=False)


@pytest.mark.parametrize("name", ["bigram", "dense"])
def test_without_a_mask_nothing_ends_and_one_character_is_all_that_counts(name: str) -> None:
    model, start = rung(name), tokens(batch=2, pos=2)
    cropped, whole = (model.generate(start, 4 * N_CTX, crop=crop) for crop in (True, False))
    assert cropped.equal(whole)


@torch.no_grad()
def test_generate_samples_from_the_last_positions_softmax() -> None:
    model, n = rung("head"), 20_000
    start = tokens(batch=1, pos=3)
    drawn = model.generate(start.expand(n, 3), 1)[:, -1]
    p = model(start)[0, -1].softmax(-1)
    share = torch.bincount(drawn, minlength=VOCAB) / n
    assert float((share - p).abs().max()) < 5 * math.sqrt(0.25 / n)


# ---- training --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_rung_trains_from_a_recipe_and_comes_back_from_its_folder(
    name: str, tmp_path: Path
) -> None:
    before = torch.get_rng_state()
    model = train(recipe_of(name), tmp_path / "m", corpus=CORPUS)
    assert torch.get_rng_state().equal(before)
    assert isinstance(model, RUNGS[name])
    assert not model.training
    rows = read_history(tmp_path / "m" / "history.csv")
    assert [row.step for row in rows] == [12, 24]
    assert rows[-1].validation_loss < math.log(model.config.d_vocab) + 0.4
    assert rows[-1].train_loss < rows[0].train_loss

    loaded = load_model(tmp_path / "m")
    assert type(loaded) is RUNGS[name]
    assert not loaded.training
    assert loaded.config == model.config
    assert loaded.tokenizer == model.tokenizer == CORPUS.tokenizer()
    assert_same_weights(model, loaded)
    assert model_hash(model) == model_hash(loaded)
    assert loaded.tokenizer is not None
    ids = torch.tensor(loaded.tokenizer.encode(CORPUS.validation))
    assert validation_loss(loaded, ids) == pytest.approx(rows[-1].validation_loss, abs=1e-6)
    said = f"the rung '{name}' of the lesson's ladder, which has no hook points; interp.load_model"
    with pytest.raises(CheckpointError, match=re.escape(said)):
        HookedGPT.from_pretrained(tmp_path / "m")
    with pytest.raises(CheckpointError, match=r"interp\.load_model loads it"):
        HookedGPT.from_pretrained(tmp_path / "m")


@pytest.mark.parametrize("name", ["averages", "positions", "head", "stack"])
def test_stopped_and_resumed_rung_has_the_losses_of_one_that_was_not(
    name: str, tmp_path: Path
) -> None:
    recipe = recipe_of(name, {"dropout": 0.2} if name in ("head", "stack") else None)
    whole = train(recipe, tmp_path / "whole", corpus=CORPUS)
    with pytest.raises(TrainingInterrupted):
        train(recipe, tmp_path / "parts", corpus=CORPUS, progress=interrupt_at(10))
    parts = train(recipe, tmp_path / "parts", corpus=CORPUS)
    assert_same_weights(whole, parts)
    assert losses_of(tmp_path / "parts") == losses_of(tmp_path / "whole")


def test_averages_train_as_the_bigram_does_to_the_last_bit(tmp_path: Path) -> None:
    models = [train(recipe_of(name), tmp_path / name, corpus=CORPUS)
              for name in ("bigram", "averages")]  # fmt: skip
    assert_same_weights(*models)
    assert losses_of(tmp_path / "bigram") == losses_of(tmp_path / "averages")


@pytest.mark.parametrize("name", ["bigram", "head"])
def test_lessons_optimizer_is_adam_at_a_constant_rate(name: str, tmp_path: Path) -> None:
    rate, steps = 1e-3, 20
    recipe = recipe_of(
        name, steps=steps, learning_rate=rate, min_learning_rate=rate, warmup_steps=0,
        weight_decay=0.0, beta2=0.999, grad_clip=1e9,
    )  # fmt: skip
    trained = train(recipe, tmp_path, corpus=CORPUS)
    tokenizer = CORPUS.tokenizer()
    ids = torch.tensor(tokenizer.encode(CORPUS.train))
    model = build_model(recipe.config(len(tokenizer)), tokenizer, seed=recipe.seed)
    adam = torch.optim.Adam(model.parameters(), lr=rate)
    for step in range(steps):
        batch = training_batch(ids, 8, 4, seed=recipe.seed, step=step)
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
    others = dict(trained.named_parameters())
    for key, parameter in model.named_parameters():
        torch.testing.assert_close(others[key], parameter, atol=1e-5, rtol=0)
    assert {row.learning_rate for row in read_history(tmp_path / "history.csv")} == {rate}


def test_folder_of_another_rung_is_refused(tmp_path: Path) -> None:
    train(recipe_of("bigram", steps=2), tmp_path, corpus=CORPUS)
    with pytest.raises(OutputError, match="already holds a different run"):
        train(recipe_of("averages", steps=2), tmp_path, corpus=CORPUS)


def test_checkpoints_of_a_rung_are_model_folders(tmp_path: Path) -> None:
    train(recipe_of("head", checkpoints=3), tmp_path, corpus=CORPUS)
    folders = sorted((tmp_path / "checkpoints").iterdir())
    assert len(folders) == 3
    assert all(isinstance(load_model(folder), OneHead) for folder in folders)
    first = build_model(recipe_of("head").config(len(CORPUS.tokenizer())), seed=3)
    assert_same_weights(load_model(folders[0]), first)


# ---- folders ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_saved_rung_comes_back_bit_by_bit(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model = rung(name, dtype)
    save_pretrained(model, tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.tokenizer is None
    assert loaded.dtype == dtype
    assert_same_weights(model, loaded)
    assert loaded(tokens()).equal(model(tokens()))
    assert json.loads((tmp_path / "config.json").read_text())["rung"] == name


def test_folder_with_another_rungs_weights_is_refused(tmp_path: Path) -> None:
    save_pretrained(rung("positions"), tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    for other, said in (
        ("head", "the config asks for 'attention_head.key.weight'"),
        ("dense", "the config does not have 'position_embedding_table.weight'"),
        ("heed", "rung = 'heed' is wrong"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(values | {"rung": other}))
        with pytest.raises(CheckpointError, match=said):
            load_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(values | {"rung": "average"}))
    assert isinstance(load_model(tmp_path), Average)  # the same weights, read otherwise


def test_load_model_gives_hooked_models_too(tmp_path: Path) -> None:
    cfg = GPTConfig(n_layers=1, n_heads=2, d_model=8, n_ctx=4, d_vocab=VOCAB)
    hooked = HookedGPT(cfg)
    save_pretrained(hooked, tmp_path)
    loaded = load_model(tmp_path)
    assert isinstance(loaded, HookedGPT)
    assert not loaded.training
    assert_same_weights(hooked, loaded)


# ---- the recipes that come with it -----------------------------------------------------------


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_shipped_recipe_of_the_ladder_loads_and_builds(path: Path) -> None:
    recipe, text = Recipe.load(path), path.read_text(encoding="utf-8")
    assert recipe.name == path.stem
    cfg = recipe.config(d_vocab=65)
    assert isinstance(cfg, LadderConfig)
    model = build_model(cfg, seed=recipe.seed)
    assert isinstance(model, LadderModel)
    assert model(torch.zeros(1, cfg.n_ctx, dtype=torch.long)).shape == (1, cfg.n_ctx, 65)
    if "10,000 steps of 32 windows of 8 characters, Adam at 1e-3" in text:
        s = recipe.training
        assert (s.steps, s.batch_size, cfg.n_ctx, s.learning_rate) == (10_000, 32, 8, 1e-3)
        assert (s.min_learning_rate, s.warmup_steps) == (1e-3, 0)  # constant
        assert (s.weight_decay, s.beta1, s.beta2) == (0.0, 0.9, 0.999)  # Adam


def test_shipped_recipes_climb_the_whole_ladder() -> None:
    if not RECIPES:
        pytest.skip("no recipes of the ladder here")
    assert {Recipe.load(path).model["rung"] for path in RECIPES} == set(NAMES)


# ---- the command line ------------------------------------------------------------------------


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cats.txt").write_text(TEXT)
    recipe = recipe_of("head").to_toml().replace('source = "shakespeare"', 'path = "cats.txt"')
    (tmp_path / "rung.toml").write_text(recipe)
    return Shell(tmp_path, capsys)


def test_command_train_takes_a_rung(shell: Shell) -> None:
    status, out, _ = shell("train", "rung.toml", "--json")
    assert status == 0
    said = json.loads(out)
    assert (said["step"], said["folder"]) == (24, "models/rung")
    assert isinstance(load_model("models/rung"), OneHead)
    status, again, _ = shell("train", "rung.toml", "--json")
    assert (status, json.loads(again)) == (0, said)


def test_command_run_refuses_a_rung_before_it_trains(shell: Shell) -> None:
    said = shell.fails("run", "rung.toml")
    assert "rung.toml trains a rung of the lesson's ladder" in said
    assert said.endswith("use: interp train\n")


def test_commands_that_look_inside_refuse_a_rung(shell: Shell) -> None:
    assert shell("train", "rung.toml")[0] == 0
    for command in ("attribute", "cache", "report", "generate", "check"):
        said = shell.fails(command, "models/rung")
        assert "models/rung holds the rung 'head' of the lesson's ladder" in said, command
        assert "interp.load_model loads it" in said, command


def test_command_train_refuses_a_misspelt_rung(shell: Shell) -> None:
    text = Path("rung.toml").read_text()
    Path("rung.toml").write_text(text.replace('rung = "head"', 'rung = "haed"'))
    assert "rung = 'haed' is wrong: Input should be 'bigram'" in shell.fails("train", "rung.toml")


def test_stack_is_the_class_of_both_of_its_rungs() -> None:
    assert RUNGS["block"] is RUNGS["stack"] is Stack
    assert NAMES == ["bigram", "averages", "dense", "positions", "average", "head", "heads",
                     "block", "stack"]  # fmt: skip
