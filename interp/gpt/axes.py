"""The axes of every tensor of the model, in one place.

`batch` a sequence; `pos` a position that asks (query); `key` a position that is asked (source);
`head` and `layer`, counted from 0; `d_model`, `d_head`, `d_mlp`, `d_vocab` the widths of the
residual stream, of a head, of the MLP and of the vocabulary; `n_ctx` the longest sequence.
Weights act from the right (`x @ W`).
"""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

Tokens = Int[Tensor, "batch pos"]
Residual = Float[Tensor, "batch pos d_model"]
Logits = Float[Tensor, "batch pos d_vocab"]
PerHead = Float[Tensor, "batch pos head d_head"]
PerKey = Float[Tensor, "batch key head d_head"]
Maps = Float[Tensor, "batch head pos key"]
PerHeadStream = Float[Tensor, "batch pos head d_model"]
KeysValues = tuple[PerKey, PerKey]
