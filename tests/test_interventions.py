# mypy: disable-error-code="arg-type, index, no-untyped-call, operator, union-attr"
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import VARIANTS, assert_close, random_model, random_tokens, variant_id
from hypothesis import given, settings, strategies as st
from torch import Tensor

from interp import (
    ActivationCache,
    CacheError,
    ConfigError,
    HookedGPT,
    HookError,
    Intervention,
    ReferenceSet,
    TokenError,
    intervene,
)
from interp.hooks import HookPoint
from interp.stream.components import component, components
from interp.training.held_out import held_out

LABELS = [
    "embed", "pos_embed", "L0.attn", "L0.H1", "L1.H3", "L0.b_O", "L0.mlp", "L0.N17", "L1.N3",
    "L1.b_out", "ln_bias", "b_U",
]  # fmt: skip
SENDERS = ["embed", "L0.H1", "L0.mlp", "L0.N17", "pos_embed", "L0.attn", "L0.b_O", "L0.b_out"]
HOOKS = [
    "blocks.1.hook_resid_pre", "blocks.0.hook_attn_out", "blocks.1.attn.hook_q",
    "blocks.0.hook_mlp_in", "blocks.1.mlp.hook_pre", "blocks.1.hook_k_input", "hook_logits",
]  # fmt: skip
SMALL = {"d_model": 16, "d_mlp": 20}
NUMBER = st.integers(0, 99)
ALL_VARIANTS = [*VARIANTS, {"qkv_bias": True}]


@pytest.fixture(scope="module")
def model() -> HookedGPT:
    return random_model(torch.float64, **SMALL)


@pytest.fixture(scope="module")
def tokens(model: HookedGPT) -> Tensor:
    return random_tokens(model)


@pytest.fixture(scope="module")
def others(model: HookedGPT) -> Tensor:
    return random_tokens(model, batch=6, pos=12, seed=5)


@pytest.fixture(scope="module")
def reference(model: HookedGPT, others: Tensor) -> Any:
    return ReferenceSet(model, others)


@pytest.fixture(scope="module")
def caches(model: HookedGPT, tokens: Tensor, others: Tensor) -> Any:
    """Of every hook point: the run, the reference sequences, and a run to patch from."""
    everything = list(model.hook_dict)
    return [
        model.run_with_cache(t, names_filter=everything)[1]
        for t in (tokens, others, tokens.flip(1))
    ]


def run(model: HookedGPT, tokens: Tensor, interventions: Any, **options: Any) -> Any:
    with torch.no_grad(), intervene(model, interventions, **options):
        return model(tokens)


def cached(model: HookedGPT, tokens: Tensor, name: Any) -> Any:
    return model.run_with_cache(tokens, names_filter=[name])[1][name]


def edited(model: HookedGPT, label: Any, x: Tensor, other: Any) -> Any:
    """The activation at a label's hook point with the component's part taken from `other`.

    `other` None: the component wrote nothing.
    """
    layer, _, what = label.partition(".")
    block = model.blocks[int(layer[1:])] if what and "hook_" not in label else None
    if label in ("embed", "pos_embed") or "hook_" in label:
        return torch.zeros_like(x) if other is None else other.expand_as(x).clone()
    if what in ("attn", "mlp"):
        constant = block.attn.b_O if what == "attn" else block.mlp.b_out
        return (constant if other is None else other).expand_as(x).clone()
    out = x.clone()
    if what.startswith("H"):
        out[:, :, int(what[1:])] = 0 if other is None else other[:, :, int(what[1:])]
    elif what.startswith("N"):
        out[..., int(what[1:])] = 0 if other is None else other[..., int(what[1:])]
    elif other is None:
        out -= {
            "b_O": lambda: block.attn.b_O,
            "b_out": lambda: block.mlp.b_out,
            "ln_bias": lambda: model.ln_final.b @ model.W_U,
            "b_U": lambda: model.b_U,
        }[what or label]()
    return out


