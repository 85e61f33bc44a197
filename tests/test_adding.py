"""How many places an analysis touches that has a table, a figure, a section and a command: six."""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MOST_PLACES, MOST_EDITS = 6, 3

MODULE = '''"""How large what each head writes can be: the norm of its output matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import torch

from interp.figures.marks import HeatMap
from interp.gpt.model import HookedGPT
from interp.results.provenance import Provenance
from interp.results.document import to_numpy
from interp.results.result import Result
from interp.results.shown import Finding, Shown, kept


@dataclass(frozen=True, kw_only=True)
class OutputNorms(Result):
    """`norms` [layer, head]: the Frobenius norm of each head's W_O."""

    AXES: ClassVar = {"norms": ("layer", "head")}
    HEADING: ClassVar = "How loudly a head can speak"
    norms: np.ndarray

    @kept
    def to_frame(self) -> pd.DataFrame:
        """Returns layer, head, norm."""
        layer, head = np.indices(self.norms.shape)
        columns = {"layer": layer.ravel(), "head": head.ravel(), "norm": self.norms.ravel()}
        return pd.DataFrame(columns)

    def figures(self) -> list[Shown]:
        """Returns a map, layer by head."""
        layers, heads = self.norms.shape
        heat = HeatMap(
            values=self.norms, rows=tuple(f"L{i}" for i in range(layers)),
            columns=tuple(f"H{i}" for i in range(heads)), low=0.0, high=float(self.norms.max()),
            label="norm of W_O", palette="weight",
        )
        return [Shown(name="output-norms", caption="Norms of W_O.", mark=heat)]

    def finding(self) -> Finding:
        """Returns the largest norm."""
        return Finding(text=f"The loudest head has a norm of {self.norms.max():.3f}.")


def output_norms(model: HookedGPT) -> OutputNorms:
    """Returns the norms of the heads' output matrices."""
    norms = to_numpy(model.W_O.norm(dim=(-1, -2)))
    none = torch.zeros(0, dtype=torch.long)
    return OutputNorms(norms=norms, provenance=Provenance.of(model, none))
'''
PUBLIC = """from .analysis.direct.output_norms import (
    OutputNorms as OutputNorms,
    output_norms as output_norms,
)
"""
PIECE = """    Piece(section="norms", name="norms", layers=True,
          compute=lambda on, _: interp.output_norms(on.model)),
"""
COMMAND = '''

@command("interp norms models/shakespeare-char")
def norms(run: Run) -> interp.Result:
    """How loudly can each head speak?"""
    return interp.output_norms(run.model)
'''
ROW = "| `interp norms MODEL` | how loudly each head can speak |\n"
TEST = """import interp
from conftest import random_model


def test_norms_are_those_of_the_weights():
    model = random_model()
    found = interp.output_norms(model)
    assert abs(found.norms[1, 2] - float(model.blocks[1].attn.W_O[2].norm())) < 1e-5
"""


def add(text: str, before: str, new: str) -> str:
    """Returns the text with something new before the first place where it says `before`."""
    at = text.index(before)
    return text[:at] + new + text[at:]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with one more analysis."""
    new = tmp_path_factory.mktemp("house")
    for folder in ("interp", "tests"):
        ignore = shutil.ignore_patterns("__pycache__", "node_modules")
        shutil.copytree(ROOT / folder, new / folder, ignore=ignore)
    shutil.copy(ROOT / "README.md", new)
    (new / "interp/analysis/direct/output_norms.py").write_text(MODULE, encoding="utf-8")
    (new / "tests/test_output_norms.py").write_text(TEST, encoding="utf-8")
    for name, before, what in (
        ("interp/__init__.pyi", "from .analysis.self_test", PUBLIC),
        ("interp/pages/pieces.py", '    Piece(section="checks"', PIECE),
        ("interp/cli/analyses.py", '\n\n@command("interp check', COMMAND),
        ("README.md", "| `interp check ", ROW),
    ):
        text = (new / name).read_text(encoding="utf-8")
        (new / name).write_text(add(text, before, what), encoding="utf-8")
    return new


def changed(house: Path) -> list[str]:
    ours = [p.relative_to(house) for p in house.rglob("*") if p.is_file()]
    kept = (p for p in ours if (ROOT / p).is_file() and filecmp.cmp(ROOT / p, house / p, False))
    return sorted(str(p) for p in set(ours) - set(kept) if "__pycache__" not in p.parts)


def test_an_analysis_touches_six_places_and_three_files_of_the_library(house: Path) -> None:
    places = changed(house)
    assert len(places) <= MOST_PLACES, places
    edited = [name for name in places if name.startswith("interp/") and (ROOT / name).is_file()]
    assert len(edited) <= MOST_EDITS, edited


def run(house: Path, code: str, *given: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *given], capture_output=True, text=True,
        check=False, cwd=house, env=os.environ | {"PYTHONPATH": str(house), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-1500:]
    return done.stdout


def test_it_has_a_command_a_section_a_figure_a_table_and_a_finding(house: Path) -> None:
    model = str(ROOT / "models" / "shakespeare-char")
    said = run(house, "from interp.cli import main; main()", "norms", model)
    assert said.startswith("How loudly a head can speak; model shakespeare-char")
    code = "import sys, interp; print(interp.report(sys.argv[1], 'out', sections=['norms']))"
    page = house / run(house, code, model).strip()
    text = page.read_text(encoding="utf-8")
    for part in ('id="output-norms"', "Norms of W_O.", "The loudest head has a norm of"):
        assert part in text
    assert (page.parent / "figures" / "output-norms.svg").is_file()
    assert (page.parent / "tables" / "output-norms.csv").is_file()
    back = run(house, "import interp; print(interp.read_report('out/report.html')['results'])")
    assert "OutputNorms(layer=4, head=4; model='shakespeare-char')" in back
