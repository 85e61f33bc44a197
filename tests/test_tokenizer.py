from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from interp import CharTokenizer, CheckpointError, TokenError
from interp.figures.palette import visible

TEXTS = st.text(min_size=1, max_size=60)


def test_vocabulary_is_the_sorted_set() -> None:
    assert CharTokenizer.from_text("banana\n").characters == ("\n", "a", "b", "n")


def test_ids_are_places_in_the_vocabulary() -> None:
    assert CharTokenizer("abc").encode("cab") == [2, 0, 1]


@given(TEXTS)
def test_text_round_trips(text: Any) -> None:
    tokenizer = CharTokenizer.from_text(text)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert len(ids) == len(text)
    assert set(ids) == set(range(len(tokenizer)))


@given(TEXTS)
def test_json_round_trips(text: Any) -> None:
    tokenizer = CharTokenizer.from_text(text)
    written = tokenizer.to_json()
    assert CharTokenizer.from_json(written) == tokenizer
    assert written.isascii()


def test_empty_text_is_no_tokens() -> None:
    assert CharTokenizer("ab").encode("") == []
    assert CharTokenizer("ab").decode([]) == ""


def test_equal_vocabularies_are_equal_tokenizers() -> None:
    assert CharTokenizer("ab") == CharTokenizer(["a", "b"])
    assert hash(CharTokenizer("ab")) == hash(CharTokenizer("ab"))
    assert CharTokenizer("ab") != CharTokenizer("ba")


def test_unknown_characters_are_named_with_positions() -> None:
    with pytest.raises(TokenError) as caught:
        CharTokenizer("ab").encode("axbyxxx")
    message = str(caught.value)
    assert "'x' at 1, 4, 5…" in message
    assert "'y' at 3" in message
    assert "'ab'" in message


def test_many_unknown_characters_are_counted() -> None:
    with pytest.raises(TokenError, match="and 2 more"):
        CharTokenizer("a").encode("bcdefgh")


@pytest.mark.parametrize("bad", [-1, 3])
def test_id_outside_the_vocabulary_is_refused(bad: int) -> None:
    with pytest.raises(TokenError, match=f"token id {bad} is outside 0 … 2"):
        CharTokenizer("abc").decode([0, bad])


@pytest.mark.parametrize("characters", ["aa", ["ab"], ["a", ""]])
def test_vocabulary_holds_distinct_single_characters(characters: Any) -> None:
    with pytest.raises(TokenError, match="distinct single characters"):
        CharTokenizer(characters)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "3",
        "{}",
        json.dumps({"kind": "words", "characters": ["a"]}),
        json.dumps({"kind": "characters"}),
        json.dumps({"kind": "characters", "characters": None}),
        json.dumps({"kind": "characters", "characters": ["a", "a"]}),
        json.dumps({"kind": "characters", "characters": [1, 2]}),
        json.dumps({"kind": "characters", "characters": [["a"]]}),
    ],
)
def test_other_json_is_not_a_vocabulary(text: Any) -> None:
    with pytest.raises(CheckpointError, match="not a character vocabulary"):
        CharTokenizer.from_json(text)


def test_white_space_can_be_made_visible() -> None:
    assert "".join(map(visible, "a \n\t")) == "a␣⏎⇥"
