"""Names for heads: given to planted circuits, withheld from chance; every step by hand."""

# mypy: disable-error-code="attr-defined, union-attr"

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import random_model, random_tokens

import interp
from interp import CacheError, ConfigError, GPTConfig, HookedGPT, Result, TokenError
from interp.analysis.heads.behaviours import ablation_losses
from interp.analysis.heads.labels import label_heads
from interp.analysis.heads.scores import head_scores
from interp.analysis.heads.seen import value_and_null
from interp.cli import main
from interp.ground_truth import heads as truth


def repeats(n: int, seed: int = 0) -> Any:
    """Random periods: with one for all, the key after the copy is always as far back."""
    return interp.repeated_sequences(8, n, 16, (4, 8), np.random.default_rng(seed))[0]


@pytest.fixture(scope="module")
def planted() -> Any:
    model = truth.induction()
    return model, head_scores(model, repeats(40), untrained=4)


def test_planted_heads_get_their_names_and_idle_ones_none(planted: Any) -> None:
    model, scores = planted
    found = label_heads(model, scores)
    assert found.of(1, 0) == ["induction"]
    assert "previous" in found.of(0, 0)
    assert found.of(0, 1) == found.of(1, 1) == []
    row = found.to_frame().query("layer == 1 and label == 'induction'").iloc[0]
    assert row["behaviour"] == "repeats"
    assert row["effect"] > 1
    assert row["score"] > 0.8


def test_ablation_losses_are_those_of_the_intervention() -> None:
    model = random_model(torch.float64)
    tokens = random_tokens(model, 18, 7)
    loss, effect = ablation_losses(model, tokens, [(0, 1), (1, 3)])
    clean = model(tokens, "loss", loss_per_token=True)
    np.testing.assert_allclose(loss, clean.detach(), atol=1e-12)
    for i, head in enumerate(("L0.H1", "L1.H3")):
        for b in (0, 17):
            others = tokens[[j for j in range(18) if j != b]]
            with interp.intervene(model, f"mean {head}", reference=others):
                cut = model(tokens[b : b + 1], "loss", loss_per_token=True)
            np.testing.assert_allclose(effect[i, b], (cut[0] - clean[b]).detach(), atol=1e-12)


def test_the_highest_null_is_taken(planted: Any) -> None:
    _, scores = planted
    second = np.arange(40) % 2 == 1
    i = scores.scores.index("induction")
    value, null = value_and_null(scores, i, second)
    use = scores.usable(i) & second
    np.testing.assert_allclose(value, scores.values[i][..., use])
    means = np.stack([
        scores.uniform[i][..., use].mean(-1), np.nanmean(scores.permuted[i][..., use], -1),
        np.broadcast_to(scores.untrained[i].mean(-1, keepdims=True), (2, 2)),
    ])  # fmt: skip
    np.testing.assert_allclose(null.mean(-1), means.max(0), rtol=1e-5)


def test_attention_that_does_nothing_gets_no_name(planted: Any) -> None:
    """The same circuit, its last head unread: seen, and not caused."""
    model = truth.induction()
    with torch.no_grad():
        model.unembed.W_U.zero_()
    scores = head_scores(model, repeats(40), untrained=4)
    found = label_heads(model, scores)
    assert len(found.labels) > 0
    assert not found.confirmed.any()


def test_a_score_that_does_not_return_on_the_second_half_is_not_confirmed(planted: Any) -> None:
    model, scores = planted
    values = scores.values.copy()
    i = scores.scores.index("induction")
    values[i, 1, 0, 1::2] = scores.uniform[i, 1, 0, 1::2]
    found = label_heads(model, dataclasses.replace(scores, values=values))
    row = found.to_frame().query("layer == 1 and `head` == 0 and label == 'induction'").iloc[0]
    assert not row["confirmed"]
    assert "induction" not in found.of(1, 0)


def one_cell(scores: Any, score: Any, share: Any, noise: float = 0.0) -> Any:
    """The scores with every head at uniform attention, but L1.H0 a share of the way from the
    highest of its nulls to 1 in one score."""
    values = scores.uniform.copy()
    i = scores.scores.index(score)
    null = np.nanmax([scores.uniform[i, 1, 0].mean(), np.nanmean(scores.permuted[i, 1, 0]),
                      scores.untrained[i, 1].mean()])  # fmt: skip
    shares = share + noise * np.resize([1, 1, -1, -1], scores.values.shape[-1])
    values[i, 1, 0] = null + (1 - null) * shares
    return dataclasses.replace(scores, values=values)


def test_a_score_hardly_above_its_nulls_is_not_seen_however_sure(planted: Any) -> None:
    model, scores = planted
    faint = one_cell(scores, "induction", 0.1, noise=1e-3)
    i = scores.scores.index("induction")
    assert faint.p_values()[i, 1, 0] < 1e-4
    assert len(label_heads(model, faint).labels) == 0
    assert "induction" in label_heads(model, faint, least=0.05).labels
    assert "induction" in label_heads(model, one_cell(scores, "induction", 0.3, 1e-3)).labels


def test_one_small_p_among_many_is_not_seen(planted: Any) -> None:
    model, scores = planted
    unsure = one_cell(scores, "induction", 0.5, noise=0.9)
    first = np.arange(40) % 2 == 0
    p = unsure.p_values(first)
    assert 1e-3 < np.nanmin(p) < 0.05
    assert np.isfinite(p).sum() > 60
    assert len(label_heads(model, unsure).labels) == 0


