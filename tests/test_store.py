# mypy: disable-error-code="arg-type, union-attr"
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import VOCABULARY, random_model, random_tokens

from interp import (
    CacheError,
    CacheStore,
    HookedGPT,
    OutputError,
    TokenError,
    logit_attribution,
    write_cache,
)

PRESETS = ["contributions", "all", "residual", "attention"]


@pytest.fixture
def model() -> HookedGPT:
    return random_model()


@pytest.fixture
def store(tmp_path: Path, model: HookedGPT) -> CacheStore:
    return write_cache(tmp_path / "store", model, random_tokens(model, 5, 6), batch_size=2)


def shard_of(store: CacheStore) -> Any:
    return store.folder / store.manifest["shards"][0]["file"]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("pos", [1, 6])
def test_stored_values_are_those_of_a_run(
    tmp_path: Path, model: HookedGPT, preset: Any, pos: int
) -> None:
    tokens = random_tokens(model, 5, pos)
    write_cache(tmp_path / "store", model, tokens, names=preset, batch_size=2)
    stored = list(CacheStore.open(tmp_path / "store").caches(model))
    assert [len(cache.tokens) for cache in stored] == [2, 2, 1]
    for cache, batch in zip(stored, tokens.split(2), strict=True):
        assert cache.tokens.equal(batch)
        _, fresh = model.run_with_cache(batch, names_filter=preset)
        assert set(cache.keys()) == set(fresh.keys())
        for name in fresh:
            assert cache[name].equal(fresh[name]), name


def test_one_hook_can_be_stored(tmp_path: Path, model: HookedGPT) -> None:
    tokens = random_tokens(model, 2, 4)
    store = write_cache(tmp_path / "s", model, tokens, names="blocks.1.attn.hook_result")
    (cache,) = store.caches(model)
    _, fresh = model.run_with_cache(tokens, names_filter="blocks.1.attn.hook_result")
    assert cache["result", 1].equal(fresh["result", 1])
    assert len(cache) == 1


def test_store_in_double_precision_stays_exact(tmp_path: Path) -> None:
    model = random_model(torch.float64)
    tokens = random_tokens(model, 2, 5)
    (cache,) = write_cache(tmp_path / "s", model, tokens).caches(model)
    assert cache["hook_logits"].equal(model.run_with_cache(tokens)[0])
    assert cache["resid_post", 1].dtype == torch.float64


def test_stored_cache_can_be_attributed(store: CacheStore, model: HookedGPT) -> None:
    for cache in store.caches(model):
        parts = logit_attribution(model, cache, by="head")
        assert parts.values.shape[1:] == (len(cache.tokens), cache.tokens.shape[1])


def test_length_and_bytes_are_those_of_the_shards(store: CacheStore) -> None:
    assert len(store) == 5
    assert store.nbytes == sum(path.stat().st_size for path in store.folder.glob("shard-*"))


def test_opened_store_is_the_written_one(store: CacheStore) -> None:
    assert CacheStore.open(store.folder) == store


def test_writing_keeps_the_mode_of_the_model(tmp_path: Path) -> None:
    model = random_model(dropout=0.5).train()
    tokens = random_tokens(model, 2, 4)
    (cache,) = write_cache(tmp_path / "s", model, tokens).caches(model)
    assert model.training
    assert cache["hook_logits"].equal(model.eval().run_with_cache(tokens)[0])


def test_other_weights_are_refused(store: CacheStore) -> None:
    with pytest.raises(CacheError, match="written by another model"):
        next(store.caches(random_model(seed=1)))


def test_edited_weights_are_refused(store: CacheStore, model: HookedGPT) -> None:
    with torch.no_grad():
        model.W_E[0, 0] += 1e-3
    with pytest.raises(CacheError, match="written by another model"):
        next(store.caches(model))


def test_changed_byte_in_a_shard_is_found(store: CacheStore, model: HookedGPT) -> None:
    path = shard_of(store)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CacheError, match="SHA-256"):
        next(store.caches(model))


def test_truncated_shard_is_found(store: CacheStore, model: HookedGPT) -> None:
    path = shard_of(store)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CacheError, match="damaged"):
        next(store.caches(model))


def test_missing_shard_is_found(store: CacheStore, model: HookedGPT) -> None:
    shard_of(store).unlink()
    with pytest.raises(CacheError, match="missing"):
        next(store.caches(model))


def test_missing_folder_is_not_a_store(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="is not a cache"):
        CacheStore.open(tmp_path / "none")


def test_store_without_its_manifest_is_refused(store: CacheStore) -> None:
    (store.folder / "manifest.json").unlink()
    with pytest.raises(CacheError, match="is not a cache"):
        CacheStore.open(store.folder)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[]", b"null", b'{"format": "other/1"}'])
