"""The command line: what each command writes, and what it says to bad input."""

# mypy: disable-error-code="union-attr"

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from helpers import Shell, snapshot

import interp
from interp.cli import app

TEXT = "ROMEO:\nShall I hear more, or shall I speak at this?\n\nJULIET:\nGood night.\n\n" * 30
RECIPE = """
name = "tiny"
[text]
path = "{text}"
[model]
n_layers = 2
n_heads = 2
d_model = 16
n_ctx = 16
[training]
steps = 20
batch_size = 4
eval_every = 10
checkpoints = 3
"""


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "play.txt").write_text(TEXT)
    (tmp_path / "tiny.toml").write_text(RECIPE.format(text="play.txt"))
    return Shell(tmp_path, capsys)


@pytest.fixture
def trained(shell: Shell) -> Shell:
    assert shell("train", "tiny.toml")[0] == 0
    return shell


def test_run_does_all_of_it_and_ends_with_the_reports_path(shell: Shell) -> None:
    status, out, err = shell("run", "tiny.toml", "--out", "models/mine")
    assert status == 0, err
    path = Path(out.splitlines()[-1])
    assert path == shell.folder / "reports" / "mine" / "report.html"
    assert len(interp.read_report(path)["results"]) >= 7
    assert interp.CacheStore.open("caches/mine").manifest["rebuilds"]
    weights = Path("models/mine/model.safetensors").read_bytes()
    status, _, err = shell("run", "tiny.toml", "--out", "models/mine")
    assert status == 0, err
    assert Path("models/mine/model.safetensors").read_bytes() == weights


def test_train_prints_json_and_takes_a_text_and_a_seed(shell: Shell) -> None:
    status, out, _ = shell("train", "tiny.toml", "--text", "play.txt", "--seed", 5, "--json",
                           "--out", "m")  # fmt: skip
    assert status == 0
    assert json.loads(out)["step"] == 20
    recipe = interp.Recipe.load("m/recipe.toml")
    assert (recipe.seed, recipe.text.path) == (5, "play.txt")


def test_cache_dry_run_writes_nothing_and_then_says_the_truth(trained: Shell) -> None:
    status, out, _ = trained("cache", "models/tiny", "--dry-run", "--json", "--sequences", 4)
    estimate = json.loads(out)
    assert status == 0
    assert not Path("caches").exists()
    _, out, _ = trained("cache", "models/tiny", "--json", "--sequences", 4)
    written = json.loads(out)
    assert (written["sequences"], written["pos"]) == (4, 16)
    assert estimate["bytes"] < written["bytes"] < 1.6 * estimate["bytes"] + 8192


def test_attribute_prints_rows_that_sum_and_a_table(trained: Shell) -> None:
    status, out, _ = trained("attribute", "models/tiny", "--prompt", "ROMEO:", "--by", "head",
                             "--csv", "parts.csv")  # fmt: skip
    assert status == 0
    lines = [line.split() for line in out.splitlines()[1:]]
    *rows, total = lines
    assert sum(float(row[1]) for row in rows) == pytest.approx(float(total[1]), abs=2e-3)
    frame = pd.read_csv("parts.csv")
    assert list(frame) == ["batch", "pos", "target", "target_char", "component",
                           "contribution"]  # fmt: skip
    assert set(frame["component"]) >= {"embed", "L0.H1", "L1.b_O", "L1.mlp", "ln_bias", "b_U"}


def test_attribute_towards_a_target_against_a_foil(trained: Shell) -> None:
    status, out, _ = trained("attribute", "models/tiny", "--prompt", "ROMEO", "--target", ":",
                             "--metric", "foil", "--foil", " ", "--json")  # fmt: skip
    assert status == 0
    document = json.loads(out)
    assert len(document["targets"]["values"]) == 5
    assert interp.Result.from_document(document).metric == "foil"  # type: ignore[attr-defined]


def test_generate_is_reproducible(trained: Shell) -> None:
    first = trained("generate", "models/tiny", "--prompt", "ROMEO:", "--tokens", 40, "--seed", 3)
    again = trained("generate", "models/tiny", "--prompt", "ROMEO:", "--tokens", 40, "--seed", 3)
    assert first == again
    assert first[0] == 0
    assert len(first[1]) == 6 + 40 + 1


