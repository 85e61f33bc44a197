"""The report of a model: what it holds, computed once and kept beside it; several compared."""

from __future__ import annotations

import json
import webbrowser
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interp.cli.common import (
    DeviceOption,
    JsonOption,
    ModelArg,
    OutOption,
    PromptOption,
    SeedOption,
    TextOption,
    app,
    load,
    progress_bar,
    say,
    sequences_of,
    text_of,
)
from interp.errors import CheckpointError, ConfigError, TextError, TokenError

if TYPE_CHECKING:
    import torch

    from interp.analysis.heads.cards import HeadCard
    from interp.gpt.model import HookedGPT
    from interp.lesson.ngrams import NGramLosses
    from interp.results.result import Result

SECTIONS = ("text", "heads", "effects", "scaling", "training", "checks")
HEADS_FROM, EFFECTS_FROM, SCALING_FROM = 48, 32, 16  # sequences of the model's own text
SAMPLE = 250  # characters


@app.command(epilog='Example: interp report models/shakespeare-char --prompt "O Romeo, Romeo!"')
def report(
    model: ModelArg,
    out: OutOption = None,
    text: TextOption = None,
    prompt: PromptOption = None,
    sections: Annotated[
        str, typer.Option("--sections", help=f"of {', '.join(SECTIONS)}; or all")
    ] = "all",
    max_mb: Annotated[float, typer.Option("--max-mb", min=0.01, help="refuse a larger page")] = 3.0,
    open_it: Annotated[bool, typer.Option("--open", help="open it in the browser")] = False,
    seed: SeedOption = 0,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Write one HTML file to explore what the model does, and the figures and numbers beside it."""
    path = make_report(
        model, load(model, device), out, text=text, prompt=prompt, sections=sections,
        max_mb=max_mb, seed=seed,
    )  # fmt: skip
    if open_it:
        webbrowser.open(path.resolve().as_uri())
    print(json.dumps({"report": str(path)}) if as_json else path)


@app.command(
    epilog="Example: interp compare models/mine models/mine/checkpoints/step-000205 --sequences 32"
)
def compare(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL MODEL...", help="two or more model folders")
    ],
    out: OutOption = None,
    text: TextOption = None,
    sequences: Annotated[
        int, typer.Option("--sequences", min=10, help="how many, of the shortest context")
    ] = 32,
    untrained: Annotated[
        bool, typer.Option("--untrained", help="and the first model's shape, untrained")
    ] = False,
    seed: SeedOption = 0,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Show two or more models side by side, on the same text."""
    from interp.analysis.causal.effects import component_effects
    from interp.analysis.heads.labels import label_heads
    from interp.analysis.heads.scores import head_scores
    from interp.data.corpus import cut, load_corpus
    from interp.gpt.model import HookedGPT
    from interp.pages.comparison import Compared, write_comparison
    from interp.results.result import to_numpy

    loaded = {str(path): load(path, device) for path in dict.fromkeys(models)}
    first = next(iter(loaded.values()))
    if untrained:
        fresh = HookedGPT(first.config, first.tokenizer, seed=10_000 + seed)
        loaded["untrained"] = fresh.to(first.device, first.dtype).eval()
    if len(loaded) < 2:
        raise ConfigError("give two or more different models, or --untrained")
    n_ctx = min(gpt.config.n_ctx for gpt in loaded.values())
    if text is not None:
        name, passages = text.name, cut(load_corpus(path=text).text, n_ctx, sequences)
    else:
        corpus = text_of(_with_recipe(models[0]))
        name, passages = corpus.name, corpus.passages(n_ctx, sequences)
    found: dict[str, Compared] = {}
    with progress_bar("models") as progress:
        for done, (path, gpt) in enumerate(loaded.items()):
            progress(done, len(loaded))
            tokens = gpt.to_tokens(passages)
            loss = gpt(tokens, "loss", loss_per_token=True).mean(1)
            scores = head_scores(gpt, tokens, seed=seed) if gpt.config.n_layers else None
            found[path] = Compared(
                losses=to_numpy(loss), scores=scores,
                labels=None if scores is None else label_heads(gpt, scores, seed=seed),
                effects=component_effects(
                    gpt, tokens, by="head", ablate="mean", metric="log_prob", seed=seed
                ),
            )  # fmt: skip
        progress(len(loaded), len(loaded))
    page = write_comparison(out or Path("reports") / "comparison", found, name)
    if as_json:
        print(json.dumps({"comparison": str(page)}))
        return
    for path, one in found.items():
        print(f"{path}: {one.losses.mean():.4f} nats a token, n = {len(one.losses)}")
    print(page)


def _with_recipe(folder: Path) -> Path:
    """A model folder; of a checkpoint, the run that it is of, which has the recipe."""
    run = folder.parent.parent
    if folder.parent.name == "checkpoints" and (run / "recipe.toml").is_file():
        return run
    return folder


def make_report(
    folder: Path,
    gpt: HookedGPT,
    out: Path | None = None,
    *,
    text: Path | None = None,
    prompt: str | None = None,
    sections: str = "all",
    max_mb: float = 3.0,
    seed: int = 0,
) -> Path:
    """Computes what is missing, writes the report and returns the page's path."""
    from interp.pages.page import check_free, write_report
    from interp.training.history import read_history

    wanted = SECTIONS if sections == "all" else tuple(sections.split(","))
    unknown = [name for name in wanted if name not in SECTIONS]
    if unknown:
        raise ConfigError(f"--sections {unknown[0]!r} is not one of {', '.join(SECTIONS)}")
    passage = sequences_of(folder, gpt, text, prompt, 1)
    if passage.shape[1] < 2:
        raise TokenError("a report needs a passage of at least two characters; got 1, give more")
    out = out or Path("reports") / folder.name
    check_free(out, folder.name)
    more = _more_sequences(folder, gpt, text)
    kept = _Kept(out / "results", gpt, seed)
    results: list[Result] = []
    cards: list[HeadCard] = []
    with progress_bar("results") as progress:
        for done, name in enumerate(wanted):
            progress(done, len(wanted))
            if name == "text":
                results += _of_text(gpt, passage, kept)
            elif name == "heads" and gpt.config.n_layers:
                found, cards = _of_heads(gpt, more, kept, seed)
                results += found
            elif name == "effects" and more is not None:
                results += _effects(gpt, more, kept, seed)
            elif name == "scaling" and more is not None and gpt.config.n_layers:
                results += _scaling(gpt, more, kept, seed)
            elif name == "checks":
                results += _checks(gpt, passage, kept, seed)
        progress(len(wanted), len(wanted))
    sample, history, baselines = "", [], None
    if "training" in wanted:
        sample = _sample(gpt, passage, seed)
        if (folder / "history.csv").is_file():
            history = read_history(folder / "history.csv")
        baselines = _baselines(folder, kept) if history else None
    kept.forget_others()
    return write_report(
        out, gpt, results, title=folder.name, history=history, baselines=baselines, cards=cards,
        sample=sample, sample_seed=seed, max_mb=max_mb,
    )  # fmt: skip


class _Kept:
    """Results on disk, named by all that they depend on."""

    def __init__(self, folder: Path, gpt: HookedGPT, seed: int) -> None:
        from interp.gpt.folder import model_hash
        from interp.results.provenance import versions

        self.folder = folder
        self.base = json.dumps([model_hash(gpt), seed, str(gpt.dtype), versions()])
        self.used: set[Path] = set()

    def path(self, name: str, *depends: object) -> Path:
        from interp.files import sha256

        key = sha256((self.base + json.dumps([name, *map(str, depends)])).encode())[:12]
        path = self.folder / f"{name}-{key}.json"
        self.used.add(path)
        return path

    def result(self, name: str, tokens: torch.Tensor, compute: Callable[[], Any]) -> Any:
        """Returns the kept result, or computes and keeps it."""
        from interp.results.result import Result

        path = self.path(name, tuple(tokens.shape), tokens.cpu().numpy().tobytes().hex())
        try:
            return Result.load(path)
        except CheckpointError:
            result = compute()
            result.save(path)
            return result

    def forget_others(self) -> None:
        """Removes what earlier reports kept and this one has no use for."""
        for path in self.folder.glob("*.json"):
            if path not in self.used:
                path.unlink()


def _more_sequences(folder: Path, gpt: HookedGPT, text: Path | None) -> torch.Tensor | None:
    """Whole contexts to measure heads and effects on; None where there is no such text."""
    try:
        found = sequences_of(folder, gpt, text, None, HEADS_FROM)
    except (TextError, TokenError, ConfigError):
        found = None
    if found is None or len(found) < 10:
        say("heads, effects and scaling are left out: they need 10 contexts of text; give --text")
        return None
    return found


def _of_text(gpt: HookedGPT, passage: torch.Tensor, kept: _Kept) -> list[Result]:
    from interp.analysis.direct.attribution import logit_attribution
    from interp.analysis.direct.lens import logit_lens, predictions
    from interp.analysis.heads.patterns import attention_patterns

    _, cache = gpt.run_with_cache(passage)
    out: list[Result] = [predictions(gpt, cache), logit_lens(gpt, cache)]
    if gpt.config.n_layers:
        out.append(attention_patterns(gpt, cache))
    out.append(logit_attribution(gpt, cache, "block"))
    if gpt.config.n_layers:
        out += [logit_attribution(gpt, cache, by) for by in ("head", "source")]
    return out


def _of_heads(
    gpt: HookedGPT, tokens: torch.Tensor | None, kept: _Kept, seed: int
) -> tuple[list[Result], list[HeadCard]]:
    from interp.analysis.heads.cards import head_card
    from interp.analysis.heads.labels import label_heads
    from interp.analysis.heads.scores import head_scores

    if tokens is None:
        return [], []
    scores = kept.result("heads", tokens, lambda: head_scores(gpt, tokens, seed=seed))
    labels = kept.result("labels", tokens, lambda: label_heads(gpt, scores, seed=seed))
    heads = [f"L{i}.H{h}" for i in range(gpt.config.n_layers) for h in range(gpt.config.n_heads)]
    return [scores, labels], [head_card(gpt, head, scores, labels) for head in heads]


def _effects(gpt: HookedGPT, tokens: torch.Tensor, kept: _Kept, seed: int) -> list[Result]:
    from interp.analysis.causal.effects import component_effects

    few = tokens[:EFFECTS_FROM]  # each gets the mean over the others
    return [
        kept.result(
            "effects", few,
            lambda: component_effects(gpt, few, ablate="mean", metric="log_prob", seed=seed),
        )
    ]  # fmt: skip


def _scaling(gpt: HookedGPT, tokens: torch.Tensor, kept: _Kept, seed: int) -> list[Result]:
    from interp.analysis.scaling.rescaled import attention_scaling

    few = tokens[:SCALING_FROM]
    return [kept.result("scaling", few, lambda: attention_scaling(gpt, few, seed=seed))]


def _checks(gpt: HookedGPT, passage: torch.Tensor, kept: _Kept, seed: int) -> list[Result]:
    from interp.analysis.self_test import check_model

    return [kept.result("checks", passage, lambda: check_model(gpt, passage, seed=seed))]


def _sample(gpt: HookedGPT, passage: torch.Tensor, seed: int) -> str:
    from interp.gpt.generate import generate

    start = passage[:1, : min(8, passage.shape[1])]
    return gpt.to_string(generate(gpt, start, SAMPLE, seed=seed)[0])


def _baselines(folder: Path, kept: _Kept) -> NGramLosses | None:
    """Losses of count models on the model's text; None where it is not a text."""
    from interp import files
    from interp.data.corpus import Corpus
    from interp.lesson.ngrams import NGramLosses, ngram_losses

    try:
        corpus = text_of(folder)
    except (TextError, ConfigError):
        return None
    if not isinstance(corpus, Corpus):
        return None
    path = kept.path("baselines", corpus.sha256)
    if path.is_file():
        held = json.loads(path.read_text(encoding="utf-8"))
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in held.items()
        }
        return NGramLosses(**values)
    encode = corpus.tokenizer().encode
    found = ngram_losses(encode(corpus.train), encode(corpus.validation), len(corpus.tokenizer()))
    files.write_text(path, json.dumps(asdict(found)) + "\n")
    return found
