"""Hooks: every one is causal, checked, and gone when its block ends."""

# mypy: disable-error-code="arg-type"

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import VARIANTS, assert_close, random_model, random_tokens, variant_id
from torch import Tensor

from interp import HookedGPT, HookError
from interp.hooks import HookPoint

each_variant = pytest.mark.parametrize("variant", VARIANTS, ids=variant_id)


def noise_like(x: Tensor, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return 0.1 * torch.rand(x.shape, generator=generator, dtype=x.dtype)


def by_return(x: Tensor, hook: HookPoint) -> Any:
    return x + noise_like(x)


def in_place(x: Tensor, hook: HookPoint) -> None:
    x += noise_like(x)


def nothing_attached(model: HookedGPT) -> bool:
    points = model.hook_dict.values()
    return not any(p.watched or p.fwd_hooks or p.bwd_hooks for p in points)


@each_variant
@pytest.mark.parametrize("grad", [True, False])
def test_every_hook_changes_the_logits_the_same_way_returned_or_in_place(
    variant: dict[str, Any], grad: bool
) -> None:
    model = random_model(**variant)
    tokens = random_tokens(model)
    with torch.set_grad_enabled(grad):
        clean = model(tokens)
        for name in model.hook_dict:
            returned = model.run_with_hooks(tokens, fwd_hooks=[(name, by_return)])
            edited = model.run_with_hooks(tokens, fwd_hooks=[(name, in_place)])
            assert torch.equal(returned, edited), name
            assert (returned - clean).abs().max() > 1e-3, name
        assert torch.equal(model(tokens), clean)


@each_variant
def test_gradients_are_the_same_after_a_returned_and_an_in_place_edit(
    variant: dict[str, Any],
) -> None:
    model = random_model(**variant)
    tokens = random_tokens(model)

    def grads(name: Any, hook: HookPoint) -> Any:
        logits = model.run_with_hooks(tokens, fwd_hooks=[(name, hook)])
        loss = logits.square().mean()
        return torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True)

    for name in model.hook_dict:
        pairs = list(zip(grads(name, by_return), grads(name, in_place), strict=True))
        assert all(torch.equal(a, b) for a, b in pairs), name
        assert any(a.abs().max() > 0 for a, _ in pairs), name
        assert all(a.isfinite().all() for a, _ in pairs), name


def test_an_in_place_edit_never_reaches_a_parameter() -> None:
    model = random_model(tied=True)
    before = {name: p.clone() for name, p in model.named_parameters()}
    with torch.no_grad():
        model.run_with_hooks(random_tokens(model), fwd_hooks=[(lambda name: True, in_place)])
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_hook_that_changes_nothing_changes_nothing(dtype: torch.dtype) -> None:
    model = random_model(dtype)
    tokens = random_tokens(model)
    clean = model(tokens)
    for name in model.hook_dict:
        hooked = model.run_with_hooks(tokens, fwd_hooks=[(name, lambda x, hook: None)])
        assert_close(hooked, clean, name)


def test_an_edit_of_resid_mid_reaches_the_skip() -> None:
    model = random_model(torch.float64)
    tokens = random_tokens(model)
    _, clean = model.run_with_cache(tokens)
    held = clean["mlp_out", 0]
    hooks = [
        ("blocks.0.hook_resid_mid", in_place),
        ("blocks.0.hook_mlp_out", lambda x, hook: held),
    ]
    with model.hooks(hooks):
        _, edited = model.run_with_cache(tokens)
    change = edited["resid_post", 0] - clean["resid_post", 0]
    torch.testing.assert_close(change, noise_like(change), atol=1e-12, rtol=0)


def test_an_edit_of_mlp_in_reaches_the_mlp_alone() -> None:
    model = random_model(torch.float64)
    tokens = random_tokens(model)
    _, clean = model.run_with_cache(tokens)
    with model.hooks([("blocks.0.hook_mlp_in", in_place)]):
        _, edited = model.run_with_cache(tokens)
    assert_close(edited["resid_mid", 0], clean["resid_mid", 0])
    mlp_change = edited["mlp_out", 0] - clean["mlp_out", 0]
    assert mlp_change.abs().max() > 1e-3
    change = edited["resid_post", 0] - clean["resid_post", 0]
    torch.testing.assert_close(change, mlp_change, atol=1e-12, rtol=0)


