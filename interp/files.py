"""Writing files so that a killed process leaves the old state or the new one, never half of one.

Everything is first written under a temporary name beside its destination and then renamed, which
is atomic on one file system. A temporary name starts with a dot and ends in `.partial`; whatever a
killed run left under such a name is removed by the next write to the same destination.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from safetensors import SafetensorError

from interp.errors import OutputError


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial")


@contextlib.contextmanager
def _as_output_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OutputError:
        raise
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OutputError(
            f"cannot write {path}: {reason}; free space there or choose another output folder"
        ) from error


def write_file(path: Path, write: Callable[[Path], object]) -> None:
    """Calls `write` on a temporary path, then renames it to `path`.

    Raises:
        OutputError: the folder cannot be written or the disk is full; `path` is as it was.
    """
    if not path.name:
        raise OutputError(f"cannot write {str(path)!r}: it names no file")
    partial = _partial(path)
    with _as_output_error(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write(partial)
            with partial.open("rb") as handle:
                os.fsync(handle.fileno())
            os.replace(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text with `\\n` line ends, all of it or nothing."""
    write_file(path, lambda partial: partial.write_bytes(text.encode("utf-8")))


def make_folder(path: Path) -> None:
    """Makes a folder and its parents if they are not there.

    Raises:
        OutputError: it cannot be made.
    """
    with _as_output_error(path):
        path.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def write_folder(path: Path) -> Iterator[Path]:
    """Yields a temporary folder that becomes `path` when the block ends without an exception.

    An existing folder at `path` is replaced.

    Raises:
        OutputError: the folder cannot be written or the disk is full; `path` is as it was.
    """
    partial = _partial(path)
    with _as_output_error(path):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            yield partial
            old = path.with_name(f".{path.name}.old.partial")
            shutil.rmtree(old, ignore_errors=True)
            if path.exists():
                os.replace(path, old)
            try:
                os.replace(partial, path)
            except BaseException:
                if old.exists():
                    os.replace(old, path)
                raise
            shutil.rmtree(old, ignore_errors=True)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


@contextlib.contextmanager
def write_into(path: Path, last: str, replacing: Sequence[str] = ()) -> Iterator[Path]:
    """Yields a temporary folder whose files go into the folder `path`, beside what is there, when
    the block ends without an exception.

    Args:
        path: the folder.
        last: the name of the file that goes last.
        replacing: patterns of files in `path` that are removed where there is no new one.

    Raises:
        OutputError: the folder cannot be written or the disk is full; before the files began to
            go there, `path` is as it was.
    """
    partial = _partial(path)
    with _as_output_error(path):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            yield partial
            found = [p.relative_to(partial) for p in partial.rglob("*") if p.is_file()]
            for old in (old for pattern in replacing for old in path.glob(pattern)):
                if old.relative_to(path) not in found:
                    old.unlink()
            for name in sorted(found, key=lambda name: (name.name == last, name)):
                place = path / name
                place.parent.mkdir(parents=True, exist_ok=True)
                os.replace(partial / name, place)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def sha256(data: bytes) -> str:
    """Returns the hexadecimal SHA-256 of `data`."""
    return hashlib.sha256(data).hexdigest()
