"""Patching against one run at a time: by hand with hooks, by TransformerLens, by `intervene`."""

# mypy: disable-error-code="arg-type, attr-defined"

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import VARIANTS, random_model, random_tokens, variant_id
from torch import Tensor
from transformer_lens import patching

from interp import (
    ConfigError,
    GPTConfig,
    HookedGPT,
    Result,
    TokenError,
    activation_patching,
    intervene,
    path_patching,
)
from interp.gpt.layers import PastKeys
from interp.hooks import HookPoint

BY_HEAD = ["head", "q", "k", "v", "z", "pattern"]
SITES = ["resid_pre", "resid_mid", "attn_out", "mlp_out", *BY_HEAD, "head_position"]
HOOKS = {"head": "attn.hook_z", "head_position": "attn.hook_z"} | {
    name: f"attn.hook_{name}" for name in ("q", "k", "v", "z", "pattern")
}
DIRECTIONS = ["denoise", "noise"]
INTO = ["L1.H2.q", "L1.H0.k", "L1.H3.v", "L1.q", "L1.v", "L0.mlp", "L1.mlp", "logits"]
unchecked = inspect.unwrap(activation_patching)
THEIRS = {
    "resid_pre": patching.get_act_patch_resid_pre,
    "resid_mid": patching.get_act_patch_resid_mid,
    "attn_out": patching.get_act_patch_attn_out,
    "mlp_out": patching.get_act_patch_mlp_out,
    "head": patching.get_act_patch_attn_head_out_all_pos,
    "q": patching.get_act_patch_attn_head_q_all_pos,
    "k": patching.get_act_patch_attn_head_k_all_pos,
    "v": patching.get_act_patch_attn_head_v_all_pos,
    "z": patching.get_act_patch_attn_head_out_all_pos,
    "pattern": patching.get_act_patch_attn_head_pattern_all_pos,
}
# Random weights tell prompts apart by chance only: some patches move more than the prompts differ.
pytestmark = pytest.mark.filterwarnings("ignore:clean and corrupted differ by")


def close(given: Any, expected: Any, atol: float = 1e-10) -> None:
    np.testing.assert_allclose(given, expected, rtol=0, atol=atol)


def small(**kwargs: Any) -> HookedGPT:
    return random_model(torch.float64, **{"d_model": 16, "d_mlp": 12} | kwargs)


def pair(model: HookedGPT, batch: int = 2, pos: int = 6) -> Any:
    return random_tokens(model, batch, pos, seed=1), random_tokens(model, batch, pos, seed=2)


def centered(logits: Tensor) -> Any:
    """Of token 0, [batch]."""
    return (logits[:, 0] - logits.mean(-1)).detach().numpy()


def sites_of(model: HookedGPT) -> Any:
    return [site for site in SITES if model.config.d_mlp or site not in ("resid_mid", "mlp_out")]


@torch.no_grad()
def one_at_a_time(model: HookedGPT, run: Any, other: Any, site: Any, position: int = -1) -> Any:
    """The metric after each patch, [layer · place, batch], each a whole run with one hook."""
    _, cache = model.run_with_cache(other)
    n_pos = run.shape[1]
    values = []
    for layer in range(model.config.n_layers):
        name = f"blocks.{layer}.{HOOKS.get(site, f'hook_{site}')}"
        every = slice(None)
        positions, heads = range(position % n_pos + 1), range(model.config.n_heads)
        if site == "head_position":
            places = [(every, pos, head) for head in heads for pos in positions]
        elif site == "pattern":
            places = [(every, head) for head in heads]  # type: ignore[misc]
        elif site in BY_HEAD:
            places = [(every, every, head) for head in heads]  # type: ignore[misc]
        else:
            places = [(every, pos) for pos in positions]  # type: ignore[misc]
        for at in places:

            def patch(x: Tensor, hook: HookPoint, at: Any = at, theirs: Any = cache[name]) -> None:
                x[at] = theirs[at]

            with model.hooks([(name, patch)]):
                values.append(centered(model(run)[:, position]))
    return np.stack(values)


