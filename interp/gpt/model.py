"""`HookedGPT`: the model you train is the model you inspect."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self, Unpack, overload

import torch
from torch import Tensor

from interp.errors import CheckpointError, ConfigError, HookError, TokenError
from interp.gpt import folder as folders
from interp.gpt.axes import Logits, Tokens
from interp.gpt.cache import ActivationCache
from interp.gpt.config import GPTConfig
from interp.gpt.generate import generate
from interp.gpt.recording import loss_and_gradients, names_to_keep, own_memory, slice_positions
from interp.gpt.text import Input, ReturnType, RunOptions
from interp.gpt.transformer import next_token_loss
from interp.gpt.weights import TransformerWithWeights
from interp.hooks import NamesFilter

__all__ = ["HookedGPT", "Input", "next_token_loss"]


class CacheOptions(RunOptions, total=False):
    """The options of `HookedGPT.run_with_cache` that do not change what is returned."""

    names_filter: NamesFilter
    remove_batch_dim: bool
    device: str | torch.device | None
    incl_bwd: bool
    pos_slice: Any


class HookedGPT(TransformerWithWeights):
    """A small pre-norm GPT with a hook point at every contribution and every attention map.

    The equations are `interp.gpt.transformer`'s; here they are run on text, and what a run leaves
    behind is kept.

    Example:
        >>> import interp
        >>> cfg = interp.GPTConfig(n_layers=2, n_heads=4, d_model=32, n_ctx=16, d_vocab=4)
        >>> model = interp.HookedGPT(cfg, interp.CharTokenizer("abcd"), seed=0)
        >>> logits, cache = model.run_with_cache("abba")
        >>> tuple(cache["pattern", 1].shape)
        (1, 4, 4, 4)
    """

    name: str = ""  # of the folder it came from; figures and results say it
    folder: Path | None = None  # where it came from, if from a folder

    @overload  # type: ignore[override]  # every argument has a name and a type
    def run_with_cache(
        self,
        input: Input,
        *,
        return_type: Literal["logits", "loss"] = "logits",
        return_cache_object: Literal[True] = True,
        **options: Unpack[CacheOptions],
    ) -> tuple[Tensor, ActivationCache]: ...
    @overload
    def run_with_cache(
        self,
        input: Input,
        *,
        return_type: ReturnType = "logits",
        return_cache_object: Literal[True] = True,
        **options: Unpack[CacheOptions],
    ) -> tuple[Any, ActivationCache]: ...
    @overload
    def run_with_cache(
        self,
        input: Input,
        *,
        return_type: ReturnType = "logits",
        return_cache_object: bool,
        **options: Unpack[CacheOptions],
    ) -> tuple[Any, Any]: ...
    def run_with_cache(
        self,
        input: Input,
        *,
        names_filter: NamesFilter = None,
        return_type: ReturnType = "logits",
        return_cache_object: bool = True,
        remove_batch_dim: bool = False,
        device: str | torch.device | None = None,
        incl_bwd: bool = False,
        pos_slice: Any = None,
        **forward: Any,
    ) -> tuple[Any, Any]:
        """Runs the model and keeps its activations; TransformerLens's arguments and names.

        Args:
            input: as in `forward`.
            names_filter: None for everything; a preset ("all", "contributions", "residual",
                "attention"); or a hook name, several, or a function from name to bool. The
                cache is asked by `hook_shapes`'s names, short names or `aliases` alike.
            return_type: as in `forward`.
            return_cache_object: False gives a plain dict instead of an `ActivationCache`.
            remove_batch_dim: drop the batch axis, which must be of length 1.
            device: where to keep the activations.
            incl_bwd: also keep the loss's gradient to each activation, as `<name>_grad`
                (return_type="loss"); no parameter's `.grad` is touched.
            pos_slice: keep only these positions (an int keeps the axis).
            forward: any other argument of `forward`.

        Returns:
            What `forward` returns, and the cache.

        Raises:
            HookError: a name that does not exist.
            TokenError: as in `forward`.
        """
        tokens = None if forward.get("start_at_layer") is not None else self.to_tokens(input)
        if remove_batch_dim and tokens is not None and len(tokens) != 1:
            raise TokenError(f"remove_batch_dim needs a batch of 1, got {len(tokens)}")
        if incl_bwd and return_type != "loss":
            raise HookError("incl_bwd needs return_type='loss'")
        plain = pos_slice is None and not incl_bwd and not forward and self.is_plain
        names, rebuilds = names_to_keep(self, names_filter, plain)
        kept: dict[str, Tensor] = {}

        def keep(name: str, value: Tensor) -> None:
            value = slice_positions(value.detach(), name, pos_slice)
            kept[name] = own_memory(value, whole=rebuilds)

        given = input if tokens is None else tokens
        with self.recording(names, keep):
            if incl_bwd:
                out, grads = loss_and_gradients(self, names, lambda: self(given, "loss", **forward))
                kept |= {f"{name}_grad": slice_positions(g, name, pos_slice) for name, g in grads}
            else:
                out = self(given, return_type, **forward)
        if device is not None:
            kept = {name: value.to(device) for name, value in kept.items()}
        its_tokens = None if tokens is None or pos_slice is not None else tokens.clone()
        cache = ActivationCache(kept, self, tokens=its_tokens, rebuilds=rebuilds)
        if remove_batch_dim:
            cache.remove_batch_dim()
        return out, (cache if return_cache_object else dict(cache.cache_dict))

    # ---- writing text ----------------------------------------------------------------------

    def generate(
        self,
        input: Input,
        n_tokens: int | None = None,
        *,
        max_new_tokens: int | None = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        do_sample: bool = True,
        seed: int = 0,
        use_past: bool = True,
    ) -> Tokens:
        """Returns the prompt with sampled tokens after it, [batch, pos]: `interp.generate`.

        Args:
            input: the prompt, text or tokens, at most n_ctx of them.
            n_tokens: how many tokens to add.
            max_new_tokens: TransformerLens's name of `n_tokens`; give one of the two. A character
                model has no end of text, so as many are added as are asked for.
            temperature: logits are divided by it; 0 takes the most likely token.
            top_k: sample among the k most likely tokens only.
            do_sample: False takes the most likely token, as a temperature of 0 does.
            seed: the same seed gives the same text.
            use_past: False recomputes everything at each step.

        Raises:
            TokenError: unknown characters, an empty prompt, or more than n_ctx tokens.
            ConfigError: `n_tokens` and `max_new_tokens` both given, or neither; a negative number
                of them, a negative temperature, or top_k below 1.
        """
        if (n_tokens is None) == (max_new_tokens is None):
            raise ConfigError("expected n_tokens or, meaning the same, max_new_tokens; give one")
        return generate(
            self,
            input,
            n_tokens if n_tokens is not None else max_new_tokens or 0,
            temperature=temperature if do_sample else 0,
            top_k=top_k,
            seed=seed,
            use_past=use_past,
        )

    def loss_fn(self, logits: Logits, tokens: Tokens, *, per_token: bool = False) -> Tensor:
        """Returns the mean cross-entropy in nats of every next token, or each, [batch, pos - 1]."""
        return next_token_loss(logits, tokens, per_token)

    # ---- the folder on disk --------------------------------------------------------------

    @classmethod
    def from_pretrained(cls, folder: str | Path, device: str | torch.device = "cpu") -> Self:
        """Returns the model in a folder that `save_pretrained` or training wrote, for evaluation.

        Raises:
            CheckpointError: no such folder, not ours, truncated, of another size than it says, or
                a rung of the lesson's ladder.
        """
        values, tokenizer = folders.read_folder(folder)
        if "rung" in values:
            raise CheckpointError(
                f"{folder} holds the rung {values['rung']!r} of the lesson's ladder, which has no "
                "hook points; interp.load_model loads it"
            )
        try:
            model = cls(GPTConfig.parse(values, str(Path(folder) / folders.CONFIG)), tokenizer)
        except ConfigError as error:
            raise CheckpointError(f"{folder} does not fit together: {error}") from error
        folders.load_weights(model, Path(folder) / folders.WEIGHTS)
        model.folder = Path(folder).resolve()
        model.name = model.folder.name
        return model.to(device).eval()

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes config.json, model.safetensors and tokenizer.json into `folder`.

        Raises:
            OutputError: the folder cannot be written.
        """
        folders.save_pretrained(self, folder)