def test_an_edit_of_one_heads_q_input_changes_that_head_alone() -> None:
    model = random_model(torch.float64)
    tokens = random_tokens(model)
    _, clean = model.run_with_cache(tokens)

    def edit(x: Tensor, hook: HookPoint) -> None:
        x[:, :, 2] += noise_like(x[:, :, 2])

    with model.hooks([("blocks.1.hook_q_input", edit)]):
        _, edited = model.run_with_cache(tokens)
    others = [0, 1, 3]
    change = (edited["pattern", 1] - clean["pattern", 1]).abs()
    assert change[:, 2].max() > 1e-4
    assert change[:, others].max() < 1e-12
    for name in ("k", "v"):
        assert_close(edited[name, 1], clean[name, 1])


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        (lambda x, hook: x[:, :-1], "shape"),
        (lambda x, hook: x.sum(), "shape"),
        (lambda x, hook: x.double(), "dtype"),
        (lambda x, hook: x.to("meta"), "device"),
        (lambda x, hook: 0, "returned int"),
        (lambda x, hook: [x], "returned list"),
        (lambda x, hook: (x, x), "returned tuple"),
    ],
)
def test_a_return_of_the_wrong_kind_is_refused(hook: Any, said: str) -> None:
    model = random_model()
    with pytest.raises(HookError, match=said) as error:
        model.run_with_hooks(random_tokens(model), fwd_hooks=[("blocks.1.hook_attn_out", hook)])
    assert "blocks.1.hook_attn_out" in str(error.value)
    assert "\n" not in str(error.value)
    assert nothing_attached(model)


@pytest.mark.parametrize(
    "ask",
    [
        lambda model, tokens, name: model.hooks([(name, in_place)]).__enter__(),
        lambda model, tokens, name: model.hooks(bwd_hooks=[(name, in_place)]).__enter__(),
        lambda model, tokens, name: model.run_with_hooks(tokens, fwd_hooks=[(name, in_place)]),
        lambda model, tokens, name: model.add_hook(name, in_place),
        lambda model, tokens, name: model.add_perma_hook(name, in_place),
        lambda model, tokens, name: model.run_with_cache(tokens, names_filter=name),
        lambda model, tokens, name: model.run_with_cache(tokens, names_filter=["hook_embed", name]),
    ],
    ids=["hooks", "bwd", "run_with_hooks", "add_hook", "add_perma_hook", "cache", "cache_list"],
)
def test_an_unknown_name_is_refused_with_the_nearest(ask: Any) -> None:
    model = random_model()
    with pytest.raises(HookError, match=r"did you mean .*blocks\.1\.hook_resid_pre"):
        ask(model, random_tokens(model), "blocks.1.hook_resid_prr")
    assert nothing_attached(model)


def test_nothing_is_attached_when_one_of_several_names_is_unknown() -> None:
    model = random_model()
    hooks = [("hook_embed", in_place), ("hook_emb", in_place)]
    with pytest.raises(HookError):
        model.run_with_hooks(random_tokens(model), fwd_hooks=hooks)
    assert nothing_attached(model)


def test_a_function_that_selects_no_name_is_refused() -> None:
    model, none = random_model(), lambda name: False
    tokens = random_tokens(model)
    with pytest.raises(HookError, match="none"):
        model.run_with_hooks(tokens, fwd_hooks=[(none, in_place)])
    with pytest.raises(HookError, match="none"):
        model.add_hook(none, in_place)
    with pytest.raises(HookError, match="none"):
        model.run_with_cache(tokens, names_filter=none)


def test_an_unknown_preset_is_refused_with_the_nearest() -> None:
    model = random_model()
    with pytest.raises(HookError, match="did you mean 'contributions'"):
        model.run_with_cache(random_tokens(model), names_filter="contribution")


def test_nothing_stays_attached_after_an_exception_in_a_hook() -> None:
    model = random_model()
    tokens = random_tokens(model)

    def fail(x: Tensor, hook: HookPoint) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        model.run_with_hooks(tokens, fwd_hooks=[("hook_embed", in_place), ("hook_logits", fail)])
    assert nothing_attached(model)
    with pytest.raises(ZeroDivisionError), model.hooks([("hook_logits", fail)]):
        model.run_with_cache(tokens)
    assert nothing_attached(model)
    assert torch.equal(model(tokens), random_model()(tokens))


def test_a_users_hook_survives_nested_runs_and_leaves_with_reset_hooks() -> None:
    model = random_model()
    tokens = random_tokens(model)
    clean = model(tokens)
    model.add_hook("blocks.0.hook_attn_out", in_place)
    hooked = model(tokens)
    model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.hook_attn_out", by_return)])
    model.run_with_cache(tokens)
    with model.hooks([("hook_embed", in_place)]):
        model.run_with_hooks(tokens, fwd_hooks=[("hook_embed", in_place)])
    assert torch.equal(model(tokens), hooked)
    assert not torch.equal(hooked, clean)
    model.reset_hooks()
    assert nothing_attached(model)
    assert torch.equal(model(tokens), clean)


def test_hooks_stay_when_asked_to() -> None:
    model = random_model()
    tokens = random_tokens(model)
    hooks = [("hook_embed", in_place)]
    hooked = model.run_with_hooks(tokens, fwd_hooks=hooks, reset_hooks_end=False)
    assert torch.equal(model(tokens), hooked)
    model.reset_hooks()
    assert nothing_attached(model)