def test_untrained_models_get_no_names() -> None:
    false = 0
    for seed in range(6):
        cfg = GPTConfig(n_layers=2, n_heads=4, d_model=32, n_ctx=24, d_vocab=12, init_std=0.2)
        model = HookedGPT(cfg, seed=100 + seed).eval()
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(12, (24, 24), generator=generator)
        false += bool(label_heads(model, head_scores(model, tokens, untrained=8)).confirmed.any())
    assert false == 0


def test_table_disk_and_figure(planted: Any, tmp_path: Path) -> None:
    model, scores = planted
    found = label_heads(model, scores)
    frame = found.to_frame()
    promised = {
        "layer",
        "head",
        "label",
        "score",
        "effect",
        "effect_low",
        "effect_high",
        "confirmed",
    }
    assert promised <= set(frame.columns)
    found.save(tmp_path / "l.json")
    assert Result.load(tmp_path / "l.json").to_frame().equals(frame)
    (shown,) = found.figures()
    assert "n = 40 sequences, seed 0" in shown.caption
    mark = shown.mark
    at = mark.names.index("L1.H0  induction")
    row = frame.query("layer == 1 and label == 'induction'").iloc[0]
    for series, what in zip(mark.series, ("effect", "control"), strict=True):
        drawn = (series.values[at], series.low[at], series.high[at])
        assert drawn == (row[what], row[f"{what}_low"], row[f"{what}_high"])
    assert found.confirmed[0]
    unsure = dataclasses.replace(found, confirmed=np.arange(len(frame)) != 0)
    mark = unsure.picture().mark
    bold = {mark.names[i] for i in mark.strong}
    assert bold == set(mark.names) - {f"L{found.layers[0]}.H{found.heads[0]}  {found.labels[0]}"}


def test_a_heads_own_picture_has_its_rows_only(planted: Any) -> None:
    found = label_heads(*planted)
    shown = found.picture("L1.H0")
    assert shown.name == "head-labels-L1.H0"
    assert {name.split()[0] for name in shown.mark.names} == {"L1.H0"}
    with pytest.raises(ConfigError, match=r"no figure 'L0\.H1'"):
        found.picture("L0.H1")  # never seen


def test_summary_and_finding_say_what_the_table_says(planted: Any) -> None:
    found = label_heads(*planted)
    table = found.to_frame()
    lines = found.summary().splitlines()
    assert lines[0].startswith("n = 40 sequences of 16, 4 untrained models, seed 0.")
    assert len(lines) == len(table) + 2
    row = table.query("layer == 1 and label == 'induction'").iloc[0]
    (line,) = (line for line in lines if "L1.H0  induction" in line)
    assert f"score {row['score']:.2f} (null {row['null']:.2f})" in line
    assert line.endswith("  confirmed")
    assert lines[-1] == "2 of 4 heads have a confirmed label"
    best = table[table["confirmed"]].nlargest(1, "effect").iloc[0]
    finding = found.finding()
    assert finding.text.startswith("2 heads have a name that survived intervention")
    assert f"“{best['label']}”" in finding.text
    assert f"{best['effect']:+.2f} nats [{best['effect_low']:+.2f}" in finding.text
    assert (finding.select, finding.rank) == (f"head=L{best['layer']}.H{best['head']}", 2)


def test_nothing_seen_is_a_normal_answer(tmp_path: Path) -> None:
    model = random_model(init_std=0.02)
    model = HookedGPT(model.config, model.tokenizer, seed=3).eval()
    found = label_heads(model, head_scores(model, random_tokens(model, 12, 9), untrained=3))
    assert len(found.labels) == 0
    assert found.to_frame().empty
    found.save(tmp_path / "l.json")
    assert len(Result.load(tmp_path / "l.json").labels) == 0
    (shown,) = found.figures()
    assert shown.mark.names == ()
    assert shown.mark.empty == "no head's score stands above its nulls"
    assert found.finding().text.startswith("No head has a name that survives: 0 scores")
    assert found.summary().endswith("0 of 8 heads have a confirmed label")


def test_same_seed_same_answer(planted: Any) -> None:
    model, scores = planted
    one, two = (label_heads(model, scores, seed=4).to_frame() for _ in range(2))
    assert one.equals(two)


def test_what_makes_no_sense_is_refused(planted: Any) -> None:
    model, scores = planted
    with pytest.raises(CacheError, match="another model"):
        label_heads(truth.two_hops(), scores)
    with pytest.raises(ConfigError, match=r"level = 1\.5"):
        label_heads(model, scores, level=1.5)
    few = head_scores(model, repeats(4), untrained=2)
    with pytest.raises(TokenError, match="at least 10 sequences"):
        label_heads(model, few)


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_model()
    model.save_pretrained(tmp_path / "m")
    (tmp_path / "t.txt").write_text("abcdefg" * 80)

    def status_of(*command: Any) -> Any:
        monkeypatch.setattr("sys.argv", ["interp", *map(str, command)])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code

    asked = ("heads", tmp_path / "m", "--text", tmp_path / "t.txt", "--untrained", 2)
    assert status_of(*asked, "--csv", tmp_path / "h.csv") == 0
    assert "of 8 heads have a confirmed label" in capsys.readouterr().out
    assert (tmp_path / "h.csv").is_file()
    assert status_of(*asked, "--head", "L1.H2") == 0
    assert capsys.readouterr().out.startswith("L1.H2: ")
    assert status_of(*asked, "--head", "L7.H2") == 2
    assert status_of(*asked, "--sequences", 3) == 2
    assert "at least 10 sequences" in capsys.readouterr().err
