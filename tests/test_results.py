from __future__ import annotations

import copy
import dataclasses
import json
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import random_model, random_tokens
from helpers import assert_same

from interp import (
    AttentionPatterns,
    CacheError,
    CheckpointError,
    ConfigError,
    Finding,
    HeatMap,
    LogitAttribution,
    LogitLens,
    OutputError,
    Provenance,
    Result,
    Shown,
    TokenError,
    attention_patterns,
    logit_attribution,
    logit_lens,
    model_hash,
    read_report,
    write_report,
)
from interp.results.document import INLINE
from interp.results.shown import kept

KINDS = ["attribution", "lens", "patterns"]
LOAD = "import sys, interp; print(type(interp.Result.load(sys.argv[1])).__name__)"


def results_of(batch: int = 2, pos: int = 9, dtype: torch.dtype = torch.float32) -> Any:
    model = random_model(dtype)
    _, cache = model.run_with_cache(random_tokens(model, batch, pos))
    return {
        "attribution": logit_attribution(model, cache, "head"),
        "lens": logit_lens(model, cache),
        "patterns": attention_patterns(model, cache, sequence=batch - 1),
    }


@pytest.fixture(scope="module")
def small() -> Any:
    return results_of()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_result_round_trips_through_a_file(tmp_path: Path, kind: Any, dtype: torch.dtype) -> None:
    result = results_of(dtype=dtype)[kind]
    result.save(tmp_path / "deep" / "result.json")
    assert_same(Result.load(tmp_path / "deep" / "result.json"), result)


@pytest.mark.parametrize("kind", KINDS)
def test_big_result_round_trips_compressed(tmp_path: Path, kind: Any) -> None:
    result = results_of(batch=80, pos=16)[kind]
    if kind == "patterns":
        result = dataclasses.replace(result, patterns=np.tile(result.patterns, (4, 1, 1, 1)))
    document = result.to_document()
    assert any(isinstance(value, dict) and "zlib" in value for value in document.values())
    assert max(getattr(result, name).size for name in result.AXES) > INLINE
    result.save(tmp_path / "result.json")
    assert_same(Result.load(tmp_path / "result.json"), result)


def test_values_that_are_not_finite_round_trip(tmp_path: Path, small: Any) -> None:
    values = small["lens"].entropy.copy()
    values[0, 0, :3] = np.nan, np.inf, -np.inf
    result = dataclasses.replace(small["lens"], entropy=values)
    result.save(tmp_path / "result.json")
    assert_same(Result.load(tmp_path / "result.json"), result)
    text = (tmp_path / "result.json").read_text(encoding="utf-8")
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_patterns_keep_their_zeros(tmp_path: Path, small: Any) -> None:
    patterns = small["patterns"]
    above = np.triu_indices(9, 1)
    assert (patterns.patterns[:, :, *above] == 0).all()
    np.testing.assert_allclose(patterns.patterns.sum(-1), 1, atol=1e-6)
    patterns.save(tmp_path / "result.json")
    loaded = Result.load(tmp_path / "result.json")
    assert isinstance(loaded, AttentionPatterns)
    assert (loaded.patterns[:, :, *above] == 0).all()
    assert not np.signbit(loaded.patterns).any()


