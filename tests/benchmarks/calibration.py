"""How often does an untrained model get a name for a head? It never should; 5 % is allowed.

    python tests/benchmarks/calibration.py --models 100

Each model is new, of one shape, with text it has never seen; its heads are scored and labelled as
anyone's would be. Initial weights are this package's (deviation 0.02, attention all but uniform)
for one half of the models, and much larger ones (0.15, attention far from uniform) for the other.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import torch

import interp


def one(seed: int, init_std: float, sequences: int) -> tuple[int, int, float]:
    """Names confirmed, names seen, seconds."""
    torch.set_num_threads(1)
    corpus = interp.load_corpus()
    assert isinstance(corpus, interp.Corpus)
    tokenizer = corpus.tokenizer()
    shape = interp.GPTConfig(n_layers=2, n_heads=4, d_model=64, n_ctx=64, init_std=init_std,
                             d_vocab=len(tokenizer))  # fmt: skip
    model = interp.HookedGPT(shape, tokenizer, seed=1_000_000 + seed).eval()
    rng = np.random.default_rng(seed)
    starts = rng.integers(len(corpus.validation) - 64, size=sequences)
    tokens = model.to_tokens([corpus.validation[s : s + 64] for s in starts])
    started = time.perf_counter()
    scores = interp.head_scores(model, tokens, seed=seed)
    labels = interp.label_heads(model, scores, seed=seed)
    return int(labels.confirmed.sum()), len(labels.labels), time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description="False names on untrained models")
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    with ProcessPoolExecutor(args.jobs) as pool:
        for init_std in (0.02, 0.15):
            seeds = range(args.models // 2)
            n = len(seeds)
            found = list(pool.map(one, seeds, [init_std] * n, [args.sequences] * n))
            confirmed, seen, seconds = (np.array(x) for x in zip(*found, strict=True))
            print(f"init_std {init_std}: {n} models, {(seen > 0).sum()} with a name seen, "
                  f"{(confirmed > 0).sum()} with one confirmed ({(confirmed > 0).mean():.1%}), "
                  f"{seconds.mean():.1f} s a model")  # fmt: skip


if __name__ == "__main__":
    main()
