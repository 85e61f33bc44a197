"""The commands that look into a model: the library's numbers, and one line for bad input."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import N_CTX, VOCABULARY, random_model
from helpers import Shell, assert_same, snapshot

import interp

N = 6  # sequences
CLEAN, CORRUPTED = "abcdefga", "abcdgfga"
ASKED = ("--target", "c", "--foil", "e")
EFFECTS = ("effects", "m", "--text", "play.txt", "--sequences", N)
PATCH = ("patch", "m", "--clean", CLEAN, "--corrupted", CORRUPTED)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    random_model().save_pretrained(folder / "m")
    (folder / "play.txt").write_text(text())
    return folder


@pytest.fixture
def shell(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path, capsys)


def text() -> str:
    """Returns characters without a repetition, so that no two sequences are alike."""
    return "".join(random.Random(1).choices(VOCABULARY, k=400))


def sequences(n: int = N) -> list[str]:
    return [text()[i * N_CTX : (i + 1) * N_CTX] for i in range(n)]


def model_m() -> interp.HookedGPT:
    return interp.HookedGPT.from_pretrained("m")


def both(shell: Shell, *args: object) -> tuple[interp.Result, pd.DataFrame]:
    """Runs a command that prints JSON and writes a table; returns both. Nothing else is said."""
    status, out, err = shell(*args, "--json", "--csv", "table.csv")
    assert (status, err) == (0, "")
    return interp.Result.from_document(json.loads(out)), pd.read_csv("table.csv")


def assert_table(given: pd.DataFrame, expected: pd.DataFrame) -> None:
    expected = expected.replace("", pd.NA).convert_dtypes()  # a table has empty cells for both
    pd.testing.assert_frame_equal(given.convert_dtypes(), expected, check_dtype=False, rtol=1e-6)


# ---- attribute -------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["block", "head", "source", "neuron"])
def test_printed_rows_add_up_to_the_printed_sum(shell: Shell, by: str) -> None:
    status, out, err = shell("attribute", "m", "--prompt", "abcdefgabcd", "--by", by)
    assert (status, err) == (0, "")
    lines = [line.rsplit(maxsplit=1) for line in out.splitlines()[1:-1]]
    rows = {name.strip(): float(value) for name, value in lines}
    total = float(out.splitlines()[-1].split()[1])
    assert sum(rows.values()) == pytest.approx(total, abs=1e-3)

    model = model_m()
    parts = interp.logit_attribution(model, model.run_with_cache("abcdefgabcd")[1], by=by)  # type: ignore[arg-type]
    assert total == pytest.approx(parts.total[0, -1], abs=1e-4)
    others = [name for name in rows if name.endswith(" others")]
    assert len(others) == (by in ("source", "neuron"))
    named = {name: value for name, value in rows.items() if name not in others}
    for name, value in named.items():
        assert value == pytest.approx(parts.row(name)[0, -1], abs=1e-4)
    if others:
        assert len(named) == 20
        n_others = int(others[0].split()[0].replace(",", ""))
        assert n_others == len(parts.components) - 20
        hidden = [abs(parts.row(c)[0, -1]) for c in parts.components if c not in named]
        assert max(hidden) <= min(abs(v) for v in named.values()) + 1e-4
    assert list(named) == [c for c in parts.components if c in named]


def test_attribute_json_and_table_are_the_librarys(shell: Shell) -> None:
    result, table = both(shell, "attribute", "m", "--prompt", "abcdefg", "--by", "source",
                         "--metric", "foil", "--foil", "b")  # fmt: skip
    model = model_m()
    _, cache = model.run_with_cache("abcdefg")
    expected = interp.logit_attribution(model, cache, "source", metric="foil", foils="b")
    assert_same(result, expected)
    assert_table(table, expected.to_frame())


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--prompt", "ab§"), "'§' at 2"),
        (("--prompt", "abc", "--by", "heads"), "'heads' is not one of"),
        (("--prompt", "abc", "--metric", "log_prob"), "'log_prob' is not one of"),
        (("--prompt", "abc", "--metric", "foil"), "foils together with"),
        (("--prompt", "abc", "--foil", "a"), "foils together with"),
        (("--prompt", "a"), "no next one"),
        (("--prompt", "abc", "--target", "§"), "'§' at 0"),
        ((), "no recipe.toml"),
    ],
)
def test_attribute_refuses(shell: Shell, args: tuple[str, ...], said: str) -> None:
    assert said in shell.fails("attribute", "m", *args, "--csv", "table.csv")


# ---- effects ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "keywords"),
    [
        ((), {"ablate": "mean", "by": "head", "metric": "log_prob"}),
        (("--ablate", "zero", "--by", "block", "--metric", "loss"),
         {"ablate": "zero", "by": "block", "metric": "loss"}),
        (("--ablate", "resample", "--metric", "kl", "--seed", "5"),
         {"ablate": "resample", "by": "head", "metric": "kl", "seed": 5}),
        (("--metric", "foil", "--foil", "c", "--by", "block"),
         {"ablate": "mean", "by": "block", "metric": "foil", "foils": "c"}),
    ],
)  # fmt: skip
def test_effects_json_and_table_are_the_librarys(
    shell: Shell, options: tuple[str, ...], keywords: dict[str, Any]
) -> None:
    result, table = both(shell, *EFFECTS, *options)
    expected = interp.component_effects(model_m(), sequences(), **keywords)
    assert_same(result, expected)
    assert_table(table, expected.to_frame())


@pytest.mark.parametrize("metric", ["centered", "probability", "raw"])
def test_effects_prints_every_part_with_its_numbers(shell: Shell, metric: str) -> None:
    status, out, err = shell(*EFFECTS, "--metric", metric, "--ablate", "zero")
    assert (status, err) == (0, "")  # no progress where nobody watches
    expected = interp.component_effects(
        model_m(), sequences(), ablate="zero", metric=metric
    ).to_frame()
    head, _, *rows = out.split("agreement")[0].splitlines()
    assert f"effect on {metric} " in head
    assert f"n = {N} sequences × {N_CTX - 1} positions" in head
    number = r"([+-]\d+\.\d+)"
    pattern = rf"(\S+) +{number} \[{number}, {number}\] +{number} \[{number}, {number}\] +{number}"
    for line, row in zip(rows, expected.to_dict("records"), strict=True):
        found = re.match(rf"{pattern} +{number}(  signs disagree)?$", line)
        assert found, line
        label, *numbers, flag = found.groups()
        assert label == row["component"]
        columns = ("direct", "direct_low", "direct_high", "total", "total_low", "total_high",
                   "layer_norm_part", "downstream_part")  # fmt: skip
        drawn = [row[c] for c in columns]
        np.testing.assert_allclose(list(map(float, numbers)), drawn, atol=6e-5)
        assert (flag is not None) == row["signs_disagree"]
    agreement = out.split("agreement")[1].splitlines()[1:]
    assert [line.split()[1] for line in agreement] == ["0", "1", "all"]


def test_one_sequence_has_effects_without_intervals(shell: Shell) -> None:
    status, out, err = shell(*EFFECTS[:4], "--sequences", 1, "--ablate", "zero")
    assert (status, err) == (0, "")
    assert "L1.H3" in out
    result, table = both(shell, *EFFECTS[:4], "--sequences", 1, "--ablate", "zero")
    assert result.direct.shape[1] == 1  # type: ignore[attr-defined]
    assert table["total"].notna().all()
    assert table["total_low"].isna().all()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--metric", "logprob"), "'logprob' is not one of"),
        (("--metric", "foil"), "foils together with"),
        (("--foil", "a"), "foils together with"),
        (("--metric", "foil", "--foil", "§"), "'§' at 0"),
        (("--sequences", "1"), "no others to take a mean over"),
        (("--sequences", "1", "--ablate", "resample"), "no other one to take values from"),
        (("--sequences", "0"), "--sequences"),
        (("--seed", "-1"), "--seed"),
        (("--text", "nowhere.txt"), "does not exist"),
        (("--text", "strange.txt"), "'§' at"),
    ],
)
def test_effects_refuses(shell: Shell, options: tuple[str, ...], said: str) -> None:
    Path("strange.txt").write_text("abc§" * 100)
    assert said in shell.fails(*EFFECTS, *options, "--csv", "table.csv")


# ---- patch -----------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["denoise", "noise"])
@pytest.mark.parametrize("site", ["resid_pre", "resid_mid", "attn_out", "mlp_out", "head"])
def test_patch_json_and_table_are_the_librarys(shell: Shell, site: Any, direction: Any) -> None:
    result, table = both(shell, *PATCH, *ASKED, "--site", site, "--direction", direction)
    expected = interp.activation_patching(
        model_m(), CLEAN, CORRUPTED, site, direction=direction, target="c", foil="e"
    )
    assert_same(result, expected)
    assert_table(table, expected.to_frame())


@pytest.mark.parametrize("into", ["L1.H2.q", "L1.k", "L1.mlp", "logits"])
def test_patch_into_a_reader_is_the_librarys(shell: Shell, into: str) -> None:
    result, table = both(shell, *PATCH, *ASKED, "--into", into)
    expected = interp.path_patching(model_m(), CLEAN, CORRUPTED, into, target="c", foil="e")
    assert_same(result, expected)
    assert_table(table, expected.to_frame())


def test_patch_asks_by_default_for_what_is_likeliest_after_each_prompt(shell: Shell) -> None:
    model = model_m()
    ids = torch.tensor([[i, j, k] for i in range(7) for j in range(7) for k in range(7)])
    likeliest = model(ids)[:, -1].argmax(-1)
    other = int((likeliest != likeliest[0]).nonzero()[0])
    clean, corrupted = model.to_string(ids[0]), model.to_string(ids[other])
    result, _ = both(shell, "patch", "m", "--clean", clean, "--corrupted", corrupted)
    assert isinstance(result, interp.Patching)
    assert result.target == VOCABULARY[int(likeliest[0])]
    assert result.foil == VOCABULARY[int(likeliest[other])]
    assert float(result.clean[0]) > 0 > float(result.corrupted[0])
    assert result.what == "head by head"


def test_patch_prints_the_largest_shares_and_counts_the_others(shell: Shell) -> None:
    status, out, err = shell(*PATCH, *ASKED, "--site", "mlp_out", "--direction", "noise")
    assert (status, err) == (0, "")
    result = interp.activation_patching(
        model_m(), CLEAN, CORRUPTED, "mlp_out", direction="noise", target="c", foil="e"
    )
    assert f"clean {result.clean[0]:+.3f}, corrupted {result.corrupted[0]:+.3f}" in out
    assert "logit of c − e after position 7" in out
    rows = [line.rsplit(maxsplit=1) for line in out.splitlines()[2:]]
    shown = {label.strip(): float(share) for label, share in rows}
    shares = dict(zip(result.labels, result.shares, strict=True))
    assert len(shown) == len(shares) == 16
    assert shown == pytest.approx(shares, abs=6e-4)
    sizes = [abs(share) for share in shown.values()]
    assert sizes == sorted(sizes, reverse=True)

    long = ("patch", "m", "--clean", "abcdefgabcdefg", "--corrupted", "bbcdefgabcdefg")
    _, out, _ = shell(*long, *ASKED, "--site", "resid_pre")
    *rows, last = [line.split() for line in out.splitlines()[2:]]
    assert len(rows) == 20
    assert last[0] == "8"
    assert float(last[-1]) <= min(abs(float(row[-1])) for row in rows) + 1e-3


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--into", "L1.H9.q"), "L1.H9"),
        (("--into", "L7.mlp"), "L7"),
        (("--into", "the logits"), "the logits"),
        (("--clean", "abc"), "of one length"),
        (("--clean", CORRUPTED), "the same"),
        (("--clean", "abcdefg§"), "'§' at 7"),
        (("--corrupted", ""), "at least one token"),
        (("--clean", "a" * 17, "--corrupted", "b" * 17), "n_ctx = 16"),
        (("--target", "cc"), "one character"),
        (("--foil", "§"), "'§' at 0"),
        (("--foil", "c"), "the same character"),
    ],
)
def test_patch_refuses(shell: Shell, args: tuple[str, ...], said: str) -> None:
    assert said in shell.fails(*PATCH, *ASKED, *args, "--csv", "table.csv")


def test_patch_needs_both_prompts(shell: Shell) -> None:
    assert "--corrupted" in shell.fails("patch", "m", "--clean", CLEAN)


# ---- check -----------------------------------------------------------------------------------


def test_check_of_a_sound_model_passes(shell: Shell) -> None:
    status, out, err = shell("check", "m", "--text", "play.txt")
    assert (status, err) == (0, "")
    assert len(out.splitlines()) == 13
    assert all(line.startswith("passed ") for line in out.splitlines())
    result, table = both(shell, "check", "m", "--text", "play.txt", "--sequences", 3, "--seed", 2)
    expected = interp.check_model(model_m(), sequences(3), seed=2)
    assert_same(result, expected)
    assert list(table["outcome"]) == list(expected.outcomes)
    np.testing.assert_allclose(table["error"], expected.errors)


@pytest.fixture
def damaged(shell: Shell) -> Shell:
    """A model with one weight that is no number; it can be saved and loaded."""
    model = random_model()
    with torch.no_grad():
        model.blocks[1].attn.W_O[0, 0, 0] = float("nan")
    model.save_pretrained("damaged")
    return shell


def test_check_of_a_damaged_model_says_what_failed(damaged: Shell) -> None:
    _, out, err = damaged("check", "damaged", "--text", "play.txt", "--csv", "table.csv")
    assert err == ""
    assert re.search(r"failed +parity +weights are finite numbers +1\.0e\+00", out)
    assert "passed" not in out
    assert set(pd.read_csv("table.csv")["outcome"]) == {"failed"}


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_check_of_a_damaged_model_has_exit_status_1(
    damaged: Shell, options: tuple[str, ...]
) -> None:
    status, out, err = damaged("check", "damaged", "--prompt", "abcdefg", *options)
    assert (status, err) == (1, "")
    if options:
        assert not interp.Result.from_document(json.loads(out)).passed  # type: ignore[attr-defined]


def test_a_damaged_model_has_no_attribution_and_no_effects(damaged: Shell) -> None:
    assert "miss the model's own logits" in damaged.fails(
        "attribute", "damaged", "--prompt", "abc", "--csv", "table.csv"
    )
    assert "misses its own logits" in damaged.fails(
        "effects", "damaged", *EFFECTS[2:], "--csv", "table.csv"
    )


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--prompt", "a"), "at least two tokens"),
        (("--prompt", "ab§"), "'§' at 2"),
        (("--text", "nowhere.txt"), "does not exist"),
        (("--sequences", "0"), "--sequences"),
        ((), "no recipe.toml"),
    ],
)
def test_check_refuses(shell: Shell, args: tuple[str, ...], said: str) -> None:
    assert said in shell.fails("check", "m", *args, "--csv", "table.csv")


def test_unknown_choices(shell: Shell) -> None:
    """In a process of its own, where no type checks of the tests could get in first."""
    wrong = [
        (*EFFECTS, "--ablate", "median"),
        (*EFFECTS, "--by", "neuron"),
        (*PATCH, *ASKED, "--site", "resid_post"),
        (*PATCH, *ASKED, "--direction", "sideways"),
    ]
    code = (
        "import sys, json; from interp.cli import main\n"
        "for args in json.loads(sys.argv[1]):\n"
        "    sys.argv = ['interp', *args]\n"
        "    try: main()\n"
        "    except SystemExit as stop: print(stop.code)\n"
    )
    commands = json.dumps([[str(arg) for arg in (*args, "--csv", "table.csv")] for args in wrong])
    before = snapshot(shell.folder)
    done = subprocess.run(
        [sys.executable, "-c", code, commands], capture_output=True, text=True, check=True
    )
    assert done.stdout == "2\n" * len(wrong)
    for line, args in zip(done.stderr.splitlines(), wrong, strict=True):
        assert f"error: Invalid value for {args[-2]!r}: {args[-1]!r} is not one of '" in line
    assert snapshot(shell.folder) == before


# ---- all of them -----------------------------------------------------------------------------

COMMANDS: list[tuple[object, ...]] = [
    ("attribute", "m", "--prompt", "abcdefg"),
    EFFECTS,
    (*PATCH, *ASKED),
    ("check", "m", "--prompt", "abcdefg"),
]
IDS = [str(command[0]) for command in COMMANDS]


@pytest.mark.parametrize("command", COMMANDS, ids=IDS)
def test_a_missing_model_and_a_device(shell: Shell, command: tuple[object, ...]) -> None:
    name, _, *rest = command
    assert "nobody does not exist" in shell.fails(name, "nobody", *rest)
    assert "--device 'abacus'" in shell.fails(*command, "--device", "abacus")


@pytest.mark.parametrize("command", COMMANDS, ids=IDS)
def test_a_table_makes_its_folder(shell: Shell, command: tuple[object, ...]) -> None:
    status, _, err = shell(*command, "--csv", "new/folder/table.csv")
    assert (status, err) == (0, "")
    assert len(pd.read_csv("new/folder/table.csv")) > 5
    assert [p.name for p in Path("new/folder").iterdir()] == ["table.csv"]


@pytest.mark.parametrize("where", ["play.txt/table.csv", "m", ".", "", "/"])
def test_a_table_that_cannot_be_written(shell: Shell, where: str) -> None:
    assert "cannot write" in shell.fails(*COMMANDS[0], "--csv", where)


@pytest.mark.parametrize("command", COMMANDS[1:], ids=IDS[1:])
def test_a_table_in_the_way_of_a_file(shell: Shell, command: tuple[object, ...]) -> None:
    assert "cannot write" in shell.fails(*command, "--csv", "play.txt/table.csv")


@pytest.mark.parametrize("command", COMMANDS[:3], ids=IDS[:3])
def test_the_same_command_says_the_same(shell: Shell, command: tuple[object, ...]) -> None:
    first = shell(*command, "--csv", "first.csv")
    assert shell(*command, "--csv", "second.csv") == first
    assert Path("first.csv").read_bytes() == Path("second.csv").read_bytes()


# ---- scaling -----------------------------------------------------------------------------------


def test_scaling_json_and_table_are_the_librarys(shell: Shell) -> None:
    args = ("scaling", "m", "--text", "play.txt", "--sequences", N, "--multipliers", "0,1,2.5")
    result, table = both(shell, *args, "--each", "--seed", 4)
    expected = interp.attention_scaling(model_m(), sequences(), (0.0, 1.0, 2.5), each=True, seed=4)
    assert_same(result, expected)
    assert_table(table, expected.to_frame())


def test_scaling_prints_a_line_a_multiplier(shell: Shell) -> None:
    args = ("scaling", "m", "--text", "play.txt", "--sequences", N, "--multipliers", "0,1")
    status, out, err = shell(*args)
    assert (status, err) == (0, "")
    assert "n = 6 sequences" in out
    loss = interp.attention_scaling(model_m(), sequences(), (0.0, 1.0)).loss
    found = re.findall(r"× (\S+) +loss (\S+) .* entropy (\S+)", out)
    assert [float(c) for c, _, _ in found] == [0, 1]
    assert float(found[0][2]) == pytest.approx(1)
    assert [float(x) for _, x, _ in found] == pytest.approx(loss[:, 0, 0].mean(-1), abs=1e-4)


@pytest.mark.parametrize(
    ("multipliers", "said"),
    [("1,x", "must be numbers"), ("0.5,2", "hold 1"), ("1,-2", "not negative"), ("", "numbers")],
)
def test_scaling_by_what_is_no_multiplier(shell: Shell, multipliers: str, said: str) -> None:
    status, out, err = shell("scaling", "m", "--text", "play.txt", "--multipliers", multipliers)
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
