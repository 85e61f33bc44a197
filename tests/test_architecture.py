"""The shape of the package: who imports whom, what is public, what stays quick."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import interp

ROOT = Path(__file__).parent.parent
ORDER = ["errors", "files", "hooks", "figures", "gpt", "results", "lesson", "ground_truth", "data",
         "training", "store", "stream", "analysis", "pages", "cli"]  # fmt: skip
PUBLIC = [
    "ActivationCache",
    "AttentionPatterns",
    "AttentionScaling",
    "CacheError",
    "CacheStore",
    "ChangePoint",
    "CharTokenizer",
    "CheckpointError",
    "CompletenessError",
    "ComponentEffects",
    "ConfigError",
    "CopyingScores",
    "Corpus",
    "Formation",
    "GPTConfig",
    "HeadCard",
    "HeadLabels",
    "HeadScores",
    "HookError",
    "HookedGPT",
    "InterpError",
    "Intervention",
    "LadderConfig",
    "LadderModel",
    "LogitAttribution",
    "LogitLens",
    "ModelChecks",
    "NGramLosses",
    "NonFiniteLossError",
    "OutputError",
    "Patching",
    "PathEffects",
    "Predictions",
    "Provenance",
    "Recipe",
    "ReferenceGPT",
    "ReferenceSet",
    "RepeatedTokens",
    "Result",
    "ScalingSweep",
    "ShapleyValues",
    "StreamAttribution",
    "StudySection",
    "TextError",
    "TokenError",
    "TrainingError",
    "TrainingInterrupted",
    "activation_patching",
    "attention_patterns",
    "attention_scaling",
    "build_model",
    "cache_bytes",
    "causal_attention",
    "change_point",
    "check_model",
    "component_effects",
    "composition_scores",
    "copying_scores",
    "corpus_of",
    "formation",
    "from_reference",
    "generate",
    "gradient_statistics",
    "head_card",
    "head_scores",
    "held_out",
    "hook_shapes",
    "initial_attention",
    "intervene",
    "label_heads",
    "load_corpus",
    "load_model",
    "logit_attribution",
    "logit_lens",
    "mean_interval",
    "model_hash",
    "ngram_losses",
    "single_head_attribution",
    "ov_circuit",
    "path_effects",
    "path_patching",
    "predictions",
    "qk_circuit",
    "read_report",
    "repeated_sequences",
    "scale_identity",
    "scaling_sweep",
    "score_sources",
    "shapley_values",
    "softmax_statistics",
    "stream_attribution",
    "to_reference",
    "train",
    "validation_loss",
    "write_cache",
    "write_report",
    "write_study",
]


def modules() -> list[Path]:
    return sorted((ROOT / "interp").rglob("*.py"))


def imports(path: Path) -> set[str]:
    """The modules that a file imports anywhere but under TYPE_CHECKING."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text(encoding="utf-8")))
    return found


def place(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "interp" and len(parts) > 1 and parts[1] in ORDER else None


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_subpackage_imports_only_what_stands_left_of_it(path: Path) -> None:
    own = place(".".join(path.relative_to(ROOT).with_suffix("").parts))
    if own is None:
        return
    for module in imports(path):
        other = place(module)
        assert other is None or ORDER.index(other) <= ORDER.index(own), f"{own} imports {module}"


def test_only_hooks_imports_transformer_lens() -> None:
    users = {p.name for p in modules() if any("transformer_lens" in m for m in imports(p))}
    assert users == {"hooks.py"}


def test_analyses_do_not_draw() -> None:
    for path in (ROOT / "interp" / "analysis").rglob("*.py"):
        assert not any(module.startswith("matplotlib") for module in imports(path)), path


def test_studies_use_the_public_names_and_figures_only() -> None:
    for path in (ROOT / "analyses").glob("*.py"):
        ours = {module for module in imports(path) if module.split(".")[0] == "interp"}
        assert ours <= {"interp", "interp.pages", "interp.pages.figures"}, path


def test_public_names() -> None:
    assert sorted(interp.__all__) == sorted(PUBLIC)
    for name in interp.__all__:
        assert getattr(interp, name).__doc__, name
    with pytest.raises(AttributeError, match="HookedGTP"):
        _ = interp.HookedGTP


def test_no_package_outside_interp() -> None:
    tracked = [p for p in ROOT.rglob("__init__.py") if not any(s.startswith(".") for s in p.parts)]
    assert {p.relative_to(ROOT).parts[0] for p in tracked} == {"interp"}


@pytest.mark.parametrize("statement", ["import interp", "from interp.cli import app"])
def test_heavy_imports_wait(statement: str) -> None:
    code = f"{statement}; import sys; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


HEAVY = ["torch", "transformer_lens", "numpy", "pandas", "matplotlib", "pydantic"]
