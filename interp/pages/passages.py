"""What a model is looked at on: a prompt, a file, or text that its training held out."""

from __future__ import annotations

from pathlib import Path

from jaxtyping import Int
from torch import Tensor

from interp.data.corpus import cut, load_corpus
from interp.errors import TokenError
from interp.gpt.model import HookedGPT
from interp.training.held_out import held_out


def tokens_of(
    model: HookedGPT,
    n: int,
    *,
    text: str | Path | None = None,
    prompt: str | None = None,
) -> Int[Tensor, "batch pos"]:
    """Returns the prompt, or up to `n` contexts of a text.

    Args:
        model: whose characters, and whose context's length.
        n: how many contexts, from the start of the text.
        text: a UTF-8 file to read instead of the model's own validation text.
        prompt: what to take instead, as one sequence.

    Raises:
        TextError: there is no text, or it cannot be read.
        TokenError: characters that the model does not know, too long a prompt, or no tokenizer.
    """
    if prompt is not None:
        return model.to_tokens(prompt)
    if model.tokenizer is None:
        raise TokenError("this model has no tokenizer, so no text can be given to it")
    if text is not None:
        return model.to_tokens(cut(load_corpus(path=text).text, model.config.n_ctx, n))
    return held_out(model, n)