def hook_of(label: Any) -> Any:
    layer, _, what = label.partition(".")
    if "hook_" in label:
        return label
    if not what:
        return f"hook_{label}" if "embed" in label else "hook_logits"
    place = {"a": "hook_attn_out", "b_O": "hook_attn_out", "m": "hook_mlp_out",
             "b_out": "hook_mlp_out", "H": "attn.hook_z", "N": "mlp.hook_post"}  # fmt: skip
    return f"blocks.{layer[1:]}.{place.get(what) or place[what[0]]}"


def by_hand(
    model: HookedGPT, tokens: Tensor, label: Any, other: Any = None, positions: Any = None
) -> Any:
    """The logits of a run in which a plain hook makes the edit."""

    def hook(x: Tensor, hook: HookPoint) -> Any:
        new = edited(model, label, x, other)
        if positions is None:
            return new
        x[:, positions] = new[:, positions]
        return x

    with torch.no_grad(), model.hooks([(hook_of(label), hook)]):
        return model(tokens)


def written(model: HookedGPT, label: Any, x: Tensor) -> Any:
    """What a component adds to the stream, from the activation at its hook point."""
    layer, _, what = label.partition(".")
    if not what:
        return x
    block = model.blocks[int(layer[1:])]
    if what[0] == "H":
        return x[:, :, int(what[1:])] @ block.attn.W_O[int(what[1:])]
    if what[0] == "N":
        return x[..., int(what[1:]), None] * block.mlp.W_out[int(what[1:])]
    constant = block.attn.b_O if hook_of(label).endswith("attn_out") else block.mlp.b_out
    return x - constant if what in ("attn", "mlp") else constant.expand_as(x)


def exists(model: HookedGPT, label: Any) -> Any:
    try:
        component(model.config, label)
    except ConfigError:
        return False
    return True


# ---- each kind at each component -----------------------------------------------------------------


@pytest.mark.parametrize("positions", [None, (2, 5)])
@pytest.mark.parametrize("label", LABELS + HOOKS)
def test_each_kind_is_the_edit_by_hand(
    model: HookedGPT, tokens: Tensor, reference: Any, caches: Any, label: Any, positions: Any
) -> None:
    _, theirs, source = caches
    name = hook_of(label)
    rows = torch.tensor([5, 3])
    at = None if positions is None else list(positions)
    for kind, other, options in [
        ("zero", None, {}),
        ("mean", theirs[name][:, :9].mean(0, keepdim=True), {"reference": reference}),
        ("resample", theirs[name][rows, :9], {"reference": reference, "rows": rows}),
        ("patch", source[name], {"source": source}),
    ]:
        given = run(model, tokens, Intervention(label, kind, positions), **options)
        assert_close(given, by_hand(model, tokens, label, other, at), kind)


@pytest.mark.parametrize("variant", ALL_VARIANTS, ids=variant_id)
def test_zero_and_mean_of_every_component_of_every_variant(variant: dict[str, Any]) -> None:
    model = random_model(torch.float64, **(SMALL | {"n_heads": 2, "n_layers": 1} | variant))
    tokens, others = random_tokens(model, pos=5), random_tokens(model, 5, pos=5, seed=3)
    _, cache = model.run_with_cache(others)
    reference = ReferenceSet(model, others)
    for c in {*components(model.config, "block"), *components(model.config, "head")}:
        label = str(c)
        assert_close(run(model, tokens, f"zero {label}"), by_hand(model, tokens, label), label)
        mean = cache[hook_of(label)].mean(0, keepdim=True)
        given = run(model, tokens, f"mean {label}", reference=reference)
        assert_close(given, by_hand(model, tokens, label, mean), label)


@pytest.mark.parametrize("label", [c for c in LABELS if c not in ("L0.N17", "L1.N3")])
def test_edit_reaches_the_logits_only_from_its_position_on(
    model: HookedGPT, tokens: Tensor, label: Any
) -> None:
    changed = (run(model, tokens, f"zero {label} at 4") - model(tokens)).abs().amax((0, 2))
    assert (changed[:4] < 1e-12).all()
    assert changed[4] > 1e-6