def test_damaged_manifest_is_refused(store: CacheStore, data: Any) -> None:
    (store.folder / "manifest.json").write_bytes(data)
    with pytest.raises(CacheError):
        CacheStore.open(store.folder)


@pytest.mark.parametrize("key", ["model", "shards", "rebuilds"])
def test_manifest_that_lacks_an_entry_is_refused(
    store: CacheStore, model: HookedGPT, key: str
) -> None:
    manifest = {name: value for name, value in store.manifest.items() if name != key}
    (store.folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(CacheError):
        next(CacheStore.open(store.folder).caches(model))


def test_folder_of_other_things_is_refused(tmp_path: Path, model: HookedGPT) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputError, match="not a cache"):
        write_cache(tmp_path, model, random_tokens(model, 1, 4))
    assert (tmp_path / "notes.txt").read_text(encoding="utf-8") == "mine"


def test_file_in_the_place_of_the_folder_is_refused(tmp_path: Path, model: HookedGPT) -> None:
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputError):
        write_cache(tmp_path / "file", model, random_tokens(model, 1, 4))
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


def test_notes_beside_a_store_are_not_deleted(store: CacheStore, model: HookedGPT) -> None:
    (store.folder / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputError):
        write_cache(store.folder, model, random_tokens(model, 1, 4))
    assert (store.folder / "notes.txt").is_file()


def test_empty_folder_and_earlier_store_are_replaced(tmp_path: Path, model: HookedGPT) -> None:
    (tmp_path / "s").mkdir()
    for n in (3, 2):
        write_cache(tmp_path / "s", model, random_tokens(model, n, 4), batch_size=1)
    assert len(CacheStore.open(tmp_path / "s")) == 2
    assert len(list((tmp_path / "s").iterdir())) == 3


def stop_after_one(done: int, total: int) -> None:
    raise RuntimeError(f"stopped at {done} of {total}")


def test_stopped_write_leaves_no_folder(tmp_path: Path, model: HookedGPT) -> None:
    with pytest.raises(RuntimeError, match="stopped at 2 of 5"):
        write_cache(
            tmp_path / "s", model, random_tokens(model, 5, 4), batch_size=2,
            progress=stop_after_one,
        )  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_stopped_write_leaves_an_earlier_store_as_it_was(
    store: CacheStore, model: HookedGPT
) -> None:
    before = {path.name: path.read_bytes() for path in store.folder.iterdir()}
    with pytest.raises(RuntimeError):
        write_cache(store.folder, model, random_tokens(model, 2, 4), progress=stop_after_one)
    assert {path.name: path.read_bytes() for path in store.folder.iterdir()} == before
    assert list(store.folder.parent.iterdir()) == [store.folder]


def test_wrong_tokens_leave_no_folder(tmp_path: Path, model: HookedGPT) -> None:
    with pytest.raises(TokenError):
        write_cache(tmp_path / "s", model, torch.full((2, 4), 99))
    assert list(tmp_path.iterdir()) == []


def test_progress_is_told_after_each_shard(tmp_path: Path, model: HookedGPT) -> None:
    told = []
    write_cache(
        tmp_path / "s", model, random_tokens(model, 5, 4), batch_size=2,
        progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert told == [(2, 5), (4, 5), (5, 5)]


# ---- text in, one activation out ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["blocks.1.hook_attn_out", ("attn_out", 1)])
def test_one_activation_of_all_sequences_is_that_of_one_run(
    store: CacheStore, model: HookedGPT, name: Any
) -> None:
    tokens = random_tokens(model, 5, 6)
    _, cache = model.run_with_cache(tokens)
    assert len(store.manifest["shards"]) > 1
    torch.testing.assert_close(store.tensor(name), cache["attn_out", 1], atol=1e-6, rtol=1e-5)
    assert store.tensor("tokens").equal(tokens)


def test_an_activation_that_is_not_stored_is_refused_with_the_nearest(store: CacheStore) -> None:
    with pytest.raises(CacheError, match=r"not stored.*did you mean.*hook_attn_out"):
        store.tensor("blocks.1.hook_attn_uot")


def test_an_activation_in_a_damaged_shard_is_refused(store: CacheStore) -> None:
    path = shard_of(store)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(CacheError, match="damaged"):
        store.tensor("tokens")


def test_text_is_stored_as_its_tokens(tmp_path: Path, model: HookedGPT) -> None:
    a, b, c = VOCABULARY[:3]  # type: ignore[str-unpack]
    store = write_cache(tmp_path / "s", model, [a + b + c, c + a + b])
    assert store.tensor("tokens").tolist() == [[0, 1, 2], [2, 0, 1]]
    assert store.manifest["n_pos"] == 3
