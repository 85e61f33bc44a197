"""The sqrt(d_k) question, from scratch: the same small GPT trained with its scores scaled in
several ways, for several head widths, learning rates and seeds.

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

import json
import math
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp import files
from interp.analysis import stats
from interp.analysis.readout import check_choice
from interp.analysis.results import Provenance, Result, to_numpy, versions
from interp.analysis.scaling import QUANTILES
from interp.errors import ConfigError, OutputError, TrainingInterrupted, nearest
from interp.gpt.config import GPTConfig
from interp.gpt.model import HookedGPT
from interp.gpt.reference import ReferenceGPT, from_reference
from interp.training.history import learning_rate_at, log_spaced_steps
from interp.training.loop import cross_entropy, make_optimizer, update
from interp.training.recipe import AnyText, Recipe

ARMS = ("sqrt", "unscaled", "inverse", "learned", "qk-norm", "matched")
D_HEADS = (8, 32, 128, 256)
LEARNING_RATES = (1e-3, 3e-3, 1e-2)
PROBES = 8  # validation windows on which heads are measured
LOSS_WINDOWS = 48  # and on which the loss is
MOMENTS = 9  # log-spaced steps at which that is done
WEIGHTS = ("W_Q", "W_K")
Progress = Callable[[int, int], None]


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
        ConfigError: an unknown arm; a recipe whose model is a rung of the ladder, has query and key
            biases, or sets the scale itself.
    """
    own = sorted({"attn_scale", "learned_scale", "qk_norm", "rung", "qkv_bias"} & set(recipe.model))
    if own:
        raise ConfigError(
            f"the recipe {recipe.name!r} sets model.{own[0]}, which the arms of a sweep decide; "
            "leave it out"
        )
    if run.arm not in ARMS:
        raise ConfigError(f"unknown arm {run.arm!r}{nearest(run.arm, ARMS)}; arms: {ARMS}")
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
    """Trains one run and returns its measures at the log-spaced steps.

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
    """Returns loss, and entropy, deviation [layer, head], gradient [layer, head, weight, quantile].

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
    entropy, deviation = zip(*(row_statistics(kept[name].detach()) for name in names), strict=True)
    return {
        "loss": loss,
        "entropy": to_numpy(torch.stack(entropy)).tolist(),
        "deviation": to_numpy(torch.stack(deviation)).tolist(),
        "gradient": to_numpy(by_head).tolist(),
    }


def row_statistics(
    scores: Float[Tensor, "batch head pos key"],
) -> tuple[Float[Tensor, " head"], Float[Tensor, " head"]]:
    """Returns means over rows t ≥ 1: entropy over ln(t+1), and the deviation within a row.

    The deviation is the root of the mean unbiased variance of a row's visible scores.
    """
    scores = scores[:, :, 1:]
    visible = torch.isfinite(scores)
    n = visible.sum(-1)
    log_p = scores.log_softmax(-1)
    entropy = -torch.where(visible, log_p.exp() * log_p, 0.0).sum(-1) / n.to(scores).log()
    seen = torch.where(visible, scores, 0.0)
    centred = torch.where(visible, seen - seen.sum(-1, keepdim=True) / n[..., None], 0.0)
    variance = centred.square().sum(-1) / (n - 1)
    return entropy.mean((0, 2)), variance.mean((0, 2)).sqrt()


# ---- what theory predicts of the start --------------------------------------------------------


def predicted_deviation(config: GPTConfig, arm: str) -> float:
    """Returns the deviation of scores at the start, from the deviation of the weights alone.

    A normalised input has d_model numbers of mean square 1, so an entry of q = x W_Q has variance
    d_model · init_std²; q·k sums d_head products of two such. Inputs of different keys are taken to
    be independent, which repeated characters are not quite.
    """
    entry = config.d_model * config.init_std**2
    products = math.sqrt(config.d_head)
    return {
        "unscaled": products * entry,
        "inverse": entry / products,
        "qk-norm": 1.0,
    }.get(arm, entry)


