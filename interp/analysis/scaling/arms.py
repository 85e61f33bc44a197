"""The sqrt(d_k) question, from scratch: one small GPT, its scores scaled in one of several ways,
trained and measured; and what theory predicts of its start.

    arm          scores are                      what it tells
    "sqrt"       q·k / √d                        the lesson's
    "unscaled"   q·k                             what the lesson warns of
    "inverse"    q·k / d                         muP's (Yang et al. 2022, 2203.03466)
    "learned"    gain · q·k / √d, a gain a head  whether training wants another scale
    "qk-norm"    gain · q̂·k̂ / √d                 q̂, k̂ of root mean square 1 (Henry et al. 2020)
    "matched"    q·k, W_Q and W_K each · d^(−¼)  the function of "sqrt" at the start, so what
                                                 differs later is optimisation alone

All else is held: d_model, the number of heads, and, for each seed, the initial weights and the
batches. Head width is its own number here; with d_model // n_heads it would change with the number
of heads. Measures are taken on the same validation windows at log-spaced steps: the loss, and for
each head the entropy of its rows over ln of their visible keys (rows t ≥ 1, averaged after taking
it), the standard deviation of the scores within a row, and quantiles of the sizes of the entries of
∂L/∂W_Q and ∂L/∂W_K. Quantiles, because a mean misleads here: a few gradients explode while most
vanish.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from interp.analysis.scaling.initial import statistics_of_rows
from interp.analysis.scaling.theory import QUANTILES
from interp.errors import ConfigError, nearest
from interp.gpt.config import GPTConfig
from interp.gpt.model import HookedGPT
from interp.results.document import to_numpy
from interp.training.losses import cross_entropy
from interp.training.optimiser import make_optimizer, update
from interp.training.recipe import AnyText, Recipe
from interp.training.schedule import learning_rate_at, log_spaced_steps

ARMS = ("sqrt", "unscaled", "inverse", "learned", "qk-norm", "matched")
PROBES = 8  # validation windows on which heads are measured
LOSS_WINDOWS = 48  # and on which the loss is
MOMENTS = 9  # log-spaced steps at which that is done
WEIGHTS = ("W_Q", "W_K")


# ---- one run ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Run:
    """One cell of the grid."""

    arm: str
    d_head: int
    learning_rate: float
    seed: int

    @property
    def name(self) -> str:
        return f"{self.arm}-d{self.d_head}-lr{self.learning_rate:g}-seed{self.seed}"


def build_arm(recipe: Recipe, run: Run, d_vocab: int) -> HookedGPT:
    """Returns the untrained model of a run.

    Raises:
        ConfigError: an unknown arm; a recipe whose model is a rung of the ladder, has dropout or
            query and key biases, or sets the scale itself.
    """
    own = sorted({"attn_scale", "learned_scale", "qk_norm", "rung", "qkv_bias"} & set(recipe.model))
    if own:
        raise ConfigError(
            f"the recipe {recipe.name!r} sets model.{own[0]}, which the arms of a sweep decide; "
            "leave it out"
        )
    if recipe.model.get("dropout"):
        raise ConfigError(
            f"the recipe {recipe.name!r} has dropout = {recipe.model['dropout']}, which would "
            "differ from run to run of one seed; leave it out"
        )
    if run.arm not in ARMS:
        raise ConfigError(
            f"unknown arm {run.arm!r}; choose of {', '.join(ARMS)}{nearest(run.arm, ARMS)}"
        )
    scale = {"unscaled": 1.0, "matched": 1.0, "inverse": float(run.d_head)}.get(run.arm, 0.0)
    values = {**recipe.model, "d_head": run.d_head, "d_vocab": d_vocab, "attn_scale": scale}
    values |= {"learned_scale": run.arm == "learned", "qk_norm": run.arm == "qk-norm"}
    model = HookedGPT(GPTConfig.parse(values, "model"), seed=run.seed)
    if run.arm == "matched":
        with torch.no_grad():
            for block in model.blocks:
                block.attn.W_Q.mul_(run.d_head**-0.25)
                block.attn.W_K.mul_(run.d_head**-0.25)
    return model


def train_run(
    recipe: Recipe,
    run: Run,
    text: AnyText,
    windows: Int[Tensor, "window pos"],
    d_vocab: int,
    device: str | torch.device = "cpu",
) -> dict[str, Any]:
    """Trains one run, in float32, and returns its measures at the log-spaced steps.

    A run whose loss is no longer finite ends there; its later measures are NaN.
    """
    s = recipe.training
    model = build_arm(recipe, run, d_vocab).to(device)
    optimizer = make_optimizer(model, run.learning_rate, s.weight_decay, (s.beta1, s.beta2))
    parameters = list(model.parameters())
    moments = log_spaced_steps(s.steps, MOMENTS)
    rows: list[dict[str, Any]] = []
    for step in range(s.steps + 1):
        if step in moments:
            rows.append(measure(model, windows.to(device)))
            if not math.isfinite(rows[-1]["loss"]):
                break
        if step == s.steps:
            break
        batch = text.batch(model.config.n_ctx, s.batch_size, seed=run.seed, step=step).to(device)
        rate = learning_rate_at(
            step, run.learning_rate, run.learning_rate * s.min_learning_rate / s.learning_rate,
            s.warmup_steps, s.steps,
        )  # fmt: skip
        loss = cross_entropy(model.train()(batch[:, :-1]), batch[:, 1:])
        update(optimizer, loss, rate, parameters, s.grad_clip)
    blank = {name: (np.asarray(value) * np.nan).tolist() for name, value in rows[0].items()}
    rows += [blank] * (len(moments) - len(rows))
    return {"steps": moments, **{name: [row[name] for row in rows] for name in rows[0]}}


def measure(model: HookedGPT, windows: Int[Tensor, "window pos"]) -> dict[str, Any]:
    """Returns loss, and entropy, std [layer, head], gradient [layer, head, weight, quantile].

    The loss is over all windows, the others over the first few (`PROBES`).
    """
    model.eval()
    with torch.no_grad():
        loss = float(cross_entropy(model(windows[:, :-1]), windows[:, 1:]))
    inputs, targets = windows[:PROBES, :-1], windows[:PROBES, 1:]
    names = [f"blocks.{layer}.attn.hook_attn_scores" for layer in range(len(model.blocks))]
    kept: dict[str, Tensor] = {}
    with torch.enable_grad(), model.recording(names, kept.__setitem__):
        probe_loss = cross_entropy(model(inputs), targets)
    weights = [getattr(block.attn, name) for block in model.blocks for name in WEIGHTS]
    grads = torch.autograd.grad(probe_loss, weights)
    at = torch.tensor(QUANTILES, device=windows.device)
    sizes = [grad.abs().flatten(1).quantile(at, dim=1).T for grad in grads]  # [head quantile]
    by_head = torch.stack(sizes).unflatten(0, (-1, len(WEIGHTS))).transpose(1, 2)
    entropy, std = zip(*(statistics_of_rows(kept[name].detach()) for name in names), strict=True)
    return {
        "loss": loss,
        "entropy": to_numpy(torch.stack(entropy)).tolist(),
        "std": to_numpy(torch.stack(std)).tolist(),
        "gradient": to_numpy(by_head).tolist(),
    }


def some_windows(text: AnyText, n_ctx: int, count: int) -> Int[Tensor, "window pos"]:
    """Returns up to `count` whole validation windows, evenly spread; the only one if it is less."""
    windows = [row for batch in text.windows(n_ctx, count) for row in batch]
    whole = [row for row in windows if len(row) == n_ctx + 1] or windows
    chosen = sorted({round(i * (len(whole) - 1) / max(1, count - 1)) for i in range(count)})
    return torch.stack([whole[i] for i in chosen])
