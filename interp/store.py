"""Activations on disk: a folder with `manifest.json` and `shard-RR-NNNNN.safetensors`.

The manifest describes everything needed to read the shards: the model's hash, the hook names, the
dtype, how many sequences each shard holds, and each shard's SHA-256. The folder appears whole,
under its final name, when the last shard is written. RR is the rank of the process that wrote a
shard, 00 for one process.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from interp import files
from interp.errors import CacheError, OutputError
from interp.gpt.cache import ActivationCache
from interp.gpt.folder import model_hash
from interp.gpt.model import HookedGPT
from interp.gpt.presets import PRESETS, cache_bytes

FORMAT = "gpt-interp-cache/1"
MANIFEST = "manifest.json"
TOKENS = "tokens"


@dataclass(frozen=True)
class CacheStore:
    """A folder of cached activations.

    Example:
        store = interp.write_cache("caches/demo", model, tokens)
        for cache in store.caches(model):
            cache["pattern", 1]
    """

    folder: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, folder: str | Path) -> CacheStore:
        """Returns the store in `folder`.

        Raises:
            CacheError: no such folder, not a store, or a damaged manifest.
        """
        folder = Path(folder)
        path = folder / MANIFEST
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise CacheError(f"{folder} is not a cache: it has no readable {MANIFEST}") from error
        except ValueError as error:
            raise CacheError(f"{path} is damaged: {error}") from error
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise CacheError(f"{path} is not of the format {FORMAT!r}")
        missing = [key for key in ("model", "rebuilds", "shards") if key not in manifest]
        if missing:
            raise CacheError(f"{path} is damaged: it lacks {missing[0]!r}")
        return cls(folder, manifest)

    def __len__(self) -> int:
        """The number of sequences."""
        return sum(shard["sequences"] for shard in self.manifest["shards"])

    @property
    def nbytes(self) -> int:
        """The bytes of all shards."""
        return sum(shard["bytes"] for shard in self.manifest["shards"])

    def caches(self, model: HookedGPT) -> Iterator[ActivationCache]:
        """Yields one `ActivationCache` a shard.

        Args:
            model: the model that made the store.

        Raises:
            CacheError: another model's store; a shard missing or damaged.
        """
        if model_hash(model) != self.manifest["model"]:
            raise CacheError(
                f"{self.folder} was written by another model, or by other weights of it"
            )
        for shard in self.manifest["shards"]:
            path = self.folder / shard["file"]
            try:
                if files.sha256(path.read_bytes()) != shard["sha256"]:
                    raise CacheError(f"{path} is damaged: its SHA-256 is not the manifest's")
                values = load_file(path, device=str(model.device))
            except (OSError, SafetensorError) as error:
                raise CacheError(f"{path} is missing or damaged: {error}") from error
            tokens = values.pop(TOKENS)
            rebuilds = bool(self.manifest["rebuilds"])
            in_order = {name: values[name] for name in model.hook_dict if name in values}
            yield ActivationCache(in_order, model, tokens=tokens, rebuilds=rebuilds)


@torch.no_grad()
def write_cache(
    folder: str | Path,
    model: HookedGPT,
    tokens: Int[Tensor, "sequences pos"],
    *,
    names: str = "contributions",
    batch_size: int = 16,
    progress: Callable[[int, int], None] | None = None,
) -> CacheStore:
    """Runs the model over `tokens` and writes its activations; returns the store.

    Args:
        folder: where; an earlier cache there is replaced, anything else is refused.
        model: the model.
        tokens: the sequences.
        names: a preset, or a hook name; see `HookedGPT.run_with_cache`.
        batch_size: sequences a shard.
        progress: called after each shard with sequences done and sequences in all.

    Raises:
        OutputError: the folder cannot be written or holds something that is not a cache.
    """
    folder = Path(folder)
    check_output(folder, cache_bytes_of(model, tokens, names))
    was_training = model.training
    model.eval()
    shards = []
    try:
        with files.write_folder(folder) as partial:
            for number, batch in enumerate(torch.split(tokens, batch_size)):
                _, cache = model.run_with_cache(batch, names_filter=names)
                shards.append(_write_shard(partial, number, batch, cache))
                if progress is not None:
                    progress(sum(shard["sequences"] for shard in shards), len(tokens))
            manifest = {
                "format": FORMAT,
                "model": model_hash(model),
                "config": model.config.model_dump(),
                "names": names,
                "hooks": sorted(cache.cache_dict),
                "rebuilds": cache.rebuilds,
                "dtype": str(model.dtype).removeprefix("torch."),
                "n_pos": int(tokens.shape[1]),
                "shards": shards,
            }
            files.write_text(partial / MANIFEST, json.dumps(manifest, indent=1) + "\n")
    finally:
        model.train(was_training)
    return CacheStore(folder, manifest)


def cache_bytes_of(model: HookedGPT, tokens: Int[Tensor, "sequences pos"], names: str) -> int:
    """Returns about how many bytes `write_cache` will write; 0 if `names` is not a preset."""
    n, n_pos = tokens.shape
    size = model.embed.W_E.element_size()
    return cache_bytes(model.config, n, n_pos, names, size) if names in PRESETS else 0


def check_output(folder: Path, n_bytes: int) -> None:
    """Checks, before anything is computed, that a cache of `n_bytes` can be written to `folder`.

    Raises:
        OutputError: it holds something that is not a cache, cannot be written, or is too small.
    """
    if folder.exists() and not _is_ours(folder):
        raise OutputError(f"{folder} holds something that is not a cache; choose another --out")
    files.make_folder(folder.parent)
    free = shutil.disk_usage(folder.parent).free
    if free < n_bytes:
        raise OutputError(
            f"cannot write {folder}: about {n_bytes / 1e6:.0f} MB are needed and {free / 1e6:.0f} "
            "MB are free; cache fewer sequences, or choose another --out"
        )


def _write_shard(
    folder: Path, number: int, tokens: Tensor, cache: ActivationCache
) -> dict[str, Any]:
    path = folder / f"shard-00-{number:05d}.safetensors"
    values = {name: value.contiguous() for name, value in cache.cache_dict.items()}
    shared = {v.data_ptr() for v in values.values()}
    if len(shared) < len(values):  # neighbouring blocks share a stream; files cannot
        values = {name: value.clone() for name, value in values.items()}
    save_file({TOKENS: tokens.contiguous(), **values}, path, {"format": FORMAT})
    data = path.read_bytes()
    return {
        "file": path.name,
        "sequences": len(tokens),
        "bytes": len(data),
        "sha256": files.sha256(data),
    }


def _is_ours(folder: Path) -> bool:
    if folder.is_dir() and not any(folder.iterdir()):
        return True
    try:
        manifest = CacheStore.open(folder).manifest
    except CacheError:
        return False
    known = {MANIFEST, *(shard["file"] for shard in manifest["shards"])}
    return all(path.name in known for path in folder.iterdir())