def predicted_entropy(
    deviation: float, n_pos: int, *, draws: int = 4000, seed: int = 0
) -> tuple[float, float]:
    """Returns the mean over rows t = 1 … n_pos − 1 of entropy / ln(t+1), and its standard error.

    Scores are independent normal numbers of one deviation; row t sees the first t + 1 of them.
    """
    if not deviation >= 0 or n_pos < 2:
        raise ConfigError(
            f"deviation = {deviation}, n_pos = {n_pos}; expected at least 0 and at least 2"
        )
    scores = deviation * np.random.default_rng(seed).standard_normal((draws, n_pos))
    scores -= scores.max(1, keepdims=True)
    weights = np.exp(scores)
    total = weights.cumsum(1)
    entropy = np.log(total) - (weights * scores).cumsum(1) / total
    each = (entropy[:, 1:] / np.log(np.arange(2, n_pos + 1))).mean(1)
    return float(each.mean()), float(each.std(ddof=1) / math.sqrt(draws))


@torch.no_grad()
def initial_attention(
    tokens: Int[Tensor, "batch pos"],
    d_vocab: int,
    d_heads: Sequence[int] = (8, 16, 32, 64, 128, 256, 512),
    *,
    init: Literal["linear", "ours"] = "linear",
    d_model: int = 64,
    seeds: int = 5,
) -> pd.DataFrame:
    """Returns the entropy of untrained attention, unscaled, over √d and over d, beside theory's.

    One block, one head, on real tokens. "linear" has PyTorch's default weights, as the lesson's
    modules do (uniform, deviation 1/√(3 d_model); embeddings normal(0, 1)); "ours" has this
    package's (normal, deviation 0.02).

    Args:
        tokens: sequences.
        d_vocab: size of their vocabulary.
        d_heads: head widths.
        init: which initial weights.
        d_model: width of the stream.
        seeds: untrained models a row.

    Returns:
        A table: init, arm ("unscaled", "sqrt", "inverse"), d_head, predicted_deviation, deviation,
        predicted_entropy, entropy, low, high (95 % over the models), n.
    """
    check_choice("init", init, ("linear", "ours"))
    rows = []
    for d in d_heads:
        shape = GPTConfig(
            n_layers=1, n_heads=1, d_model=d_model, d_head=d, n_ctx=tokens.shape[1],
            d_vocab=d_vocab, d_mlp=0,
        )  # fmt: skip
        spread = 1 / math.sqrt(3 * d_model) if init == "linear" else shape.init_std
        models = [_untrained(shape, init, seed) for seed in range(seeds)]
        for arm, multiplier in (("unscaled", math.sqrt(d)), ("sqrt", 1.0), ("inverse", d**-0.5)):
            found = []
            for model in models:
                with model.attn_scaled_by(multiplier):
                    name = "blocks.0.attn.hook_attn_scores"
                    _, cache = model.run_with_cache(tokens, names_filter=name)
                found.append([float(x.mean()) for x in row_statistics(cache[name])])
            entropy, deviation = np.array(found).T
            mean, low, high = stats.mean_interval(entropy)
            expected = predicted_deviation(shape.model_copy(update={"init_std": spread}), arm)
            rows.append(
                {
                    "init": init, "arm": arm, "d_head": d,
                    "predicted_deviation": expected, "deviation": float(deviation.mean()),
                    "predicted_entropy": predicted_entropy(expected, tokens.shape[1])[0],
                    "entropy": float(mean), "low": float(low), "high": float(high), "n": seeds,
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def _untrained(shape: GPTConfig, init: str, seed: int) -> HookedGPT:
    if init == "ours":
        return HookedGPT(shape, seed=seed).eval()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return from_reference(ReferenceGPT(shape)).eval()


# ---- the grid ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ScalingSweep(Result):
    """A finished sweep. Losses in nats per token; entropies over ln(visible keys).

    `gradient` holds quantiles (5, 25, 50, 75, 95 %) of the sizes of the entries of ∂L/∂W_Q and
    ∂L/∂W_K. `predicted_deviation` and `predicted_entropy` are theory's, for step 0. NaN: a run
    whose loss was no longer finite.
    """

    AXES: ClassVar = {
        "d_heads": ("d_head",),
        "learning_rates": ("learning_rate",),
        "seeds": ("seed",),
        "steps": ("step",),
        "predicted_deviation": ("arm", "d_head"),
        "predicted_entropy": ("arm", "d_head"),
        "loss": ("arm", "d_head", "learning_rate", "seed", "step"),
        "entropy": ("arm", "d_head", "learning_rate", "seed", "step", "layer", "head"),
        "deviation": ("arm", "d_head", "learning_rate", "seed", "step", "layer", "head"),
        "gradient": (
            "arm", "d_head", "learning_rate", "seed", "step", "layer", "head", "weight", "quantile",
        ),
    }  # fmt: skip
    NAMES: ClassVar = {"arms": "arm"}
    arms: tuple[str, ...]
    d_heads: np.ndarray
    learning_rates: np.ndarray
    seeds: np.ndarray
    steps: np.ndarray
    predicted_deviation: np.ndarray
    predicted_entropy: np.ndarray
    loss: np.ndarray
    entropy: np.ndarray
    deviation: np.ndarray
    gradient: np.ndarray
    recipe: str
    text: str

    def to_frame(self) -> pd.DataFrame:
        """Returns one row an arm, d_head, learning_rate, seed, step, layer and head: loss, entropy,
        deviation, and gradient quantiles such as W_Q_q50.
        """
        names = self.AXES["entropy"]
        axes = [self.arms, self.d_heads, self.learning_rates, self.seeds, self.steps,
                *map(range, self.entropy.shape[5:])]  # fmt: skip
        index = pd.MultiIndex.from_product(axes, names=names)
        loss = np.broadcast_to(self.loss[..., None, None], self.entropy.shape)
        frame = pd.DataFrame(
            {
                "loss": loss.ravel(),
                "entropy_normalised": self.entropy.ravel(),
                "score_deviation": self.deviation.ravel(),
            },
            index=index,
        )
        for w, weight in enumerate(WEIGHTS):
            for q, quantile in enumerate(QUANTILES):
                column = f"{weight}_q{round(100 * quantile):02d}"
                frame[column] = self.gradient[..., w, q].ravel()
        return frame.reset_index()

    def best_rates(self) -> Int[np.ndarray, "arm d_head"]:
        """Returns, for each arm and width, which learning rate has the lowest mean last loss.

        A rate with a run that diverged is out, unless all are.
        """
        mean = self.loss[..., -1].mean(-1)  # NaN where a run diverged
        return np.asarray(np.where(np.isnan(mean), np.inf, mean).argmin(-1))

    def summary(self) -> pd.DataFrame:
        """Returns one row an arm and d_head, at its own best learning rate: loss at the last step
        with its 95 % interval over seeds, that of its difference from "sqrt" (each at its own best
        rate, paired by seed), and entropy and deviation at the first and last step, with theory's
        for the first. Choosing the rate by the same runs favours all arms alike.
        """
        best, rows = self.best_rates(), []
        last = {
            (arm, d): self.loss[arm, d, best[arm, d], :, -1]
            for arm in range(len(self.arms))
            for d in range(len(self.d_heads))
        }
        base = self.arms.index("sqrt") if "sqrt" in self.arms else None
        for (arm, d), losses in last.items():
            loss, low, high = stats.mean_interval(losses)
            row = {
                "arm": self.arms[arm],
                "d_head": int(self.d_heads[d]),
                "learning_rate": float(self.learning_rates[best[arm, d]]),
                "loss": float(loss),
                "low": float(low),
                "high": float(high),
            }
            if base is not None:
                difference = stats.mean_interval(losses - last[base, d])
                for name, value in zip(("", "_low", "_high"), difference, strict=True):
                    row[f"against_sqrt{name}"] = float(value)
            at = (arm, d, best[arm, d])
            row |= {
                "predicted_deviation": float(self.predicted_deviation[arm, d]),
                "deviation_first": float(self.deviation[at][:, 0].mean()),
                "predicted_entropy": float(self.predicted_entropy[arm, d]),
                "entropy_first": float(self.entropy[at][:, 0].mean()),
                "deviation_last": float(self.deviation[at][:, -1].mean()),
                "entropy_last": float(self.entropy[at][:, -1].mean()),
                "n": len(self.seeds),
            }
            rows.append(row)
        return pd.DataFrame(rows)


def scaling_sweep(
    recipe: Recipe | str | Path,
    folder: str | Path,
    *,
    arms: Sequence[str] = ARMS,
    d_heads: Sequence[int] = D_HEADS,
    learning_rates: Sequence[float] = LEARNING_RATES,
    seeds: int = 5,
    jobs: int = 1,
    device: str = "cpu",
    corpus: AnyText | None = None,
    progress: Progress | None = None,
) -> ScalingSweep:
    """Trains the grid and returns its measures; given again after a stop, goes on.

    Each finished run is kept in `folder/runs`, so that a larger grid reuses a smaller one. Writes
    `folder/sweep.json` (the result) and `sweep.csv` (its table) at the end.

    Args:
        recipe: the model and how to train it; the grid's learning rates, seeds and head widths take
            the place of its own.
        folder: where to write.
        arms: which of `ARMS`.
        d_heads: head widths.
        learning_rates: peaks; the recipe's schedule is scaled to each.
        seeds: how many, from 0.
        jobs: processes at a time. With 1, runs are in this process, with all its threads.
        device: where to train.
        corpus: the text; by default the recipe's.
        progress: called with (runs done, of how many).

    Raises:
        ConfigError: an empty or repeated list, an unknown arm, a recipe that sets the scale itself.
        TextError: see `load_corpus`.
        OutputError: `folder` holds runs of another recipe or text.
        TrainingInterrupted: Ctrl-C; finished runs are kept.
    """
    recipe = recipe if isinstance(recipe, Recipe) else Recipe.load(recipe)
    grids = {"arms": arms, "d_heads": d_heads, "learning_rates": learning_rates}
    for name, values in grids.items():
        if not values or len(set(values)) < len(values):
            raise ConfigError(f"{name} = {list(values)} must have values, each once")
    wrong = [x for x in (*d_heads, *learning_rates, seeds, jobs) if not 0 < x < math.inf]
    if wrong:
        raise ConfigError(f"d_heads, learning_rates, seeds and jobs must be positive: {wrong[0]}")
    runs = [
        Run(arm=arm, d_head=d, learning_rate=rate, seed=seed)
        for arm in arms
        for d in d_heads
        for rate in learning_rates
        for seed in range(seeds)
    ]
    corpus = corpus or recipe.text.load()
    corpus.check_long_enough(recipe.config(d_vocab=1).n_ctx)
    d_vocab = len(corpus.tokenizer())
    configs = {(r.arm, r.d_head): build_arm(recipe, r, d_vocab).config for r in runs}
    folder = Path(folder)
    _claim(folder, recipe, corpus)
    with _no_later_than_ctrl_c(folder):
        _do(runs, recipe, corpus, folder, jobs, device, progress)
    found = [json.loads(_file(folder, run).read_text(encoding="utf-8")) for run in runs]
    shape = (len(arms), len(d_heads), len(learning_rates), seeds)

    def gathered(name: str) -> np.ndarray:
        values = np.array([one[name] for one in found], dtype=np.float32)
        return values.reshape(*shape, *values.shape[1:])

    deviations = np.array([[predicted_deviation(configs[a, d], a) for d in d_heads] for a in arms])
    n_ctx = recipe.config(d_vocab=1).n_ctx
    result = ScalingSweep(
        arms=tuple(arms), d_heads=np.array(d_heads), learning_rates=np.array(learning_rates),
        seeds=np.arange(seeds), steps=np.array(found[0]["steps"]),
        predicted_deviation=deviations,
        predicted_entropy=np.vectorize(lambda s: predicted_entropy(s, n_ctx)[0])(deviations),
        **{name: gathered(name) for name in ("loss", "entropy", "deviation", "gradient")},
        recipe=recipe.to_toml(), text=corpus.name,
        provenance=Provenance(
            model=files.sha256(recipe.to_toml().encode()), tokens=corpus.sha256, dtype="float32",
            versions=dict(versions()),
        ),
    )  # fmt: skip
    result.save(folder / "sweep.json")
    files.write_text(folder / "sweep.csv", result.to_frame().to_csv(index=False))
    return result


def _claim(folder: Path, recipe: Recipe, corpus: AnyText) -> None:
    """Makes sure that runs in the folder are of this recipe and text."""
    identity = recipe.to_toml() + f"\n# text: {corpus.name}, sha256 {corpus.sha256}\n"
    path = folder / "recipe.toml"
    if path.is_file() and path.read_text(encoding="utf-8", errors="replace") != identity:
        raise OutputError(f"{folder} holds runs of another recipe or text; choose another --out")
    if not path.is_file() and folder.is_dir() and any(folder.iterdir()):
        raise OutputError(f"{folder} already holds something else; choose another --out")
    files.write_text(path, identity)


def _file(folder: Path, run: Run) -> Path:
    return folder / "runs" / f"{run.name}.json"


@contextmanager
def _no_later_than_ctrl_c(folder: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as error:
        raise TrainingInterrupted(
            f"interrupted; finished runs are kept in {folder / 'runs'}: give the same command "
            "again to go on"
        ) from error


def _do(
    runs: list[Run],
    recipe: Recipe,
    corpus: AnyText,
    folder: Path,
    jobs: int,
    device: str,
    progress: Progress | None,
) -> None:
    """Trains what is not yet there, the widest first."""
    missing = [run for run in runs if not _file(folder, run).is_file()]
    missing.sort(key=lambda run: -run.d_head)
    done = len(runs) - len(missing)

    def finished() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, len(runs))

    if progress is not None:
        progress(done, len(runs))
    if jobs == 1 or not missing:
        worker = _Worker(recipe, corpus, folder, device)
        for run in missing:
            worker.do(run)
            finished()
        return
    pool = ProcessPoolExecutor(
        jobs, mp_context=multiprocessing.get_context("spawn"),
        initializer=_start, initargs=(recipe, corpus, folder, device),
    )  # fmt: skip
    waiting = {pool.submit(_do_one, run) for run in missing}
    try:
        while waiting:
            ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in ready:
                future.result()
                finished()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


class _Worker:
    """What a process needs to do any run of the grid."""

    def __init__(self, recipe: Recipe, corpus: AnyText, folder: Path, device: str) -> None:
        self.recipe, self.folder, self.device, self.text = recipe, folder, device, corpus
        self.d_vocab = len(corpus.tokenizer())
        self.windows = some_windows(corpus, recipe.config(d_vocab=1).n_ctx, LOSS_WINDOWS)

    def do(self, run: Run) -> None:
        found = train_run(self.recipe, run, self.text, self.windows, self.d_vocab, self.device)
        files.write_text(_file(self.folder, run), json.dumps(found))


def some_windows(text: AnyText, n_ctx: int, count: int) -> Int[Tensor, "window pos"]:
    """Returns up to `count` whole validation windows, evenly spread; the only one if it is less."""
    windows = [row for batch in text.windows(n_ctx, count) for row in batch]
    whole = [row for row in windows if len(row) == n_ctx + 1] or windows
    chosen = sorted({round(i * (len(whole) - 1) / max(1, count - 1)) for i in range(count)})
    return torch.stack([whole[i] for i in chosen])


_worker: _Worker | None = None


def _start(recipe: Recipe, corpus: AnyText, folder: Path, device: str) -> None:
    global _worker  # noqa: PLW0603  # a process of the pool has one
    torch.set_num_threads(1)
    _worker = _Worker(recipe, corpus, folder, device)


def _do_one(run: Run) -> None:
    assert _worker is not None
    _worker.do(run)
