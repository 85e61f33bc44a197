"""What dividing scores by sqrt(d_k) does to the softmax: theory, and a trained model rescaled.

Theory is of a row of n scores of standard deviation s: a dot product of d_k independent products
has s = √d_k unscaled and 1 scaled. Simulated figures carry their standard errors.

    small s        E H = ln n − (s²/2)(1 − 1/n) + O(s⁴)
    freezing       near s = √(2 ln n) the largest weight takes over (the random-energy model), so
                   the right scale depends on n, not on d_k alone
    floor          a row with R = ‖s − mean s‖₂ has at least the entropy of the row that puts all of
                   R into one score: ln(1 + (n−1)b) + R√(n(n−1)) b/(1 + (n−1)b), where
                   b = e^(−R√(n/(n−1)))

`attention_scaling` multiplies the scores of a trained model by c. 1 is the model as it is, √d_head
takes its scaling away, 0 makes attention uniform. This probes how a trained model is calibrated,
not why scaling helps training.

Sources: Vaswani et al. 2017 (section 3.2.1); Zhai et al. 2023 (2303.06296) for the floor;
Derrida 1981 for the freezing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from scipy.special import log_softmax, softmax
from torch import Tensor

from interp.errors import ConfigError, TokenError
from interp.gpt.model import HookedGPT, Input, next_token_loss
from interp.results import intervals
from interp.results.provenance import Provenance
from interp.results.result import Result, to_numpy
from interp.stream.metric import check_choice

Inputs = Literal["as they come", "frozen"]
Progress = Callable[[int, int], None]
MULTIPLIERS = (0.0, 0.25, 0.5, 2**-0.5, 1.0, 2**0.5, 2.0, 4.0, 8.0)
BATCHES = 50  # of simulated rows, whose spread gives the standard errors
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
PIECE = 16


# ---- theory -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SoftmaxStatistics:
    """A row of `n_keys` independent normal scores of one standard deviation, through softmax.

    Each value is a pair (estimate, standard error) from `draws` rows: the median and mean of the
    largest weight, the entropy in nats, and the mean over keys of p(1 − p), a softmax's own slope.
    """

    n_keys: int
    std: float
    draws: int
    median_largest: tuple[float, float]
    mean_largest: tuple[float, float]
    entropy: tuple[float, float]
    slope: tuple[float, float]

    @property
    def entropy_normalised(self) -> tuple[float, float]:
        """Entropy divided by ln(n_keys), and its standard error."""
        size = float(np.log(self.n_keys))
        return self.entropy[0] / size, self.entropy[1] / size


def softmax_statistics(
    std: float, n_keys: int = 8, *, draws: int = 1_000_000, seed: int = 0
) -> SoftmaxStatistics:
    """Returns what softmax makes of independent normal scores of one standard deviation.

    Args:
        std: of the scores; √d_k for unscaled dot products, 1 for scaled ones.
        n_keys: scores in a row.
        draws: rows simulated, in 50 batches, whose spread gives the standard errors.
        seed: of the rows; the same seed gives the same rows, times the std.

    Raises:
        ConfigError: a negative std, fewer than 2 keys, fewer than 50 draws.
    """
    if not std >= 0 or n_keys < 2 or draws < BATCHES:
        raise ConfigError(
            f"std = {std}, n_keys = {n_keys}, draws = {draws}; expected a std of "
            f"at least 0, at least 2 keys and at least {BATCHES} draws"
        )
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(BATCHES):
        scores = std * rng.standard_normal((draws // BATCHES, n_keys))
        p = softmax(scores, axis=-1)
        largest = p.max(-1)
        found.append(
            (
                np.median(largest),
                largest.mean(),
                entropy_of_scores(scores).mean(),
                (p * (1 - p)).mean(),
            )
        )
    values = np.array(found)
    pairs = zip(values.mean(0), values.std(0, ddof=1) / np.sqrt(BATCHES), strict=True)
    median, mean, entropy, slope = ((float(v), float(e)) for v, e in pairs)
    return SoftmaxStatistics(
        n_keys=n_keys, std=float(std), draws=draws // BATCHES * BATCHES,
        median_largest=median, mean_largest=mean, entropy=entropy, slope=slope,
    )  # fmt: skip


def entropy_of_scores(scores: np.ndarray) -> np.ndarray:
    """Returns the entropy in nats of the softmax of each row, [...], from logsumexp(s) − Σ p s.

    −inf masks a key.
    """
    log_p = log_softmax(np.asarray(scores, dtype=np.float64), axis=-1)
    seen = np.isfinite(log_p)
    entropy: np.ndarray = -(np.exp(log_p) * np.where(seen, log_p, 0.0)).sum(-1)
    return entropy


def small_score_entropy(std: float, n_keys: int) -> float:
    """Returns ln n − (s²/2)(1 − 1/n): the mean entropy in nats for small stds s."""
    return float(np.log(n_keys) - std**2 / 2 * (1 - 1 / n_keys))


def freezing_std(n_keys: int) -> float:
    """Returns √(2 ln n): the std near which the largest weight takes over."""
    return float(np.sqrt(2 * np.log(n_keys)))


def entropy_floor(scores: np.ndarray) -> np.ndarray:
    """Returns the least entropy in nats that rows of this spread can have, [...].

    With R = ‖s − mean s‖₂ and b = exp(−R √(n/(n−1))):
    ln(1 + (n−1)b) + R √(n(n−1)) b / (1 + (n−1)b). Reached by a row with all but one score equal.
    """
    scores = np.asarray(scores, dtype=np.float64)
    n = scores.shape[-1]
    if n == 1:
        return np.zeros(scores.shape[:-1])
    R = np.linalg.norm(scores - scores.mean(-1, keepdims=True), axis=-1)
    b = np.exp(-R * np.sqrt(n / (n - 1)))
    floor: np.ndarray = np.log1p((n - 1) * b) + R * np.sqrt(n * (n - 1)) * b / (1 + (n - 1) * b)
    return floor


def gradient_statistics(
    d_k: int, multiplier: float, n_keys: int = 8, *, draws: int = 20_000, seed: int = 0
) -> pd.DataFrame:
    """Returns how large gradients are that come back through softmax(multiplier · q·k).

    q and k are normal, and so is what comes back to the weights; ∂L/∂score = p (g − Σ p g), and
    ∂L/∂q = multiplier · Σ ∂L/∂score · k. Norms of a row; columns of, mean, rms, and the quantiles
    q05 q25 q50 q75 q95. Unscaled, the *mean* of ∂L/∂q is the larger one, while most rows are dead:
    a mean alone misleads.

    Args:
        d_k: width of queries and keys.
        multiplier: of the dot product: 1 unscaled, 1/√d_k the lesson's, 1/d_k.
        n_keys: keys a query sees.
        draws: rows simulated.
        seed: of them.
    """
    rng = np.random.default_rng(seed)
    of_score, of_q = [], []
    for start in range(0, draws, 1000):
        n = min(1000, draws - start)
        q, k = rng.standard_normal((n, d_k)), rng.standard_normal((n, n_keys, d_k))
        g = rng.standard_normal((n, n_keys))
        p = softmax(multiplier * np.einsum("nd,nkd->nk", q, k), axis=-1)
        back = p * (g - (p * g).sum(-1, keepdims=True))
        of_score.append(np.linalg.norm(back, axis=-1))
        of_q.append(multiplier * np.linalg.norm(np.einsum("nk,nkd->nd", back, k), axis=-1))
    rows = []
    for name, parts in (("score", of_score), ("q", of_q)):
        norms = np.concatenate(parts)
        quantiles = {f"q{round(100 * at):02d}": np.quantile(norms, at) for at in QUANTILES}
        rows.append(
            {"of": name, "mean": norms.mean(), "rms": np.sqrt((norms**2).mean()), **quantiles}
        )
    return pd.DataFrame(rows)


# ---- a trained model, rescaled -----------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class AttentionScaling(Result):
    """Entropy, largest weight and loss of a model whose scores are multiplied.

    All are [multiplier, layer, head, sequence]. `entropy` (nats), `entropy_normalised` (each row's
    entropy divided by ln of the number of keys it sees) and `largest` (weight) are means over rows
    t ≥ 1; entropies are averaged, never maps. `loss`, in nats a token, is that of the run whose
    scores were multiplied: in all heads at once (`each` False: the same number for every head), or
    in that head only.
    """

    AXES: ClassVar = {
        "multipliers": ("multiplier",),
        "entropy": ("multiplier", "layer", "head", "sequence"),
        "entropy_normalised": ("multiplier", "layer", "head", "sequence"),
        "largest": ("multiplier", "layer", "head", "sequence"),
        "loss": ("multiplier", "layer", "head", "sequence"),
    }
    multipliers: np.ndarray
    entropy: np.ndarray
    entropy_normalised: np.ndarray
    largest: np.ndarray
    loss: np.ndarray
    each: bool
    inputs: str

    def to_frame(self) -> pd.DataFrame:
        """Returns multiplier, layer, head, entropy_nats, entropy_bits, entropy_normalised,
        max_weight, loss, and low and high: 95 % intervals, over sequences, of the loss's difference
        from the model as it is (paired), added to that loss.
        """
        shape = self.loss.shape[:3]
        index = pd.MultiIndex.from_product(
            [self.multipliers, range(shape[1]), range(shape[2])],
            names=["multiplier", "layer", "head"],
        )
        as_it_is = self.loss[int(np.argmin(np.abs(self.multipliers - 1)))]
        _, low, high = intervals.mean_interval(self.loss - as_it_is, seed=self.provenance.seed or 0)
        base = as_it_is.mean(-1)
        columns = {
            "entropy_nats": self.entropy.mean(-1),
            "entropy_bits": self.entropy.mean(-1) / np.log(2),
            "entropy_normalised": self.entropy_normalised.mean(-1),
            "max_weight": self.largest.mean(-1),
            "loss": self.loss.mean(-1),
            "low": base + low,
            "high": base + high,
        }
        frame = pd.DataFrame({name: value.ravel() for name, value in columns.items()}, index=index)
        frame["n"] = self.loss.shape[3]
        return frame.reset_index()


@torch.no_grad()
def attention_scaling(
    model: HookedGPT,
    tokens: Input,
    multipliers: Sequence[float] = MULTIPLIERS,
    *,
    each: bool = False,
    inputs: Inputs = "as they come",
    seed: int = 0,
    progress: Progress | None = None,
) -> AttentionScaling:
    """Returns what multiplying a model's attention scores does to entropy and loss.

    Args:
        model: the model, with at least one block.
        tokens: sequences of at least two tokens.
        multipliers: must hold 1.0, the model as it is.
        each: multiply one head at a time (its entropy, and the loss of that run) instead of all.
        inputs: "as they come": deeper heads read what the changed earlier ones wrote; "frozen": the
            entropies of each head are those of its own scores in the run as it was, multiplied. The
            loss is always that of the real run.
        seed: of the intervals.
        progress: called with (runs done, of how many).

    Raises:
        ConfigError: 1.0 is missing; a multiplier that is negative or not finite; no blocks.
        TokenError: sequences of one token.

    Example:
        >>> import interp
        >>> model = interp.HookedGPT.from_pretrained("models/shakespeare-char")
        >>> result = interp.attention_scaling(model, "First Citizen:", (0.0, 1.0, 2.0))
        >>> bool(abs(result.entropy_normalised[0] - 1).max() < 1e-5)
        True
    """
    check_choice("inputs", inputs, get_args(Inputs))
    values = np.asarray(multipliers, dtype=np.float64)
    if values.ndim != 1 or not np.isfinite(values).all() or (values < 0).any() or 1.0 not in values:
        raise ConfigError(
            f"multipliers = {list(multipliers)} must be finite, not negative, and hold 1.0, the "
            "model as it is"
        )
    if not model.blocks:
        raise ConfigError("a model without blocks has no attention to scale")
    ids = model.to_tokens(tokens)
    if ids.shape[1] < 2:
        raise TokenError("sequences of at least two tokens are needed: row 0 sees one key only")
    layers, heads = model.config.n_layers, model.config.n_heads
    shape = (len(values), layers, heads, len(ids))
    out = {name: np.zeros(shape) for name in ("entropy", "entropy_normalised", "largest", "loss")}
    grids = _grids(layers, heads, each)
    done, of = 0, len(values) * len(grids) * -(-len(ids) // PIECE)
    for start in range(0, len(ids), PIECE):
        piece = ids[start : start + PIECE]
        at = slice(start, start + len(piece))
        frozen = _scores(model, piece) if inputs == "frozen" else None
        for i, c in enumerate(values):
            for where, which in grids:
                grid = torch.where(which, float(c), 1.0)
                with model.attn_scaled_by(grid.to(model.device, model.dtype)):
                    scores, loss = _run(model, piece)
                for layer, head in where:
                    row = scores[layer][:, head] if frozen is None else c * frozen[layer][:, head]
                    found = _of_rows(row)
                    for name, value in found.items():
                        out[name][i, layer, head, at] = to_numpy(value)
                    out["loss"][i, layer, head, at] = to_numpy(loss)
                done += 1
                if progress is not None:
                    progress(done, of)
    return AttentionScaling(
        multipliers=values, **out, each=each, inputs=inputs,
        provenance=Provenance.of(model, ids, seed=seed),
    )  # fmt: skip


def _grids(layers: int, heads: int, each: bool) -> list[tuple[list[tuple[int, int]], Tensor]]:
    """The heads that a run is about, and which are multiplied in it."""
    every = [(layer, head) for layer in range(layers) for head in range(heads)]
    if not each:
        return [(every, torch.ones(layers, heads, dtype=torch.bool))]
    grids = []
    for layer, head in every:
        one = torch.zeros(layers, heads, dtype=torch.bool)
        one[layer, head] = True
        grids.append(([(layer, head)], one))
    return grids


def _run(model: HookedGPT, tokens: Tensor) -> tuple[list[Tensor], Tensor]:
    """The scores of every layer, [batch head pos key], and the loss of each sequence."""
    names = [f"blocks.{layer}.attn.hook_attn_scores" for layer in range(len(model.blocks))]
    logits, cache = model.run_with_cache(tokens, names_filter=names)
    loss = next_token_loss(logits, tokens, per_token=True).mean(1)
    return [cache[name] for name in names], loss


def _scores(model: HookedGPT, tokens: Tensor) -> list[Tensor]:
    return _run(model, tokens)[0]


def _of_rows(scores: Float[Tensor, "batch pos key"]) -> dict[str, Tensor]:
    """Means over rows t ≥ 1 of one head's maps, a number a sequence."""
    rows = scores[:, 1:].double() if scores.device.type != "mps" else scores[:, 1:]
    visible = torch.ones_like(rows[0], dtype=torch.bool).tril(1)
    rows = torch.where(visible, rows, -torch.inf)  # c · −inf is not a number at c = 0
    log_p = rows.log_softmax(-1)
    p = log_p.exp()
    entropy = -torch.where(visible, p * log_p, 0.0).sum(-1)  # [batch pos]
    size = torch.arange(2, rows.shape[1] + 2, device=rows.device).to(rows).log()
    return {
        "entropy": entropy.mean(1),
        "entropy_normalised": (entropy / size).mean(1),
        "largest": p.amax(-1).mean(1),
    }


