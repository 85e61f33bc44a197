"""Count models of order 1 to 5: the baselines that a character model's loss is held against.

An order-n model predicts a character from the n − 1 before it. Two ways of smoothing:

    add-constant   p(y | c) = (N(c y) + a) / (N(c) + a·d_vocab)
    Kneser-Ney     p(y | c) = max(N(c y) − D, 0)/N(c) + D·(kinds after c)/N(c) · p(y | shorter c)
                   interpolated, one discount D = n₁ / (n₁ + 2 n₂) an order (1/2 where no run of
                   characters was seen once, or none twice); shorter contexts count
                   in how many different contexts a character was seen, not how often

Losses are exact: every character of the validation text that has a whole context is predicted once.

Sources: Kneser & Ney 1995; Chen & Goodman 1999 (interpolation, discount).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import pandas as pd

from interp import files
from interp.errors import ConfigError, TextError
from interp.figures.marks import Lines, Series
from interp.results.provenance import Provenance, versions
from interp.results.result import Result
from interp.results.shown import Shown

Smoothing = Literal["add", "kneser-ney"]
MAX_ORDER = 5


@dataclass(frozen=True, kw_only=True, repr=False)
class NGramLosses(Result):
    """Validation losses in nats per character, by order.

    `losses` and `n` (how many characters were predicted) run along `orders`. `uniform` is what
    guessing costs, ln d_vocab. There is no model; the tokens of the provenance are both texts'.
    """

    AXES: ClassVar = dict.fromkeys(("orders", "losses", "n"), ("order",))
    SECTION: ClassVar = "training"
    HEADING: ClassVar = "How good it is"
    orders: np.ndarray
    losses: np.ndarray
    n: np.ndarray
    smoothing: str
    constant: float
    uniform: float

    @property
    def name(self) -> str:
        return f"counts-{self.smoothing}"

    def to_frame(self) -> pd.DataFrame:
        """Returns columns order, loss, n."""
        return pd.DataFrame({"order": self.orders, "loss": self.losses, "n": self.n})

    def figures(self) -> list[Shown]:
        """Returns the loss of each order, beside that of guessing."""
        at = np.argsort(self.orders)
        mark = Lines(
            x=self.orders[at],
            series=(
                Series(name="counts", values=self.losses[at], marker="o"),
                Series(name="guessing", values=np.full(len(at), self.uniform), colour="grey",
                       dashed=True),
            ),
            x_label="order (characters that are counted together)",
            y_label="validation loss (nats per character)",
            ticks=tuple((float(order), str(order)) for order in self.orders[at]),
        )  # fmt: skip
        caption = (
            f"Losses of count models ({self.how}): each predicts a character from the order − 1 "
            f"before it. n = {self.n.min():,} characters or more. Dashed: guessing, ln d_vocab."
        )
        return [Shown(name=self.name, caption=caption, mark=mark)]

    @property
    def how(self) -> str:
        """How it is smoothed, in words."""
        return f"add-{self.constant:g}" if self.smoothing == "add" else "Kneser-Ney, interpolated"

    def summary(self) -> str:
        """Returns the loss of each order."""
        rows = zip(self.orders, self.losses, self.n, strict=True)
        return "\n".join([
            f"count models ({self.how}); validation loss in nats per character; guessing: "
            f"{self.uniform:.4f}",
            *(f"  order {order}  {loss:.4f}  (n = {n:,})" for order, loss, n in rows),
        ])  # fmt: skip


def ngram_losses(
    train: Any,
    validation: Any,
    d_vocab: int,
    *,
    orders: tuple[int, ...] = (1, 2, 3, 4, 5),
    smoothing: Smoothing = "add",
    constant: float = 0.01,
) -> NGramLosses:
    """Returns the loss of count models of each order on a validation text.

    Args:
        train: token ids of the text that is counted.
        validation: token ids of the text that is predicted.
        d_vocab: size of the vocabulary.
        orders: 1 (no context) to 5 (four characters of context).
        smoothing: see the module.
        constant: what "add" adds to each count.

    Raises:
        ConfigError: an order outside 1 to 5, a constant that is not positive, unknown smoothing.
        TextError: a text shorter than an order, or ids outside the vocabulary.

    Example:
        >>> from interp import ngram_losses
        >>> losses = ngram_losses([0, 1] * 50, [0, 1] * 10, d_vocab=2, orders=(1, 2))
        >>> losses.losses.round(3).tolist()
        [0.693, 0.0]
    """
    _check(orders, smoothing, constant)
    seen, asked = (_ids(text, d_vocab, max(orders), what)
                   for text, what in ((train, "training"), (validation, "validation")))  # fmt: skip
    losses, counts = [], []
    for order in orders:
        grams = _grams(asked, order, d_vocab)
        if smoothing == "add":
            p = _add_constant(seen, grams, order, d_vocab, constant)
        else:
            p = _kneser_ney(seen, grams, order, d_vocab)
        losses.append(float(-np.log(p).mean()))
        counts.append(len(grams))
    return NGramLosses(
        orders=np.array(orders), losses=np.array(losses), n=np.array(counts), smoothing=smoothing,
        constant=constant if smoothing == "add" else 0.0, uniform=float(np.log(d_vocab)),
        provenance=Provenance(
            model="", tokens=_hash(seen, asked), dtype="float64", versions=dict(versions()),
            sequences=1, positions=len(asked),
        ),
    )  # fmt: skip


def _check(orders: tuple[int, ...], smoothing: str, constant: float) -> None:
    if smoothing not in get_args(Smoothing):
        known = ", ".join(map(repr, get_args(Smoothing)))
        raise ConfigError(f"smoothing = {smoothing!r} is not one of {known}")
    whole = all(isinstance(order, int) for order in orders)
    if not orders or not whole or min(orders) < 1 or max(orders) > MAX_ORDER:
        raise ConfigError(f"orders = {orders} must lie between 1 and {MAX_ORDER}")
    if not 0 < constant < float("inf"):
        raise ConfigError(
            f"constant = {constant} must be positive and finite, or unseen characters are infinite"
        )


def _hash(*texts: np.ndarray) -> str:
    """Of the ids of several texts, and of where one ends."""
    parts = [str(len(ids)).encode() + b":" + ids.astype("<i8").tobytes() for ids in texts]
    return files.sha256(b"".join(parts))


def _ids(text: Any, d_vocab: int, longest: int, what: str) -> np.ndarray:
    ids = np.asarray(text).ravel()
    if len(ids) and ids.dtype.kind not in "iu":
        raise TextError(f"the {what} text has to be token ids, whole numbers; got {ids.dtype}")
    ids = ids.astype(np.int64)
    if len(ids) < longest:
        raise TextError(
            f"the {what} text has {len(ids)} characters, fewer than the order {longest}"
        )
    if ids.min() < 0 or ids.max() >= d_vocab:
        raise TextError(
            f"the {what} text has ids from {ids.min()} to {ids.max()}, outside 0 … {d_vocab - 1}"
        )
    if d_vocab**longest >= 2**63:
        raise ConfigError(f"{d_vocab} characters to the power {longest} do not fit a number")
    return ids


def _grams(ids: np.ndarray, order: int, d_vocab: int) -> np.ndarray:
    """The number that stands for each run of `order` characters; the last one counts ones."""
    n = len(ids) - order + 1
    out = np.zeros(n, dtype=np.int64)
    for i in range(order):
        out = out * d_vocab + ids[i : i + n]
    return out


def _count(keys: np.ndarray, counts: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """How often each asked key was counted."""
    at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    return np.where(keys[at] == asked, counts[at], 0)


def _add_constant(
    seen: np.ndarray, asked: np.ndarray, order: int, d_vocab: int, constant: float
) -> np.ndarray:
    keys, counts = np.unique(_grams(seen, order, d_vocab), return_counts=True)
    contexts, totals = _by_context(keys, counts, d_vocab)
    own, total = _count(keys, counts, asked), _count(contexts, totals, asked // d_vocab)
    return (own + constant) / (total + constant * d_vocab)


def _by_context(
    keys: np.ndarray, counts: np.ndarray, d_vocab: int
) -> tuple[np.ndarray, np.ndarray]:
    """Contexts and the sums of their counts."""
    contexts, inverse = np.unique(keys // d_vocab, return_inverse=True)
    return contexts, np.bincount(inverse, weights=counts)


def _kneser_ney(seen: np.ndarray, asked: np.ndarray, order: int, d_vocab: int) -> np.ndarray:
    """Interpolated Kneser-Ney, from the uniform distribution up to the whole order."""
    p = np.full(len(asked), 1 / d_vocab)
    for n in range(1, order + 1):
        keys, counts = np.unique(_grams(seen, n, d_vocab), return_counts=True)
        if n < order:  # in how many different contexts, one character longer, it was seen
            longer = np.unique(_grams(seen, n + 1, d_vocab))
            keys, counts = np.unique(longer % d_vocab**n, return_counts=True)
        once, twice = int((counts == 1).sum()), int((counts == 2).sum())
        discount = once / (once + 2 * twice) if once and twice else 0.5
        contexts, totals = _by_context(keys, counts, d_vocab)
        _, kinds = _by_context(keys, np.ones_like(counts), d_vocab)
        gram = asked % d_vocab**n
        own = np.maximum(_count(keys, counts, gram) - discount, 0)
        total, left = (_count(contexts, x, gram // d_vocab) for x in (totals, kinds))
        known = total > 0
        whole = np.where(known, total, 1)
        p = np.where(known, own / whole + discount * left / whole * p, p)
    return p
