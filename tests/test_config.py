from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from interp import ConfigError, GPTConfig, Recipe

RECIPES = Path(__file__).parent.parent / "models" / "recipes"
SHAPE = {"n_layers": 2, "n_heads": 4, "d_model": 32, "n_ctx": 16, "d_vocab": 7}
MODEL = {"n_layers": 1, "n_heads": 2, "d_model": 16, "n_ctx": 8}


def test_left_out_widths_are_derived() -> None:
    config = GPTConfig.parse(SHAPE)
    assert (config.d_head, config.d_mlp, config.attn_scale) == (8, 128, math.sqrt(8))


def test_given_widths_are_kept() -> None:
    config = GPTConfig.parse(SHAPE | {"d_head": 5, "d_mlp": 3, "attn_scale": 1.0})
    assert (config.d_head, config.d_mlp, config.attn_scale) == (5, 3, 1.0)


def test_attn_scale_follows_a_given_d_head() -> None:
    assert GPTConfig.parse(SHAPE | {"d_head": 9}).attn_scale == 3.0


def test_no_mlp_is_attention_only() -> None:
    assert GPTConfig.parse(SHAPE | {"d_mlp": 0}).attn_only
    assert not GPTConfig.parse(SHAPE).attn_only


def test_unknown_key_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'attn_scal'.*did you mean 'attn_scale'"):
        GPTConfig.parse(SHAPE | {"attn_scal": 1.0})


def test_misspelt_required_key_is_named_as_unknown() -> None:
    values = {("n_head" if key == "n_heads" else key): value for key, value in SHAPE.items()}
    with pytest.raises(ConfigError, match=r"unknown key 'n_head'.*'n_heads'"):
        GPTConfig.parse(values)


def test_missing_key_is_named() -> None:
    with pytest.raises(ConfigError, match="'n_ctx' is missing"):
        GPTConfig.parse({key: value for key, value in SHAPE.items() if key != "n_ctx"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("n_layers", "2"),
        ("n_layers", 2.0),
        ("n_layers", -1),
        ("n_heads", 0),
        ("d_model", 0),
        ("d_head", -1),
        ("d_mlp", -2),
        ("d_vocab", True),
        ("act_fn", "swish"),
        ("tied", 1),
        ("attn_scale", -1.0),
        ("ln_eps", 0.0),
        ("dropout", 1.0),
        ("dropout", math.nan),
        ("init_std", "small"),
        ("embed_std", -0.5),
    ],
)
def test_wrong_value_is_one_line_that_names_the_key(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        GPTConfig.parse(SHAPE | {key: value})
    assert key in str(caught.value)
    assert "\n" not in str(caught.value)


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"32 is not divisible by n_heads = 3.*give d_head"):
        GPTConfig.parse(SHAPE | {"n_heads": 3})


def test_heads_that_do_not_divide_the_width_need_d_head() -> None:
    assert GPTConfig.parse(SHAPE | {"n_heads": 3, "d_head": 7}).d_head == 7


def test_whole_numbers_serve_as_floats() -> None:
    config = GPTConfig.parse(SHAPE | {"dropout": 0, "attn_scale": 2})
    assert (config.dropout, config.attn_scale) == (0.0, 2.0)


def test_config_is_frozen() -> None:
    with pytest.raises(ValidationError):
        GPTConfig.parse(SHAPE).n_layers = 3  # type: ignore[misc]


@given(
    n_layers=st.integers(0, 3), n_heads=st.integers(1, 5), d_head=st.integers(1, 9),
    d_mlp=st.integers(-1, 40), scale=st.floats(0, 10),
)  # fmt: skip
def test_config_round_trips_through_its_dump(
    n_layers: int, n_heads: int, d_head: int, d_mlp: int, scale: float
) -> None:
    given = SHAPE | {"n_layers": n_layers, "n_heads": n_heads, "d_head": d_head}
    config = GPTConfig.parse(given | {"d_mlp": d_mlp, "attn_scale": scale})
    assert GPTConfig.parse(config.model_dump()) == config


