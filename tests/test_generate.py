"""Generation: the same text with and without a past, and whatever the model is doing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import N_CTX, VARIANTS, random_model, variant_id
from torch import Tensor

from interp import ConfigError, TokenError, generate
from interp.hooks import HookPoint

each_variant = pytest.mark.parametrize("variant", [*VARIANTS, {"n_layers": 0}], ids=variant_id)


@each_variant
@pytest.mark.parametrize("n_tokens", [5, 30])
def test_a_past_changes_nothing(variant: dict[str, Any], n_tokens: int) -> None:
    model = random_model(torch.float64, **variant)
    prompt = torch.tensor([[0, 1, 2], [6, 5, 4]])
    kept = generate(model, prompt, n_tokens, seed=1)
    afresh = generate(model, prompt, n_tokens, seed=1, use_past=False)
    assert kept.shape == (2, 3 + n_tokens)
    assert torch.equal(kept, afresh)
    assert torch.equal(kept[:, :3], prompt)


def test_the_prompt_may_fill_the_context() -> None:
    model = random_model(torch.float64)
    prompt = "abcdefgabcdefgab"
    assert len(prompt) == N_CTX
    kept = generate(model, prompt, 3, seed=1)
    assert torch.equal(kept, generate(model, prompt, 3, seed=1, use_past=False))


def test_the_seed_decides_the_text_and_the_global_generator_is_left_alone() -> None:
    model = random_model()
    before = torch.random.get_rng_state()
    first = generate(model, "ab", 40, seed=1)
    assert torch.equal(first, generate(model, "ab", 40, seed=1))
    assert not torch.equal(first, generate(model, "ab", 40, seed=2))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("options", [{"temperature": 0}, {"top_k": 1}, {"temperature": 1e-4}])
def test_the_most_likely_token_is_taken(options: Any) -> None:
    model = random_model(torch.float64)
    expected = model.to_tokens("ab")
    for _ in range(20):
        token = model(expected[:, -N_CTX:])[:, -1].argmax(-1, keepdim=True)
        expected = torch.cat((expected, token), dim=1)
    assert torch.equal(generate(model, "ab", 20, **options), expected)


def test_top_k_samples_among_the_k_most_likely_only() -> None:
    model = random_model(torch.float64)
    sampled = {int(generate(model, "abc", 1, top_k=2, temperature=9.0, seed=s)[0, -1])
               for s in range(40)}  # fmt: skip
    assert sampled == set(model("abc")[0, -1].topk(2).indices.tolist())


def test_tokens_are_sampled_with_the_models_probabilities() -> None:
    model = random_model()
    prompt = torch.tensor([[0, 1]]).expand(4000, 2)
    drawn = generate(model, prompt, 1, seed=0)[:, -1]
    frequencies = drawn.bincount(minlength=7) / 4000
    torch.testing.assert_close(frequencies, model(prompt[:1])[0, -1].softmax(-1), atol=0.04, rtol=0)


@pytest.mark.parametrize(
    ("prompt", "said"),
    [("a" * 17, "n_ctx = 16"), ("", "at least one"), ("ab!c!", "'!' at 2, 4"), ("Ω", "'Ω' at 0")],
)
def test_a_prompt_that_does_not_fit_is_refused(prompt: Any, said: str) -> None:
    with pytest.raises(TokenError) as error:
        generate(random_model(), prompt, 1)
    assert said in str(error.value)


@pytest.mark.parametrize("options", [{"temperature": -1.0}, {"top_k": 0}, {"n_tokens": -1}])
def test_impossible_options_are_refused(options: Any) -> None:
    with pytest.raises(ConfigError):
        generate(random_model(), "ab", **({"n_tokens": 1} | options))


@pytest.mark.parametrize("training", [True, False])
def test_the_models_mode_is_restored(training: bool) -> None:
    model = random_model(dropout=0.5).train(training)
    text = generate(model, "ab", 20, seed=1)
    assert all(module.training == training for module in model.modules())
    assert torch.equal(text, generate(random_model(dropout=0.5), "ab", 20, seed=1))


def test_the_models_mode_is_restored_after_an_exception() -> None:
    model = random_model().train()

    def fail(x: Tensor, hook: HookPoint) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), model.hooks([("hook_logits", fail)]):
        generate(model, "ab", 1)
    assert model.training


def test_a_hook_sees_the_whole_sequence_at_every_step() -> None:
    model, lengths = random_model(torch.float64), []
    hook = ("blocks.1.hook_resid_post", lambda x, hook: lengths.append(x.shape[1]))
    with model.hooks([hook]):
        hooked = generate(model, "abc", 16, seed=1)
    assert lengths == [*range(3, 17), 16, 16]
    assert torch.equal(hooked, generate(model, "abc", 16, seed=1))


def test_the_method_is_the_function_under_either_librarys_names() -> None:
    model = random_model(torch.float64)
    expected = generate(model, "ab", 9, top_k=3, temperature=2.0, seed=1)
    assert torch.equal(model.generate("ab", 9, top_k=3, temperature=2.0, seed=1), expected)
    assert torch.equal(
        model.generate(input="ab", max_new_tokens=9, top_k=3, temperature=2.0, seed=1), expected
    )
    likely = generate(model, "ab", 9, temperature=0)
    assert torch.equal(model.generate("ab", max_new_tokens=9, do_sample=False), likely)
    assert not torch.equal(expected, likely)
    assert torch.equal(model.generate("ab", max_new_tokens=0), model.to_tokens("ab"))


@pytest.mark.parametrize("options", [{}, {"n_tokens": 3, "max_new_tokens": 3}])
def test_the_number_of_tokens_is_given_once(options: Any) -> None:
    with pytest.raises(ConfigError, match="give one"):
        random_model().generate("ab", **options)
