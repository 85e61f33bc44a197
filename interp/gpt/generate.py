"""Writing text with a model."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import ConfigError
from interp.gpt.attention import PastKeys
from interp.gpt.text import Input, TextTransformer
from interp.gpt.transformer import Transformer


@torch.no_grad()
def generate(
    model: TextTransformer,
    prompt: Input,
    n_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int = 0,
    use_past: bool = True,
) -> Int[Tensor, "batch pos"]:
    """Returns the prompt with `n_tokens` sampled tokens after it, [batch, pos].

    Keys and values are kept between steps until the context is full; from then on each step reads
    the last n_ctx tokens afresh, since learned positions shift. The result does not depend on it.
    While hooks are attached nothing is kept, so that a hook always sees the whole sequence.

    Args:
        model: the model; it runs in evaluation mode and is put back as it was.
        prompt: text or tokens, at most n_ctx of them.
        n_tokens: how many tokens to add.
        temperature: logits are divided by it; 0 takes the most likely token.
        top_k: sample among the k most likely tokens only.
        seed: the same seed gives the same text.
        use_past: False recomputes everything at each step.

    Raises:
        TokenError: unknown characters, an empty prompt, or more than n_ctx tokens.
        ConfigError: a negative temperature, top_k below 1, or a negative n_tokens.

    Example:
        >>> import interp
        >>> cfg = interp.GPTConfig(n_layers=1, n_heads=2, d_model=8, n_ctx=4, d_vocab=2)
        >>> model = interp.HookedGPT(cfg, interp.CharTokenizer("ab"))
        >>> len(model.to_string(interp.generate(model, "ab", 5, seed=1)))
        7
    """
    tokens = model.to_tokens(prompt)
    for token in stream(model, tokens, n_tokens, temperature, top_k, seed, use_past):
        tokens = torch.cat((tokens, token), dim=1)
    return tokens


@torch.no_grad()
def stream(
    model: Transformer,
    tokens: Int[Tensor, "batch pos"],
    n_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int = 0,
    use_past: bool = True,
) -> Iterator[Int[Tensor, "batch 1"]]:
    """Yields the sampled tokens one by one; arguments as in `generate`."""
    if temperature < 0 or n_tokens < 0 or (top_k is not None and top_k < 1):
        raise ConfigError(
            f"expected temperature >= 0, top_k >= 1 and n_tokens >= 0, "
            f"got {temperature}, {top_k} and {n_tokens}"
        )
    generator = torch.Generator(device=model.device).manual_seed(seed)
    n_ctx, was_training = model.config.n_ctx, model.training
    use_past = use_past and not model.is_edited and len(model.blocks) > 0
    model.eval()
    try:
        past = [PastKeys() for _ in model.blocks] if use_past else None
        fresh = tokens
        for _ in range(n_tokens):
            logits = model(fresh, past=past)[:, -1]
            token = _sample(logits, temperature, top_k, generator)
            yield token
            tokens = torch.cat((tokens, token), dim=1)[:, -n_ctx:]
            fits = past is not None and _length(past) < n_ctx
            if not fits:
                past = None
            fresh = token if fits else tokens
    finally:
        model.train(was_training)


def _length(past: list[PastKeys]) -> int:
    first = past[0].keys_values if past else None
    return 0 if first is None else first[0].shape[1]


def _sample(
    logits: Float[Tensor, "batch d_vocab"],
    temperature: float,
    top_k: int | None,
    generator: torch.Generator,
) -> Int[Tensor, "batch 1"]:
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    logits = logits / temperature
    if top_k is not None and top_k < logits.shape[-1]:
        least = logits.topk(top_k).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    return torch.multinomial(logits.softmax(-1), 1, generator=generator)