def test_only_what_a_constant_is_not_changes_with_its_mean(
    model: HookedGPT, tokens: Tensor, others: Tensor
) -> None:
    for label in ("pos_embed", "L0.b_O", "L1.b_out", "ln_bias", "b_U"):
        assert_close(run(model, tokens, f"mean {label}", reference=others), model(tokens), label)


def test_heads_and_neurons_together_are_their_sublayer(model: HookedGPT, tokens: Tensor) -> None:
    heads = [f"zero L0.H{h}" for h in range(4)]
    assert_close(run(model, tokens, heads), run(model, tokens, "zero L0.attn"))
    neurons = [f"zero L0.N{n}" for n in range(model.config.d_mlp)]
    assert_close(run(model, tokens, neurons), run(model, tokens, "zero L0.mlp"))


def test_patch_from_one_sequence_serves_all(model: HookedGPT, tokens: Tensor) -> None:
    source = model.run_with_cache(tokens[1:])[1]
    given = run(model, tokens, "patch L0.H2", source=source)
    assert_close(given, by_hand(model, tokens, "L0.H2", source["z", 0]))
    assert_close(given[1], model(tokens)[1])


def test_resample_is_drawn_by_its_seed(
    model: HookedGPT, tokens: Tensor, others: Tensor, reference: Any
) -> None:
    for seed in (0, 1, 2):
        given = run(model, tokens, "resample L0.mlp", reference=reference, seed=seed)
        rows = reference.draw(2, seed)
        theirs = cached(model, others, "blocks.0.hook_mlp_out")[rows, :9]
        assert_close(given, by_hand(model, tokens, "L0.mlp", theirs))
    draws = torch.cat([reference.draw(6, seed) for seed in range(100)])
    counts = torch.bincount(draws, minlength=6)
    assert len(counts) == 6
    assert (counts - 100).abs().max() < 37  # 4 standard deviations
    own = torch.eye(6, dtype=torch.bool)
    for seed in range(20):
        assert (reference.draw(6, seed, own) != torch.arange(6)).all()


# ---- several -------------------------------------------------------------------------------------


def test_interventions_compose(model: HookedGPT, tokens: Tensor, others: Tensor) -> None:
    means = cached(model, others, "blocks.1.attn.hook_z")[:, :9].mean(0)

    def head(z: Any, hook: HookPoint) -> Any:
        z[:, :, 2] = means[:, 2]
        return z

    def mlp(x: Tensor, hook: HookPoint) -> Any:
        x[:, 3] = model.blocks[0].mlp.b_out
        return x

    with torch.no_grad(), model.hooks([("blocks.0.hook_mlp_out", mlp),
                                       ("blocks.1.attn.hook_z", head)]):  # fmt: skip
        expected = model(tokens)
    both = ["zero L0.mlp at 3", "mean L1.H2"]
    assert_close(run(model, tokens, both, reference=others), expected)
    assert_close(run(model, tokens, both[::-1], reference=others), expected)
    with intervene(model, both[0]):
        nested = run(model, tokens, both[1], reference=others)
    assert nested.shape == expected.shape
    assert not torch.equal(nested, expected)  # the nested mean is of runs without the MLP


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("pair", [("attn", "b_O"), ("mlp", "b_out")])
def test_sublayer_and_its_constant_go_in_either_order(
    model: HookedGPT, tokens: Tensor, others: Tensor, pair: Any, layer: int
) -> None:
    name = f"blocks.{layer}.hook_{pair[0]}_out"
    both = [f"zero L{layer}.{what}" for what in pair]
    expected = by_hand(model, tokens, name)
    assert_close(run(model, tokens, both), expected)
    assert_close(run(model, tokens, both[::-1]), expected)
    one, other = f"mean L{layer}.{pair[0]}", f"zero L{layer}.{pair[1]}"
    assert_close(
        run(model, tokens, [other, one], reference=others),
        run(model, tokens, [one, other], reference=others),
    )


