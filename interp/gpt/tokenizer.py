"""Characters to integers and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Self

from interp.errors import CheckpointError, TokenError


class CharTokenizer:
    """One token per character; the vocabulary is the sorted set of a text's characters.

    There is no beginning-of-sequence token and none is ever added.
    """

    def __init__(self, characters: Sequence[str]) -> None:
        if len(set(characters)) != len(characters) or any(len(c) != 1 for c in characters):
            raise TokenError("a character vocabulary must hold distinct single characters")
        self.characters = tuple(characters)
        self._ids = {character: i for i, character in enumerate(self.characters)}

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Returns the tokenizer whose vocabulary is the sorted set of the characters of `text`."""
        return cls(sorted(set(text)))

    def __len__(self) -> int:
        return len(self.characters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CharTokenizer) and self.characters == other.characters

    def __hash__(self) -> int:
        return hash(self.characters)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of the characters of `text`.

        Raises:
            TokenError: characters outside the vocabulary, named with their positions.
        """
        try:
            return [self._ids[character] for character in text]
        except KeyError:
            raise TokenError(self._unknown(text)) from None

    def _unknown(self, text: str) -> str:
        positions: dict[str, list[int]] = {}
        for i, character in enumerate(text):
            if character not in self._ids:
                positions.setdefault(character, []).append(i)
        shown = "; ".join(
            f"{character!r} at {', '.join(map(str, where[:3]))}{'…' if len(where) > 3 else ''}"
            for character, where in list(positions.items())[:5]
        )
        more = f" and {len(positions) - 5} more" if len(positions) > 5 else ""
        known = "".join(self.characters)
        return (
            f"the text has characters outside the model's vocabulary: {shown}{more}; "
            f"known are {known!r}"
        )

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of token ids.

        Raises:
            TokenError: an id outside the vocabulary.
        """
        out: list[str] = []
        for i in ids:
            if not 0 <= i < len(self.characters):
                raise TokenError(f"token id {i} is outside 0 … {len(self.characters) - 1}")
            out.append(self.characters[i])
        return "".join(out)

    def to_json(self) -> str:
        """Returns the vocabulary as JSON text, readable by `from_json`."""
        document = {"kind": "characters", "characters": list(self.characters)}
        return json.dumps(document, ensure_ascii=True, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Returns the tokenizer that `to_json` wrote.

        Raises:
            CheckpointError: the text is not such a document.
        """
        try:
            document = json.loads(text)
            if document["kind"] != "characters":
                raise ValueError(f"kind {document['kind']!r}")
            return cls(document["characters"])
        except (ValueError, KeyError, TypeError, TokenError) as error:
            raise CheckpointError(f"not a character vocabulary: {error}") from error
