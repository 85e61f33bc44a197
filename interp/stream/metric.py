"""What is asked of the logits: one number a position.

    "centered"     logit[y] − mean_j logit[j]
    "foil"         logit[y] − logit[foil]
    "probability"  logit[y] − Σ_j p_j logit[j], with p of the run as it was
    "raw"          logit[y]
    "log_prob"     log p_y, in nats
    "loss"         −log p_y
    "kl"           −KL(p of the run as it was ‖ p), in nats: 0 for the run itself

The first four are linear in the logits, and can be split into parts. A raw logit cannot be
identified: adding the same vector to every column of W_U changes no probability, and every raw
logit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import CacheError, ConfigError, TokenError
from interp.gpt.cache import ActivationCache
from interp.gpt.folder import AnyModel
from interp.gpt.model import HookedGPT

LinearMetric = Literal["centered", "foil", "probability", "raw"]
MetricName = Literal["centered", "foil", "probability", "raw", "log_prob", "loss", "kl"]
MetricFunction = Callable[
    ..., Tensor
]  # (logits [... batch pos d_vocab], targets) → [... batch pos]

Targets = Int[Tensor, "batch pos"]
ManyLogits = Float[Tensor, "*many batch pos d_vocab"]


@dataclass(frozen=True)
class Metric:
    """Turns logits into one number a position.

    `targets` [batch, pos] are the tokens asked about, `foils` what they are compared with, `logits`
    those of the run as it was.
    """

    kind: str | MetricFunction
    targets: Targets
    foils: Targets | None
    logits: Float[Tensor, "batch pos d_vocab"]

    @property
    def name(self) -> str:
        """The metric's name; a function's own."""
        return self.kind if isinstance(self.kind, str) else _name_of(self.kind)

    @property
    def n_pos(self) -> int:
        """How many positions are asked about."""
        return int(self.targets.shape[1])

    def weights(self) -> Float[Tensor, "batch pos d_vocab"]:
        """Returns the linear function of the logits: a one at the target, minus a baseline.

        Raises:
            ConfigError: the metric is not linear in the logits.
        """
        logits = self.logits
        match self.kind:
            case "raw":
                baseline = torch.zeros_like(logits)
            case "centered":
                baseline = torch.full_like(logits, 1 / logits.shape[-1])
            case "probability":
                baseline = logits.softmax(-1)
            case "foil":
                baseline = _one_hot(self.foils, logits)
            case _:
                raise ConfigError(
                    f"{self.name!r} is not linear in the logits, so it is not a sum of parts; "
                    f"choose one of {', '.join(get_args(LinearMetric))}"
                )
        return _one_hot(self.targets, logits) - baseline

    def __call__(self, logits: ManyLogits) -> Float[Tensor, "*many batch pos"]:
        """Returns the metric of other logits at the same positions.

        Raises:
            ConfigError: a function of the user's that returned another shape.
        """
        if not isinstance(self.kind, str):
            value = self.kind(logits, self.targets)
            if not isinstance(value, Tensor) or value.shape != logits.shape[:-1]:
                a_tensor = isinstance(value, Tensor)
                given = f"shape {tuple(value.shape)}" if a_tensor else f"a {type(value).__name__}"
                raise ConfigError(
                    f"{self.name} returned {given} for logits of shape {tuple(logits.shape)}; "
                    f"expected {tuple(logits.shape[:-1])}"
                )
            return value
        if self.kind == "kl":
            base = self.logits.log_softmax(-1)
            return (base.exp() * (logits.log_softmax(-1) - base)).sum(-1)
        at_target = _gather(logits, self.targets)
        match self.kind:
            case "log_prob":
                return at_target - _logsumexp(logits)
            case "loss":
                return _logsumexp(logits) - at_target
            case "centered":
                return at_target - logits.mean(-1)
            case "probability":
                return at_target - (self.logits.softmax(-1) * logits).sum(-1)
            case "foil":
                assert self.foils is not None
                return at_target - _gather(logits, self.foils)
        return at_target


def make_metric(
    model: AnyModel,
    tokens: Targets,
    logits: Float[Tensor, "batch all_pos d_vocab"],
    metric: str | MetricFunction,
    targets: Any = None,
    foils: Any = None,
    choices: tuple[str, ...] = get_args(MetricName),
) -> Metric:
    """Returns a checked readout.

    Args:
        model: the model.
        tokens: of the run, [batch, pos].
        logits: of the run.
        metric: one of `choices`, or a function (logits, targets) → one number a position.
        targets: [batch, pos]; by default the token at `pos + 1`, for every position but the last.
        foils: what metric="foil" compares with: tokens [batch, pos], or one character or id.
        choices: the metrics that are allowed here.

    Raises:
        ConfigError: an unknown metric; a foil missing or not wanted.
        TokenError: targets or foils outside the vocabulary or of the wrong shape; one token only.
    """
    if isinstance(metric, str):
        check_choice("metric", metric, choices)
    if targets is None and tokens.shape[1] < 2:
        raise TokenError("a sequence of one token has no next token to explain; give targets")
    targets = tokens[:, 1:] if targets is None else _check_tokens(model, targets, tokens, "targets")
    foil_tokens = _foils(model, foils, targets, metric)
    return Metric(metric, targets, foil_tokens, logits[:, : targets.shape[1]])


def tokens_of(model: HookedGPT, cache: ActivationCache) -> Int[Tensor, "batch pos"]:
    """Returns the tokens of a cache of `model`.

    Raises:
        CacheError: another model's cache, or one without its tokens or batch axis.
    """
    if cache.model is not model:
        raise CacheError("this cache was made by another model; run this one with run_with_cache")
    if cache.tokens is None or not cache.has_batch_dim:
        raise CacheError(
            "attribution needs a cache with its tokens and batch axis; "
            "use run_with_cache without remove_batch_dim, pos_slice or start_at_layer"
        )
    return cache.tokens


def check_choice(name: str, given: str, choices: tuple[str, ...]) -> None:
    """Raises ConfigError unless `given` is one of `choices`.

    Raises:
        ConfigError: with the choices.
    """
    if given not in choices:
        raise ConfigError(f"{name} = {given!r} is not one of {', '.join(map(repr, choices))}")


def _logsumexp(logits: Tensor) -> Tensor:
    """torch.logsumexp without its care for infinities: half the time (measured)."""
    largest = logits.amax(-1, keepdim=True)
    return (logits - largest).exp_().sum(-1).log_() + largest[..., 0]


def _gather(logits: Tensor, tokens: Tensor) -> Tensor:
    return logits.gather(-1, tokens[..., None].expand(*logits.shape[:-1], 1))[..., 0]


def _one_hot(tokens: Tensor | None, like: Tensor) -> Tensor:
    assert tokens is not None
    return torch.zeros_like(like).scatter_(-1, tokens[..., None], 1.0)


def _name_of(function: MetricFunction) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _check_tokens(
    model: AnyModel, given: Any, tokens: Int[Tensor, "batch pos"], what: str
) -> Int[Tensor, "batch up_to_pos"]:
    ids = torch.as_tensor(given, device=model.device)
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise TokenError(f"{what} are {ids.dtype}; expected integer token ids")
    n_pos = tokens.shape[1]
    if ids.ndim != 2 or len(ids) != len(tokens) or not 1 <= ids.shape[1] <= n_pos:
        raise TokenError(
            f"{what} have shape {tuple(ids.shape)}; expected [{len(tokens)}, up to {n_pos}]"
        )
    if int(ids.min()) < 0 or int(ids.max()) >= model.config.d_vocab:
        raise TokenError(
            f"{what} run from {int(ids.min())} to {int(ids.max())}, outside the vocabulary "
            f"0 … {model.config.d_vocab - 1}"
        )
    return ids.long()


def _foils(model: AnyModel, foils: Any, targets: Targets, metric: Any) -> Targets | None:
    if (foils is not None) != (metric == "foil"):
        raise ConfigError('give foils together with metric="foil", and only then')
    if foils is None:
        return None
    if isinstance(foils, str) and isinstance(model, HookedGPT):
        foils = model.to_single_token(foils)
    if isinstance(foils, Integral) and not isinstance(foils, bool):
        foils = torch.full_like(targets, int(foils))
    checked = _check_tokens(model, foils, targets, "foils")
    if checked.shape != targets.shape:
        raise TokenError(
            f"foils have shape {tuple(checked.shape)}; expected the targets' {tuple(targets.shape)}"
        )
    return checked
