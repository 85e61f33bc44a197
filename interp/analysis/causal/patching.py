"""Patching: where does the difference between two prompts sit, and along which path does it travel?

Two prompts of one length that differ in what matters. One is run with a piece of the other's
activations put in its place:

    denoise   the corrupted prompt is run with pieces of the clean run: what is enough to restore?
    noise     the clean prompt is run with pieces of the corrupted run: what is needed?

A value of 0 means that the patch changed nothing, 1 that it did as much as the whole other prompt.
Denoising and noising answer different questions and need not agree.

All patches of one place run together, from that place on: what comes before is not computed again.
(While hooks are attached, each patch is a whole run of its own.)
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from interp.analysis.causal.patching_results import Patching
from interp.analysis.causal.patching_runs import BY_HEAD, Direction, Pair, Patch, run_patches
from interp.deprecated import renamed
from interp.errors import ConfigError
from interp.gpt.model import HookedGPT, Input
from interp.results.document import to_numpy
from interp.results.provenance import Provenance
from interp.stream.components import component, components
from interp.stream.metric import MetricFunction, check_choice
from interp.stream.receivers import receiver
from interp.stream.token_ids import TokensGiven

Site = Literal["resid_pre", "resid_mid", "attn_out", "mlp_out", "head", "q", "k", "v", "z",
               "pattern", "head_position"]  # fmt: skip
TIMES = 4.0  # a patch that moves the metric more than so many times the difference is warned of


@renamed(scalar="metric")
@torch.no_grad()
def activation_patching(
    model: HookedGPT,
    clean: Input,
    corrupted: Input,
    site: Site = "resid_pre",
    *,
    direction: Direction = "denoise",
    target: TokensGiven | None = None,
    foil: TokensGiven | None = None,
    metric: str | MetricFunction | None = None,
    position: int = -1,
) -> Patching:
    """Returns what patching each layer and position (or head) does to the prediction.

    Args:
        model: the model, in evaluation mode.
        clean: the prompt, or several of one length.
        corrupted: as many, of the same length.
        site: "resid_pre", "resid_mid", "attn_out" or "mlp_out", at each layer × position; "q",
            "k", "v", "z" or "pattern" at each layer × head, at all positions ("head" is "z"); or
            "head_position": z at each layer, head × position.
        direction: see the module.
        target: the right next character (or id), for all sequences or for each; by default the one
            that the model finds likeliest after the clean prompt.
        foil: the character it is compared with; by default the likeliest after the corrupted one.
        metric: by default "foil": logit of the target minus logit of the foil; or as in
            `interp.stream.metric`, without a foil.
        position: whose prediction is read.

    Raises:
        TokenError: prompts of different shapes; equal prompts; a position outside them; a target
            not in the vocabulary; target and foil the same.
        ConfigError: an unknown site or direction; training mode.

    Warns:
        UserWarning: clean and corrupted hardly differ in the metric, so that shares of the
            difference say little.

    Sources: Vig et al. 2020; Meng et al. 2022 (2202.05262); Heimersheim & Nanda 2024 (2404.15255).

    Example:
        >>> import interp
        >>> model = interp.HookedGPT.from_pretrained("models/shakespeare-char")
        >>> patched = interp.activation_patching(model, "the king", "the sing", "head")
        >>> patched.labels[:2]
        ('L0.H0', 'L0.H1')
    """
    check_choice("site", site, get_args(Site))
    if site == "resid_mid" and model.config.attn_only:
        raise ConfigError("a model without MLPs has no resid_mid; take resid_pre of the next block")
    if site == "mlp_out" and model.config.attn_only:
        raise ConfigError("a model without MLPs has no mlp_out")
    pair = Pair.of(model, clean, corrupted, direction, target, foil, metric, position, site)
    patches = [patch for layer in range(model.config.n_layers) for patch in _at(pair, layer, site)]
    if site == "head_position":
        what = "z by head and position"
    else:
        what = f"{site} by {'head' if site in BY_HEAD else 'position'}"
    return _result(pair, patches, run_patches(pair, patches), what)


@renamed(scalar="metric")
@torch.no_grad()
def path_patching(
    model: HookedGPT,
    clean: Input,
    corrupted: Input,
    into: str,
    *,
    direction: Direction = "denoise",
    target: TokensGiven | None = None,
    foil: TokensGiven | None = None,
    metric: str | MetricFunction | None = None,
    position: int = -1,
) -> Patching:
    """Returns what patching each direct path into one receiver does to the prediction.

    Only what the receiver reads from the sender is of the other prompt; everything else that reads
    the sender sees it as it was. What the receiver then writes differently goes on to all.

    Args:
        model: the model, in evaluation mode.
        clean: the prompt, or several of one length.
        corrupted: as many, of the same length.
        into: the receiver: "L2.H1.q" (or k, v), "L2.q" for all heads, "L2.mlp" or "logits".
        direction: see the module.
        target: as in `activation_patching`; so are the rest.
        foil: as there.
        metric: as there.
        position: as there.

    Raises:
        ConfigError: no such receiver.
        TokenError, ConfigError: as `activation_patching`.

    Source: Goldowsky-Dill et al. 2023 (2304.05969).
    """
    place = receiver(model, into)[2]
    pair = Pair.of(model, clean, corrupted, direction, target, foil, metric, position)
    patches = []
    for c in components(model.config, "head", constants=False):
        if c.depth < place:
            text = f"patch {c} into {into}"
            patches.append(Patch(str(c), c.layer, c.index, c.depth, text, change=pair.change(c)))
    return _result(pair, patches, run_patches(pair, patches, into), f"paths into {into}")


def _at(pair: Pair, layer: int, site: Site) -> Iterator[Patch]:
    """The patches of one layer."""
    model, heads = pair.model, range(pair.model.config.n_heads)
    if site in ("head", "z", "head_position"):
        for head in heads:
            c = component(model.config, f"L{layer}.H{head}")
            change, text = pair.change(c), f"patch {c}"
            if site == "head_position":
                for pos in range(pair.position + 1):  # a later one cannot reach the prediction
                    yield Patch(f"{c} at {pos}", layer, pos, c.depth, f"{text} at {pos}",
                                change=change[:, pos : pos + 1], first=pos)  # fmt: skip
            else:
                label = str(c) if site == "head" else f"{c}.z"
                yield Patch(label, layer, head, c.depth, text, change=change)
    elif site in BY_HEAD:
        for head in heads:
            yield Patch(f"L{layer}.H{head}.{site}", layer, head, (layer - 1, 1), "", site=site)
    else:
        depth = {"resid_pre": (layer - 1, 1), "mlp_out": (layer, 1)}.get(site, (layer, 0))
        difference = pair.other_cache[site, layer] - pair.run_cache[site, layer]
        for pos in range(pair.position + 1):
            text = f"patch blocks.{layer}.hook_{site} at {pos}"
            yield Patch(f"L{layer}.{site} at {pos}", layer, pos, depth, text,
                        change=difference[:, pos : pos + 1], first=pos)  # fmt: skip


def _result(pair: Pair, patches: list[Patch], values: np.ndarray, what: str) -> Patching:
    tokenizer, foils = pair.model.tokenizer, pair.value_of.foils
    result = Patching(
        values=values,
        clean=pair.unpatched["clean"],
        corrupted=pair.unpatched["corrupted"],
        layers=np.array([patch.layer for patch in patches], dtype=int),
        places=np.array([patch.place for patch in patches], dtype=int),
        clean_tokens=to_numpy(pair.clean),
        corrupted_tokens=to_numpy(pair.corrupted),
        labels=tuple(patch.label for patch in patches),
        characters=None if tokenizer is None else tokenizer.characters,
        what=what,
        direction=pair.direction,
        metric=pair.value_of.name,
        position=pair.position,
        target=_text(pair, pair.value_of.targets),
        foil="" if foils is None else _text(pair, foils),
        provenance=Provenance.of(pair.model, torch.stack((pair.clean, pair.corrupted)), seed=0),
    )
    _warn_of_no_difference(result)
    return result


def _text(pair: Pair, tokens: Int[Tensor, "batch 1"]) -> str:
    ids = tokens[:, 0].tolist()
    if pair.model.tokenizer is None:
        return ",".join(map(str, ids))
    return pair.model.tokenizer.decode(ids if len(set(ids)) > 1 else ids[:1])


def _warn_of_no_difference(result: Patching) -> None:
    """A share of 16 is a move beside a difference that is a sixteenth of it, not a finding."""
    if not len(result.values):
        return
    start = (result.corrupted if result.direction == "denoise" else result.clean).mean()
    difference = abs(float(result.clean.mean() - result.corrupted.mean()))
    moved = float(np.abs(result.values.mean(1) - start).max())
    if moved > TIMES * difference:
        warnings.warn(
            f"clean and corrupted differ by {difference:.3g} only ({result.metric}), while a patch "
            f"moves it by up to {moved:.3g}: shares of that difference say little; choose prompts, "
            "or a target and foil, that the model tells apart",
            stacklevel=6,
        )
