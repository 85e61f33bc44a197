"""Running the model on from its middle.

The stream that a run is continued from is the one that was cached, after everybody's hooks. So a
model with hooks attached cannot be run on: they would act twice.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import CompletenessError, ConfigError, HookError
from interp.gpt.cache import ActivationCache
from interp.gpt.layers import PastKeys
from interp.gpt.model import HookedGPT
from interp.hooks import HookPoint
from interp.stream.receivers import add_to_read, receiver
from interp.stream.tolerance import TOLERANCE


def check_not_random(model: HookedGPT) -> None:
    """Checks that two runs of the model give the same.

    Raises:
        ConfigError: it is in training mode, and has dropout.
    """
    if model.training and model.config.dropout > 0:
        raise ConfigError("the model is in training mode, where dropout is random; call .eval()")


def check_can_resume(model: HookedGPT) -> None:
    """Checks that a run from the middle of the model is a part of its whole run.

    Raises:
        ConfigError: the model is in training mode, and has dropout.
        HookError: hooks are attached to it.
    """
    check_not_random(model)
    if model.is_edited:
        raise HookError(
            "the model has hooks attached, which would act twice in a run from its middle; remove "
            "them (model.reset_hooks()), or use interp.intervene and compare losses"
        )


def run_from(
    model: HookedGPT, stream: Float[Tensor, "batch pos d_model"], depth: tuple[int, int]
) -> Float[Tensor, "batch pos d_vocab"]:
    """Returns the logits from the stream as it stands after a depth (see `Component.depth`)."""
    layer, half = depth
    if half == 0 and layer < len(model.blocks):
        stream = model.blocks[layer].after_attention(stream)
    logits: Tensor = model(stream, start_at_layer=layer + 1)
    return logits


def stream_at(cache: ActivationCache, depth: tuple[int, int]) -> Float[Tensor, "batch pos d_model"]:
    """Returns the residual stream after a depth."""
    layer, half = depth
    if layer < 0:
        embed = cache["embed"]
        return embed + cache["pos_embed"] if cache.model.config.positional else embed
    if half == 0 and not cache.model.config.attn_only:
        return cache["resid_mid", layer]
    return cache["resid_post", layer]


def final_stream(model: HookedGPT, cache: ActivationCache) -> Float[Tensor, "batch pos d_model"]:
    """Returns the stream that the final LayerNorm reads."""
    return stream_at(cache, (len(model.blocks) - 1, 1))


def check_reruns(model: HookedGPT, cache: ActivationCache, depths: set[tuple[int, int]]) -> float:
    """Returns how far the model, run on from each depth with nothing changed, is from its logits.

    Raises:
        CompletenessError: further than 10 · tolerance · (1 + largest logit).
    """
    logits, worst = cache["hook_logits"], 0.0
    for depth in depths:
        again = run_from(model, stream_at(cache, depth), depth)
        worst = max(worst, float((again - logits).abs().max()))
    tolerance = 10 * TOLERANCE.get(model.dtype, 0.0) * (1 + float(logits.abs().max()))
    if not worst <= tolerance:
        raise CompletenessError(
            f"run on from its middle with nothing replaced, the model misses its own logits by "
            f"{worst:.3g}, more than {tolerance:.3g}; effects would not be effects"
        )
    return worst


def run_changed(
    model: HookedGPT,
    cache: ActivationCache,
    depth: tuple[int, int],
    changes: Float[Tensor, "job batch pos width"],
) -> Float[Tensor, "job batch pos d_vocab"]:
    """Returns the logits of runs on from a depth, each with its change.

    Args:
        model: the model.
        cache: of the run that is changed.
        depth: where the changes are made (see `Component.depth`); behind the stream, where the
            biases of the final LayerNorm and of the unembedding are, they are of the logits.
        changes: what is added there (see `Component.change`); all jobs run together.
    """
    if depth[0] == len(model.blocks):
        return cache["hook_logits"] + changes
    return run_batch(lambda x: run_from(model, x, depth), stream_at(cache, depth), changes)


def logits_at(
    model: HookedGPT,
    cache: ActivationCache,
    depth: tuple[int, int],
    changes: Float[Tensor, "job batch pos d_model"],
    position: int,
    first: int = 0,
) -> Float[Tensor, "job batch d_vocab"]:
    """Returns the logits at one position of runs on from a depth, each with its change.

    What nothing depends on is not computed: positions before `first`, where nothing changed (their
    keys and values come from the cache); positions after `position`; and in the last block, all
    queries but that one.

    Args:
        model: the model.
        cache: of the run that is changed.
        depth: where the changes are made (see `Component.depth`).
        changes: what is added to the stream there.
        position: whose logits.
        first: the first position at which any change is not zero.
    """
    used = slice(first, position + 1)
    x = (stream_at(cache, depth)[:, used] + changes[:, :, used]).flatten(0, 1)
    layer, half = depth
    if half == 0:
        x = model.blocks[layer].after_attention(x[:, -1:] if layer == len(model.blocks) - 1 else x)
    for later in range(layer + 1, len(model.blocks)):
        block, past = model.blocks[later], PastKeys()
        past.extend(*(_repeated(cache[name, later][:, :first], len(changes)) for name in "kv"))
        if later == len(model.blocks) - 1 and x.shape[1] > 1:
            _, k, v = block.attn.project(block.ln1(x[:, :-1]))
            past.extend(k, v)
            x = x[:, -1:]
        x = block(x, past)
    logits: Tensor = model.unembed_residual(x[:, -1:])
    at_position: Tensor = logits[:, 0].unflatten(0, (len(changes), -1))
    return at_position


def _repeated(x: Tensor, times: int) -> Tensor:
    return x.expand(times, *x.shape).flatten(0, 1)


def run_with_input(
    model: HookedGPT,
    cache: ActivationCache,
    into: str,
    written: Float[Tensor, "job batch pos d_model"],
) -> Float[Tensor, "job batch pos d_vocab"]:
    """Returns the logits of runs in which one receiver alone read `written` on top of the stream.

    Args:
        model: the model.
        cache: of the run that is changed.
        into: the receiver: "L1.H2.q", "L1.q", "L1.mlp" or "logits" (see `receiver`).
        written: what is added to what it reads, once a job; all jobs run together.
    """
    hook, head, (layer, half) = receiver(model, into)
    if layer == len(model.blocks):
        return run_batch(model.unembed_residual, final_stream(model, cache), written)
    flat = written.flatten(0, 1)

    def add(read: Tensor, hook: HookPoint) -> Tensor:
        return add_to_read(read, flat, head)

    depth = (layer, 0) if half else (layer - 1, 1)
    with model.hooks(fwd_hooks=[(hook, add)]):
        nothing = torch.zeros_like(written[:, :1, :1, :1])
        return run_batch(lambda x: run_from(model, x, depth), stream_at(cache, depth), nothing)


def run_batch(
    run: Callable[[Tensor], Tensor],
    stream: Float[Tensor, "batch pos d_model"],
    changes: Float[Tensor, "job _batch _pos _width"],
) -> Float[Tensor, "job batch pos d_vocab"]:
    """Returns the logits of one run from the stream with each job's change added to it."""
    changed = stream.expand(len(changes), *stream.shape) + changes
    logits: Tensor = run(changed.flatten(0, 1)).unflatten(0, (len(changes), -1))
    return logits
