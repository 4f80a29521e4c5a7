"""Accounts in models of transformers: against the model's own eager attention with the bias added by hand."""

import copy
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

import mental_accounts as ma
from mental_accounts.integrations import every, hugging_face_accounts

transformers = pytest.importorskip("transformers")

B, K, STATE, ACTION = 3, 7, 4, 3
BOOK, RULE = ma.GridCodebook(dim=ACTION, bins=3), ma.EWA(phi=0.1, delta=0.8)


def decision_transformer(implementation: str = "sdpa", layers: int = 2) -> Any:
    torch.manual_seed(0)
    if not transformers.DecisionTransformerModel._supports_sdpa:  # before 5.20
        implementation = implementation.replace("sdpa", "eager")
    config = transformers.DecisionTransformerConfig(
        state_dim=STATE, act_dim=ACTION, hidden_size=32, n_layer=layers, n_head=2, max_ep_len=50, vocab_size=1,
        bos_token_id=0, eos_token_id=0, attn_implementation=implementation,
    )  # fmt: skip
    return transformers.DecisionTransformerModel(config).eval()


def windows(padded: bool = False) -> dict[str, Tensor]:
    made = {
        "states": torch.randn(B, K, STATE),
        "actions": torch.rand(B, K, ACTION) * 2 - 1,
        "rewards": torch.randn(B, K, 1),
        "returns_to_go": torch.randn(B, K, 1),
        "timesteps": torch.arange(K).expand(B, K),
    }
    if padded:
        made["attention_mask"] = (torch.arange(K) >= torch.tensor([[0], [2], [4]])).long()
    return made


@contextmanager
def bias_by_hand(monkeypatch: pytest.MonkeyPatch, module: str, bias: Tensor) -> Iterator[None]:
    """The library's eager attention, written out, with (B, heads or 1, 1, S) added to its logits."""

    def eager(self: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **kwargs: Any) -> Any:
        logits = query @ key.transpose(-1, -2) * kwargs["scaling"] + bias[..., : key.shape[-2]]
        weights = torch.softmax(logits if mask is None else logits + mask, dim=-1)
        return (weights @ value).transpose(1, 2), weights

    with monkeypatch.context() as patch:
        patch.setattr(f"transformers.models.{module}.eager_attention_forward", eager)
        yield


