from __future__ import annotations

import errno
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import random_model, random_tokens

from interp import HookedGPT, OutputError, write_cache
from interp.files import sha256, write_file, write_folder, write_into, write_text


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Makes writing past `size` bytes of any file an error, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def half_then_raise(error: BaseException) -> Any:
    def write(path: Path) -> None:
        path.write_bytes(b"half")
        raise error

    return write


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_text_is_utf8_with_line_feeds(tmp_path: Path) -> None:
    write_text(tmp_path / "a" / "b.txt", "é\n")
    assert (tmp_path / "a" / "b.txt").read_bytes() == b"\xc3\xa9\n"
    assert names_in(tmp_path / "a") == ["b.txt"]


def test_file_is_replaced(tmp_path: Path) -> None:
    write_text(tmp_path / "f", "a long old text")
    write_text(tmp_path / "f", "new")
    assert (tmp_path / "f").read_text(encoding="utf-8") == "new"


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), OSError("x")])
def test_failed_write_leaves_the_old_file(tmp_path: Path, error: Any) -> None:
    write_text(tmp_path / "f", "old")
    with pytest.raises((type(error), OutputError)):
        write_file(tmp_path / "f", half_then_raise(error))
    assert (tmp_path / "f").read_text(encoding="utf-8") == "old"
    assert names_in(tmp_path) == ["f"]


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), OSError("x")])
def test_failed_write_leaves_the_old_folder(tmp_path: Path, error: Any) -> None:
    with write_folder(tmp_path / "d") as partial:
        write_text(partial / "f", "old")
    with pytest.raises((type(error), OutputError)), write_folder(tmp_path / "d") as partial:
        write_text(partial / "g", "new")
        raise error
    assert names_in(tmp_path) == ["d"]
    assert names_in(tmp_path / "d") == ["f"]


def test_folder_is_replaced_whole(tmp_path: Path) -> None:
    for name in ("f", "g"):
        with write_folder(tmp_path / "a" / "d") as partial:
            write_text(partial / name, name)
    assert names_in(tmp_path / "a") == ["d"]
    assert names_in(tmp_path / "a" / "d") == ["g"]


def test_folder_appears_only_when_complete(tmp_path: Path) -> None:
    with write_folder(tmp_path / "d") as partial:
        write_text(partial / "f", "new")
        assert not (tmp_path / "d").exists()
        assert partial.name.startswith(".")
        assert partial.name.endswith(".partial")
    assert (tmp_path / "d" / "f").is_file()


def test_folder_that_cannot_be_renamed_leaves_the_old_one(tmp_path: Path) -> None:
    with write_folder(tmp_path / "d") as partial:
        write_text(partial / "f", "old")
    with pytest.raises(OutputError), write_folder(tmp_path / "d") as partial:
        shutil.rmtree(partial)
    assert (tmp_path / "d" / "f").read_text(encoding="utf-8") == "old"


def test_no_space_is_said_with_the_path_and_a_remedy(tmp_path: Path) -> None:
    error = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OutputError, match=r"cannot write .*f: No space left.*free space") as caught:
        write_file(tmp_path / "f", half_then_raise(error))
    assert caught.value.__cause__ is error


def test_full_device_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / ".f.partial").symlink_to("/dev/full")
    with pytest.raises(OutputError, match="No space left"):
        write_text(tmp_path / "f", "x" * 100_000)
    assert names_in(tmp_path) == []


def test_unwritable_place_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError, match="cannot write"):
        write_text(tmp_path / "file" / "f", "x")
    with pytest.raises(OutputError, match="cannot write"), write_folder(tmp_path / "file" / "d"):
        pass


def test_file_does_not_replace_a_folder(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    with pytest.raises(OutputError):
        write_text(tmp_path / "d", "x")
    assert names_in(tmp_path) == ["d"]


def test_leftovers_of_a_killed_write_are_removed_by_the_next(tmp_path: Path) -> None:
    (tmp_path / ".f.partial").write_bytes(b"half of something long")
    for name in (".d.partial", ".d.old.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "junk").write_bytes(b"junk")
    write_text(tmp_path / "f", "new")
    with write_folder(tmp_path / "d") as partial:
        write_text(partial / "g", "g")
    assert names_in(tmp_path) == ["d", "f"]
    assert names_in(tmp_path / "d") == ["g"]


def test_disk_that_fills_up_under_a_model_is_an_output_error(tmp_path: Path) -> None:
    first = random_model(seed=0)
    first.save_pretrained(tmp_path / "m")
    with files_of_at_most(4096), pytest.raises(OutputError, match="cannot write"):
        random_model(seed=1).save_pretrained(tmp_path / "m")
    kept = HookedGPT.from_pretrained(tmp_path / "m")
    assert kept.W_E.equal(first.W_E)
    assert names_in(tmp_path / "m") == ["config.json", "model.safetensors", "tokenizer.json"]


def test_disk_that_fills_up_under_a_cache_is_an_output_error(tmp_path: Path) -> None:
    model = random_model()
    with files_of_at_most(4096), pytest.raises(OutputError, match="cannot write"):
        write_cache(tmp_path / "c", model, random_tokens(model, 4, 16))
    assert names_in(tmp_path) == []


def test_sha256_of_nothing() -> None:
    assert sha256(b"").startswith("e3b0c44298fc1c14")


def test_files_go_into_a_folder_together_and_what_they_replace_goes(tmp_path: Path) -> None:
    place = tmp_path / "r"
    (place / "figures").mkdir(parents=True)
    for name in ("figures/old.png", "figures/same.png", "kept.txt", "page"):
        (place / name).write_text("old")
    with write_into(place, last="page", replacing=("figures/*.png",)) as stage:
        (stage / "figures").mkdir()
        for name in ("figures/same.png", "figures/new.png", "page"):
            (stage / name).write_text("new")
        assert (place / "page").read_text() == "old"
    held = {str(p.relative_to(place)): p.read_text() for p in place.rglob("*") if p.is_file()}
    assert held == {
        "figures/same.png": "new", "figures/new.png": "new", "page": "new", "kept.txt": "old",
    }  # fmt: skip
    assert [p.name for p in tmp_path.iterdir()] == ["r"]


def test_a_failure_in_between_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    for place in (tmp_path / "r", tmp_path / "none"):
        if place.name == "r":
            place.mkdir()
            (place / "page").write_text("old")
        with (
            pytest.raises(KeyboardInterrupt),
            write_into(place, last="page", replacing=("*",)) as stage,
        ):
            (stage / "page").write_text("new")
            raise KeyboardInterrupt
    assert [p.name for p in tmp_path.rglob("*")] == ["r", "page"]
    assert (tmp_path / "r" / "page").read_text() == "old"


def test_the_last_file_does_not_go_where_another_could_not(tmp_path: Path) -> None:
    (tmp_path / "r" / "z" / "full").mkdir(parents=True)  # a folder where a file shall go
    (tmp_path / "r" / "page").write_text("old")
    with (
        pytest.raises(OutputError, match="cannot write"),
        write_into(tmp_path / "r", last="page") as stage,
    ):
        for name in ("page", "z"):
            (stage / name).write_text("new")
    assert (tmp_path / "r" / "page").read_text() == "old"
