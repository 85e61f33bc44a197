"""See inside a small GPT: train it, cache it, split its logits exactly, and check what you see.

The names below are imported when first used, so that `import interp` is quick.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "interp.analysis.attention": ("AttentionPatterns", "attention_patterns"),
    "interp.analysis.attribution": (
        "LogitAttribution", "StreamAttribution", "logit_attribution", "stream_attribution",
    ),
    "interp.analysis.checks": ("ModelChecks", "check_model"),
    "interp.analysis.circuits": (
        "CopyingScores", "PathEffects", "composition_scores", "copying_scores", "ov_circuit",
        "path_effects", "qk_circuit", "score_sources",
    ),
    "interp.analysis.effects": ("ComponentEffects", "component_effects"),
    "interp.analysis.formation": ("ChangePoint", "Formation", "change_point", "formation"),
    "interp.analysis.head_cards": ("HeadCard", "head_card"),
    "interp.analysis.heads": ("HeadScores", "head_scores"),
    "interp.analysis.interventions": ("Intervention", "ReferenceSet", "intervene"),
    "interp.analysis.labels": ("HeadLabels", "label_heads"),
    "interp.analysis.lens": ("LogitLens", "Predictions", "logit_lens", "predictions"),
    "interp.analysis.ngrams": ("NGramLosses", "ngram_losses"),
    "interp.analysis.one_head": ("one_head_attribution",),
    "interp.analysis.patching": ("Patching", "activation_patching", "path_patching"),
    "interp.analysis.results": ("Provenance", "Result"),
    "interp.analysis.scaling": (
        "AttentionScaling", "attention_scaling", "gradient_statistics", "scale_identity",
        "softmax_statistics",
    ),
    "interp.analysis.scaling_arms": ("initial_attention",),
    "interp.analysis.scaling_sweep": ("ScalingSweep", "scaling_sweep"),
    "interp.analysis.shapley": ("ShapleyValues", "shapley_values"),
    "interp.analysis.stats": ("mean_interval",),
    "interp.cache.store": ("CacheStore", "write_cache"),
    "interp.errors": (
        "CacheError", "CheckpointError", "CompletenessError", "ConfigError", "HookError",
        "InterpError", "NonFiniteLossError", "OutputError", "TextError", "TokenError",
        "TrainingError", "TrainingInterrupted",
    ),
    "interp.gpt.activations": ("ActivationCache", "cache_bytes", "hook_shapes"),
    "interp.gpt.checkpoint": ("load_model", "model_hash"),
    "interp.gpt.config": ("GPTConfig",),
    "interp.gpt.generate": ("generate",),
    "interp.gpt.ladder": ("LadderConfig", "LadderModel", "build_model"),
    "interp.gpt.model": ("HookedGPT",),
    "interp.gpt.numpy_attention": ("causal_attention",),
    "interp.gpt.reference": ("ReferenceGPT", "from_reference", "to_reference"),
    "interp.gpt.tokenizer": ("CharTokenizer",),
    "interp.report.html": ("read_report", "write_report"),
    "interp.report.study": ("StudySection", "write_study"),
    "interp.training.corpus": ("Corpus", "load_corpus"),
    "interp.training.loop": ("train", "validation_loss"),
    "interp.training.recipe": ("Recipe",),
    "interp.training.repeated": ("RepeatedTokens", "repeated_sequences"),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'interp' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