def test_later_one_replaces_an_earlier_one_at_the_same_component(
    model: HookedGPT, tokens: Tensor, others: Tensor
) -> None:
    two = ["zero L0.H1", "mean L0.H1"]
    expected = run(model, tokens, "mean L0.H1", reference=others)
    assert torch.equal(run(model, tokens, two, reference=others), expected)
    at = ["zero L0.H1 at 2", "zero L0.H1 at 5"]
    assert torch.equal(run(model, tokens, at), run(model, tokens, "zero L0.H1 at 2,5"))


def test_none_at_all_changes_nothing(model: HookedGPT, tokens: Tensor) -> None:
    assert torch.equal(run(model, tokens, []), model(tokens))


# ---- one path ------------------------------------------------------------------------------------


def path_by_hand(
    model: HookedGPT,
    tokens: Tensor,
    cache: ActivationCache,
    label: Any,
    into: Any,
    other: Any = None,
    positions: Any = None,
) -> Any:
    """One receiver's own input is changed by what the sender no longer writes."""
    name = hook_of(label)
    after = edited(model, label, cache[name].clone(), other)
    constant = label.split(".")[-1] in ("b_O", "b_out")
    if constant:
        difference = -written(model, label, cache[name]) if other is None else 0 * cache[name]
    else:
        difference = written(model, label, after) - written(model, label, cache[name])
    if positions is not None:
        outside = [t for t in range(tokens.shape[1]) if t not in positions]
        difference = difference.clone()
        difference[:, outside] = 0
    if into == "logits":
        last = len(model.blocks) - 1
        return model.unembed_residual(cache["resid_post", last] + difference)
    layer, *head, what = into.split(".")
    layer = int(layer[1:])
    block = model.blocks[layer]
    if what == "mlp":
        read = block.ln2(cache["resid_mid", layer] + difference)
        edits = (f"blocks.{layer}.hook_mlp_out", lambda x, hook: block.mlp(read))  # type: ignore[misc]
    else:
        read = block.ln1(cache["resid_pre", layer] + difference)
        new = block.attn.project(read)["qkv".index(what)]

        def project(x: Tensor, hook: HookPoint) -> Any:
            heads = [int(head[0][1:])] if head else range(model.config.n_heads)
            for h in heads:
                x[:, :, h] = new[:, :, h]
            return x

        edits = (f"blocks.{layer}.attn.hook_{what}", project)
    with model.hooks([edits]):
        return model(tokens)


@torch.no_grad()
@pytest.mark.parametrize("positions", [None, (1, 6)])
@pytest.mark.parametrize(
    "into", ["L1.H2.q", "L1.H0.k", "L1.H3.v", "L1.q", "L1.k", "L1.v", "L1.mlp", "logits"]
)
def test_path_changes_what_one_receiver_reads(
    model: HookedGPT, tokens: Tensor, reference: Any, caches: Any, into: Any, positions: Any
) -> None:
    clean, theirs, source = caches
    rows = torch.tensor([4, 4])
    for n, label in enumerate(SENDERS):
        name = hook_of(label)
        kinds = [
            ("zero", None, {}),
            ("mean", theirs[name][:, :9].mean(0, keepdim=True), {"reference": reference}),
            ("resample", theirs[name][rows, :9], {"reference": reference, "rows": rows}),
            ("patch", source[name], {"source": source}),
        ]
        for kind, other, options in kinds if n < 4 and positions is None else kinds[:1]:
            one = Intervention(label, kind, positions, into)
            expected = path_by_hand(model, tokens, clean, label, into, other, positions)
            assert_close(run(model, tokens, one, **options), expected, str(one))


