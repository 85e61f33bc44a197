"""Every study runs from start to finish and writes its page."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import interp

ROOT = Path(__file__).parent.parent
SMALL = {  # what makes each take seconds; names in capitals are replaced
    "attention_ladder": "--text TEXT --seeds 2 --steps 3",
    "direct_vs_caused": "MODEL --passages 4",
    "head_specialisation": "MODEL --passages 12 --untrained 4",
    "induction_formation": "--seeds 1 --steps 26",
    "lesson_exercises": "",
    "logit_decomposition": "MODEL --passages 4",
    "sqrt_dk_scaling": "MODEL --recipe RECIPE --text TEXT --d-heads 8 --learning-rates 0.01 "
    "--seeds 2 --sequences 4",
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A trained model, the recipe it was trained by, and a short text."""
    folder = tmp_path_factory.mktemp("small")
    recipe = interp.Recipe.parse({
        "name": "small",
        "model": {"n_layers": 2, "n_heads": 2, "d_model": 16, "n_ctx": 32},
        "training": {"steps": 4, "batch_size": 8, "warmup_steps": 1, "checkpoints": 0},
    })  # fmt: skip
    path = folder / "small.toml"
    path.write_text(recipe.to_toml(), encoding="utf-8")
    interp.train(recipe, folder / "small")
    text = folder / "text.txt"
    text.write_text(interp.load_corpus().text[:20_000], encoding="utf-8")
    return {"MODEL": str(folder / "small"), "RECIPE": str(path), "TEXT": str(text)}


def test_every_study_is_tried() -> None:
    assert set(SMALL) == {path.stem for path in (ROOT / "analyses").glob("*.py")}


@pytest.mark.parametrize("study", sorted(SMALL))
def test_study_runs_from_start_to_finish(study: Any, small: Any, tmp_path: Path) -> None:
    given = [small.get(word, word) for word in SMALL[study].split()]
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "analyses" / f"{study}.py"), *given,
         "--out", str(tmp_path / "out")],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    page = tmp_path / "out" / "report.html"
    assert str(page) in done.stdout
    text = page.read_text(encoding="utf-8")
    lead = re.search(r'class="lead"[^>]*>(.*?)</p>', text, re.S)
    assert lead is not None
    assert not re.search(r"\bnan\b", lead[1])
    images = list((tmp_path / "out" / "figures").glob("*.png"))
    assert images
    assert all(path.with_suffix(".svg").is_file() for path in images)
    for path in (tmp_path / "out").glob("figures/*.svg"):
        assert "mathdefault" not in path.read_text(encoding="utf-8")