@torch.no_grad()
def paths_one_at_a_time(model: HookedGPT, run: Any, other: Any, senders: Any, into: Any) -> Any:
    _, cache = model.run_with_cache(other)
    values = []
    for sender in senders:
        with intervene(model, f"patch {sender} into {into}", source=cache):
            values.append(centered(model(run)[:, -1]))
    return np.stack(values)


def ordered(clean: Tensor, corrupted: Tensor, direction: Any) -> Any:
    return (corrupted, clean) if direction == "denoise" else (clean, corrupted)


# ---- activations ---------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", [*VARIANTS, {"n_layers": 3, "n_heads": 2}], ids=variant_id)
def test_each_patch_is_a_run_with_one_hook(variant: dict[str, Any]) -> None:
    model = small(**variant)
    clean, corrupted = pair(model, 2, 3)
    for site, direction in zip(sites_of(model), itertools.cycle(DIRECTIONS), strict=False):
        given = activation_patching(
            model, clean, corrupted, site, direction=direction, target=0, metric="centered"
        )
        run, other = ordered(clean, corrupted, direction)
        close(given.values, one_at_a_time(model, run, other, site))
        close(given.clean, centered(model(clean)[:, -1]))
        close(given.corrupted, centered(model(corrupted)[:, -1]))


@pytest.fixture
def in_float64() -> Iterator[Any]:
    """TransformerLens stores what it finds in the default dtype."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("site", THEIRS)
def test_transformer_lens_patches_the_same(site: Any) -> None:
    model = small().requires_grad_(requires_grad=False)
    clean, corrupted = pair(model)
    for direction in DIRECTIONS:
        run, other = ordered(clean, corrupted, direction)
        given = activation_patching(
            model, clean, corrupted, site, direction=direction, target=2, foil=3
        )
        theirs = THEIRS[site](
            model, run, model.run_with_cache(other)[1],
            lambda logits: (logits[:, -1, 2] - logits[:, -1, 3]).mean(),
        )  # fmt: skip
        close(given.values.mean(1), theirs.flatten())


@pytest.mark.parametrize("position", [0, -3])
@pytest.mark.parametrize("site", SITES)
def test_any_position_can_be_read(site: Any, position: int) -> None:
    model = small()
    clean, corrupted = pair(model)
    given = activation_patching(
        model, clean, corrupted, site, target=0, metric="centered", position=position
    )
    close(given.values, one_at_a_time(model, corrupted, clean, site, position))
    assert given.position == position % 6


@pytest.mark.parametrize("batch", [1, 5, 20])
def test_any_number_of_sequences(batch: int) -> None:
    model = small()
    clean, corrupted = pair(model, batch, 4)
    for site in ("attn_out", "head"):
        given = activation_patching(model, clean, corrupted, site, target=0, metric="centered")
        assert given.values.shape[1] == batch
        close(given.values, one_at_a_time(model, corrupted, clean, site))


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("site", SITES)
def test_prompts_of_one_token(site: Any, batch: int) -> None:
    model = small()
    clean = torch.arange(batch)[:, None] % 7
    corrupted = (clean + 1) % 7
    given = activation_patching(model, clean, corrupted, site, target=0, metric="centered")
    close(given.values, one_at_a_time(model, corrupted, clean, site))


@pytest.mark.parametrize("site", SITES)
def test_before_the_prompts_differ_nothing_changes(site: Any) -> None:
    model = small()
    given = activation_patching(model, "abcdef", "abcgef", site, metric="centered", target="a")
    clean, corrupted = model.to_tokens("abcdef"), model.to_tokens("abcgef")
    close(given.values, one_at_a_time(model, corrupted, clean, site))
    if site not in BY_HEAD:
        before = given.values[given.places < 3]
        np.testing.assert_array_equal(before, np.tile(given.corrupted, (len(before), 1)))
        assert np.abs(given.values[given.places >= 3] - given.corrupted).max() > 1e-3


def test_the_one_place_that_differs_restores_everything() -> None:
    model = small()
    for direction in DIRECTIONS:
        given = activation_patching(
            model, "abcdef", "abcgef", direction=direction, target="a", foil="b"
        )
        shares = dict(zip(given.labels, given.shares, strict=True))
        assert shares["L0.resid_pre at 3"] == pytest.approx(1, abs=1e-9)
        assert shares["L0.resid_pre at 2"] == 0
    one = activation_patching(model, "a", "b", target="a", foil="b")
    close(one.shares, [1, 1], 1e-9)
    last = activation_patching(model, "abcd", "gbcd", position=0, target="a", foil="b")
    close(last.shares, [1, 1], 1e-9)


def test_shares_are_unknown_where_the_prompts_do_not_differ() -> None:
    model = small()
    given = activation_patching(model, "abcdef", "abcgef", metric="centered", target=0, position=2)
    assert np.isnan(given.shares).all()

    def left_out(logits: Tensor, targets: Any) -> Any:
        return torch.where(torch.arange(logits.shape[-3])[:, None] == 0, logits[..., 0], 0.0)

    both = ["abcd", "efga"], ["abca", "efgd"]
    given = activation_patching(model, *both, metric=left_out, target=0, position=1)
    assert np.isnan(given.shares).all()


def test_shares_of_two_prompts_that_cancel_are_unknown() -> None:
    model = small()

    def patched_only(logits: Tensor, targets: Any) -> Any:
        return logits[..., 0] if logits.ndim == 4 else torch.zeros_like(logits[..., 0])

    given = activation_patching(model, "abcd", "abce", metric=patched_only, target=0)
    assert given.values.any()
    assert np.isnan(given.shares).all()  # the prompts are equal in the metric: no share, not ±inf


def test_scalars_of_the_unpatched_and_of_the_other_run() -> None:
    model = small()
    clean, corrupted = pair(model)
    logits = model(corrupted)[:, -1].detach()
    targets = torch.tensor([1, 4])
    log_prob = logits.log_softmax(-1)[torch.arange(2), targets]
    given = activation_patching(model, clean, corrupted, metric="log_prob", target=targets)
    close(given.corrupted, log_prob)
    assert given.target == "be"
    given = activation_patching(model, clean, corrupted, metric="kl", target="a")
    close(given.corrupted, np.zeros(2))
    assert (given.clean < 0).all()

    def second(logits: Tensor, targets: Any) -> Any:
        return logits[..., 1] + targets

    given = activation_patching(model, clean, corrupted, metric=second, target=targets)
    close(given.corrupted, logits[:, 1] + targets)
    assert given.metric == "second"


def test_target_and_foil_are_what_the_model_finds_likeliest() -> None:
    model = small()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.rsplit(".", 1)[-1].startswith("b"):
                parameter.zero_()
    for seed in range(20):
        clean, corrupted = random_tokens(model, 1, 6, seed), random_tokens(model, 1, 6, seed + 20)
        best = [int(model(tokens)[0, -1].argmax()) for tokens in (clean, corrupted)]
        if best[0] != best[1]:
            break
    given = activation_patching(model, clean, corrupted)
    assert (given.target, given.foil) == tuple("abcdefg"[i] for i in best)
    logits = model(clean)[0, -1].detach()
    close(given.clean[0], logits[best[0]] - logits[best[1]])


def test_float32_is_near() -> None:
    single, wide = random_model(), random_model(torch.float64)
    wide.load_state_dict(single.state_dict())
    clean, corrupted = pair(single)
    for site in SITES:
        values = [
            activation_patching(m, clean, corrupted, site, target=0, metric="centered").values
            for m in (single, wide)
        ]
        close(*values, 1e-4)  # type: ignore[call-arg]


# ---- paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("into", INTO)
def test_each_path_is_a_run_with_one_intervention(into: Any, direction: Any) -> None:
    model = small()
    clean, corrupted = pair(model)
    given = path_patching(
        model, clean, corrupted, into, direction=direction, target=0, metric="centered"
    )
    heads = {layer: [f"L{layer}.H{h}" for h in range(4)] for layer in (0, 1)}
    before = ["embed", *heads[0]]
    if into != "L0.mlp":
        before.append("L0.mlp")
    if into in ("L1.mlp", "logits"):
        before += heads[1]
    if into == "logits":
        before.append("L1.mlp")
    assert given.labels == tuple(before)
    run, other = ordered(clean, corrupted, direction)
    close(given.values, paths_one_at_a_time(model, run, other, before, into))
    unpatched = given.corrupted if direction == "denoise" else given.clean
    assert np.abs(given.values - unpatched).max() > 1e-3


@pytest.mark.parametrize("variant", VARIANTS, ids=variant_id)
def test_paths_in_every_variant(variant: dict[str, Any]) -> None:
    model = small(**variant)
    clean, corrupted = pair(model, 3, 5)
    for into in ["L1.k", "logits", *(["L1.mlp"] if model.config.d_mlp else [])]:
        given = path_patching(model, clean, corrupted, into, target=0, metric="centered")
        expected = paths_one_at_a_time(model, corrupted, clean, given.labels, into)
        close(given.values, expected)


def test_a_path_into_one_position_is_read_there() -> None:
    model = small()
    clean, corrupted = pair(model, 5)
    given = path_patching(model, clean, corrupted, "L1.v", target=0, metric="centered", position=3)
    shorter = path_patching(
        model, clean[:, :4], corrupted[:, :4], "L1.v", target=0, metric="centered"
    )
    close(given.values, shorter.values)


def test_all_paths_out_of_the_only_sender_are_its_patch() -> None:
    model = small(n_layers=1, positional=False)
    with torch.no_grad():
        model.blocks[0].attn.W_O.zero_()
    clean, corrupted = pair(model)
    given = path_patching(model, clean, corrupted, "L0.q", target=0, metric="centered")
    close(given.values[0], given.corrupted)  # the head writes nothing, whatever it reads


# ---- somebody's own hooks ------------------------------------------------------------------------


def by_position(x: Tensor, hook: HookPoint) -> Any:
    return x * torch.linspace(1, 2, x.shape[1], dtype=x.dtype)[:, None] + 0.5 * (x > 0)


HOOKED = ["hook_embed", "blocks.1.hook_resid_pre", "blocks.0.hook_attn_out",
          "blocks.0.hook_resid_mid", "blocks.0.hook_mlp_out", "blocks.0.hook_resid_post",
          "hook_logits"]  # fmt: skip


@pytest.mark.parametrize("name", HOOKED)
@pytest.mark.parametrize("site", SITES)
def test_patching_a_hooked_model_is_patching_beside_its_hooks(site: Any, name: Any) -> None:
    model = small()
    clean, corrupted = pair(model, 2, 3)
    with model.hooks([(name, by_position)]):
        given = activation_patching(model, clean, corrupted, site, target=0, metric="centered")
        close(given.values, one_at_a_time(model, corrupted, clean, site))
    assert not model.is_edited


@pytest.mark.parametrize("site", SITES)
def test_hooks_on_attention_keep_their_effect(site: Any) -> None:
    model = small()
    clean, corrupted = pair(model, 2, 4)

    def first_only(pattern: Any, hook: HookPoint) -> Any:
        return torch.zeros_like(pattern).index_fill_(3, torch.tensor(0), 1.0)

    with model.hooks([("blocks.1.attn.hook_pattern", first_only)]):
        given = activation_patching(model, clean, corrupted, site, target=0, metric="centered")
        close(given.values, one_at_a_time(model, corrupted, clean, site))
    with model.attn_scaled_by(0.3):
        given = activation_patching(model, clean, corrupted, site, target=0, metric="centered")
        close(given.values, one_at_a_time(model, corrupted, clean, site))


@pytest.mark.parametrize(
    "name", ["hook_embed", "blocks.1.hook_resid_pre", "blocks.1.hook_resid_mid", "hook_logits"]
)
@pytest.mark.parametrize("into", ["L1.H2.q", "L1.mlp", "logits"])
def test_paths_in_a_hooked_model_are_paths_beside_its_hooks(into: str, name: str) -> None:
    model = small()
    clean, corrupted = pair(model, 2, 3)
    with model.hooks([(name, by_position)]):
        given = path_patching(model, clean, corrupted, into, target=0, metric="centered")
        expected = paths_one_at_a_time(model, corrupted, clean, given.labels, into)
        close(given.values, expected)


# ---- attention of several queries on a longer past -----------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS, ids=variant_id)
@pytest.mark.parametrize("n_new", [1, 2, 5, 8])
def test_several_queries_on_a_past_are_the_written_out_attention(
    variant: dict[str, Any], n_new: int
) -> None:
    model = small(**variant)
    ids = random_tokens(model, 2, 9)
    whole = model(ids)
    for watching in ([], [("blocks.0.attn.hook_pattern", lambda x, hook: None)]):
        past = [PastKeys() for _ in model.blocks]
        with model.hooks(watching):
            parts = [model(ids[:, :-n_new], past=past)] if n_new < 9 else []
            parts.append(model(ids[:, -n_new:], past=past))
        close(torch.cat(parts, 1), whole)
    attn = model.blocks[1].attn
    _, cache = model.run_with_cache(ids)
    q, k, v = (cache[x, 1] for x in "qkv")
    fused = attn.attend(q[:, -n_new:], k, v)
    written_out = attn.mix(attn.scores(q[:, -n_new:], k).softmax(-1), v)
    close(fused, written_out)
    close(fused, cache["z", 1][:, -n_new:])


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clean", "corrupted", "options", "said"),
    [
        ("abc", "ab", {}, "must be of one length"),
        (["abc", "abd"], ["abc"], {}, "must be of one length"),
        ("abc", "abc", {}, "the same; there is nothing to patch"),
        ("abc", "abd", {"position": 3}, "outside the prompt of 3"),
        ("abc", "abd", {"position": -4}, "outside the prompt of 3"),
        ("abc", "abd", {"target": "z", "foil": "a"}, "z"),
        ("abc", "abd", {"target": "a", "foil": "z"}, "z"),
        ("abc", "abd", {"target": "ab"}, "one character"),
        ("abc", "abd", {"target": 7, "foil": 0}, "outside the vocabulary"),
        ("abc", "abd", {"target": 0, "foil": -1}, "outside the vocabulary"),
        ("abc", "abd", {"target": 2, "foil": 2}, "the same character"),
        (["abc", "bcd"], ["abd", "bca"], {"target": torch.tensor([1, 2, 3])}, "one for each of 2"),
        ("abz", "abc", {}, "z"),
    ],
)
def test_prompts_and_targets_that_cannot_be_are_refused(
    clean: Any, corrupted: Any, options: Any, said: str
) -> None:
    model = small()
    with pytest.raises(TokenError, match=said):
        activation_patching(model, clean, corrupted, **options)
    with pytest.raises(TokenError, match=said):
        path_patching(model, clean, corrupted, "logits", **options)


@pytest.mark.parametrize(
    "options",
    [{"site": "o"}, {"metric": "logprob"}, {"metric": "raw", "foil": 1}],
)
def test_unknown_choices_are_refused(options: Any) -> None:
    with pytest.raises(ConfigError):
        unchecked(small(), "abc", "abd", target=0, **options)


@pytest.mark.parametrize("into", ["L2.q", "L1.H4.q", "L1.H0", "L1.H0.z", "mlp", "embed", "L2.mlp"])
def test_unknown_receivers_are_refused(into: str) -> None:
    with pytest.raises(ConfigError):
        path_patching(small(), "abc", "abd", into, target=0, foil=1)


def test_what_attention_only_models_lack_is_refused() -> None:
    model = small(d_mlp=0)
    for site in ("resid_mid", "mlp_out"):
        with pytest.raises(ConfigError, match=site):
            activation_patching(model, "abc", "abd", site)
    with pytest.raises(ConfigError, match=r"L1\.mlp"):
        path_patching(model, "abc", "abd", "L1.mlp", target=0, foil=1)


def test_dropout_is_refused() -> None:
    model = small(dropout=0.2).train()
    with pytest.raises(ConfigError, match="training mode"):
        activation_patching(model, "abc", "abd")
    with pytest.raises(ConfigError, match="training mode"):
        path_patching(model, "abc", "abd", "logits")
    values = activation_patching(model.eval(), "abc", "abd", target=0, metric="centered").values
    again = small().train()
    again.load_state_dict(model.state_dict())
    close(activation_patching(again, "abc", "abd", target=0, metric="centered").values, values)


# ---- a difference too small to be shared out -----------------------------------------------------


@pytest.mark.filterwarnings("error")
def test_prompts_that_hardly_differ_are_warned_of_with_both_numbers() -> None:
    model = small()

    def asked(difference: Any) -> Any:
        """The clean and the corrupted prompt differ by `difference`, each patch moves it by 1."""

        def metric(logits: Tensor, targets: Any) -> Any:
            patched = logits.ndim == 4  # with an axis of patches
            is_clean = torch.allclose(logits, clean) if not patched else False
            value = 1.0 if patched else difference if is_clean else 0.0
            return torch.full_like(logits[..., 0], value)

        clean = model(model.to_tokens("abcd"))[:, -1:].detach()
        return activation_patching(model, "abcd", "abce", metric=metric, target=0)

    for difference in (0.0, 0.01, -0.2):
        said = (
            rf"differ by {abs(difference):.3g} only \(metric\), while a patch moves it by up to 1:"
        )
        with pytest.warns(UserWarning, match=said) as caught:
            asked(difference)
        assert len(caught) == 1
    assert asked(0.5).shares.max() == pytest.approx(2)


# ---- what it shows -------------------------------------------------------------------------------


@pytest.mark.parametrize("site", SITES)
def test_the_map_has_each_share_at_its_layer_and_place(site: Any) -> None:
    given = activation_patching(small(), "abcdef", "abcgef", site, target="a", foil="b")
    (shown,) = given.figures()
    mark = shown.mark
    at = {
        (mark.rows[i], mark.columns[j]): mark.values[i, j] for i, j in np.ndindex(mark.values.shape)
    }
    both = ["a\na", "b\nb", "c\nc", "d\ng", "e\ne", "f\nf"]
    for i, share in enumerate(given.shares):
        layer, place = f"L{given.layers[i]}", int(given.places[i])
        if site in BY_HEAD:
            key = (layer, f"H{place}")
        else:
            key = (given.labels[i].split(" ")[0] if site == "head_position" else layer, both[place])
        assert at[key] == share
    assert np.isfinite(mark.values).sum() == len(given.shares)
    if site not in BY_HEAD:
        assert mark.columns == tuple(both)
        assert mark.strong_columns == (3,)
    else:
        assert mark.numbers[0][0] == f"{given.shares[0]:.2f}"
    assert mark.high == -mark.low == max(1, np.abs(given.shares).max())
    assert mark.title == "denoise: a over b after position 5"
    assert shown.name == given.name == f"patching-{given.what}-denoise".replace(" ", "-")


def test_paths_are_bars_and_the_summary_has_the_largest_first() -> None:
    given = path_patching(small(), "abcd", "abce", "logits", target="a", foil="b")
    mark = given.picture().mark
    assert mark.names == given.labels
    np.testing.assert_array_equal(mark.values, given.shares)
    first, second, *rows = given.summary().splitlines()
    assert "paths into logits, denoise; logit of a − b after position 3: clean" in first
    assert "share" in second
    shares = [float(row.split()[1]) for row in rows]
    assert [abs(s) for s in shares] == sorted((abs(s) for s in shares), reverse=True)
    assert len(rows) == len(given.labels)


def test_targets_may_be_given_for_each_sequence_in_any_form() -> None:
    model = small()
    clean, corrupted = pair(model)
    forms = ("be", ["b", "e"], [1, 4], np.array([1, 4]), torch.tensor([1, 4]))
    found = [activation_patching(model, clean, corrupted, "head", target=form, foil="a").values
             for form in forms]  # fmt: skip
    for values in found[1:]:
        np.testing.assert_array_equal(values, found[0])


# ---- the result ----------------------------------------------------------------------------------


def test_goes_to_disk_and_to_a_table(tmp_path: Path) -> None:
    model = small()
    clean, corrupted = pair(model, 6)
    given = activation_patching(model, clean, corrupted, "head", target="a", foil="c")
    given.save(tmp_path / "patched.json")
    again = Result.load(tmp_path / "patched.json")
    assert type(again) is type(given)
    np.testing.assert_array_equal(again.values, given.values)
    assert again.to_document() == given.to_document()
    frame = given.to_frame()
    assert list(frame.columns) == [
        "patch", "layer", "place", "value", "low", "high", "share", "n",
    ]  # fmt: skip
    assert list(frame.patch) == [f"L{layer}.H{h}" for layer in (0, 1) for h in range(4)]
    np.testing.assert_allclose(frame.value, given.values.mean(1))
    np.testing.assert_array_equal(frame.share, given.shares)
    assert (frame.n == 6).all()
    assert ((frame.low <= frame.value) & (frame.value <= frame.high)).all()
    start, goal = given.corrupted.mean(), given.clean.mean()
    np.testing.assert_allclose(given.shares, (given.values.mean(1) - start) / (goal - start))
    noise = activation_patching(
        model, clean, corrupted, "head", target="a", foil="c", direction="noise"
    )
    np.testing.assert_allclose(noise.shares, (noise.values.mean(1) - goal) / (start - goal))


def test_places_are_layers_and_positions() -> None:
    given = activation_patching(small(), "abc", "abd", "attn_out", target=0, foil=1)
    assert list(given.layers) == [0, 0, 0, 1, 1, 1]
    assert list(given.places) == [0, 1, 2, 0, 1, 2]
    assert given.labels[4] == "L1.attn_out at 1"
    assert given.characters == tuple("abcdefg")
    assert given.values.shape == (6, 1)


def test_nothing_to_patch_without_blocks() -> None:
    given = activation_patching(small(n_layers=0), "abc", "abd", target=0, metric="raw")
    assert given.values.shape == (0, 1)
    assert given.to_frame().empty


def test_a_model_without_a_tokenizer() -> None:
    cfg = GPTConfig(n_layers=1, n_heads=2, d_model=8, n_ctx=4, d_vocab=5)
    model = HookedGPT(cfg).eval()
    tokens = torch.tensor([[0, 1, 2]]), torch.tensor([[0, 3, 2]])
    given = activation_patching(model, *tokens, target=1, foil=2)
    assert (given.target, given.foil, given.characters) == ("1", "2", None)


def test_nothing_is_edited() -> None:
    model = small()
    weights = {name: p.clone() for name, p in model.named_parameters()}
    state = torch.get_rng_state()
    for site in SITES:
        activation_patching(model, *pair(model), site, target=0, metric="centered")  # type: ignore[call-arg]
    path_patching(model, *pair(model), "L1.mlp", target=0, metric="centered")  # type: ignore[call-arg]
    assert all(p.equal(weights[name]) for name, p in model.named_parameters())
    assert torch.get_rng_state().equal(state)
    assert not model.is_edited