@torch.no_grad()
def test_path_within_a_block_goes_to_the_mlp(model: HookedGPT, tokens: Tensor) -> None:
    _, cache = model.run_with_cache(tokens)
    for label in ("L0.H1", "L0.attn", "L0.b_O"):
        given = run(model, tokens, f"zero {label} into L0.mlp")
        assert_close(given, path_by_hand(model, tokens, cache, label, "L0.mlp"), label)


@pytest.mark.parametrize("label", ["embed", "pos_embed", "L0.H1", "L0.b_O", "L0.mlp", "L1.attn"])
@pytest.mark.parametrize("kind", ["zero", "mean"])
def test_all_paths_together_are_the_whole_edit(
    tokens: Tensor, others: Tensor, label: str, kind: str
) -> None:
    model = random_model(torch.float64, n_layers=3, **SMALL)
    depth = component(model.config, label).depth
    readers = [
        (f"L{layer}.{what}", (layer, int(what == "mlp")))
        for layer in range(3)
        for what in ("q", "k", "v", "mlp")
    ]
    into = [name for name, place in readers if depth < place] + ["logits"]
    paths = [f"{kind} {label} into {name}" for name in into]
    options = {"reference": others} if kind == "mean" else {}
    whole = run(model, tokens, f"{kind} {label}", **options)
    assert_close(run(model, tokens, paths, **options), whole)
    fewer = run(model, tokens, paths[:-1], **options)
    constant = label in ("pos_embed", "L0.b_O")
    assert (fewer - whole).abs().max() > 1e-4 or (kind == "mean" and constant)


def test_path_by_path_heads_make_all_heads(model: HookedGPT, tokens: Tensor) -> None:
    each = [f"zero L0.mlp into L1.H{h}.v" for h in range(4)]
    assert_close(run(model, tokens, each), run(model, tokens, "zero L0.mlp into L1.v"))


@pytest.mark.parametrize("into", ["L1.H2.q", "L1.k", "L1.v", "L1.mlp", "logits"])
def test_path_that_carries_no_change_changes_nothing(
    model: HookedGPT, tokens: Tensor, into: str
) -> None:
    source = model.run_with_cache(tokens)[1]
    for label in SENDERS:
        given = run(model, tokens, f"patch {label} into {into}", source=source)
        torch.testing.assert_close(given, model(tokens), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "zero L0.H1 into L0.H2.k", "zero L0.attn into L0.q", "zero L0.mlp into L0.mlp",
        "zero L1.H1 into L0.mlp", "zero L1.mlp into L1.v", "zero L0.b_out into L0.mlp",
        "zero ln_bias into logits", "zero b_U into logits", "zero L1.N3 into L1.H0.q",
        "zero blocks.0.hook_resid_pre into logits",
    ],
)  # fmt: skip
def test_receiver_that_does_not_read_the_sender_is_refused(model: HookedGPT, text: str) -> None:
    with pytest.raises(ConfigError, match="does not read what"), intervene(model, text):
        pass
    assert not model.is_edited


@pytest.mark.parametrize(
    "into", ["L1.H2", "L1.H9.q", "L7.q", "L2.mlp", "logit", "L1.attn", "embed"]
)
def test_unknown_receiver_is_refused(model: HookedGPT, into: str) -> None:
    with pytest.raises(ConfigError) as caught, intervene(model, f"zero embed into {into}"):
        pass
    assert "\n" not in str(caught.value)
    assert not model.is_edited


# ---- leaving the model as it was -----------------------------------------------------------------


def test_context_ends_cleanly(model: HookedGPT, tokens: Tensor) -> None:
    before = model(tokens)
    weights = {name: p.clone() for name, p in model.named_parameters()}
    with intervene(model, ["zero L0.H1", "zero embed into L1.H2.k"]) as inside:
        assert inside is model
        assert not torch.equal(model(tokens), before)
    assert not model.is_edited
    assert torch.equal(model(tokens), before)
    with pytest.raises(RuntimeError, match="ours"), intervene(model, "zero L0.mlp"):
        raise RuntimeError("ours")
    with pytest.raises(TokenError), intervene(model, ["zero L0.H1", "zero L1.mlp at 12"]):
        model(tokens)
    assert not model.is_edited
    assert torch.equal(model(tokens), before)
    assert all(p.equal(weights[name]) for name, p in model.named_parameters())