DT = "decision_transformer.modeling_decision_transformer"


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("beta", [0.7, torch.tensor([0.3, -0.9])], ids=["number", "per head"])
def test_it_is_the_bias_added_by_hand(
    implementation: str, padded: bool, beta: float | Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = windows(padded)
    mask = inputs["attention_mask"].bool() if padded else torch.ones(B, K, dtype=torch.bool)
    A = RULE.trace(BOOK.route(inputs["actions"]), inputs["rewards"].squeeze(-1), mask=mask)
    with bias_by_hand(monkeypatch, DT, ma.column_bias(A, beta)):
        expected = decision_transformer("eager")(**inputs).action_preds
    model = decision_transformer(implementation)
    untouched = model(**inputs).action_preds
    with hugging_face_accounts(model, BOOK, RULE, beta):
        ours = model(**inputs).action_preds
    assert torch.allclose(ours[mask], expected[mask], atol=1e-6, rtol=0)
    assert not torch.allclose(ours[mask], untouched[mask], atol=1e-5, rtol=0)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("padded", [False, True])
def test_zero_beta_and_detached_are_the_untouched_model_bit_for_bit(implementation: str, padded: bool) -> None:
    model, inputs = decision_transformer(implementation), windows(padded)
    untouched = model(**inputs)
    before = {name: set(part.__dict__) for name, part in model.named_modules()}
    for beta in (0.0, torch.zeros(2), ma.BiasScale(0.0), ma.BiasScale(0.5)):
        with hugging_face_accounts(model, BOOK, RULE, beta) as accounts:
            assert accounts.is_attached
            quiet = model(**inputs)
            if accounts.are_silent:
                assert torch.equal(quiet.action_preds, untouched.action_preds)
                assert torch.equal(quiet.state_preds, untouched.state_preds)
            else:
                assert not torch.equal(quiet.action_preds, untouched.action_preds)
        assert not accounts.is_attached
        again = model(**inputs)
        for name in ("action_preds", "state_preds", "return_preds", "last_hidden_state"):
            assert torch.equal(again[name], untouched[name])
    assert {name: set(part.__dict__) for name, part in model.named_modules()} == before
    assert not any(part._forward_pre_hooks or part._forward_hooks for part in model.modules())
    learned = ma.BiasScale(0.0, learned=True)
    with hugging_face_accounts(model, BOOK, RULE, learned), torch.no_grad():
        assert torch.equal(model(**inputs).action_preds, untouched.action_preds)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_gradients_reach_a_learned_beta(implementation: str) -> None:
    model, inputs = decision_transformer(implementation), windows()
    scale = ma.BiasScale(0.2, learned=True, layers=2, heads=2)
    with hugging_face_accounts(model, BOOK, RULE, scale):
        model(**inputs).action_preds.square().sum().backward()
        gradient = scale.beta.grad
        assert gradient is not None
        for place in ((0, 1), (1, 0)):
            value = scale.beta.data[place].clone()
            losses = []
            for step in (1e-2, -1e-2):
                scale.beta.data[place] = value + step
                losses.append(model(**inputs).action_preds.double().square().sum().item())
            scale.beta.data[place] = value
            assert gradient[place].item() == pytest.approx((losses[0] - losses[1]) / 2e-2, rel=0.05, abs=1e-5)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("padded", [False, True])
def test_autocast_and_half_precision(implementation: str, padded: bool) -> None:
    model, inputs = decision_transformer(implementation), windows(padded)
    with hugging_face_accounts(model, BOOK, RULE, 0.5):
        exact = model(**inputs).action_preds
        with torch.autocast("cpu", torch.bfloat16):
            rough = model(**inputs).action_preds
        model.bfloat16()
        half = {name: value.bfloat16() if value.is_floating_point() else value for name, value in inputs.items()}
        rougher = model(**half).action_preds
    assert torch.allclose(rough.float(), exact, atol=0.02)
    assert torch.allclose(rougher.float(), exact, atol=0.02)


def test_a_product_codebook_shows_the_mean_of_its_accounts() -> None:
    model, inputs = decision_transformer(), windows()
    book = ma.ProductCodebook(dim=ACTION, groups=3, bins=3)
    A = RULE.trace(book.route(inputs["actions"]), inputs["rewards"].squeeze(-1)).mean(dim=-1)
    with hugging_face_accounts(model, book, RULE, 0.5):
        traced, given = model(**inputs), model(**inputs, attractions=A)
    assert torch.equal(traced.action_preds, given.action_preds)


def test_live_accounts_give_the_trajectorys_attractions() -> None:
    """Acting step by step with windows of 4 is one forward per window with the whole trajectory's trace."""
    model, T, context = decision_transformer(), 10, 4
    states, returns = torch.randn(B, T, STATE), torch.randn(B, T, 1)
    actions, rewards = torch.zeros(B, T, ACTION), torch.randn(B, T)
    live = []

    def window(t: int, last_action_known: bool) -> dict[str, Tensor]:
        first = max(0, t + 1 - context)
        taken = actions[:, first : t + 1].clone()
        if not last_action_known:
            taken[:, -1] = 0
        return {
            "states": states[:, first : t + 1],
            "actions": taken,
            "rewards": torch.zeros(B, t + 1 - first, 1),
            "returns_to_go": returns[:, first : t + 1],
            "timesteps": torch.arange(first, t + 1).expand(B, -1),
        }

    with hugging_face_accounts(model, BOOK, RULE, 0.8) as accounts, torch.no_grad():
        accounts.begin(B)
        for t in range(T):
            predicted = model(**window(t, last_action_known=False)).action_preds[:, -1]
            live.append(predicted)
            actions[:, t] = (predicted + 0.5 * torch.randn(B, ACTION)).clamp(-1, 1)
            accounts.post(actions[:, t], rewards[:, t])
        accounts.end()
        A = RULE.trace(BOOK.route(actions), rewards)
        for t in range(T):
            first = max(0, t + 1 - context)
            given = model(**window(t, last_action_known=False), attractions=A[:, first : t + 1])
            assert torch.allclose(given.action_preds[:, -1], live[t], atol=1e-6)


def test_an_actor_that_begins_anew_has_nothing_to_read() -> None:
    model = decision_transformer()
    with hugging_face_accounts(model, BOOK, RULE, 0.8) as accounts:
        accounts.begin(2)
        actions = torch.rand(2, ACTION) * 2 - 1
        accounts.post(actions, torch.ones(2))
        accounts.post(actions, torch.ones(2), ended=torch.tensor([True, False]))
        window = accounts.live_window(4)
    assert window is not None
    assert window[0].tolist() == [0, 0, 0, 0]
    assert window[1].tolist() == pytest.approx([0, 0.8, 0.8 * 0.9 + 0.8, 0])


def gpt2(**changes: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=8, n_embd=32, n_layer=2, n_head=2, n_positions=64, bos_token_id=0, eos_token_id=0, **changes
    )
    return transformers.GPT2LMHeadModel(config).eval()


SMALL = {
    "vocab_size": 8, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 7,
}  # fmt: skip


def llama(**changes: Any) -> Any:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, **changes)).eval()