def scale_identity(model: HookedGPT, tokens: Input) -> dict[str, Float[np.ndarray, "layer head"]]:
    """Returns three numbers a head that must be equal: c·∂L/∂c, ⟨W_Q, ∂L/∂W_Q⟩, ⟨W_K, ∂L/∂W_K⟩.

    A score is c·(x W_Q)·(x W_K): a homogeneous function of degree 1 of the scale c, of W_Q and of
    W_K, so by Euler's theorem all three products are the same (without query and key biases, and
    without qk_norm).

    Raises:
        ConfigError: the model has query and key biases, or qk_norm.
        TokenError: sequences of one token have no loss.
    """
    if model.config.qkv_bias or model.config.qk_norm:
        what = "query and key biases" if model.config.qkv_bias else "qk_norm"
        raise ConfigError(f"with {what} the score is not homogeneous of degree 1 in W_Q and W_K")
    ids = model.to_tokens(tokens)
    if ids.shape[1] < 2:
        raise TokenError("a sequence of one token has no loss to take a gradient of")
    shape = (model.config.n_layers, model.config.n_heads)
    with torch.enable_grad():
        scale = torch.ones(shape, device=model.device, dtype=model.dtype, requires_grad=True)
        weights: list[Any] = [w for b in model.blocks for w in (b.attn.W_Q, b.attn.W_K)]
        frozen = [w for w in weights if not w.requires_grad]
        for w in frozen:
            w.requires_grad_(True)
        try:
            with model.attn_scaled_by(scale):
                loss = model(ids, return_type="loss")
            grads = torch.autograd.grad(loss, [scale, *weights])
        finally:
            for w in frozen:
                w.requires_grad_(False)
    inner = [(w * g).sum((1, 2)).detach() for w, g in zip(weights, grads[1:], strict=True)]
    return {
        "scale": to_numpy(grads[0]),
        "W_Q": to_numpy(torch.stack(inner[0::2])),
        "W_K": to_numpy(torch.stack(inner[1::2])),
    }
