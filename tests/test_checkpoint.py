"""The model folder: what is read is what was written, and anything else is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import VARIANTS, random_model, random_tokens, variant_id

from interp import CheckpointError, HookedGPT, OutputError, model_hash


@pytest.mark.parametrize("variant", VARIANTS, ids=variant_id)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_saved_model_comes_back_the_same(
    tmp_path: Path, variant: dict[str, Any], dtype: torch.dtype
) -> None:
    model = random_model(dtype, **variant)
    model.save_pretrained(tmp_path / "model")
    loaded = HookedGPT.from_pretrained(tmp_path / "model")
    assert loaded.config == model.config
    assert loaded.tokenizer == model.tokenizer
    assert loaded.dtype == dtype
    assert not loaded.training
    tokens = random_tokens(model)
    assert torch.equal(loaded(tokens), model(tokens))
    assert model_hash(loaded) == model_hash(model)


def test_a_loaded_model_knows_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random_model().save_pretrained(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    loaded = HookedGPT.from_pretrained("model")
    assert loaded.folder == (tmp_path / "model").resolve()
    assert loaded.name == "model"
    assert random_model().folder is None
    assert HookedGPT.folder is None


def test_a_model_without_a_tokenizer_comes_back_without_one(tmp_path: Path) -> None:
    random_model().save_pretrained(tmp_path)
    HookedGPT(random_model().config).save_pretrained(tmp_path)
    assert HookedGPT.from_pretrained(tmp_path).tokenizer is None


def test_only_whole_files_are_left_in_the_folder(tmp_path: Path) -> None:
    random_model().save_pretrained(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json"}


def truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def cut_in_the_header(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5])


def change_config(**values: Any) -> Any:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


def write(name: Any, content: Any) -> Any:
    return lambda folder: (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (truncate, "damaged or truncated"),
        (cut_in_the_header, "damaged or truncated"),
        (write("model.safetensors", b""), "damaged or truncated"),
        (lambda folder: (folder / "model.safetensors").unlink(), "is missing"),
        (lambda folder: (folder / "config.json").unlink(), "no config.json"),
        (change_config(n_ctx=8), "'pos_embed.W_pos' has shape (16, 32), expected (8, 32)"),
        (change_config(n_layers=1), "the config does not have 'blocks.1"),
        (change_config(n_layers=3), "the config asks for 'blocks.2"),
        (change_config(d_vocab=9), "9"),
        (change_config(format="gpt-interp/99"), "gpt-interp/1"),
        (change_config(n_heads="four"), "n_heads"),
        (change_config(n_head=4), "did you mean 'n_heads'"),
        (write("config.json", b'{"model_type": "gpt2", "n_embd": 768}'), "not written by this"),
        (write("config.json", b"[1, 2]"), "not written by this"),
        (write("config.json", b'{"format": '), "not readable JSON"),
        (write("config.json", b"\xff\xfe\x00"), "not readable JSON"),
        (write("tokenizer.json", b"{}"), "not a character vocabulary"),
        (write("tokenizer.json", b"\xff"), "tokenizer.json"),
        (write("tokenizer.json", b'{"kind": "characters", "characters": ["a"]}'), "1 characters"),
    ],
)
def test_a_damaged_folder_is_refused_in_one_line(tmp_path: Path, damage: Any, said: str) -> None:
    random_model().save_pretrained(tmp_path)
    damage(tmp_path)
    with pytest.raises(CheckpointError) as error:
        HookedGPT.from_pretrained(tmp_path)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not exist"):
        HookedGPT.from_pretrained(tmp_path / "nothing")


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        random_model().save_pretrained(tmp_path / "file" / "model")


def test_the_hash_changes_with_any_weight() -> None:
    model = random_model(tied=True, qkv_bias=True)
    hashes = {model_hash(model)}
    parameters = list(model.parameters())
    for parameter in parameters:
        with torch.no_grad():
            parameter.view(-1)[-1] += 0.5
        hashes.add(model_hash(model))
    assert len(hashes) == 1 + len(parameters)


def test_the_hash_changes_with_the_config() -> None:
    model, other = random_model(), random_model(attn_scale=1.0)
    other.load_state_dict(model.state_dict())
    assert model_hash(model) != model_hash(other)
    assert model_hash(model) == model_hash(random_model())