def test_hooks_run_in_the_order_given_and_each_sees_the_one_before() -> None:
    model = random_model()
    tokens = random_tokens(model)
    name, seen = "blocks.0.hook_resid_post", []
    hooks = [
        (name, lambda x, hook: torch.zeros_like(x)),
        (name, lambda x, hook: seen.append(x.clone())),
        (name, lambda x, hook: x + 1),
    ]
    with model.hooks(hooks):
        _, cache = model.run_with_cache(tokens)
    assert seen[0].abs().max() == 0
    assert torch.equal(cache[name], torch.ones_like(cache[name]))


def test_a_hook_is_given_its_point_with_its_name() -> None:
    model, names = random_model(), []
    hook = (lambda name: name.endswith("hook_z"), lambda x, hook: names.append(hook.name))
    model.run_with_hooks(random_tokens(model), fwd_hooks=[hook])
    assert names == ["blocks.0.attn.hook_z", "blocks.1.attn.hook_z"]


def test_a_backward_hook_may_return_a_gradient() -> None:
    model = random_model(torch.float64)
    tokens = random_tokens(model)

    def embedding_grad(**hooks: Any) -> Any:
        with model.hooks(**hooks):
            return torch.autograd.grad(model(tokens, "loss"), model.embed.W_E)[0]

    name = "blocks.0.hook_resid_post"
    clean = embedding_grad()
    doubled = embedding_grad(bwd_hooks=[(name, lambda grad, hook: 2 * grad)])
    torch.testing.assert_close(doubled, 2 * clean, atol=1e-12, rtol=0)
    zero = embedding_grad(bwd_hooks=[(name, lambda grad, hook: torch.zeros_like(grad))])
    assert zero.abs().max() == 0
    both = embedding_grad(
        fwd_hooks=[(name, in_place)], bwd_hooks=[(name, lambda grad, hook: 0 * grad)]
    )
    assert both.abs().max() == 0
    assert nothing_attached(model)


def test_a_backward_hook_sees_the_gradient_of_its_activation() -> None:
    model = random_model(torch.float64)
    tokens, seen = random_tokens(model), []
    hook = ("hook_logits", lambda grad, hook: seen.append(grad.clone()))
    with model.hooks(bwd_hooks=[hook]):
        logits = model(tokens)
        torch.autograd.grad(logits.square().sum(), model.embed.W_E)
    torch.testing.assert_close(seen[0], 2 * logits.detach(), atol=1e-12, rtol=0)


def test_a_backward_hooks_return_of_the_wrong_shape_is_refused() -> None:
    model = random_model()
    hook = ("blocks.0.hook_resid_post", lambda grad, hook: grad[:, :1])
    with pytest.raises(HookError, match="shape"), model.hooks(bwd_hooks=[hook]):
        model(random_tokens(model), "loss").backward()
    assert nothing_attached(model)


def test_recording_shows_what_the_hooks_left() -> None:
    model = random_model()
    tokens = random_tokens(model)
    for name in model.hook_dict:
        with model.hooks([(name, lambda x, hook: torch.full_like(x, 0.5))]):
            _, cache = model.run_with_cache(tokens, names_filter=name)
        assert torch.equal(cache[name], torch.full_like(cache[name], 0.5)), name


@each_variant
def test_recording_leaves_the_effect_of_every_hook_as_it_is(variant: dict[str, Any]) -> None:
    model = random_model(torch.float64, **variant)
    tokens, wrong = random_tokens(model), []
    for name in model.hook_dict:
        with torch.no_grad(), model.hooks([(name, in_place)]):
            alone = model(tokens)
            recorded, _ = model.run_with_cache(tokens, names_filter=lambda name: True)
        if not torch.allclose(alone, recorded, atol=1e-10):
            wrong.append(name)
    assert wrong == []


def test_hooks_on_several_points_each_have_their_effect() -> None:
    model = random_model(torch.float64)
    tokens = random_tokens(model)
    names = list(model.hook_dict)
    others = [f"blocks.0.hook_{x}_input" for x in "qkv"]
    wrong = []
    for name in names:
        rest = [(other, lambda x, hook: None) for other in others if other != name]
        alone = model.run_with_hooks(tokens, fwd_hooks=[(name, in_place)])
        together = model.run_with_hooks(tokens, fwd_hooks=[(name, in_place), *rest])
        if not torch.allclose(alone, together, atol=1e-10):
            wrong.append(name)
    assert wrong == []


def test_a_recorded_run_inside_another_is_refused_and_leaves_no_recorder() -> None:
    model = random_model()
    tokens = random_tokens(model)
    hook = ("blocks.0.hook_attn_out", lambda x, hook: model.run_with_cache(tokens) and None)
    with pytest.raises(HookError, match="nested"), model.hooks([hook]):
        model.run_with_cache(tokens)
    assert nothing_attached(model)