def test_path_context_can_be_used_again_after_a_failed_run(
    model: HookedGPT, tokens: Tensor
) -> None:
    expected = run(model, tokens, "zero embed into L1.H2.k")

    def fail(x: Tensor, hook: HookPoint) -> None:
        raise RuntimeError("ours")

    with torch.no_grad(), intervene(model, "zero embed into L1.H2.k"):
        with model.hooks([("blocks.0.hook_mlp_out", fail)]), pytest.raises(RuntimeError):
            model(tokens)
        assert torch.equal(model(tokens), expected)
        assert torch.equal(model(tokens), expected)


def test_hooks_of_others_survive(model: HookedGPT, tokens: Tensor) -> None:
    seen = []
    model.add_hook("blocks.0.attn.hook_z", lambda z, hook: seen.append(z.shape))
    with intervene(model, "zero L0.H1"):
        model(tokens)
    model(tokens)
    assert len(seen) == 2
    with model.hooks([("hook_logits", lambda x, hook: 2 * x)]):
        given = run(model, tokens, "zero L0.H1")
    model.reset_hooks()
    assert torch.equal(given, 2 * by_hand(model, tokens, "L0.H1"))


def test_gradients_pass_through(tokens: Tensor) -> None:
    model = random_model(torch.float64, **SMALL)
    with intervene(model, "zero L0.H1"):
        model(tokens, "loss").backward()
    grads = model.blocks[0].attn.W_O.grad
    assert (grads[1] == 0).all()
    assert (grads[0] != 0).any()


@pytest.mark.parametrize("kind", ["zero", "mean", "resample"])
def test_inside_a_run_that_records(
    model: HookedGPT, tokens: Tensor, others: Tensor, kind: Any
) -> None:
    options = {} if kind == "zero" else {"reference": others}
    expected = run(model, tokens, f"{kind} L0.H1", **options)
    with torch.no_grad(), intervene(model, f"{kind} L0.H1", **options):
        logits, cache = model.run_with_cache(tokens)
    assert_close(logits, expected)
    if kind == "zero":
        assert (cache["z", 0][:, :, 1] == 0).all()
    if kind == "mean":
        means = cached(model, others, "blocks.0.attn.hook_z")[:, :9, 1].mean(0)
        assert_close(cache["z", 0][:, :, 1], means.expand(2, -1, -1))
    path = f"{kind} L0.H1 into L1.H2.k"
    expected = run(model, tokens, path, **options)
    with torch.no_grad(), intervene(model, path, **options):
        assert_close(model.run_with_cache(tokens)[0], expected)


def test_text_generated_under_an_intervention_is_that_of_the_edited_model(
    model: HookedGPT, others: Tensor
) -> None:
    from interp import generate

    edited_model = random_model(torch.float64, **SMALL)
    edited_model.load_state_dict(model.state_dict())
    with torch.no_grad():
        edited_model.blocks[0].attn.W_O[1] = 0
    with intervene(model, "zero L0.H1"):
        given = generate(model, "abc", 10, seed=3)
    assert torch.equal(given, generate(edited_model, "abc", 10, seed=3))


# ---- as text -------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=300)
@given(
    component=st.sampled_from(LABELS + HOOKS) | st.builds("L{}.H{}".format, NUMBER, NUMBER),
    kind=st.sampled_from(["zero", "mean", "resample", "patch"]),
    positions=st.none() | st.lists(st.integers(0, 10**6), min_size=1, max_size=5).map(tuple),
    into=st.none() | st.sampled_from(["L1.H2.q", "L1.k", "L0.mlp", "logits", "L12.H11.v"]),
)  # fmt: skip
def test_text_round_trip(component: Any, kind: Any, positions: Any, into: Any) -> None:
    one = Intervention(component, kind, positions, into)
    assert Intervention.parse(str(one)) == one
    assert Intervention.parse(f"  {one}\n") == one