def test_saved_result_can_be_read_by_another_process(tmp_path: Path, small: Any) -> None:
    small["attribution"].save(tmp_path / "result.json")
    command = [sys.executable, "-c", LOAD, str(tmp_path / "result.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("LogitAttribution", 0), done.stderr[-300:]


@pytest.mark.parametrize("kind", KINDS)
def test_result_is_read_only(small: Any, kind: Any) -> None:
    result = small[kind]
    for name in result.AXES:
        with pytest.raises(ValueError, match="read-only"):
            getattr(result, name)[...] = 0
    with pytest.raises(FrozenInstanceError):
        result.tokens = None


def test_loaded_result_is_read_only_too(small: Any) -> None:
    loaded = Result.from_document(small["lens"].to_document())
    assert isinstance(loaded, LogitLens)
    with pytest.raises(ValueError, match="read-only"):
        loaded.rank[0, 0, 0] = 1


def test_result_does_not_share_the_memory_it_was_given(small: Any) -> None:
    patterns = small["patterns"].patterns.copy()
    result = dataclasses.replace(small["patterns"], patterns=patterns)
    patterns[...] = -1
    assert (result.patterns >= 0).all()


def test_document_does_not_share_the_provenance(small: Any) -> None:
    document = small["lens"].to_document()
    before = copy.deepcopy(small["lens"].provenance)
    document["provenance"]["model"] = "another"
    document["provenance"]["versions"]["torch"] = "another"
    assert small["lens"].provenance == before


def test_provenance_names_model_tokens_dtype_and_versions() -> None:
    model = random_model(torch.float64)
    tokens = random_tokens(model)
    first = logit_lens(model, model.run_with_cache(tokens)[1]).provenance
    assert first.model == model_hash(model)
    assert first.dtype == "float64"
    assert {"python", "torch", "numpy", "gpt-interp"} <= set(first.versions)
    other = random_model(torch.float64, seed=1)
    assert logit_lens(other, other.run_with_cache(tokens)[1]).provenance.model != first.model
    turned = logit_lens(model, model.run_with_cache(tokens.flip(1))[1]).provenance
    assert turned.tokens != first.tokens
    assert turned.model == first.model


@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [
        ("attribution", "values", lambda a: a[:, :, :-1]),
        ("attribution", "total", lambda a: a[0]),
        ("attribution", "targets", lambda a: a[:1]),
        ("lens", "rank", lambda a: a[:-1]),
        ("lens", "tokens", lambda a: a[..., None]),
        ("patterns", "tokens", lambda a: a[:-1]),
        ("patterns", "patterns", lambda a: a[0]),
    ],
)
def test_axes_that_do_not_match_are_refused(small: Any, kind: str, name: str, change: Any) -> None:
    with pytest.raises(ValueError, match=name):
        dataclasses.replace(small[kind], **{name: change(getattr(small[kind], name))})


@pytest.mark.parametrize(("kind", "name"), [("attribution", "components"), ("lens", "depths")])
def test_names_that_do_not_match_their_axis_are_refused(small: Any, kind: str, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        dataclasses.replace(small[kind], **{name: getattr(small[kind], name)[:-1]})


def without(key: Any) -> Any:
    def change(document: Any) -> None:
        del document[key]

    return change


def setting(*path_and_value: Any) -> Any:
    *path, last, value = path_and_value

    def change(document: Any) -> None:
        for key in path:
            document = document[key]
        document[last] = value

    return change


@pytest.mark.parametrize(
    "damage",
    [
        without("format"),
        without("kind"),
        without("provenance"),
        without("values"),
        without("components"),
        setting("format", "other/9"),
        setting("kind", "Nonsense"),
        setting("kind", "LogitLens"),
        setting("kind", ["LogitLens"]),
        setting("provenance", None),
        setting("provenance", {"unknown": 1}),
        setting("values", None),
        setting("values", "dtype", "nonsense"),
        setting("values", "shape", [1, 2]),
        setting("total", "values", []),
        setting("total", {"dtype": "<f4", "shape": [2, 8], "zlib": "AAAA"}),
        setting("total", {"dtype": "<f4", "shape": [2, 8], "zlib": "!"}),
        setting("total", {"dtype": "<f4", "shape": [2, 8]}),
        setting("targets", "values", [2**70] * 16),
        setting("components", ["embed"]),
    ],
)
def test_damaged_document_is_refused(small: Any, damage: Any) -> None:
    document = json.loads(json.dumps(small["attribution"].to_document()))
    damage(document)
    with pytest.raises(CheckpointError, match="not a result"):
        Result.from_document(document)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[]", b"null", b"3", b"{}"])
def test_file_that_is_not_a_result_is_refused(tmp_path: Path, data: Any) -> None:
    (tmp_path / "result.json").write_bytes(data)
    with pytest.raises(CheckpointError):
        Result.load(tmp_path / "result.json")


def test_truncated_file_is_refused(tmp_path: Path, small: Any) -> None:
    path = tmp_path / "result.json"
    small["lens"].save(path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(CheckpointError, match=r"result\.json"):
        Result.load(path)


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(CheckpointError):
            Result.load(path)


def test_place_that_cannot_be_written_is_an_output_error(tmp_path: Path, small: Any) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError):
        small["lens"].save(tmp_path / "file" / "result.json")


def test_loading_returns_the_saved_kind(small: Any) -> None:
    kinds = {"attribution": LogitAttribution, "lens": LogitLens, "patterns": AttentionPatterns}
    for name, kind in kinds.items():
        assert type(Result.from_document(small[name].to_document())) is kind


def test_pattern_frame_has_one_row_a_visible_key(small: Any) -> None:
    patterns = small["patterns"]
    frame = patterns.to_frame()
    assert list(frame.columns) == [
        "layer",
        "head",
        "pos",
        "key",
        "weight",
        "character",
        "key_character",
    ]
    assert len(frame) == 2 * 4 * 9 * 10 // 2
    assert (frame.key <= frame.pos).all()
    row = frame[(frame.layer == 1) & (frame["head"] == 2) & (frame.pos == 5) & (frame.key == 3)]
    assert row.weight.item() == patterns.patterns[1, 2, 5, 3]
    sums = frame.groupby(["layer", "head", "pos"]).weight.sum()
    np.testing.assert_allclose(sums, 1, atol=1e-6)


def test_patterns_are_those_of_the_sequence() -> None:
    model = random_model()
    tokens = random_tokens(model, 3, 6)
    _, cache = model.run_with_cache(tokens)
    for sequence in range(3):
        patterns = attention_patterns(model, cache, sequence)
        np.testing.assert_array_equal(patterns.tokens, tokens[sequence])
        for layer in range(2):
            np.testing.assert_array_equal(
                patterns.patterns[layer], cache["pattern", layer][sequence]
            )
    for outside in (-1, 3):
        with pytest.raises(TokenError, match=f"sequence {outside} is outside"):
            attention_patterns(model, cache, outside)


def test_patterns_need_a_cache_that_holds_them() -> None:
    model = random_model()
    _, cache = model.run_with_cache(random_tokens(model), names_filter="residual")
    with pytest.raises(CacheError):
        attention_patterns(model, cache)
    with pytest.raises(CacheError, match="another model"):
        attention_patterns(random_model(), cache)


# ---- a user's own result -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class LargestWeights(Result):
    """A user's: the largest entry of each head's W_O."""

    AXES: ClassVar = {"sizes": ("layer", "head")}
    sizes: np.ndarray

    @kept
    def to_frame(self) -> pd.DataFrame:
        layer, head = np.indices(self.sizes.shape)
        columns = {"layer": layer.ravel(), "head": head.ravel(), "size": self.sizes.ravel()}
        return pd.DataFrame(columns)

    def figures(self) -> list[Shown]:
        heat = HeatMap(
            values=self.sizes, rows=("L0", "L1"), columns=("H0", "H1", "H2", "H3"), low=0, high=9,
            label="largest |entry|", palette="weight",
        )  # fmt: skip
        return [Shown(name="largest", caption="The largest entry of each W_O.", mark=heat)]

    def finding(self) -> Finding:
        return Finding(text=f"The largest weight is {self.sizes.max():.2f}.", select="head=L0.H0")


def own() -> Any:
    model = random_model()
    sizes = model.W_O.detach().abs().amax((-1, -2)).numpy()
    provenance = Provenance.of(model, random_tokens(model), seed=3)
    return model, LargestWeights(sizes=sizes, provenance=provenance)


def test_a_users_own_result_is_saved_and_loaded(tmp_path: Path) -> None:
    _, mine = own()
    mine.save(tmp_path / "mine.json")
    assert_same(Result.load(tmp_path / "mine.json"), mine)


def test_a_users_own_result_is_put_on_a_page_with_its_figure_table_and_finding(
    tmp_path: Path,
) -> None:
    model, mine = own()
    page = write_report(tmp_path / "r", model, [mine])
    text = page.read_text(encoding="utf-8")
    assert 'id="largest-weights"' in text
    assert "The largest entry of each W_O." in text
    assert f"The largest weight is {mine.sizes.max():.2f}." in text
    assert (tmp_path / "r" / "figures" / "largest.png").is_file()
    table = pd.read_csv(tmp_path / "r" / "tables" / "largest-weights.csv")
    np.testing.assert_allclose(table["size"], mine.sizes.ravel(), rtol=1e-6)
    assert_same(read_report(page)["results"][0], mine)


def test_a_users_own_result_shows_itself(tmp_path: Path) -> None:
    _, mine = own()
    assert (
        repr(mine)
        == f"LargestWeights(layer=2, head=4; model={mine.provenance.model[:8]!r}, seed=3)"
    )
    assert str(mine).startswith("Largest weights; model unnamed")
    assert "seed 3" in str(mine)
    assert mine._repr_html_().count("<img") == 0  # escaped, in the frame
    assert mine.plot().axes[0].images[0].get_array().shape == (2, 4)
    with pytest.raises(ConfigError, match="no figure 'larges'; did you mean 'largest'"):
        mine.plot("larges")


def test_a_name_of_ours_is_refused() -> None:
    with pytest.raises(TypeError, match="LogitLens is one of this package's results"):
        type("LogitLens", (Result,), {})


def test_a_table_is_computed_once_and_cannot_be_spoilt() -> None:
    _, mine = own()
    first = mine.to_frame()
    first["size"] = 0.0
    assert (mine.to_frame()["size"] > 0).all()
    assert mine.__dict__["_kept_to_frame"] is not None


def test_another_kind_of_figure_says_which_there_are(small: Any) -> None:
    with pytest.raises(ConfigError, match="there are"):
        small["lens"].plot("nonsense")
