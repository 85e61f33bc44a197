"""One small instance of each kind of result, and of one that a user has made."""

# mypy: disable-error-code="arg-type"

from __future__ import annotations

import functools
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from conftest import N_CTX, random_model, random_tokens

import interp
from interp.data.corpus import Corpus
from interp.figures.marks import Bars
from interp.training.history import HistoryRow, write_history

CLEAN, CORRUPTED = "abcdefga", "abcdgfga"
TEXT = "abcdefgab"


@dataclass(frozen=True, kw_only=True, repr=False)
class LongestRows(interp.Result):
    """A user's own result: the norm of each token's embedding."""

    AXES: ClassVar = {"norms": ("token",)}
    NAMES: ClassVar = {"tokens": "token"}
    norms: np.ndarray
    tokens: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame({"token": self.tokens, "norm": self.norms})

    def figures(self) -> list[interp.Shown]:
        mark = Bars(names=self.tokens, values=self.norms, label="norm of the embedding")
        return [interp.Shown(name=self.name, caption="Norms of embeddings.", mark=mark)]


@functools.cache
def model() -> interp.HookedGPT:
    """Returns the model of all results but those that make models of their own."""
    return random_model()


@functools.cache
def every_result() -> dict[str, interp.Result]:
    """Returns results by a name of their own; all public kinds are among them."""
    return {**of_one_passage(), **of_sequences(), **of_weights(), **of_other_models()}


@functools.cache
def of_one_passage() -> dict[str, interp.Result]:
    """Returns what is seen on one passage, or on a pair of prompts."""
    gpt = model()
    _, cache = gpt.run_with_cache(TEXT)
    asked = {"target": "c", "foil": "e"}
    patch = functools.partial(interp.activation_patching, gpt, CLEAN, CORRUPTED, **asked)
    return {
        "predictions": interp.predictions(gpt, cache),
        "lens": interp.logit_lens(gpt, cache),
        "patterns": interp.attention_patterns(gpt, cache),
        "logits by block": interp.logit_attribution(gpt, cache, by="block"),
        "logits by head": interp.logit_attribution(gpt, cache, by="head"),
        "logits by source": interp.logit_attribution(gpt, cache, by="source"),
        "logits by neuron": interp.logit_attribution(gpt, cache, by="neuron"),
        "stream": interp.stream_attribution(gpt, cache, "L1.N3", by="head"),
        "shapley": interp.shapley_values(gpt, cache),
        "patched heads": patch("head"),  # type: ignore[call-arg]
        "patched positions": patch("resid_pre", direction="noise"),  # type: ignore[call-arg]
        "patched paths": interp.path_patching(gpt, CLEAN, CORRUPTED, "L1.mlp", **asked),
    }


@functools.cache
def of_sequences() -> dict[str, interp.Result]:
    """Returns what is measured on many sequences."""
    gpt = model()
    tokens = random_tokens(gpt, batch=12, pos=N_CTX)
    scores = interp.head_scores(gpt, tokens, untrained=2)
    labels = interp.label_heads(gpt, scores)
    return {
        "effects": interp.component_effects(gpt, tokens, ablate="zero", metric="log_prob"),
        "effects of one": interp.component_effects(gpt, tokens[:1], ablate="zero", by="block"),
        "scores": scores,
        "labels": labels,
        "card": interp.head_card(gpt, "L1.H2", scores, labels),
        "path effects": interp.path_effects(gpt, tokens),
        "score sources": interp.score_sources(gpt, tokens),
        "scaling": interp.attention_scaling(gpt, tokens, (0.0, 0.5, 1.0, 2.0)),
        "scaling each": interp.attention_scaling(gpt, tokens, (0.5, 1.0), each=True),
        "checks": interp.check_model(gpt, tokens[:2]),
    }


@functools.cache
def of_weights() -> dict[str, interp.Result]:
    """Returns what needs no text, and a user's own."""
    gpt = model()
    none = torch.zeros(0, dtype=torch.long)
    own = LongestRows(
        norms=gpt.W_E.detach().norm(dim=-1).numpy(),
        tokens=tuple("abcdefg"),
        provenance=interp.Provenance.of(gpt, none),
    )
    rows = [
        HistoryRow(step=step, tokens=9 * step, learning_rate=1e-3, train_loss=3 - step / 100,
                   validation_loss=3.1 - step / 100, grad_norm=1.0, seconds=step / 10)
        for step in (50, 100)
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        write_history(rows, Path(folder) / "history.csv")
        training = interp.training_history(folder, gpt)
    training = replace(training, provenance=replace(training.provenance, name="tiny"))
    return {
        "copying": interp.copying_scores(gpt),
        "composition": interp.composition_scores(gpt, draws=50),
        "training": training,
        "own": own,
    }


@functools.cache
def of_other_models() -> dict[str, interp.Result]:
    """Returns what is of several models, or of none."""
    corpus = Corpus(text="To be, or not to be: that is the question.\n" * 40, name="hamlet")
    recipe = interp.Recipe.parse(
        {
            "name": "tiny",
            "model": {"n_layers": 2, "n_heads": 2, "d_model": 8, "n_ctx": 8, "init_std": 0.3},
            "training": {"steps": 5, "batch_size": 4, "warmup_steps": 1, "precision": "float32"},
        }
    )
    steps = {step: random_model(seed=step) for step in (0, 10, 20, 30)}
    tokens = random_tokens(model(), batch=4, pos=8)
    with tempfile.TemporaryDirectory() as folder:
        sweep = interp.scaling_sweep(
            recipe, f"{folder}/sweep", arms=("sqrt", "unscaled", "matched"), d_heads=(4, 8),
            learning_rates=(1e-3, 1e-2), seeds=2, corpus=corpus,
        )  # fmt: skip
    return {
        "formation": interp.formation(steps, sequences=4),
        "sweep": sweep,
        "ngrams": interp.ngram_losses([0, 1, 2, 0, 1, 2, 0], [0, 1, 2, 0], 3, orders=(1, 2)),
        "initial": interp.initial_attention(tokens, 7, (8, 32), seeds=2),
        "softmax": interp.softmax_statistics(2.0, draws=500),
        "gradients": interp.gradient_statistics(8, 1.0, draws=200),
    }
