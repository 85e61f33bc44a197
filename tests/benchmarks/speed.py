"""Times this package against the textbook model and TransformerLens, alternating in one run.

    python tests/benchmarks/speed.py [--rounds 5] [--json FILE]

Prints ratios of medians; absolute times depend on the machine. Each contender runs once per round,
in turn, so that a slow spell of the machine hits all of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from transformer_lens import TransformerBridge, TransformerBridgeConfig

import interp
from interp.training.optimiser import autocast_for, make_optimizer

VOCAB = 65
SIZES = {"4x128": (4, 4, 128, 128, 32), "6x384": (6, 6, 384, 256, 16)}
CACHE_SIZES = {"4x128 T64": (4, 4, 128, 64, 12), **SIZES}


def config(layers: int, heads: int, width: int, ctx: int) -> interp.GPTConfig:
    return interp.GPTConfig(n_layers=layers, n_heads=heads, d_model=width, n_ctx=ctx, d_vocab=VOCAB)


def bridge(cfg: interp.GPTConfig) -> Any:
    return TransformerBridge.boot_native(
        TransformerBridgeConfig(
            d_model=cfg.d_model, d_head=cfg.d_head, n_layers=cfg.n_layers, n_ctx=cfg.n_ctx,
            n_heads=cfg.n_heads, d_vocab=VOCAB, d_mlp=cfg.d_mlp, act_fn="relu",
            normalization_type="LN",
        )
    )  # fmt: skip


def training_step(
    model: torch.nn.Module, tokens: torch.Tensor, precision: str | None
) -> Callable[[], object]:
    """One whole step: forward, loss, backward, clip, update. `None` is the plain textbook way."""
    if precision is None:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    else:
        optimizer = make_optimizer(model, 1e-3, 0.1, (0.9, 0.99))
    context = autocast_for(precision or "float32", torch.device("cpu"))

    def step() -> None:
        with context():
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def alternate(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Returns each contender's median seconds over `rounds` turns (after one unmeasured turn)."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(rounds + 1):
        for name, call in contenders.items():
            start = time.perf_counter()
            call()
            if turn:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def bench_training(rounds: int) -> list[dict[str, Any]]:
    rows = []
    for name, (layers, heads, width, ctx, batch) in SIZES.items():
        cfg = config(layers, heads, width, ctx)
        tokens = torch.randint(VOCAB, (batch, ctx + 1), generator=torch.Generator().manual_seed(0))
        ours = interp.HookedGPT(cfg, seed=0).train()
        bf16 = interp.HookedGPT(cfg, seed=0).train()
        median = alternate(
            {
                "textbook": training_step(interp.to_reference(ours), tokens, None),
                "transformer_lens": training_step(bridge(cfg), tokens, None),
                "ours float32": training_step(ours, tokens, "float32"),
                "ours auto": training_step(bf16, tokens, "auto"),
            },
            rounds,
        )
        for who, seconds in median.items():
            rows.append({
                "what": f"training step {name}", "who": who,
                "tokens/s": round(batch * ctx / seconds),
                "speed / textbook": round(median["textbook"] / seconds, 2),
            })  # fmt: skip
    return rows


def unique_bytes(values: object) -> int:
    seen = {}
    for value in values:  # type: ignore[attr-defined]
        storage = value.untyped_storage()
        seen[storage.data_ptr()] = storage.nbytes()
    return sum(seen.values())


@torch.no_grad()
def bench_cache(rounds: int) -> list[dict[str, Any]]:
    rows = []
    for name, (layers, heads, width, ctx, batch) in CACHE_SIZES.items():
        cfg = config(layers, heads, width, ctx)
        tokens = torch.randint(VOCAB, (batch, ctx), generator=torch.Generator().manual_seed(0))
        ours, theirs = interp.HookedGPT(cfg).eval(), bridge(cfg).eval()
        keep: dict[str, int] = {}

        def all_of(model: Any, who: str, **kwargs: object) -> Callable[[], object]:
            def call() -> None:
                _, cache = model.run_with_cache(tokens, **kwargs)
                keep[who] = unique_bytes(cache.cache_dict.values())

            return call

        median = alternate(
            {
                "transformer_lens": all_of(theirs, "transformer_lens"),
                "ours": all_of(ours, "ours"),
                "ours contributions": all_of(
                    ours, "ours contributions", names_filter="contributions"
                ),
                "ours every name kept": all_of(
                    ours, "ours every name kept",
                    names_filter=lambda n: "result" not in n and "_input" not in n,
                ),
                "plain forward": lambda: ours(tokens),
            },
            rounds * 3,
        )  # fmt: skip
        base = median["transformer_lens"]
        for who, seconds in median.items():
            share = keep.get(who, 0) / keep["transformer_lens"]
            rows.append({
                "what": f"run_with_cache {name}", "who": who, "ms": round(1e3 * seconds, 2),
                "time / transformer_lens": round(seconds / base, 2),
                "bytes / transformer_lens": round(share, 3), "MB": round(keep.get(who, 0) / 1e6, 1),
            })  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["training", "cache"])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {args.rounds} rounds")
    rows: list[dict[str, Any]] = []
    if args.only != "cache":
        rows += bench_training(args.rounds)
    if args.only != "training":
        rows += bench_cache(args.rounds)
    for row in rows:
        print("  ".join(f"{key}: {value}" for key, value in row.items()))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
