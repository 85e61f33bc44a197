"""Figures and the page: what is written, that it can be read back, that it is safe and the same."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import interp
from interp.training.history import HistoryRow, TrainingHistory, history_of

HOSTILE = '</script><img src=x onerror="alert(1)">\u2028\'"&\U0001f600\u05d0'


def hostile_model() -> interp.HookedGPT:
    tokenizer = interp.CharTokenizer.from_text(HOSTILE + "$ \n")
    cfg = interp.GPTConfig(n_layers=2, n_heads=3, d_model=12, n_ctx=48, d_vocab=len(tokenizer))
    return interp.HookedGPT(cfg, tokenizer, seed=3).eval()


def results(model: interp.HookedGPT, text: str) -> list[interp.Result]:
    with torch.no_grad():
        _, cache = model.run_with_cache(text)
    return [
        interp.predictions(model, cache),
        interp.logit_lens(model, cache),
        interp.attention_patterns(model, cache),
        interp.logit_attribution(model, cache, by="block"),
        interp.logit_attribution(model, cache, by="head"),
        interp.logit_attribution(model, cache, by="source"),
        *more_results(),
    ]


@functools.cache
def more_results() -> tuple[interp.Result, ...]:
    """What is measured on many sequences, of the hostile model."""
    model = hostile_model()
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(model.config.d_vocab, (12, 20), generator=generator)
    scores = interp.head_scores(model, tokens, untrained=2)
    return (
        scores,
        interp.label_heads(model, scores),
        interp.component_effects(model, tokens, ablate="mean", metric="log_prob"),
        interp.attention_scaling(model, tokens, (0.0, 0.5, 1.0, 2.0)),
        interp.check_model(model, tokens[:2]),
    )


def history() -> TrainingHistory:
    rows = [
        HistoryRow(step=s, tokens=9 * s, learning_rate=1e-3, train_loss=3 - s / 100,
                   validation_loss=3.1 - s / 100, grad_norm=1.0, seconds=s / 10)
        for s in (50, 100)
    ]  # fmt: skip
    return history_of(rows, hostile_model())


def write(folder: Path, title: str = HOSTILE) -> Path:
    model = hostile_model()
    return interp.write_report(
        folder,
        model,
        [*results(model, HOSTILE), history()],
        title=title,
        sample=HOSTILE,
        sample_seed=11,
    )


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("report") / "r")


def test_everything_is_there(page: Path) -> None:
    given = [*results(hostile_model(), HOSTILE), history()]
    names = {p.stem for p in (page.parent / "figures").iterdir()}
    assert names == {
        shown.name for result in given for shown in result.figures() if not shown.detail
    }
    for name in names:
        png = (page.parent / "figures" / f"{name}.png").read_bytes()
        assert png.startswith(b"\x89PNG")
        assert png.endswith(b"IEND\xaeB`\x82")
        assert "<svg" in (page.parent / "figures" / f"{name}.svg").read_text()
    for result in given:
        table = pd.read_csv(page.parent / "tables" / f"{result.name}.csv")
        assert len(table) == len(result.to_frame())


def test_every_caption_stands_under_its_own_figure(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    under = dict(
        re.findall(r'<div data-figure="([^"]+)"></div>\s*<figcaption[^>]*>(.*?)<span', html, re.S)
    )
    for result in [*results(hostile_model(), HOSTILE), history()]:
        for shown in result.figures():
            if shown.on_page:
                assert unescape(under[shown.name]).strip() == shown.caption
            else:
                assert shown.caption not in unescape(html)
    drawn = {one["name"]: one["caption"] for one in embedded(page)["figures"]}
    assert {name: unescape(caption).strip() for name, caption in under.items()} == drawn


def embedded(page: Path) -> dict[str, Any]:
    """The document in the page, as its script reads it."""
    text = page.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="results">(.*?)</script>', text, re.S)
    assert found is not None
    document: dict[str, Any] = json.loads(found[1])
    return document


def test_the_marks_in_the_page_have_the_results_numbers(page: Path) -> None:
    effects = next(r for r in more_results() if isinstance(r, interp.ComponentEffects))
    marks = {one["name"]: one["mark"] for one in embedded(page)["figures"]}
    dots = marks[effects.figures()[0].name]
    table = effects.to_frame()
    assert tuple(dots["names"]) == effects.components
    for series in dots["series"]:
        np.testing.assert_allclose(series["values"]["values"], table[series["name"]], rtol=1e-6)
        for end in ("low", "high"):
            drawn = series[end]["values"]
            np.testing.assert_allclose(drawn, table[f"{series['name']}_{end}"], rtol=1e-6)


def test_hostile_text_is_shown_not_run(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    assert "<img src=x" not in html
    assert html.count("</script>") == 2
    assert "&lt;/script&gt;&lt;img src=x onerror=&#34;alert(1)&#34;&gt;" in html


def test_no_address_in_the_page(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    without_svg = html.replace("http://www.w3.org/2000/svg", "")  # a name, not an address
    assert not re.search(r"https?://|(src|href)=.?//|@import|url\(", without_svg)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy[1]


def test_sampled_text_says_its_seed(page: Path) -> None:
    assert "sampled with seed 11" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["report.html", "results.json"])
def test_numbers_read_back_are_the_results(page: Path, name: str) -> None:
    model = hostile_model()
    read = interp.read_report(page.parent / name)
    assert read["title"] == HOSTILE
    assert (read["sample"], read["sample_seed"]) == (HOSTILE, 11)
    for given, back in zip([*results(model, HOSTILE), history()], read["results"], strict=True):
        assert type(given) is type(back)
        assert given.provenance == back.provenance
        for array in given.AXES:
            ours, theirs = getattr(given, array), getattr(back, array)
            quantum = given.QUANTA.get(array) if name == "report.html" else None
            if quantum is None:
                np.testing.assert_array_equal(ours, theirs)
            else:
                quantum = max(quantum, float(np.abs(ours).max()) / 32767)
                np.testing.assert_allclose(theirs, ours, atol=0.51 * quantum, rtol=0)


def test_same_inputs_same_bytes(page: Path, tmp_path: Path) -> None:
    again = write(tmp_path / "r")
    for path in sorted(page.parent.rglob("*")):
        if path.is_file():
            other = again.parent / path.relative_to(page.parent)
            assert path.read_bytes() == other.read_bytes(), path.name


def test_another_report_or_other_files_are_not_overwritten(page: Path, tmp_path: Path) -> None:
    before = page.read_bytes()
    with pytest.raises(interp.OutputError, match="already holds the report of"):
        write(page.parent, "another")
    assert page.read_bytes() == before
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(interp.OutputError, match="not a report"):
        write(tmp_path)
    with pytest.raises(interp.OutputError, match="is a file"):
        write(tmp_path / "thesis.txt")
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_results_of_two_models_are_refused(tmp_path: Path) -> None:
    model, other = hostile_model(), hostile_model()
    with torch.no_grad():
        other.embed.W_E.add_(1)
    with torch.no_grad():
        _, cache = other.run_with_cache(HOSTILE)
    both = [*results(model, HOSTILE)[:1], interp.logit_lens(other, cache)]
    with pytest.raises(interp.ConfigError, match="make it again with this model"):
        interp.write_report(tmp_path / "r", model, both)
    with pytest.raises(interp.ConfigError):
        interp.write_report(tmp_path / "r", model, [])


def test_not_a_report(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<p>hello</p>")
    (tmp_path / "b.json").write_text("[1]")
    for name in ("a.html", "b.json", "missing.html"):
        with pytest.raises(interp.CheckpointError, match="not a report"):
            interp.read_report(tmp_path / name)


def test_kill_while_writing_leaves_no_half_file(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path; import test_report\n"
        "while True: test_report.write(Path(sys.argv[1]) / 'r'); print('written', flush=True)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), str(Path(__file__).parent)],
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.readline()
    target = tmp_path / "r" / "figures" / "attention-patterns.png"
    first = target.stat().st_mtime_ns
    deadline = time.monotonic() + 60
    while target.stat().st_mtime_ns == first and time.monotonic() < deadline:
        pass  # until the second report is half way
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert interp.read_report(tmp_path / "r" / "report.html")["results"]
    assert interp.read_report(tmp_path / "r" / "results.json")["results"]
    for image in (tmp_path / "r" / "figures").glob("*.png"):
        if not image.name.startswith("."):
            assert image.read_bytes().endswith(b"IEND\xaeB`\x82")


def test_the_first_findings_are_shown_with_a_link_to_their_evidence(page: Path) -> None:
    html = page.read_text(encoding="utf-8")
    given = [*results(hostile_model(), HOSTILE), history()]
    found = [(r.finding(), r.section) for r in given]
    ranked = sorted(((f.rank, f.text, s) for f, s in found if f is not None))[:3]
    shown = re.search(r'<ol class="findings">(.*?)</ol>', html, re.S)
    assert shown is not None
    assert len(re.findall("<li>", shown[1])) == len(ranked) == 3
    for _, text, section in ranked:
        assert text in unescape(shown[1])
        assert f'href="#{section}"' in shown[1]
        assert f'id="{section}"' in html


def test_a_page_too_large_is_refused_and_an_old_one_stays(tmp_path: Path) -> None:
    model = hostile_model()
    few = results(model, HOSTILE)[:2]
    interp.write_report(tmp_path / "r", model, few)

    def held() -> dict[str, bytes]:
        return {str(p): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    before = held()
    for name in ("r", "new"):
        with pytest.raises(interp.OutputError, match="raise max_mb"):
            interp.write_report(tmp_path / name, model, few[:1], title="r", max_mb=0.01)
    assert held() == before
    assert [p.name for p in tmp_path.iterdir()] == ["r"]


def test_a_page_that_would_be_too_large_is_coarser_and_says_so(tmp_path: Path) -> None:
    model = hostile_model()
    few = results(model, HOSTILE)[:6]
    fine = interp.write_report(tmp_path / "a", model, few)
    limit = fine.stat().st_size / 1e6 - 0.001
    coarse = interp.write_report(tmp_path / "b", model, few, title="a", max_mb=limit)
    assert coarse.stat().st_size < fine.stat().st_size - 1000
    errors = []
    for page in (fine, coarse):
        patterns = next(r for r in interp.read_report(page)["results"]
                        if isinstance(r, interp.AttentionPatterns))  # fmt: skip
        errors.append(float(np.abs(patterns.patterns - few[2].patterns).max()))  # type: ignore[attr-defined]
    assert errors[0] <= 0.51 / 32767
    assert 0.51 / 32767 < errors[1] <= 5.1 / 32767
    assert "attention-patterns: 3e-05" in fine.read_text(encoding="utf-8")
    assert "attention-patterns: 0.0003" in coarse.read_text(encoding="utf-8")
    exact = interp.read_report(coarse.parent / "results.json")["results"][2]
    np.testing.assert_array_equal(exact.patterns, few[2].patterns)  # type: ignore[attr-defined]


def test_a_second_result_of_a_kind_has_files_of_its_own(tmp_path: Path) -> None:
    model = hostile_model()
    effects = next(r for r in more_results() if isinstance(r, interp.ComponentEffects))
    interp.write_report(tmp_path / "r", model, [effects, effects])
    tables = {p.name for p in (tmp_path / "r" / "tables").iterdir()}
    assert tables == {f"{effects.name}.csv", f"{effects.name}-2.csv"}
    names = [shown.name for shown in effects.figures()]
    figures = {p.stem for p in (tmp_path / "r" / "figures").iterdir()}
    assert figures == {*names, *(f"{name}-2" for name in names)}


@pytest.mark.parametrize("index", range(11))
def test_results_show_themselves_in_a_frame_of_their_own(index: int) -> None:
    shown = results(hostile_model(), HOSTILE)[index]._repr_html_()
    assert shown.startswith('<iframe sandbox="" srcdoc="')
    assert "<img src=x" not in shown
    assert shown.count("<iframe") == 1
