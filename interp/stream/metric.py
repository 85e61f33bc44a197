"""What is asked of the logits: one number per position.

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import CacheError, ConfigError, TokenError
from interp.gpt.cache import ActivationCache
from interp.gpt.folder import AnyModel
from interp.gpt.model import HookedGPT

LinearMetric = Literal["centered", "foil", "probability", "raw"]
MetricName = Literal["centered", "foil", "probability", "raw", "log_prob", "loss", "kl"]
# (logits [... batch pos d_vocab], targets [batch pos]) → [... batch pos]
MetricFunction = Callable[..., Tensor]
# One character or id for all; a string or ids [pos] for the only sequence; a list of strings or ids
# [batch, pos].
TokensGiven = str | int | np.integer | Sequence[Any] | np.ndarray | Tensor

Targets = Int[Tensor, "batch pos"]
Asked = Int[Tensor, "batch asked_pos"]
ManyLogits = Float[Tensor, "*many batch pos d_vocab"]


@dataclass(frozen=True)
class Metric:
    """Turns logits into one number per position.

    `targets` [batch, pos] are the tokens asked about, `foils` what they are compared with, `logits`
    those of the run as it was.
    """

    metric: str | MetricFunction
    targets: Targets
    foils: Targets | None
    logits: Float[Tensor, "batch pos d_vocab"]

    @property
    def name(self) -> str:
        """The metric's name; a function's own."""
        return self.metric if isinstance(self.metric, str) else _name_of(self.metric)

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
        match self.metric:
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
        if not isinstance(self.metric, str):
            value = self.metric(logits, self.targets)
            if not isinstance(value, Tensor) or value.shape != logits.shape[:-1]:
                a_tensor = isinstance(value, Tensor)
                given = f"shape {tuple(value.shape)}" if a_tensor else f"a {type(value).__name__}"
                raise ConfigError(
                    f"{self.name} returned {given} for logits of shape {tuple(logits.shape)}; "
                    f"expected {tuple(logits.shape[:-1])}"
                )
            return value
        if self.metric == "kl":
            base = self.logits.log_softmax(-1)
            return (base.exp() * (logits.log_softmax(-1) - base)).sum(-1)
        at_target = _gather(logits, self.targets)
        match self.metric:
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
    targets: TokensGiven | None = None,
    foils: TokensGiven | None = None,
    choices: tuple[str, ...] = get_args(MetricName),
    *,
    after_last: bool = False,
) -> Metric:
    """Returns a checked metric.

    Args:
        model: the model.
        tokens: of the run, [batch, pos].
        logits: of the run.
        metric: one of `choices`, or a function (logits, targets) → one number per position.
        targets: see `token_ids`; by default the token at `pos + 1`, for every position but the
            last.
        foils: what metric="foil" compares with; see `token_ids`.
        choices: the metrics that are allowed here.
        after_last: by default also the last position, with the likeliest token as its target.

    Raises:
        ConfigError: an unknown metric; a foil missing or not wanted.
        TokenError: targets or foils outside the vocabulary or of the wrong shape; one token only.
    """
    likeliest = logits[:, -1:].argmax(-1) if after_last else None
    asked, compared = targets_and_foils(model, tokens, metric, targets, foils, choices, likeliest)
    return Metric(metric, asked, compared, logits[:, : asked.shape[1]])


def targets_and_foils(
    model: AnyModel,
    tokens: Targets,
    metric: str | MetricFunction,
    targets: TokensGiven | None,
    foils: TokensGiven | None,
    choices: tuple[str, ...] = get_args(MetricName),
    last: Int[Tensor, "batch 1"] | None = None,
) -> tuple[Asked, Asked | None]:
    """Returns the tokens asked about and compared with, [batch, pos]; see `make_metric`.

    `last`: what is asked about by default at the last position, which has no next token.
    """
    if isinstance(metric, str):
        check_choice("metric", metric, choices)
    if (foils is not None) != (metric == "foil"):
        raise ConfigError('give foils together with metric="foil", and only then')
    asked = _next(tokens, last) if targets is None else token_ids(model, targets, tokens, "targets")
    if foils is None:
        return asked, None
    compared = token_ids(model, foils, asked, "foils")
    if targets is None and last is not None and compared.shape[1] == asked.shape[1] - 1:
        asked = asked[:, :-1]  # foils for what has a next token
    if compared.shape != asked.shape:
        raise TokenError(
            f"foils have shape {tuple(compared.shape)}; expected the targets' {tuple(asked.shape)}"
        )
    return asked, compared


def _next(tokens: Targets, last: Tensor | None) -> Asked:
    if last is not None:
        return torch.cat((tokens[:, 1:], last), dim=1)
    if tokens.shape[1] < 2:
        raise TokenError("a sequence of one token has no next token to explain; give targets")
    return tokens[:, 1:]


def token_ids(
    model: AnyModel, given: TokensGiven, like: Targets, name: str
) -> Int[Tensor, "batch up_to_pos"]:
    """Returns the token ids that a user means.

    Args:
        model: the model, whose tokenizer reads characters.
        given: one character or id, for every sequence and position; a string, or ids or characters
            [pos], of the only sequence; a list of strings, or ids or characters [batch, pos].
            Lists, numpy arrays and tensors alike; positions at the end may be left out.
        like: [batch, pos], as many as there may be.
        name: of the argument, for errors.

    Raises:
        TokenError: not integers; of the wrong shape; outside the vocabulary.
    """
    ids = _ids(model, given, name)
    batch, n_pos = like.shape
    if ids.ndim == 0:
        ids = ids.expand(batch, n_pos)
    elif ids.ndim == 1 and batch == 1:
        ids = ids[None]
    if ids.ndim != 2 or len(ids) != batch or not 1 <= ids.shape[1] <= n_pos:
        raise TokenError(
            f"{name} have shape {tuple(ids.shape)}; expected one character or id for all, or "
            f"[{batch}, up to {n_pos}]"
        )
    return _in_vocabulary(model, ids, name)


def token_per_sequence(
    model: AnyModel, given: TokensGiven, batch: int, name: str
) -> Int[Tensor, " batch"]:
    """Returns the token ids that a user means: one for all sequences, or one for each.

    Raises:
        TokenError: not integers; of the wrong shape; outside the vocabulary.
    """
    ids = _ids(model, given, name)
    if ids.ndim > 1 or ids.numel() not in (1, batch):
        raise TokenError(
            f"{name} must be one character or id, or one for each of {batch} sequences; got "
            f"shape {tuple(ids.shape)}"
        )
    return _in_vocabulary(model, ids.reshape(-1).expand(batch), name)


def _ids(model: AnyModel, given: TokensGiven, name: str) -> Tensor:
    """Integers of the shape in which they were given; a string of one character is a scalar."""
    if isinstance(given, np.ndarray) and given.dtype.kind in "UO":
        given = given.tolist()
    try:
        plain = given if isinstance(given, Tensor | np.ndarray) else _numbers(model, given)
        ids = torch.as_tensor(plain, device=model.device)
        ids = ids if ids.numel() else ids.long()  # of nothing, torch makes floats
    except (TypeError, ValueError) as error:  # rows of different lengths, or no numbers at all
        raise TokenError(f"{name} = {given!r} are no token ids: {error}") from None
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise TokenError(f"{name} are {ids.dtype}; expected integer token ids")
    return ids


def _numbers(model: AnyModel, given: Any) -> Any:
    """Characters as ids, in lists of lists."""
    if isinstance(given, str):
        if model.tokenizer is None:
            raise TokenError(f"this model has no tokenizer to read {given!r}; give token ids")
        encoded = model.tokenizer.encode(given)
        return encoded[0] if len(encoded) == 1 else encoded
    if isinstance(given, Tensor | np.ndarray):
        return given.tolist()
    if isinstance(given, Sequence):
        return [_numbers(model, one) for one in given]
    return given


def _in_vocabulary(model: AnyModel, ids: Tensor, name: str) -> Tensor:
    low, high, d_vocab = int(ids.min()), int(ids.max()), model.config.d_vocab
    if low < 0 or high >= d_vocab:
        raise TokenError(
            f"{name} run from {low} to {high}, outside the vocabulary 0 … {d_vocab - 1}"
        )
    return ids.long()


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
