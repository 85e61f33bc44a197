"""Times patching sweeps against a loop with TransformerLens's own, on the same model, in turn.

    python tests/benchmarks/patching.py [--model models/shakespeare-char] [--rounds 5]

Both are given two prompts that differ everywhere, run them, and patch every layer × position (or
head); the values must agree. Also times exact Shapley values of 14 components on 4,096 positions.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import torch
from transformer_lens import patching

import interp

Value = TypeVar("Value")
Site = Literal["resid_pre", "attn_out", "mlp_out", "head"]
THEIRS: dict[Site, Callable[..., torch.Tensor]] = {
    "resid_pre": patching.get_act_patch_resid_pre,
    "attn_out": patching.get_act_patch_attn_out,
    "mlp_out": patching.get_act_patch_mlp_out,
    "head": patching.get_act_patch_attn_head_out_all_pos,
}


def seconds(call: Callable[[], Value]) -> tuple[float, Value]:
    start = time.perf_counter()
    value = call()
    return time.perf_counter() - start, value


def sweep(model: interp.HookedGPT, n_pos: int, site: Site, rounds: int) -> None:
    generator = torch.Generator().manual_seed(0)
    shape = (1, n_pos)
    clean = torch.randint(model.config.d_vocab, shape, generator=generator)
    corrupted = (clean + 1 + torch.randint(5, shape, generator=generator)) % model.config.d_vocab

    def theirs() -> torch.Tensor:
        _, cache = model.run_with_cache(clean)
        return THEIRS[site](
            model, corrupted, cache, lambda logits: logits[0, -1, 0] - logits[0, -1, 1]
        )

    def ours() -> interp.Patching:
        return interp.activation_patching(model, clean, corrupted, site, target=0, foil=1)

    times: dict[str, list[float]] = {"theirs": [], "ours": []}
    for turn in range(rounds + 1):
        slow, there = seconds(theirs)
        fast, here = seconds(ours)
        if turn:
            times["theirs"].append(slow)
            times["ours"].append(fast)
    gap = float((there.flatten() - torch.tensor(here.values[:, 0])).abs().max())
    slow, fast = (statistics.median(times[name]) for name in ("theirs", "ours"))
    print(f"{site:<10} {n_pos:>4} positions  {slow:7.3f} s  {fast:7.3f} s  "
          f"{slow / fast:5.1f} × as fast  (values agree within {gap:.0e})", flush=True)  # fmt: skip


def shapley() -> None:
    cfg = interp.GPTConfig(n_layers=6, n_heads=6, d_model=384, n_ctx=256, d_vocab=65)
    model = interp.HookedGPT(cfg).eval()
    tokens = torch.randint(65, (16, 256), generator=torch.Generator().manual_seed(0))
    _, cache = model.run_with_cache(tokens)
    for metric in ("centered", "log_prob"):
        took, values = seconds(
            partial(interp.shapley_values, model, cache, metric=metric, targets=tokens)
        )
        n = len(values.components)
        print(f"exact Shapley values of {metric}, {n} components, {tokens.numel():,} positions: "
              f"{took:.1f} s", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Patching and Shapley values, timed")
    parser.add_argument("--model", type=Path, default=Path("models/shakespeare-char"))
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_grad_enabled(False)
    model = interp.HookedGPT.from_pretrained(args.model)
    print(f"{'site':<10} {'':>14}  {'TransformerLens':>9}  {'ours':>7}")
    for site in THEIRS:
        for n_pos in (32, model.config.n_ctx):
            sweep(model, n_pos, site, args.rounds)
    shapley()


if __name__ == "__main__":
    main()
