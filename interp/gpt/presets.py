"""The hook points of a model: their names and shapes, the presets of a cache, and their sizes.

Axes: `interp.gpt.axes`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from interp.gpt.config import GPTConfig

PRESETS = ("all", "contributions", "residual", "attention")
_EXPANDED = ("hook_result", "hook_q_input", "hook_k_input", "hook_v_input")
_CONTRIBUTIONS = (
    "hook_embed", "hook_pos_embed", "hook_attn_out", "hook_mlp_out", "hook_scale", "hook_pattern",
    "hook_logits",
)  # fmt: skip
_STORED = (*_CONTRIBUTIONS, "hook_q", "hook_k", "hook_v", "hook_z")
_RESIDUAL = (
    "hook_embed", "hook_pos_embed", "hook_resid_pre", "hook_resid_mid", "hook_resid_post",
    "hook_attn_out", "hook_mlp_out", "hook_scale", "hook_logits",
)  # fmt: skip
_ATTENTION = ("hook_q", "hook_k", "hook_v", "hook_z", "hook_attn_scores", "hook_pattern")


def hook_shapes(cfg: GPTConfig, batch: int, pos: int) -> dict[str, tuple[int, ...]]:
    """Returns every hook name of a model with the shape of its activation, in model order."""
    residual, scale = (batch, pos, cfg.d_model), (batch, pos, 1)
    per_head, maps = (batch, pos, cfg.n_heads, cfg.d_head), (batch, cfg.n_heads, pos, pos)
    copies, neurons = (batch, pos, cfg.n_heads, cfg.d_model), (batch, pos, cfg.d_mlp)
    attention: dict[str, tuple[int, ...]] = {
        "ln1.hook_scale": scale,
        "ln1.hook_normalized": residual,
    }
    attention |= {f"attn.hook_{x}": per_head for x in "qkv"}
    attention |= {"attn.hook_attn_scores": maps, "attn.hook_pattern": maps}
    attention |= {"attn.hook_z": per_head, "attn.hook_result": copies}
    attention |= {"hook_resid_pre": residual, "hook_attn_out": residual}
    attention |= {f"hook_{x}_input": copies for x in "qkv"}
    mlp: dict[str, tuple[int, ...]] = {"ln2.hook_scale": scale, "ln2.hook_normalized": residual}
    mlp |= {"mlp.hook_pre": neurons, "mlp.hook_post": neurons, "hook_resid_mid": residual}
    mlp |= {"hook_mlp_in": residual, "hook_mlp_out": residual}
    block = {"hook_resid_post": residual, **attention, **({} if cfg.attn_only else mlp)}
    shapes: dict[str, tuple[int, ...]] = {"hook_embed": residual}
    if cfg.positional:
        shapes["hook_pos_embed"] = residual
    for layer in range(cfg.n_layers):
        shapes |= {f"blocks.{layer}.{name}": shape for name, shape in block.items()}
    if cfg.final_norm:
        shapes |= {"ln_final.hook_scale": scale, "ln_final.hook_normalized": residual}
    return shapes | {"hook_logits": (batch, pos, cfg.d_vocab)}


def preset_names(preset: str, names: Iterator[str] | list[str]) -> list[str]:
    """Returns the hook names that a preset keeps in memory.

    "all": everything (most of it rebuilt on demand); "contributions": the smallest set from which
    everything can be rebuilt exactly; "residual": the stream and what is written into it;
    "attention": q, k, v, z, scores, pattern.
    """
    kept = {"all": _STORED, "contributions": _CONTRIBUTIONS,
            "residual": _RESIDUAL, "attention": _ATTENTION}[preset]  # fmt: skip
    return [name for name in names if name.rsplit(".", 1)[-1] in kept]


def cache_bytes(
    cfg: GPTConfig, batch: int, pos: int, names: str = "all", bytes_per_number: int = 4
) -> int:
    """Returns how many bytes a cache of a preset will keep, without running the model.

    Example:
        >>> from interp import GPTConfig, cache_bytes
        >>> cfg = GPTConfig(n_layers=4, n_heads=4, d_model=128, n_ctx=128, d_vocab=65)
        >>> cache_bytes(cfg, batch=1, pos=128, names="contributions") // 1024
        1701
    """
    shapes = hook_shapes(cfg, batch, pos)
    numbers = 0
    for name in preset_names(names, list(shapes)):
        # One row of position embeddings serves the whole batch; neighbouring blocks share a stream.
        shape = shapes[name] if name != "hook_pos_embed" else shapes[name][1:]
        first = name == "blocks.0.hook_resid_pre" and cfg.positional
        if first or not name.endswith("resid_pre"):
            numbers += int(torch.Size(shape).numel())
    return numbers * bytes_per_number


def is_expanded(name: str) -> bool:
    """True for the per-head activations of width d_model, which are kept only when named."""
    return name.rsplit(".", 1)[-1] in _EXPANDED
