"""`HookedGPT`: the model you train is the model you inspect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from interp.errors import CheckpointError, ConfigError, HookError, TokenError, nearest
from interp.gpt import folder as folders
from interp.gpt.cache import PRESETS, ActivationCache, is_expanded, preset_names
from interp.gpt.config import GPTConfig
from interp.gpt.layers import Block, LayerNorm, PastKeys, Residual, initialise
from interp.gpt.tokenizer import CharTokenizer
from interp.hooks import HookedModule, HookPoint, NamesFilter, Slice

Logits = Float[Tensor, "batch pos d_vocab"]
Tokens = Int[Tensor, "batch pos"]
Input = str | Sequence[str] | Tensor
ReturnType = Literal["logits", "loss", "both"] | None


class Embed(nn.Module):
    """One row of W_E a token."""

    def __init__(self, cfg: GPTConfig) -> None:
        super().__init__()
        self.W_E = nn.Parameter(torch.empty(cfg.d_vocab, cfg.d_model))


class PosEmbed(nn.Module):
    """One row of W_pos a position."""

    def __init__(self, cfg: GPTConfig) -> None:
        super().__init__()
        self.W_pos = nn.Parameter(torch.empty(cfg.n_ctx, cfg.d_model))


class Unembed(nn.Module):
    """One column of W_U a token (absent when tied to W_E), and a bias b_U where there is one."""

    W_U: nn.Parameter | None
    b_U: nn.Parameter | None

    def __init__(self, cfg: GPTConfig) -> None:
        super().__init__()
        W_U = None if cfg.tied else nn.Parameter(torch.empty(cfg.d_model, cfg.d_vocab))
        b_U = nn.Parameter(torch.empty(cfg.d_vocab)) if cfg.unembed_bias else None
        self.register_parameter("W_U", W_U)
        self.register_parameter("b_U", b_U)


class HookedGPT(HookedModule):
    """A small pre-norm GPT with a hook point at every contribution and every attention map.

    Example:
        >>> import interp
        >>> cfg = interp.GPTConfig(n_layers=2, n_heads=4, d_model=32, n_ctx=16, d_vocab=4)
        >>> model = interp.HookedGPT(cfg, interp.CharTokenizer("abcd"), seed=0)
        >>> logits, cache = model.run_with_cache("abba")
        >>> tuple(cache["pattern", 1].shape)
        (1, 4, 4, 4)
    """

    name: str = ""  # of the folder it came from; figures and results say it

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
        super().__init__()
        if tokenizer is not None and len(tokenizer) != config.d_vocab:
            raise ConfigError(
                f"the tokenizer has {len(tokenizer)} characters, but d_vocab = {config.d_vocab}"
            )
        self.config = config
        self.tokenizer = tokenizer
        self.embed = Embed(config)
        self.hook_embed = HookPoint()
        if config.positional:
            self.pos_embed = PosEmbed(config)
            self.hook_pos_embed = HookPoint()
        self.blocks: Sequence[Block] = nn.ModuleList(  # type: ignore[assignment]  # it is one
            Block(config) for _ in range(config.n_layers)
        )
        self.ln_final = LayerNorm(config) if config.final_norm else nn.Identity()
        self.unembed = Unembed(config)
        self.hook_logits = HookPoint()
        initialise(self, config, seed)
        self.setup()  # type: ignore[no-untyped-call]
        self._gain_in_directions = False

    # ---- running -------------------------------------------------------------------------

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
            past: keys and values computed earlier, one entry a block (see `generate`).

        Raises:
            TokenError: unknown characters, ids outside the vocabulary, no tokens, more than n_ctx.
        """
        if start_at_layer is None:
            tokens = self.to_tokens(input)
            x = self.embed_tokens(tokens, past)
        else:
            assert isinstance(input, Tensor)
            tokens, x = None, input
        first, last = slice(start_at_layer, stop_at_layer).indices(len(self.blocks))[:2]
        for layer in range(first, last):
            x = self.blocks[layer](x, None if past is None else past[layer])
        if stop_at_layer is not None:
            return x
        logits = self.hook_logits(self.unembed_residual(x))
        if return_type == "logits":
            return logits
        if return_type is None:
            return None
        if tokens is None:
            raise TokenError("a run that starts at a later layer has no tokens to take a loss on")
        loss = next_token_loss(logits, tokens, per_token=loss_per_token)
        return loss if return_type == "loss" else (logits, loss)

    def embed_tokens(self, tokens: Tokens, past: list[PastKeys] | None = None) -> Residual:
        """Returns the residual stream that enters block 0: token plus position embeddings."""
        x = self.hook_embed(F.embedding(tokens, self.embed.W_E))
        if self.config.positional:
            seen = past[0].keys_values if past else None
            offset = 0 if seen is None else seen[0].shape[1]
            positions = torch.arange(offset, offset + tokens.shape[1], device=tokens.device)
            rows = F.embedding(positions, self.pos_embed.W_pos)
            x = x + self.hook_pos_embed(rows.expand(len(tokens), -1, -1))
        return x

    def unembed_residual(self, x: Residual) -> Logits:
        """Returns final LayerNorm, then W_U and b_U."""
        return F.linear(self.ln_final(x), self.W_U.T, self.b_U)

    def run_with_cache(  # type: ignore[override]  # every argument has a name and a type
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
                "attention"); or a hook name, several, or a function from name to bool.
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
        plain = pos_slice is None and not incl_bwd and not forward and not self._altered
        names, rebuilds = self._names_to_keep(names_filter, plain)
        kept: dict[str, Tensor] = {}

        def keep(name: str, value: Tensor) -> None:
            kept[name] = _own_memory(_slice_pos(value.detach(), name, pos_slice), whole=rebuilds)

        given = input if tokens is None else tokens
        with self.recording(names, keep):
            if incl_bwd:
                out, grads = self._loss_and_gradients(given, names, **forward)
                kept |= {f"{name}_grad": _slice_pos(g, name, pos_slice) for name, g in grads}
            else:
                out = self(given, return_type, **forward)
        if device is not None:
            kept = {name: value.to(device) for name, value in kept.items()}
        its_tokens = None if tokens is None or pos_slice is not None else tokens.clone()
        cache = ActivationCache(kept, self, tokens=its_tokens, rebuilds=rebuilds)
        if remove_batch_dim:
            cache.remove_batch_dim()
        return out, (cache if return_cache_object else dict(cache.cache_dict))

    def _loss_and_gradients(
        self, input: Input, names: Sequence[str], **forward: Any
    ) -> tuple[Tensor, list[tuple[str, Tensor]]]:
        """The loss, and its gradient to each named activation that it depends on."""
        live: dict[str, Tensor] = {}

        def look(value: Tensor, hook: HookPoint) -> None:  # at the private copy that goes on
            live[str(hook.name)] = value

        with torch.enable_grad(), self.hooks([(name, look) for name in names]):
            loss = self(input, "loss", **forward)
        reached = {name: value for name, value in live.items() if value.requires_grad}
        grads = torch.autograd.grad(loss, list(reached.values()), allow_unused=True)
        found = zip(reached, grads, strict=True)
        return loss, [(name, grad) for name, grad in found if grad is not None]

    def _names_to_keep(self, names: NamesFilter, plain: bool) -> tuple[list[str], bool]:
        if isinstance(names, str) and names not in PRESETS and "hook_" not in names:
            raise HookError(
                f"unknown preset {names!r}{nearest(names, PRESETS)}; presets: {PRESETS}"
            )
        wants_all = names is None or names == "all"
        if plain and (wants_all or names == "contributions"):
            return preset_names(str(names or "all"), list(self.hook_dict)), True
        if wants_all:
            points = self.hook_dict.items()
            return [name for name, p in points if not is_expanded(name) or p.edited], False
        if isinstance(names, str) and names in PRESETS:
            return preset_names(names, list(self.hook_dict)), False
        return self.resolve_names(names), False

    @property
    def _altered(self) -> bool:
        """True when a run now would not be the plain function of the weights."""
        dropping = self.training and self.config.dropout > 0
        scaled = any(block.attn.multiplier is not None for block in self.blocks)
        return dropping or scaled or self.is_edited

    @contextmanager
    def attn_scaled_by(self, multiplier: float | Float[Tensor, "layer head"]) -> Iterator[Self]:
        """Multiplies attention scores by `multiplier` inside a `with` block.

        Args:
            multiplier: one number for all heads, or [layer, head]. 1 is the model as it is,
                sqrt(d_head) takes the lesson's scaling away, 0 makes attention uniform.
        """
        shape = (self.config.n_layers, self.config.n_heads)
        values = torch.as_tensor(multiplier, device=self.device, dtype=self.dtype).expand(shape)
        before = [block.attn.multiplier for block in self.blocks]
        try:
            for block, row in zip(self.blocks, values, strict=True):
                block.attn.multiplier = row
            yield self
        finally:
            for block, old in zip(self.blocks, before, strict=True):
                block.attn.multiplier = old

    # ---- text and tokens -----------------------------------------------------------------

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
        model.name = Path(folder).resolve().name
        return model.to(device).eval()

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes config.json, model.safetensors and tokenizer.json into `folder`.

        Raises:
            OutputError: the folder cannot be written.
        """
        folders.save_pretrained(self, folder)

    # ---- weights -------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        return self.embed.W_E.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embed.W_E.dtype

    @property
    def W_E(self) -> Float[Tensor, "d_vocab d_model"]:
        return self.embed.W_E

    @property
    def W_pos(self) -> Float[Tensor, "n_ctx d_model"]:
        return self.pos_embed.W_pos

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab"]:
        W_U = self.unembed.W_U
        return self.embed.W_E.T if W_U is None else W_U

    @property
    def b_U(self) -> Float[Tensor, " d_vocab"] | None:
        return self.unembed.b_U

    @property
    def W_Q(self) -> Float[Tensor, "layer head d_model d_head"]:
        return torch.stack([block.attn.W_Q for block in self.blocks])

    @property
    def W_K(self) -> Float[Tensor, "layer head d_model d_head"]:
        return torch.stack([block.attn.W_K for block in self.blocks])

    @property
    def W_V(self) -> Float[Tensor, "layer head d_model d_head"]:
        return torch.stack([block.attn.W_V for block in self.blocks])

    @property
    def W_O(self) -> Float[Tensor, "layer head d_head d_model"]:
        return torch.stack([block.attn.W_O for block in self.blocks])

    # ---- what TransformerLens's functions ask of a model ---------------------------------

    @property
    def cfg(self) -> SimpleNamespace:
        """The config under the attribute names that TransformerLens's utilities read."""
        return SimpleNamespace(
            **self.config.model_dump(),
            attn_only=self.config.attn_only,
            device=self.device,
            dtype=self.dtype,
            normalization_type="LN",
            positional_embedding_type="standard",
            n_key_value_heads=None,
            model_name="HookedGPT",
            default_prepend_bos=False,
            use_attn_result=True,
            use_split_qkv_input=True,
            use_attn_in=False,
        )

    @contextmanager
    def gain_in_directions(self) -> Iterator[None]:
        """Makes `tokens_to_residual_directions` include the final LayerNorm's gain."""
        self._gain_in_directions = True
        try:
            yield
        finally:
            self._gain_in_directions = False

    def tokens_to_residual_directions(self, tokens: Any) -> Tensor:
        """Returns the columns of W_U of the given tokens (text, id or ids), [..., d_model]."""
        if isinstance(tokens, str):
            tokens = self.to_single_token(tokens)
        directions = self.W_U.T[torch.as_tensor(tokens, device=self.device)]
        if self._gain_in_directions and isinstance(self.ln_final, LayerNorm):
            directions = directions * self.ln_final.w
        return directions

    def accumulated_bias(
        self, layer: int, mlp_input: bool = False, include_mlp_biases: bool = True
    ) -> Float[Tensor, " d_model"]:
        """Returns the sum of the biases written into the stream before block `layer`."""
        total = torch.zeros_like(self.embed.W_E[0])
        for block in self.blocks[:layer]:
            total = total + block.attn.b_O
            if block.mlp is not None and include_mlp_biases:
                total = total + block.mlp.b_out
        if mlp_input:
            total = total + self.blocks[layer].attn.b_O
        return total