def neox(**changes: Any) -> Any:
    """Its attention has a name of its own for the cache."""
    torch.manual_seed(0)
    return transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**SMALL, **changes)).eval()


def mistral(**changes: Any) -> Any:
    """Its attention, and so its cache, sees the last four tokens."""
    torch.manual_seed(0)
    config = transformers.MistralConfig(**SMALL, num_key_value_heads=2, sliding_window=4, **changes)
    return transformers.MistralForCausalLM(config).eval()


PAYS = torch.linspace(-1, 1, 8)


def read_tokens(tokens: Tensor) -> tuple[Tensor, Tensor]:
    return tokens, PAYS[tokens]


@pytest.mark.parametrize(
    "rule", [RULE, ma.CanonicalEWA(0.1, 0.2, 0.5, initial_experience=0.0)], ids=["ewa", "canonical"]
)
@pytest.mark.parametrize("where", ["whole", "inside", "sorts by itself"])
def test_beams_take_their_accounts_along(where: str, rule: ma.EWA | ma.CanonicalEWA) -> None:
    def sort(cache: Any, beams: Tensor) -> Any:
        cache.reorder_cache(beams)
        return cache

    model = llama()
    if where == "sorts by itself":
        model._reorder_cache = sort
    part = model.model if where == "inside" else model
    options = {
        "max_new_tokens": 16,
        "eos_token_id": None,
        "num_beams": 4,
        "num_return_sequences": 3,
        "do_sample": False,
    }
    with hugging_face_accounts(part, ma.DiscreteCodebook(8), rule, 4.0, columns=every(2, 1), steps=read_tokens):
        for _ in range(4):
            prompt = torch.randint(0, 7, (2, 5))
            assert torch.equal(model.generate(prompt, **options), model.generate(prompt, use_cache=False, **options))


def test_every_cache_has_accounts_of_its_own() -> None:
    model, one, other = llama(), torch.randint(0, 7, (2, 9)), torch.randint(0, 7, (2, 9))
    with hugging_face_accounts(model, ma.DiscreteCodebook(8), RULE, 3.0, columns=every(2, 1), steps=read_tokens):
        whole = model(one).logits
        first = model(one[:, :4], use_cache=True)
        model(other[:, :4])
        second = model(other[:, :4], use_cache=True, return_dict=False)
        then = model(one[:, 4:], past_key_values=first.past_key_values)
        assert torch.allclose(torch.cat([first.logits, then.logits], dim=1), whole, atol=1e-6)
        with pytest.raises(IndexError):
            model(torch.tensor([[99, 1], [1, 2]]), past_key_values=second[1])  # a call that fails leaves no trace
        then = model(other[:, 4:], past_key_values=second[1])
        assert torch.allclose(torch.cat([second[0], then.logits], dim=1), model(other).logits, atol=1e-6)
        kept = then.past_key_values
    assert "reorder_cache" not in vars(kept)