@settings(deadline=None, max_examples=200)
@given(text=st.text(alphabet="zeromanL01.H3k,at into", max_size=20))
def test_any_text_is_an_intervention_or_one_clear_line(text: str) -> None:
    text = f"zero {text}"
    try:
        one = Intervention.parse(text)
    except ConfigError as error:
        said = str(error)
        if "\n" in said:
            pytest.fail(said)
    else:
        assert Intervention.parse(str(one)) == one


@pytest.mark.parametrize(
    "text",
    ["", "zero", "L0.H3",  "zero L0.H3 at", "zero L0.H3 at x", "zero L0.H3 at -1",
     "zero L0.H3 at 1,,2", "zero L0.H3 into", "zero L0.H3 into L1.q at 3", "zero L0.H3 L0.H4"],
)  # fmt: skip
def test_text_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not an intervention"):
        Intervention.parse(text)


@pytest.mark.parametrize("positions", [(), (-1,), (3, -2)])
def test_positions_count_from_zero(positions: Any) -> None:
    with pytest.raises(ConfigError, match="counted from 0"):
        Intervention("L0.H3", "zero", positions)


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "label", ["L0.H4", "L2.mlp", "L0.N20", "L0.H01", "L00.mlp", "L0.mpl", "head 3", ""]
)
def test_unknown_component_is_refused(model: HookedGPT, label: str) -> None:
    with (
        pytest.raises(ConfigError, match="no component"),
        intervene(model, Intervention(label, "zero")),
    ):
        pass
    assert not model.is_edited


def test_components_that_a_variant_lacks_are_refused() -> None:
    for variant, label in [
        ({"positional": False}, "pos_embed"), ({"final_norm": False}, "ln_bias"),
        ({"unembed_bias": False}, "b_U"), ({"d_mlp": 0}, "L0.mlp"), ({"d_mlp": 0}, "L0.b_out"),
        ({"d_mlp": 0}, "L0.N0"),
    ]:  # fmt: skip
        model = random_model(**variant)
        assert not exists(model, label)
        with pytest.raises(ConfigError, match="no component"), intervene(model, f"zero {label}"):
            pass


def test_unknown_hook_name_names_the_nearest(model: HookedGPT) -> None:
    with (
        pytest.raises((ConfigError, HookError), match=r"blocks\.0\.hook_resid_pre"),
        intervene(model, "zero blocks.0.hook_resid_per"),
    ):
        pass


def test_what_takes_the_place_must_be_given(model: HookedGPT) -> None:
    for kind, needs in [("mean", "reference="), ("resample", "reference="), ("patch", "source=")]:
        with pytest.raises(ConfigError, match=needs), intervene(model, f"{kind} L0.H1"):
            pass
        with (
            pytest.raises(ConfigError, match=needs),
            intervene(model, f"{kind} L0.H1 into L1.H2.k"),
        ):
            pass


def test_the_models_own_held_out_text_stands_in_where_no_reference_is_given(
    tmp_path: Path, tokens: Tensor
) -> None:
    text = "abcdefg" * 200 + "gfedcba" * 50
    (tmp_path / "text.txt").write_text(text)
    model = random_model()
    model.save_pretrained(tmp_path)
    (tmp_path / "recipe.toml").write_text(RECIPE.format(path=tmp_path / "text.txt"))
    found = HookedGPT.from_pretrained(tmp_path)
    with intervene(found, "mean L0.H1"):
        given = found(tokens)
    with intervene(found, "mean L0.H1", reference=held_out(found)):
        assert_close(given, found(tokens))
    with intervene(found, "zero L0.H1"):  # needs none
        assert not torch.equal(given, found(tokens))


RECIPE = """
name = "tiny"

[text]
path = "{path}"

[model]
n_layers = 2
n_heads = 4
d_model = 32
n_ctx = 16
"""