def next_token_loss(logits: Logits, tokens: Tokens, per_token: bool = False) -> Tensor:
    """Returns the cross-entropy in nats of each position's prediction of the token after it.

    Args:
        logits: [batch, pos, d_vocab].
        tokens: [batch, pos].
        per_token: [batch, pos - 1] instead of the mean.
    """
    losses = F.cross_entropy(
        logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="none"
    ).view(len(tokens), -1)
    return losses if per_token else losses.mean()


def _slice_pos(value: Tensor, name: str, pos_slice: Any) -> Tensor:
    if pos_slice is None:
        return value
    kind = name.rsplit(".", 1)[-1]
    per_head = kind in ("hook_q", "hook_k", "hook_v", "hook_z") or is_expanded(name)
    dim = value.ndim - (3 if per_head else 2)
    if isinstance(pos_slice, int):
        pos_slice = [pos_slice]
    sliced = Slice.unwrap(pos_slice).apply(value, dim=dim)
    assert isinstance(sliced, Tensor)
    return sliced


def _own_memory(value: Tensor, whole: bool) -> Tensor:
    """Returns a copy if `value` is a small part of a larger tensor that it would keep alive.

    In a run that keeps q, k and v together (`whole`), the tensor they share is kept once.
    """
    smaller = value.numel() * value.element_size() < value.untyped_storage().nbytes()
    return value.clone() if smaller and not whole else value
