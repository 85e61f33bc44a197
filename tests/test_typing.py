"""What a user's type checker says: the public names are known, and what is misspelt is refused.

One run for all scripts, with the project's own cache: seconds after `make lint`, a minute or two
without.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import interp

ROOT = Path(interp.__file__).parent.parent
GOOD = """
import interp

model = interp.HookedGPT.from_pretrained("models/demo")
tokens = model.to_tokens("First Citizen:")
logits, cache = model.run_with_cache(tokens)
parts = interp.logit_attribution(model, cache, by="head", metric="centered")
table = parts.to_frame().sort_values("value")
shown: list[interp.Shown] = parts.figures()
print(table.head(), logits.shape, parts.completeness_error.max(), shown[0].caption)
"""
LINE = 'parts = interp.logit_attribution(model, cache, by="head", metric="centered")'
WRONG = {
    "public_name": (LINE, LINE.replace("logit_attribution", "logit_atribution"), "attr-defined"),
    "argument": (LINE, LINE.replace("metric=", "metrics="), "call-arg"),
    "choice": (LINE, LINE.replace('"head"', '"haed"'), "arg-type"),
    # torch's modules have attributes of any name, but what they hold cannot be called
    "method": ("run_with_cache(tokens)", "run_with_cach(tokens)", "operator"),
    "field": ("parts.completeness_error", "parts.completness_error", "attr-defined"),
}
REVEALED = """
import interp

reveal_type(interp.HookedGPT)
reveal_type(interp.component_effects)
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What `mypy --strict` says of each script of a user's, by the script's name."""
    folder = tmp_path_factory.mktemp("user")
    scripts = {"good": GOOD, "revealed": REVEALED}
    for name, (right, wrong, _) in WRONG.items():
        assert right in GOOD
        scripts[name] = GOOD.replace(right, wrong)
    for name, script in scripts.items():
        (folder / f"{name}.py").write_text(script, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", "pyproject.toml",
         *(str(folder / f"{name}.py") for name in scripts)],
        capture_output=True, text=True, check=False, cwd=ROOT, env=os.environ | {"MYPYPATH": "."},
    )  # fmt: skip
    assert not done.stderr, done.stderr
    lines = [line.split(f"{folder.name}/")[-1] for line in done.stdout.splitlines()]
    return {name: [line for line in lines if line.startswith(f"{name}.py:")] for name in scripts}


def test_a_correct_script_passes(said: dict[str, list[str]]) -> None:
    assert said["good"] == []


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_is_refused_where_it_stands(mistake: str, said: dict[str, list[str]]) -> None:
    right, _, code = WRONG[mistake]
    at = next(i for i, line in enumerate(GOOD.split("\n"), 1) if right in line)
    first = said[mistake][0]
    assert first.startswith(f"{mistake}.py:{at}: error:")
    assert first.endswith(f"[{code}]")


def test_a_public_name_is_the_class_or_function_itself(said: dict[str, list[str]]) -> None:
    revealed = [line for line in said["revealed"] if "note: Revealed type" in line]
    assert len(revealed) == 2
    assert re.search(r"-> interp\.gpt\.model\.HookedGPT\"$", revealed[0])
    assert re.search(r"-> interp\.analysis\.\S*\.ComponentEffects\"$", revealed[1])
