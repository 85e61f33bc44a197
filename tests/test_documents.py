"""What the documents say is true: the tour runs, the commands and hook points are all there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import interp
from interp.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_tour_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").symlink_to(ROOT / "models")
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(.*?)```", README, re.S)
    assert code is not None
    assert len([line for line in code[1].splitlines() if line]) <= 15
    exec(compile(code[1], "README.md", "exec"), {})  # noqa: S102  # our own tour
    assert (tmp_path / "reports" / "mine" / "report.html").is_file()


def test_the_table_of_commands_is_complete() -> None:
    commands = {c.name or c.callback.__name__.replace("_", "-") for c in app.registered_commands}  # type: ignore[union-attr]
    assert set(re.findall(r"^\| `interp ([\w-]+)", README, re.M)) == commands


def test_the_table_of_folders_is_complete() -> None:
    listed = set(re.findall(r"^\| `(\w+)/` ", README, re.M))
    present = {p.name for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith(".")}
    assert listed <= present
    assert {"interp", "models", "analyses", "reports", "tests"} <= listed


def test_the_table_of_hook_points_is_complete() -> None:
    cfg = interp.GPTConfig(n_layers=1, n_heads=1, d_model=4, n_ctx=4, d_vocab=2)
    names = {name.rsplit(".", 1)[-1] for name in interp.HookedGPT(cfg).hook_dict}
    table = "\n".join(re.findall(r"^\| `.*$", ARCHITECTURE, re.M))
    assert set(re.findall(r"hook_\w+", table)) == names


def test_the_shipped_model_is_as_its_card_says() -> None:
    folder = ROOT / "models" / "shakespeare-char"
    card = (folder / "README.md").read_text(encoding="utf-8")
    model = interp.HookedGPT.from_pretrained(folder)
    assert interp.model_hash(model) in card
    assert f"{sum(p.numel() for p in model.parameters()):,}" in card
    last = (folder / "history.csv").read_text().splitlines()[-1].split(",")
    assert f"{float(last[4]):.4f}" in card
    assert (folder / "model.safetensors").stat().st_size < 4_200_000