@pytest.mark.parametrize("empty", ["", [], torch.zeros(0, 4, dtype=torch.long)])
def test_empty_reference_set_is_refused(model: HookedGPT, empty: Any) -> None:
    with pytest.raises(TokenError, match="reference set is empty"):
        ReferenceSet(model, empty)


@pytest.mark.parametrize("kind", ["mean", "resample"])
@pytest.mark.parametrize("into", ["", " into L1.mlp"])
def test_reference_set_that_is_too_short_is_refused(
    model: HookedGPT, tokens: Tensor, kind: str, into: str
) -> None:
    short = random_tokens(model, 3, pos=5)
    with pytest.raises(TokenError, match="5 positions, but 9"):
        run(model, tokens, f"{kind} L0.H1{into}", reference=short)
    run(model, tokens[:, :5], f"{kind} L0.H1{into}", reference=short)


def test_reference_set_of_another_model_is_refused(
    model: HookedGPT, tokens: Tensor, others: Tensor
) -> None:
    reference = ReferenceSet(random_model(torch.float64, seed=9, **SMALL), others)
    with pytest.raises(CacheError, match="another model"):
        run(model, tokens, "mean L0.H1", reference=reference)


def test_reference_set_counts_the_sequences_it_shares(
    tokens: Tensor, others: Tensor, reference: Any
) -> None:
    assert len(reference) == 6
    assert reference.overlap(others) == 6
    assert reference.overlap(others[3:5, :6]) == 2
    assert reference.overlap(torch.cat((others[:1, :9], tokens))) == 1
    assert reference.overlap((others[:2] + 1) % 7) == 0


def test_mean_over_the_others(model: HookedGPT, others: Tensor, reference: Any) -> None:
    z = cached(model, others, "blocks.0.attn.hook_z")
    given = reference.mean(component(model.config, "L0.H1"), 12, z[:2])
    for i in (0, 1):
        kept = torch.arange(6) != i
        assert_close(given[i], z[kept][:, :, 1].mean(0))
    one = ReferenceSet(model, others[:1])
    with pytest.raises(TokenError, match="no others"):
        one.mean(component(model.config, "L0.H1"), 12, z[:1])
    with pytest.raises(TokenError, match="larger reference set"):
        one.draw(1, 0, torch.ones(1, 1, dtype=torch.bool))


def test_source_of_another_model_is_refused(model: HookedGPT, tokens: Tensor) -> None:
    source = random_model(torch.float64, **SMALL).run_with_cache(tokens)[1]
    with (
        pytest.raises(CacheError, match="another model"),
        intervene(model, "patch L0.H1", source=source),
    ):
        pass


def test_source_of_another_shape_is_refused(model: HookedGPT, tokens: Tensor) -> None:
    for other in (tokens[:, :5], tokens.repeat(2, 1)):
        source = model.run_with_cache(other)[1]
        with pytest.raises(CacheError, match="source run has shape"):
            run(model, tokens, "patch L0.H1", source=source)


@pytest.mark.parametrize("into", ["", " into L1.H2.k"])
def test_position_outside_the_prompt_is_refused(
    model: HookedGPT, tokens: Tensor, into: str
) -> None:
    with pytest.raises(TokenError, match="position 9 is outside the prompt of 9 tokens"):
        run(model, tokens, f"zero L0.H1 at 2,9{into}")


def test_positions_of_an_attention_map_are_its_queries_or_refused(
    model: HookedGPT, tokens: Tensor
) -> None:
    """The second axis of a pattern is its heads; they must not be taken for positions."""
    name = "blocks.0.attn.hook_pattern"
    try:
        given = run(model, tokens, f"zero {name} at 2")
    except (ConfigError, TokenError):
        return

    def queries(pattern: Any, hook: HookPoint) -> Any:
        pattern[:, :, 2] = 0
        return pattern

    with torch.no_grad(), model.hooks([(name, queries)]):
        assert_close(given, model(tokens))
