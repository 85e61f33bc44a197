"""Other names of the hook points: those of TransformerLens's Bridge, which its tools ask for.

Here as there a module's `hook_in` and `hook_out` are what it reads and gives, and the per-head
inputs of attention belong to `attn`. Only what is the same activation with the same reach has an
alias: what an edit of it changes here is what it changes there (`tests/test_transformer_lens.py`
runs both). `ln1.hook_in`, `ln1.hook_out` and `mlp.hook_in`, say, have no point of their own.

They are for asking. Hook points, caches and results keep the names of `hook_shapes`.
"""

from __future__ import annotations

from interp.gpt.config import GPTConfig

_ATTENTION = {
    "hook_in": "hook_resid_pre",
    "attn.hook_q_input": "hook_q_input",
    "attn.hook_k_input": "hook_k_input",
    "attn.hook_v_input": "hook_v_input",
    "attn.q.hook_out": "attn.hook_q",
    "attn.k.hook_out": "attn.hook_k",
    "attn.v.hook_out": "attn.hook_v",
    "attn.o.hook_in": "attn.hook_z",
    "attn.hook_out": "hook_attn_out",
}
_MLP = {
    "ln2.hook_in": "hook_mlp_in",
    "mlp.in.hook_out": "mlp.hook_pre",
    "mlp.out.hook_in": "mlp.hook_post",
    "mlp.hook_out": "hook_mlp_out",
}


def hook_aliases(cfg: GPTConfig) -> dict[str, str]:
    """Returns the hook name for each alias of a model's hook names.

    Example:
        >>> from interp import GPTConfig
        >>> cfg = GPTConfig(n_layers=1, n_heads=1, d_model=4, n_ctx=4, d_vocab=2)
        >>> hook_aliases(cfg)["blocks.0.hook_out"]
        'blocks.0.hook_resid_post'
    """
    block = _ATTENTION | ({} if cfg.attn_only else _MLP) | {"hook_out": "hook_resid_post"}
    names = {"embed.hook_out": "hook_embed"}
    if cfg.positional:
        names["pos_embed.hook_out"] = "hook_pos_embed"
    for layer in range(cfg.n_layers):
        names |= {f"blocks.{layer}.{a}": f"blocks.{layer}.{name}" for a, name in block.items()}
    if cfg.final_norm and cfg.n_layers:
        names["ln_final.hook_in"] = f"blocks.{cfg.n_layers - 1}.hook_resid_post"
    return names | {"unembed.hook_out": "hook_logits", "hook_unembed": "hook_logits"}