@pytest.mark.parametrize(
    "command",
    [c.name or c.callback.__name__.replace("_", "-") for c in app.registered_commands],
)
def test_every_command_has_help_with_an_example(shell: Shell, command: str) -> None:
    status, out, _ = shell(command, "--help")
    assert status == 0
    assert f"Example: interp {command}" in " ".join(out.split())


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "does not exist"), (b"", "empty"), (b"short", "too few"),
     (b"a\0b" * 99, "binary"), (b"\xff\xfe\x80" * 99, "not UTF-8")],
)  # fmt: skip
def test_bad_text(shell: Shell, content: bytes | None, said: str) -> None:
    if content is not None:
        Path("bad.txt").write_bytes(content)
    assert said in shell.fails("train", "tiny.toml", "--text", "bad.txt")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("steps = 20", "stebs = 20", "unknown key 'training.stebs'; did you mean 'steps'"),
        ("n_heads = 2", "n_head = 2", "did you mean 'n_heads'"),
        ("steps = 20", 'steps = "20"', "training.steps = '20' is wrong"),
        ("n_heads = 2", "n_heads = 3", "not divisible by n_heads = 3"),
        ("[model]", "[model", "not readable TOML"),
        ('name = "tiny"', 'name = "../tiny"', "name = '../tiny' is wrong"),
    ],
)
def test_bad_recipe(shell: Shell, old: str, new: str, said: str) -> None:
    Path("bad.toml").write_text(RECIPE.format(text="play.txt").replace(old, new))
    assert said in shell.fails("train", "bad.toml")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("generate", "m", "--temperature", "-1"), "'--temperature': Input should be greater"),
        (("generate", "m", "--temprature", "1"), "--temprature"),
        (("train",), "RECIPE"),
        (("trian", "x"), "trian"),
    ],
)
def test_wrong_use_of_the_command_line_is_one_line(
    shell: Shell, args: tuple[str, ...], said: str
) -> None:
    assert said in shell.fails(*args)


def test_missing_recipe_and_device(shell: Shell) -> None:
    assert "does not exist" in shell.fails("train", "nowhere.toml")
    assert "--device 'abacus' is not usable" in shell.fails(
        "train", "tiny.toml", "--device", "abacus"
    )


@pytest.mark.parametrize("command", ["cache", "attribute", "generate", "report"])
def test_bad_model_folder(trained: Shell, command: str) -> None:
    assert "does not exist" in trained.fails(command, "models/nobody")
    Path("empty").mkdir()
    assert "no config.json" in trained.fails(command, "empty")
    weights = Path("models/tiny/model.safetensors")
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    assert "damaged or truncated" in trained.fails(command, "models/tiny")
    weights.write_bytes(whole)
    config = Path("models/tiny/config.json")
    mine = config.read_text()
    config.write_text(mine.replace('"d_mlp": 64', '"d_mlp": 32'))
    assert "has shape (16, 64), expected (16, 32)" in trained.fails(command, "models/tiny")
    config.write_text('{"model_type": "gpt2"}')
    assert "not written by this package" in trained.fails(command, "models/tiny")


@pytest.mark.parametrize("command", ["cache", "attribute", "generate", "report"])
def test_bad_prompt(trained: Shell, command: str) -> None:
    said = trained.fails(command, "models/tiny", "--prompt", "ROMEO§§ é")
    assert "'§' at 5, 6; 'é' at 8" in said
    assert "n_ctx = 16" in trained.fails(command, "models/tiny", "--prompt", "R" * 17)
    assert "at least one token" in trained.fails(command, "models/tiny", "--prompt", "")


def test_bad_choices(trained: Shell) -> None:
    attribute = ("attribute", "models/tiny", "--prompt", "ROMEO")
    assert "'blok' is not one of" in trained.fails(*attribute, "--by", "blok")
    assert "'--metric': 'log' is not one of" in trained.fails(*attribute, "--metric", "log")
    assert "expected one character" in trained.fails(*attribute, "--target", "RO")
    assert "foils together with" in trained.fails(*attribute, "--foil", "a")
    assert "not one of" in trained.fails("cache", "models/tiny", "--names", "everything")


@pytest.mark.parametrize("command", ["train", "cache", "report"])
def test_unwritable_output(trained: Shell, command: str) -> None:
    Path("file").write_text("in the way")
    source = "tiny.toml" if command == "train" else "models/tiny"
    said = trained.fails(command, source, "--out", "file/below")
    assert "cannot write file/below" in said or "cannot write" in said


def test_output_that_holds_something_else(trained: Shell) -> None:
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("years of work")
    assert "not a training run" in trained.fails("train", "tiny.toml", "--out", "mine")
    assert "not a cache" in trained.fails("cache", "models/tiny", "--out", "mine")
    assert "not a report" in trained.fails("report", "models/tiny", "--out", "mine")
    other = RECIPE.format(text="play.txt").replace("steps = 20", "steps = 21")
    Path("other.toml").write_text(other)
    said = trained.fails("train", "other.toml")
    assert "already holds a different run" in said
    assert "--fresh" in said


def test_full_disk(trained: Shell) -> None:
    """A limit on file size stands for a full disk: writing fails half way, for real."""
    before = snapshot(trained.folder)
    for command in (
        ["cache", "models/tiny", "--sequences", "64"],
        ["train", "tiny.toml", "--out", "models/second"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", "from interp.cli import main; main()", *command],
            capture_output=True, text=True, check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
        )  # fmt: skip
        assert done.returncode == 2, done.stderr
        last = done.stderr.splitlines()[-1]
        assert last.startswith("error: cannot write"), done.stderr
        assert "Traceback" not in done.stderr
    after = snapshot(trained.folder)
    assert {name: after[name] for name in before} == before
    assert not [name for name in after if name.endswith(".safetensors") and name not in before]