def test_where_is_named_in_the_error() -> None:
    with pytest.raises(ConfigError, match=r"^here: "):
        GPTConfig.parse({}, "here")


def recipe(**changes: Any) -> Any:
    return {"name": "tiny", "model": MODEL} | changes


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_recipe_loads_and_is_named_for_its_file(path: Any) -> None:
    assert Recipe.load(path).name == path.stem


def test_recipes_are_shipped() -> None:
    assert len(list(RECIPES.glob("*.toml"))) >= 2


def test_recipe_round_trips_through_toml(tmp_path: Path) -> None:
    original = Recipe.parse(
        recipe(
            seed=3,
            text={"path": 'a "quoted" \\ name é.txt'},
            model=MODEL | {"act_fn": "gelu", "tied": True, "dropout": 0.1},
            training={"learning_rate": 1e-5, "steps": 7, "min_learning_rate": 1e-20},
        )
    )
    path = tmp_path / "recipe.toml"
    path.write_text(original.to_toml(), encoding="utf-8")
    assert Recipe.load(path) == original


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=12))
def test_any_path_round_trips_through_toml(path: str) -> None:
    original = Recipe.parse(recipe(text={"path": path}))
    assert Recipe.parse(tomllib.loads(original.to_toml())) == original


def test_recipe_written_out_holds_every_default() -> None:
    values = tomllib.loads(Recipe.parse(recipe()).to_toml())
    assert values["training"]["learning_rate"] == 2e-3
    assert values["text"] == {"source": "shakespeare"}
    assert values["seed"] == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sede": 1}, r"unknown key 'sede'.*'seed'"),
        ({"text": {"sorce": "shakespeare"}}, r"unknown key 'text.sorce'.*'source'"),
        ({"training": {"step": 1}}, r"unknown key 'training.step'.*'steps'"),
        ({"model": MODEL | {"d_mpl": 1}}, r"model: unknown key 'd_mpl'.*'d_mlp'"),
        ({"training": {"steps": "1"}}, "training.steps = '1'"),
        ({"training": {"steps": 0}}, "training.steps = 0"),
        ({"training": {"learning_rate": 0}}, "training.learning_rate"),
        ({"training": {"precision": "float16"}}, "training.precision"),
        ({"text": {"source": "bible"}}, "text.source = 'bible'"),
        ({"model": 3}, "model = 3"),
        ({"model": MODEL | {"n_heads": 3}}, "not divisible"),
        ({"model": {"n_layers": 1}}, "missing"),
        ({"model": MODEL | {"d_vocab": 65}}, "d_vocab is given by the text"),
        ({"name": "a/b"}, "name = 'a/b'"),
        ({"name": ""}, "name = ''"),
        ({"name": "../up"}, "name"),
        ({"name": ".hidden"}, "name"),
        ({"seed": -1}, "seed = -1"),
    ],
)
def test_wrong_recipe_is_refused(changes: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        Recipe.parse(recipe(**changes))
    assert "\n" not in str(caught.value)


def test_recipe_without_a_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="'model' is missing"):
        Recipe.parse({"name": "tiny"})


def test_missing_recipe_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml does not exist"):
        Recipe.load(tmp_path / "none.toml")


@pytest.mark.parametrize("data", [b"name = ", b"\xff\xfe", b"\0"])
def test_file_that_is_not_toml_is_refused(tmp_path: Path, data: Any) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"bad\.toml is not readable TOML"):
        Recipe.load(path)


def test_folder_is_not_a_recipe(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not readable TOML"):
        Recipe.load(tmp_path)


def test_error_in_a_recipe_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("nam = 'x'\n[model]\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"bad\.toml: "):
        Recipe.load(path)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_numbers_that_are_not_finite_are_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="attn_scale"):
        GPTConfig.parse({**SHAPE, "attn_scale": value})