def test_live_accounts_come_before_what_tokens_tell() -> None:
    model, tokens = llama(), torch.randint(0, 7, (2, 5))
    with hugging_face_accounts(
        model, ma.DiscreteCodebook(8), RULE, 3.0, columns=every(2, 1), steps=read_tokens
    ) as accounts:
        accounts.begin(2)
        accounts.post(tokens[:, 1], torch.ones(2))
        accounts.post(tokens[:, 3], torch.ones(2))
        A = RULE.trace(tokens[:, 1::2], torch.ones(2, 2))
        live = model(tokens).logits
        embedded = model(inputs_embeds=model.model.embed_tokens(tokens)).logits
        assert torch.equal(live, embedded)
        assert torch.equal(live, model(tokens, attractions=A).logits)
        assert accounts.are_live
        accounts.end()
        assert not torch.equal(live, model(tokens).logits)


def test_a_frozen_layer_does_not_take_the_gradient_of_beta() -> None:
    model, inputs = decision_transformer(), windows()
    first, scale = model.encoder.h[0], ma.BiasScale(0.5, learned=True)
    plain = first.forward

    def frozen(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return plain(*args, **kwargs)

    first.forward = frozen
    with hugging_face_accounts(model, BOOK, RULE, scale):
        model(**inputs).action_preds.square().sum().backward()
    assert scale.beta.grad is not None
    assert scale.beta.grad.abs() > 0


@pytest.mark.parametrize("how", [{}, {"num_beams": 3}, {"do_sample": True}], ids=["greedy", "beams", "sampled"])
def test_generate_keeps_live_accounts(how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model, prompt, book = gpt2(), torch.randint(0, 7, (3, 5)), ma.DiscreteCodebook(8)
    with hugging_face_accounts(model, book, RULE, 3.0, columns=every(2, 1), steps=read_tokens) as accounts:
        options = {"max_new_tokens": 16, "eos_token_id": None, "pad_token_id": 7, **how}
        torch.manual_seed(1)
        cached = model.generate(prompt, **options)
        assert accounts.ledger is not None
        torch.manual_seed(1)
        assert torch.equal(cached, model.generate(prompt, use_cache=False, **options))
        whole = model(cached).logits
    A = RULE.trace(cached[:, 1::2], PAYS[cached[:, 1::2]])
    selector = torch.arange(cached.shape[1]) % 2 == 1
    with bias_by_hand(monkeypatch, "gpt2.modeling_gpt2", ma.column_bias(A, 3.0, columns=selector)):
        expected = gpt2(attn_implementation="eager")(cached).logits
    assert torch.allclose(whole, expected, atol=1e-6, rtol=0)
    assert not torch.allclose(whole, model(cached).logits, atol=1e-3)


def test_the_cached_logits_of_generate_are_those_of_one_forward() -> None:
    model, prompt, book = gpt2(), torch.randint(0, 7, (3, 5)), ma.DiscreteCodebook(8)
    with hugging_face_accounts(model, book, RULE, 3.0, columns=every(2, 1), steps=read_tokens):
        made = model.generate(
            prompt, max_new_tokens=16, eos_token_id=None, pad_token_id=7, do_sample=False,
            output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
        whole = model(made.sequences).logits
    assert torch.allclose(torch.stack(made.logits, dim=1), whole[:, 4:-1], atol=1e-6)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("make", [gpt2, llama, neox, mistral])
def test_generate_with_any_cache_is_generate_without(make: Any, cache: str, implementation: str) -> None:
    model, prompt, book = make(attn_implementation=implementation), torch.randint(0, 7, (3, 5)), ma.DiscreteCodebook(8)
    options = {
        "max_new_tokens": 12, "eos_token_id": None, "pad_token_id": 7, "do_sample": False, "output_logits": True,
        "return_dict_in_generate": True,
    }  # fmt: skip
    plain = model.generate(prompt, use_cache=False, **options)
    with hugging_face_accounts(model, book, RULE, 3.0, columns=every(2, 1), steps=read_tokens):
        without = model.generate(prompt, use_cache=False, **options)
        cached = model.generate(prompt, cache_implementation=cache, **options)
    assert torch.equal(cached.sequences, without.sequences)
    for one, other in zip(cached.logits, without.logits, strict=True):
        assert torch.allclose(one, other, atol=1e-5)
    assert not torch.allclose(plain.logits[0], without.logits[0], atol=1e-4)


def test_a_model_over_tokens_is_told_in_the_call() -> None:
    model, book = llama().model, ma.GridCodebook(dim=ACTION)
    embedded, other = torch.randn(B, 3 * K, 32), windows()
    actions, rewards = other["actions"], other["rewards"].squeeze(-1)
    mask = torch.arange(K) >= torch.tensor([[0], [0], [2]])
    with hugging_face_accounts(model, book, RULE, 0.9, columns=every(3, 2)) as accounts:
        A = RULE.trace(book.route(actions), rewards, mask=mask)
        expected = model(inputs_embeds=embedded, attractions=A).last_hidden_state
        accounts.enter(torch.zeros_like(actions), torch.ones_like(rewards))
        told = {"actions": actions, "rewards": rewards, "account_mask": mask}
        assert torch.equal(model(inputs_embeds=embedded, **told).last_hidden_state, expected)
        assert not torch.equal(model(inputs_embeds=embedded).last_hidden_state, expected)


def test_an_embedding_that_reads_the_mask_is_no_attention() -> None:
    sizes = {"vocab_size": 8, "hidden_size": 32, "word_embed_proj_dim": 32, "ffn_dim": 32, "num_hidden_layers": 2}
    config = transformers.OPTConfig(**sizes, num_attention_heads=2, max_position_embeddings=64, pad_token_id=1)
    model, tokens, told = transformers.OPTModel(config).eval(), torch.randint(2, 8, (B, 3 * K)), windows()
    plain = model(tokens).last_hidden_state
    with hugging_face_accounts(model, BOOK, RULE, 0.9, columns=every(3, 2)):
        biased = model(tokens, actions=told["actions"], rewards=told["rewards"].squeeze(-1)).last_hidden_state
    assert not torch.allclose(biased, plain, atol=1e-3)


def test_a_registered_attention_function_is_given_the_bias() -> None:
    seen: list[Tensor] = []

    def mine(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, **kwargs: Any) -> Any:
        seen.append(mask)
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask, scale=kwargs["scaling"])
        return out.transpose(1, 2).contiguous(), None

    transformers.AttentionInterface.register("test_mine", mine)
    transformers.AttentionMaskInterface.register("test_mine", transformers.masking_utils.sdpa_mask)
    model, inputs = decision_transformer("test_mine"), windows()
    plain = decision_transformer("sdpa")
    with hugging_face_accounts(model, BOOK, RULE, 0.5), hugging_face_accounts(plain, BOOK, RULE, 0.5):
        assert torch.allclose(model(**inputs).action_preds, plain(**inputs).action_preds, atol=1e-6)
    assert seen[0].is_floating_point()


class TestBadInput:
    def test_attention_outside_of_the_models_call(self) -> None:
        model = gpt2()
        with hugging_face_accounts(model, ma.DiscreteCodebook(8), RULE, 0.5, columns=every(2, 1)) as accounts:
            with pytest.raises(RuntimeError, match=r"GPT2Attention runs outside the call of the model.*detach\(\)"):
                model.transformer(torch.tensor([[1, 2, 3]]))
            accounts.beta = 0.0
            model.transformer(torch.tensor([[1, 2, 3]]))

    @pytest.mark.parametrize("cache", ["dynamic", "static"])
    def test_a_padded_prompt(self, cache: str) -> None:
        model, mask = llama(), torch.tensor([[1, 1, 1], [0, 1, 1]])
        options = {"max_new_tokens": 3, "eos_token_id": None, "do_sample": False, "cache_implementation": cache}
        with (
            hugging_face_accounts(model, ma.DiscreteCodebook(8), RULE, 0.5, columns=every(2, 1), steps=read_tokens),
            pytest.raises(ValueError, match="some tokens are padding"),
        ):
            model.generate(torch.tensor([[1, 2, 3], [7, 2, 5]]), attention_mask=mask, **options)

    def test_layers_that_are_no_attention(self) -> None:
        config = transformers.Lfm2Config(**SMALL, num_key_value_heads=2, layer_types=["conv", "full_attention"])
        model = transformers.Lfm2ForCausalLM(config)
        with pytest.raises(ValueError, match=r"Lfm2ForCausalLM has layers without attention \(conv\)"):
            hugging_face_accounts(model, BOOK, RULE, 0.5, columns=every(2, 1))

    def test_a_mask_that_is_not_added(self) -> None:
        config = transformers.MptConfig(d_model=32, n_heads=2, n_layers=2, vocab_size=8, max_seq_len=64)
        model = transformers.MptForCausalLM(config).eval()
        with (
            hugging_face_accounts(model, ma.DiscreteCodebook(8), RULE, 0.5, columns=every(2, 1), steps=read_tokens),
            pytest.raises(ValueError, match=r"MptAttention cannot take a bias: expected a mask .* got torch.bool"),
        ):
            model(torch.tensor([[1, 2, 3]]))

    def test_a_layout_that_no_cache_explains(self) -> None:
        model = gpt2()
        model.transformer.h[1].attn.register_forward_pre_hook(
            lambda module, args, kwargs: (args, {**kwargs, "attention_mask": torch.zeros(1, 1, 3, 5)}), with_kwargs=True
        )
        with (
            hugging_face_accounts(model, ma.DiscreteCodebook(8), RULE, 0.5, columns=every(2, 1), steps=read_tokens),
            pytest.raises(ValueError, match=r"attention has 1 sequences of 5 columns, the accounts have \(1, 3\)"),
        ):
            model(torch.tensor([[1, 2, 3]]))

    def test_actions_without_rewards(self) -> None:
        model = llama()
        with (
            hugging_face_accounts(model, ma.DiscreteCodebook(8), RULE, 0.5, columns=every(2, 1)),
            pytest.raises(ValueError, match="actions= and rewards= belong together, got actions= alone"),
        ):
            model(torch.tensor([[1, 2, 3]]), actions=torch.tensor([[2]]))

    def test_a_copy_would_not_share_the_accounts(self) -> None:
        model = decision_transformer()
        with hugging_face_accounts(model, BOOK, RULE, 0.1):
            for how in (copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match="cannot be copied or pickled with accounts attached"):
                    how(model)

    def test_checkpointing_that_is_switched_on_later(self) -> None:
        model, book, tokens = gpt2().train(), ma.DiscreteCodebook(8), torch.randint(0, 7, (3, 6))
        with hugging_face_accounts(model, book, RULE, 0.1, columns=every(2, 1), steps=read_tokens):
            model.gradient_checkpointing_enable()
            with pytest.raises(ValueError, match=r"checkpointing recomputes attention.*gradient_checkpointing_disable"):
                model(tokens)
            model.gradient_checkpointing_disable()
            model(tokens)

    def test_a_model_whose_call_has_no_tokens(self) -> None:
        class Wrapper(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = decision_transformer()

            def forward(self, **inputs: Tensor) -> Any:
                return self.inner(**inputs)

        model = Wrapper()
        with (
            hugging_face_accounts(model, BOOK, RULE, 0.1, columns=every(3, 2)),
            pytest.raises(ValueError, match="the call of Wrapper has neither input_ids nor inputs_embeds"),
        ):
            model(**windows())

    def test_tokens_that_are_taken_back(self) -> None:
        model, book = llama(), ma.DiscreteCodebook(8)
        with (
            hugging_face_accounts(model, book, RULE, 0.1, columns=every(2, 1), steps=read_tokens),
            pytest.raises(ValueError, match="generate without prompt_lookup_num_tokens"),
        ):
            model.generate(
                torch.tensor([[1, 2, 3, 1, 2, 3]]), max_new_tokens=12, eos_token_id=9, do_sample=False,
                prompt_lookup_num_tokens=2,
            )  # fmt: skip

    def test_attention_that_takes_no_mask(self) -> None:
        model = decision_transformer()
        model.config._attn_implementation = "flash_attention_2"
        with pytest.raises(ValueError, match=r"'flash_attention_2' cannot take a bias.*set_attn_implementation\('sdpa"):
            hugging_face_accounts(model, BOOK, RULE, 0.1)

    def test_attention_that_was_changed_later(self) -> None:
        model = decision_transformer()
        with hugging_face_accounts(model, BOOK, RULE, 0.1):
            model.config._attn_implementation = "flash_attention_2"
            with pytest.raises(ValueError, match="'flash_attention_2' cannot take a bias"):
                model(**windows())

    def test_a_model_without_attention(self) -> None:
        with pytest.raises(ValueError, match="Linear cannot take a bias: none of its parts takes an attention_mask"):
            hugging_face_accounts(torch.nn.Linear(2, 2), BOOK, RULE, 0.1, columns=every(3, 2))

    def test_gradient_checkpointing(self) -> None:
        model = gpt2()
        model.gradient_checkpointing_enable()
        with pytest.raises(ValueError, match="gradient_checkpointing_disable"):
            hugging_face_accounts(model, BOOK, RULE, 0.1, columns=every(2, 1))

    def test_tokens_without_a_selector(self) -> None:
        with pytest.raises(ValueError, match="GPT2LMHeadModel reads plain tokens: give columns="):
            hugging_face_accounts(gpt2(), BOOK, RULE, 0.1)

    def test_a_selector_of_another_length(self) -> None:
        columns = torch.arange(10) % 2 == 1
        model = gpt2()
        accounts = hugging_face_accounts(model, ma.DiscreteCodebook(8), RULE, 0.1, columns=columns, steps=read_tokens)
        with pytest.raises(ValueError, match=r"does not match the column selector: attention has 8 columns.*\(10,\)"):
            model(torch.zeros(1, 8, dtype=torch.int64))
        accounts.detach()

    def test_attractions_of_another_layout(self) -> None:
        model, inputs = decision_transformer(), windows()
        message = r"does not match the column selector: attractions have shape \(3, 4\), expected \(B, 7\)"
        with hugging_face_accounts(model, BOOK, RULE, 0.1), pytest.raises(ValueError, match=message):
            model(**inputs, attractions=torch.zeros(B, 4))

    def test_padded_tokens(self) -> None:
        model, there = gpt2(), torch.tensor([[0, 1, 1, 1]])
        options = {"columns": every(2, 1), "steps": read_tokens}
        with (
            hugging_face_accounts(model, ma.DiscreteCodebook(8), RULE, 0.1, **options),
            pytest.raises(ValueError, match="some tokens are padding"),
        ):
            model(torch.zeros(1, 4, dtype=torch.int64), attention_mask=there)

    def test_no_rewards(self) -> None:
        model, inputs = decision_transformer(), windows()
        del inputs["rewards"]
        with (
            hugging_face_accounts(model, BOOK, RULE, 0.1) as accounts,
            pytest.raises(ValueError, match="have no actions and rewards: give attractions="),
        ):
            model(**inputs)
        assert not accounts.is_attached

    def test_accounts_twice(self) -> None:
        model = decision_transformer()
        with (
            hugging_face_accounts(model, BOOK, RULE, 0.1),
            pytest.raises(ValueError, match="already has accounts: detach them first"),
        ):
            hugging_face_accounts(model, BOOK, RULE, 0.1)

    def test_arguments_in_the_wrong_places(self) -> None:
        with pytest.raises(TypeError, match="codebook must be a codebook"):
            hugging_face_accounts(decision_transformer(), RULE, BOOK, 0.1)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="rule must be EWA"):
            hugging_face_accounts(decision_transformer(), BOOK, 0.1, 0.1)  # type: ignore[arg-type]

    @pytest.mark.parametrize("shape", [(2, 1), (4, 2), (3,), (3, 5), (1, 1, 2)])
    def test_a_beta_that_is_not_of_the_models_shape(self, shape: tuple[int, ...]) -> None:
        model = decision_transformer(layers=3)
        expected = r"beta must be a number or have shape \(2,\) or \(3, 2\): the model has 3 layers of 2 heads; got"
        with pytest.raises(ValueError, match=expected):
            hugging_face_accounts(model, BOOK, RULE, torch.ones(shape))
