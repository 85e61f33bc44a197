"""A transformer with an alphabet: text in, tokens out, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

import torch
from torch import Tensor

from interp.errors import ConfigError, TokenError
from interp.gpt.attention import PastKeys
from interp.gpt.axes import Tokens
from interp.gpt.config import GPTConfig
from interp.gpt.tokenizer import CharTokenizer
from interp.gpt.transformer import Transformer, next_token_loss

Input = str | Sequence[str] | Tensor
ReturnType = Literal["logits", "loss", "both"] | None


class RunOptions(TypedDict, total=False):
    """The options of `TextTransformer.forward`."""

    loss_per_token: bool
    start_at_layer: int | None
    stop_at_layer: int | None
    past: list[PastKeys] | None


class TextTransformer(Transformer):
    """A transformer that knows which characters its tokens stand for."""

    def __init__(
        self, config: GPTConfig, tokenizer: CharTokenizer | None = None, *, seed: int = 0
    ) -> None:
        """
        Args:
            config: the shape.
            tokenizer: needed only to give and get text.
            seed: of the initial weights; the same seed gives the same weights.

        Raises:
            ConfigError: the tokenizer's vocabulary is not of the config's size.
        """
        if tokenizer is not None and len(tokenizer) != config.d_vocab:
            raise ConfigError(
                f"the tokenizer has {len(tokenizer)} characters, but d_vocab = {config.d_vocab}"
            )
        super().__init__(config, seed=seed)
        self.tokenizer = tokenizer

    @overload
    def forward(
        self,
        input: Input,
        return_type: Literal["logits", "loss"] = "logits",
        **options: Unpack[RunOptions],
    ) -> Tensor: ...
    @overload
    def forward(
        self, input: Input, return_type: Literal["both"], **options: Unpack[RunOptions]
    ) -> tuple[Tensor, Tensor]: ...
    @overload
    def forward(
        self, input: Input, return_type: ReturnType, **options: Unpack[RunOptions]
    ) -> Any: ...
    def forward(
        self,
        input: Input,
        return_type: ReturnType = "logits",
        *,
        loss_per_token: bool = False,
        start_at_layer: int | None = None,
        stop_at_layer: int | None = None,
        past: list[PastKeys] | None = None,
    ) -> Any:
        """Runs the model.

        Args:
            input: text, several texts of one length, or tokens [pos] or [batch, pos]; with
                `start_at_layer`, a residual stream [batch, pos, d_model] instead.
            return_type: "logits" [batch, pos, d_vocab]; "loss": mean cross-entropy in nats of
                every next token; "both": a pair of them; None: nothing.
            loss_per_token: give the loss as [batch, pos - 1].
            start_at_layer: the first block to run.
            stop_at_layer: stop before this block and return the residual stream.
            past: keys and values computed earlier, one entry per block (see `generate`).

        Raises:
            TokenError: unknown characters, ids outside the vocabulary, no tokens, more than n_ctx.
        """
        tokens = self.to_tokens(input) if start_at_layer is None else None
        given = input if tokens is None else tokens
        assert isinstance(given, Tensor)
        out = super().forward(
            given, start_at_layer=start_at_layer, stop_at_layer=stop_at_layer, past=past
        )
        if return_type == "logits" or stop_at_layer is not None:
            return out
        if return_type is None:
            return None
        if tokens is None:
            raise TokenError("a run that starts at a later layer has no tokens to take a loss on")
        loss = next_token_loss(out, tokens, per_token=loss_per_token)
        return loss if return_type == "loss" else (out, loss)

    if TYPE_CHECKING:  # torch says that calling a module gives Any
        __call__ = forward

    def to_tokens(self, input: Input, prepend_bos: bool = False, **_: Any) -> Tokens:
        """Returns tokens [batch, pos] on the model's device.

        Raises:
            TokenError: see `forward`.
        """
        if prepend_bos:
            raise TokenError("a character model has no beginning-of-sequence token to prepend")
        if not isinstance(input, Tensor):
            input = self._encode([input] if isinstance(input, str) else list(input))
        tokens = input[None] if input.ndim == 1 else input
        if tokens.ndim != 2 or tokens.is_floating_point() or tokens.numel() == 0:
            raise TokenError(
                f"expected tokens of shape [batch, pos] and an integer type with at least one "
                f"token, got shape {tuple(input.shape)} and {input.dtype}"
            )
        if tokens.shape[1] > self.config.n_ctx:
            raise TokenError(
                f"the prompt has {tokens.shape[1]} tokens, but the model's context holds "
                f"n_ctx = {self.config.n_ctx}; shorten it"
            )
        if (
            tokens.device.type == "cpu"
            and not 0 <= tokens.min() <= tokens.max() < self.config.d_vocab
        ):
            raise TokenError(
                f"token ids run from {int(tokens.min())} to {int(tokens.max())}, "
                f"outside 0 … {self.config.d_vocab - 1}"
            )
        return tokens.to(self.device, torch.long)

    def _encode(self, texts: list[str]) -> Tensor:
        if self.tokenizer is None:
            raise TokenError("this model has no tokenizer; give tokens instead of text")
        lengths = {len(text) for text in texts}
        if len(lengths) != 1:
            raise TokenError(f"texts of one batch must have one length, got {sorted(lengths)}")
        return torch.tensor([self.tokenizer.encode(text) for text in texts], dtype=torch.long)

    def to_string(self, tokens: Tensor) -> str:
        """Returns the text of tokens [pos]."""
        if self.tokenizer is None:
            raise TokenError("this model has no tokenizer, so tokens have no text")
        return self.tokenizer.decode(tokens.flatten().tolist())

    def to_str_tokens(self, input: Input, **_: Any) -> list[str]:
        """Returns the characters of one sequence."""
        return list(self.to_string(self.to_tokens(input)[0]))

    def to_single_token(self, string: str) -> int:
        """Returns the id of one character."""
        tokens = self._encode([string])
        if tokens.numel() != 1:
            raise TokenError(f"expected one character, got {string!r}")
        return int(tokens)
