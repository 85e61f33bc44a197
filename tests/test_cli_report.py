"""`interp report` and `interp compare`: what is computed once, what is refused."""

# mypy: disable-error-code="arg-type, attr-defined"

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import random_model

import interp
from interp.cli import main
from interp.pages.plan import SECTIONS

TEXT = "".join(np.random.default_rng(0).choice(list("abcdefg"), 1200))


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    random_model().save_pretrained(tmp_path / "m")
    (tmp_path / "t.txt").write_text(TEXT)
    monkeypatch.chdir(tmp_path)

    def run(*command: Any) -> Any:
        monkeypatch.setattr("sys.argv", ["interp", *map(str, command)])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code, capsys.readouterr()

    return run


def kinds(path: Path) -> Any:
    return [type(result).__name__ for result in interp.read_report(path)["results"]]


def test_a_report_holds_every_section_and_keeps_what_it_computed(shell: Any) -> None:
    status, said = shell("report", "m", "--text", "t.txt", "--seed", 3)
    assert status == 0, said.err
    page = Path("reports/m/report.html")
    assert said.out.strip() == str(page)
    shape = interp.HookedGPT.from_pretrained("m").config
    cards = ["HeadCard"] * (shape.n_layers * shape.n_heads)
    assert kinds(page) == [
        "Predictions", "LogitLens", "AttentionPatterns", *["LogitAttribution"] * 3, "HeadScores",
        "HeadLabels", *cards, "ComponentEffects", "AttentionScaling", "ModelChecks",
    ]  # fmt: skip
    before = page.read_bytes()
    kept = {path: path.stat().st_mtime_ns for path in Path("reports/m/results").iterdir()}
    assert {path.name.split("-")[0] for path in kept} == {
        "heads", "labels", "effects", "scaling", "checks",
    }  # fmt: skip
    assert shell("report", "m", "--text", "t.txt", "--seed", 3)[0] == 0
    assert page.read_bytes() == before  # same inputs, same bytes
    assert {path: path.stat().st_mtime_ns for path in Path("reports/m/results").iterdir()} == kept
    assert shell("report", "m", "--text", "t.txt", "--seed", 4)[0] == 0
    assert not set(kept) & set(Path("reports/m/results").iterdir())  # another seed, other results
    assert page.read_bytes() != before


def test_a_damaged_kept_result_is_computed_again(shell: Any) -> None:
    command = ("report", "m", "--text", "t.txt", "--sections", "checks")
    assert shell(*command)[0] == 0
    before = Path("reports/m/report.html").read_bytes()
    (kept,) = Path("reports/m/results").iterdir()
    kept.write_text(kept.read_text()[:50])
    assert shell(*command)[0] == 0
    assert Path("reports/m/report.html").read_bytes() == before


def test_sections_are_chosen(shell: Any) -> None:
    assert shell("report", "m", "--prompt", "abcabc", "--sections", "text,checks")[0] == 0
    assert set(kinds("reports/m/report.html")) == {
        "Predictions", "LogitLens", "AttentionPatterns", "LogitAttribution", "ModelChecks",
    }  # fmt: skip
    status, said = shell("report", "m", "--prompt", "abc", "--sections", "text,head")
    assert status == 2
    assert f"'head' is not one of {', '.join(SECTIONS)}" in said.err


def test_without_a_text_what_needs_one_is_left_out_and_said(shell: Any) -> None:
    status, said = shell("report", "m", "--prompt", "abcabc")
    assert status == 0
    assert "they need 10 contexts of text; give --text" in said.err
    assert "HeadScores" not in kinds("reports/m/report.html")


def test_a_page_too_large_is_refused_in_one_line(shell: Any) -> None:
    status, said = shell("report", "m", "--prompt", "abcabc", "--max-mb", 0.01)
    assert status == 2
    assert "raise --max-mb" in said.err
    assert len(said.err.strip().splitlines()) <= 2


def test_models_are_compared(shell: Any, tmp_path: Path) -> None:
    random_model(seed=5).save_pretrained(tmp_path / "n")
    status, said = shell("compare", "m", "n", "--text", "t.txt", "--sequences", 12, "--untrained")
    assert status == 0, said.err
    lines = said.out.strip().splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["m", "n", "untrained"]
    page = Path(lines[3]).read_text(encoding="utf-8")
    assert "Heads of n" in page
    table = (Path("reports/comparison/tables") / "summary.csv").read_text().splitlines()
    assert table[0].startswith("model,loss,low,high,difference")
    assert len(table) == 4
    own = interp.HookedGPT.from_pretrained("n")
    tokens = own.to_tokens([TEXT[i * 16 : (i + 1) * 16] for i in range(12)])
    loss = float(own(tokens, "loss", loss_per_token=True).mean().detach())
    assert float(table[2].split(",")[1]) == pytest.approx(loss, abs=1e-5)
    status, said = shell("compare", "m", "n", "--text", "t.txt", "--sequences", 12, "--json")
    assert json.loads(said.out)["comparison"].endswith("report.html")


def test_one_model_is_no_comparison(shell: Any) -> None:
    status, said = shell("compare", "m", "m", "--text", "t.txt")
    assert status == 2
    assert "two or more different models" in said.err
