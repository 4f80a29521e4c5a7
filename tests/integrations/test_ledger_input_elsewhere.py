"""`ledger_input` in other people's transformers: against a ledger and a Linear written out by hand."""

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ledger_elsewhere
import mental_accounts as ma
from mental_accounts.integrations import every, hugging_face_accounts, torch_accounts
from mental_accounts.integrations.attached import AttachedAccounts

transformers = pytest.importorskip("transformers")

B, K, STATE, ARMS, HIDDEN = 3, 9, 4, 5, 32
BOOK, RULE = ma.DiscreteCodebook(ARMS), ma.EWA(phi=0.1, delta=0.8)
CHANNELS = ("balance", "count", "mean")
SMALL = {
    "vocab_size": 12, "hidden_size": HIDDEN, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 11,
}  # fmt: skip


def gpt2(**changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"vocab_size": 12, "n_embd": HIDDEN, "n_layer": 2, "n_head": 2, "n_positions": 64}
    config = transformers.GPT2Config(**{**sizes, **changes}, bos_token_id=0, eos_token_id=0, pad_token_id=11)
    return transformers.GPT2LMHeadModel(config).eval()


def llama(**changes: Any) -> Any:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, **changes)).eval()


def decision_transformer() -> Any:
    torch.manual_seed(0)
    config = transformers.DecisionTransformerConfig(
        state_dim=STATE, act_dim=2, hidden_size=HIDDEN, n_layer=2, n_head=2, max_ep_len=50, vocab_size=1,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return transformers.DecisionTransformerModel(config).eval()


def encoder(batch_first: bool = True) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(HIDDEN, 4, 32, dropout=0.0, batch_first=batch_first)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()


def bandit(n: int = B, steps: int = K) -> dict[str, Tensor]:
    torch.manual_seed(1)
    return {"actions": torch.randint(ARMS, (n, steps)), "rewards": torch.randn(n, steps)}


def told_by_hand(
    codes: Tensor, rewards: Tensor, n: int, delay: int = 0, channels: tuple[str, ...] = CHANNELS
) -> Tensor:
    """What ledgers tell before each step and after the last, one number after the other, over its unit."""
    phi, delta = RULE.phi, RULE.delta
    told = torch.zeros(len(codes), codes.shape[1] + 1, len(channels), n)
    for b in range(len(codes)):
        for t in range(codes.shape[1] + 1):
            for j in range(n):
                paid = [
                    (float(rewards[b, i + delay]), (1 - phi) ** (t - 1 - i))
                    for i in range(t - delay)
                    if int(codes[b, i]) == j
                ]
                visits, total = sum(left for _, left in paid), sum(left * reward for reward, left in paid)
                values = {
                    "balance": delta * total / (delta / phi),
                    "count": 1 - (1 + visits) ** -0.5,
                    "mean": total / visits if visits else 0.0,
                }
                told[b, t, :, j] = torch.tensor([values[channel] for channel in channels])
    return told.flatten(-2)


def mapped(accounts: AttachedAccounts, told: Tensor) -> Tensor:
    assert accounts.ledger_map is not None
    return told @ accounts.ledger_map.weight.T + accounts.ledger_map.bias


def tokens_of(steps: dict[str, Tensor]) -> Tensor:
    """(reward, action) per step; what a reward's token says matters not."""
    return torch.stack([7 + torch.arange(K).expand(B, K) % 4, steps["actions"]], dim=2).flatten(1)


# Whole sequences.


@pytest.mark.parametrize("delay", [0, 3])
@pytest.mark.parametrize("embedded", [False, True])
@pytest.mark.parametrize("make", [gpt2, llama])
def test_tokens_are_told_what_a_ledger_by_hand_tells(make: Any, embedded: bool, delay: int) -> None:
    model, steps = make(), bandit()
    tokens, embed = tokens_of(steps), model.get_input_embeddings()
    stock = model(tokens).logits
    told = told_by_hand(steps["actions"], steps["rewards"], ARMS, delay)
    with hugging_face_accounts(
        model, BOOK, RULE, columns=every(2, 1), ledger_input="state", channels=CHANNELS, reward_delay=delay
    ) as accounts:
        added = torch.zeros(B, 2 * K, HIDDEN)
        added[:, 0::2] = mapped(accounts, told[:, :K])
        inputs = {"inputs_embeds": embed(tokens)} if embedded else {"input_ids": tokens}
        ours = model(**inputs, **steps).logits
        gradient = torch.autograd.grad(ours.square().sum(), list(accounts.ledger_map.parameters()))
        assert accounts.told(**steps).shape == (B, K + 1, 3 * ARMS)
        whole = model(**inputs, ledger=accounts.told(**steps)[:, :K]).logits
    expected = model(inputs_embeds=embed(tokens) + added).logits
    assert torch.allclose(ours, expected, atol=1e-5, rtol=0)
    assert torch.equal(whole, ours)
    assert not torch.allclose(ours, stock, atol=1e-3)
    assert all(one.abs().sum() > 0 for one in gradient)
    assert torch.equal(model(tokens).logits, stock)
    assert not any(part._forward_pre_hooks or part._forward_hooks for part in model.modules())
    assert not hasattr(model, "ledger_input")


@pytest.mark.parametrize("padded", [False, True])
def test_states_of_a_decision_transformer_are_told(padded: bool) -> None:
    model, book = decision_transformer(), ma.GridCodebook(dim=2, bins=2)
    mask = torch.arange(K) >= torch.tensor([[0], [2 * padded], [4 * padded]])
    inputs = {
        "states": torch.randn(B, K, STATE), "actions": torch.rand(B, K, 2) * 2 - 1, "rewards": torch.randn(B, K, 1),
        "returns_to_go": torch.randn(B, K, 1), "timesteps": torch.arange(K).expand(B, K), "attention_mask": mask.long(),
    }  # fmt: skip
    with hugging_face_accounts(model, book, RULE, ledger_input="state", reward_delay=1) as accounts:
        ours = model(**inputs).action_preds
        damaged = {name: value.clone() for name, value in inputs.items()}
        for name in ("states", "actions", "returns_to_go"):
            damaged[name][~mask] = 0.7
        damaged["rewards"][~mask] = torch.nan
        assert torch.allclose(model(**damaged).action_preds[mask], ours[mask], atol=1e-6)
        added = torch.zeros(B, K, HIDDEN)
        codes, rewards = book.route(inputs["actions"]), inputs["rewards"].squeeze(-1)
        for b in range(B):
            first = int((~mask[b]).sum())
            told = told_by_hand(codes[b : b + 1, first:], rewards[b : b + 1, first:], 4, 1, ("balance",))
            added[b, first:] = mapped(accounts, told)[0, :-1]
    hook = model.embed_state.register_forward_hook(lambda module, args, output: output + added)
    expected = model(**inputs).action_preds
    hook.remove()
    assert torch.allclose(ours[mask], expected[mask], atol=1e-5, rtol=0)


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_an_encoders_tokens_are_told(batch_first: bool, inference: bool) -> None:
    model, steps, x = encoder(batch_first), bandit(), torch.randn(B, 3 * K, HIDDEN)
    causal = nn.Transformer.generate_square_subsequent_mask(3 * K)

    def call(x: Tensor, **told: Tensor) -> Tensor:
        made: Tensor = model(x if batch_first else x.transpose(0, 1), mask=causal, **told)
        return made if batch_first else made.transpose(0, 1)

    stock = call(x)
    with (
        torch.set_grad_enabled(not inference),
        torch_accounts(model, BOOK, RULE, ledger_input="state", channels=CHANNELS, reward_delay=2) as accounts,
    ):
        ours = call(x, **steps)
        accounts.enter(**steps)
        assert torch.equal(call(x), ours)
        added = torch.zeros_like(x)
        added[:, 1::3] = mapped(accounts, told_by_hand(steps["actions"], steps["rewards"], ARMS, 2)[:, :K])
    assert torch.allclose(ours, call(x + added), atol=1e-5)
    assert torch.allclose(call(x), stock, atol=1e-6)
    assert "forward" not in model.__dict__
    assert list(model.state_dict()) == list(encoder().state_dict())


def test_a_bias_and_a_ledger_together() -> None:
    model, steps, x = encoder(), bandit(), torch.randn(B, 3 * K, HIDDEN)
    with torch_accounts(model, BOOK, RULE, 0.5, ledger_input="state", reward_delay=2) as accounts, torch.no_grad():
        ours, added = model(src=x, **steps), torch.zeros_like(x)
        attractions = accounts.trace(**steps)
        told = told_by_hand(steps["actions"], steps["rewards"], ARMS, 2, ("balance",))
        added[:, 1::3] = mapped(accounts, told[:, :K])
    with torch_accounts(model, BOOK, RULE, 0.5):
        assert torch.allclose(model(x + added, attractions=attractions), ours, atol=1e-5)


@pytest.mark.parametrize(
    ("book", "rule"),
    [
        (ma.ProductCodebook(dim=3, groups=3, bins=2), RULE),
        (ma.GridCodebook(dim=3, bins=2), ma.CanonicalEWA(0.1, 0.2, 0.5)),
    ],
    ids=["product", "canonical"],
)
@pytest.mark.parametrize("delay", [0, 2])
def test_any_codebook_and_rule_live_and_in_windows(book: Any, rule: Any, delay: int) -> None:
    model, x = encoder(), torch.randn(B, 3 * K, HIDDEN)
    actions, rewards = torch.rand(B, K, 3) * 2 - 1, torch.randn(B, K)
    options: dict[str, Any] = {"ledger_input": "state", "channels": CHANNELS, "reward_delay": delay}
    causal = nn.Transformer.generate_square_subsequent_mask(3 * K)
    with torch_accounts(model, book, rule, 0.3, **options) as accounts, torch.no_grad():
        whole = model(x, mask=causal, actions=actions, rewards=rewards)
        accounts.begin(B)
        for t in range(K):
            S = 3 * t + 2
            assert torch.allclose(model(x[:, :S], mask=causal[:S, :S])[:, -1], whole[:, S - 1], atol=1e-5)
            accounts.post(actions[:, t], rewards[:, t])


def test_a_list_of_layers_and_a_part_of_ones_own() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.linear = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, HIDDEN)

        def forward(self, hidden: Tensor) -> Tensor:
            out: Tensor = hidden + self.linear(self.norm(hidden))
            return out

    class Mine(nn.Module):
        def __init__(self, blocks: list[nn.Module]) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(blocks)

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = block(x)
            return x

    steps, x = bandit(), torch.randn(B, 3 * K, HIDDEN)
    layers = [nn.TransformerEncoderLayer(HIDDEN, 4, 32, 0.0, batch_first=True) for _ in range(2)]
    for model, chosen in ((Mine(list(layers)), None), (Mine([Block(), Block()]), 0)):
        part = None if chosen is None else model.blocks[chosen]
        with torch_accounts(model, BOOK, RULE, ledger_input="state", ledger_module=part) as accounts:
            ours = model(x, **steps)
            added = torch.zeros_like(x)
            told = told_by_hand(steps["actions"], steps["rewards"], ARMS, 0, ("balance",))[:, :K]
            added[:, 1::3] = mapped(accounts, told)
        assert torch.allclose(ours, model(x + added), atol=1e-5)
    with pytest.raises(ValueError, match=r"where Mine embeds its tokens is unknown.*found none; give ledger_module="):
        torch_accounts(model, BOOK, RULE, ledger_input="state")
    two = nn.ModuleDict({"one": encoder(), "other": encoder()})
    with pytest.raises(ValueError, match=r"is unknown.*found \['one', 'other'\]; give ledger_module="):
        torch_accounts(two, BOOK, RULE, ledger_input="state")
    with pytest.raises(ValueError, match="ledger_module must be a part of the model, got another Block"):
        torch_accounts(two, BOOK, RULE, ledger_input="state", ledger_module=Block())
    odd = nn.Sequential(nn.GELU(), nn.Linear(HIDDEN, 2))
    with pytest.raises(ValueError, match="the hidden size of GELU is unknown"):
        torch_accounts(odd, BOOK, RULE, ledger_input="state", ledger_module=odd[0])


def test_other_tokens_can_be_chosen() -> None:
    """All tokens of a step are told the ledger before it; an action right before another one, that after itself."""
    steps, x = bandit(), torch.randn(B, 3 * K, HIDDEN)
    told = told_by_hand(steps["actions"], steps["rewards"], ARMS, 0, ("balance",))
    layouts: list[tuple[Any, Any, Tensor, Tensor]] = [
        (every(3, 2), lambda S: torch.ones(S, dtype=torch.bool), torch.arange(3 * K), torch.arange(3 * K) // 3),
        (every(3, 2), every(3, 0), torch.arange(0, 3 * K, 3), torch.arange(K)),
        (every(1, 0), "state", torch.arange(K), torch.arange(1, K + 1)),
        (torch.arange(K) % 1 == 0, "state", torch.arange(K - 1), torch.arange(1, K)),
        (every(3, 2), torch.arange(3 * K) == 7, torch.tensor([7]), torch.tensor([2])),
    ]
    for columns, chosen, where, which in layouts:
        model, S = encoder(), K if chosen == "state" else 3 * K
        with torch_accounts(model, BOOK, RULE, columns=columns, ledger_input=chosen) as accounts:
            ours, added = model(x[:, :S], **steps), torch.zeros(B, S, HIDDEN)
            added[:, where] = mapped(accounts, told[:, which])
            if chosen != "state" or callable(columns):
                accounts.begin(B)
                for t in range(K if chosen == "state" else K - 1):
                    accounts.post(steps["actions"][:, t], steps["rewards"][:, t])
                assert torch.allclose(model(x[:, :S]), ours, atol=1e-5)
        assert torch.allclose(ours, model(x[:, :S] + added), atol=1e-5)


# Nothing is known before it has come.


@pytest.mark.parametrize("delay", [0, 2])
def test_no_token_knows_a_reward_that_comes_later(delay: int) -> None:
    model, steps = llama(), bandit()
    tokens = tokens_of(steps)
    options = {"columns": every(2, 1), "ledger_input": "state", "channels": CHANNELS, "reward_delay": delay}
    with hugging_face_accounts(model, BOOK, RULE, **options):
        first = model(tokens, **steps).logits
        for t in range(K):
            later = {"actions": steps["actions"].clone(), "rewards": steps["rewards"].clone()}
            later["rewards"][:, t:] += 5.0
            later["actions"][:, t:] = (later["actions"][:, t:] + 1) % ARMS
            changed = model(tokens, **later).logits
            assert torch.equal(changed[:, : 2 * t + 2], first[:, : 2 * t + 2])
            if t < K - 1 and t >= delay:
                assert not torch.allclose(changed[:, 2 * t + 2], first[:, 2 * t + 2])


# Live.


@pytest.mark.parametrize("delay", [0, 3])
@pytest.mark.parametrize("beta", [None, 0.7])
@pytest.mark.parametrize("make", [gpt2, llama])
def test_acting_with_a_cache_is_one_forward(make: Any, beta: float | None, delay: int) -> None:
    """Two episodes in turn; the second of one actor begins earlier."""
    model, steps = make(), bandit()
    tokens = tokens_of(steps)
    options = {"columns": every(2, 1), "ledger_input": "state", "channels": CHANNELS, "reward_delay": delay}
    with hugging_face_accounts(model, BOOK, RULE, beta, **options) as accounts, torch.no_grad():
        whole = model(tokens, **steps).logits
        accounts.begin(B)
        accounts.post(steps["actions"][:, 3], torch.ones(B))
        accounts.post(steps["actions"][:, 2], torch.ones(B), ended=torch.ones(B, dtype=torch.bool))
        cache, seen = transformers.DynamicCache(), 0
        for t in range(K):
            logits = model(tokens[:, seen : 2 * t + 1], past_key_values=cache).logits[:, -1]
            again = model(tokens[:, : 2 * t + 1]).logits[:, -1]
            assert torch.allclose(logits, whole[:, 2 * t], atol=1e-5)
            assert torch.allclose(again, whole[:, 2 * t], atol=1e-5)
            seen = 2 * t + 1
            accounts.post(steps["actions"][:, t], steps["rewards"][:, t])


def test_a_decision_transformer_acts_as_it_learned() -> None:
    model, book, T, context = decision_transformer(), ma.GridCodebook(dim=2, bins=2), 10, 4
    states, returns = torch.randn(B, T, STATE), torch.randn(B, T, 1)
    actions, rewards = torch.rand(B, T, 2) * 2 - 1, torch.randn(B, T)
    with hugging_face_accounts(model, book, RULE, ledger_input="state", reward_delay=2) as accounts, torch.no_grad():
        told = accounts.told(actions, rewards)
        accounts.begin(B)
        for t in range(T):
            span = slice(max(0, t + 1 - context), t + 1)
            known = actions[:, span].clone()
            known[:, -1] = 0
            window = {
                "states": states[:, span], "actions": known, "returns_to_go": returns[:, span],
                "timesteps": torch.arange(T)[span].expand(B, -1),
            }  # fmt: skip
            live = model(**window).action_preds[:, -1]
            assert torch.allclose(model(**window, ledger=told[:, span]).action_preds[:, -1], live, atol=1e-5)
            accounts.post(actions[:, t], rewards[:, t])


@pytest.mark.parametrize("how", [{}, {"num_beams": 3}], ids=["greedy", "beams"])
@pytest.mark.parametrize("delay", [0, 2])
def test_generate_keeps_the_ledger(delay: int, how: dict[str, Any]) -> None:
    pays = torch.linspace(-1, 1, 12)
    model, prompt = llama(), torch.randint(0, 11, (2, 5))
    options = {"columns": every(2, 1), "ledger_input": "state", "channels": CHANNELS, "reward_delay": delay}
    book = ma.DiscreteCodebook(12)
    with hugging_face_accounts(model, book, RULE, **options, steps=lambda ids: (ids, pays[ids])) as accounts:
        assert accounts.ledger_map is not None
        accounts.ledger_map.weight.data.mul_(20.0)
        asked = {"max_new_tokens": 14, "eos_token_id": None, "do_sample": False, **how}
        made = model.generate(prompt, output_logits=True, return_dict_in_generate=True, **asked)
        assert torch.equal(made.sequences, model.generate(prompt, use_cache=False, **asked))
        actions = made.sequences[:, 1::2]
        whole = model(made.sequences, actions=actions, rewards=pays[actions]).logits
        if not how:
            assert torch.allclose(torch.stack(made.logits, dim=1), whole[:, 4:-1], atol=1e-5)
        assert torch.allclose(model(made.sequences).logits, whole, atol=1e-5)
    stock = model.generate(prompt, **asked)
    assert not torch.equal(stock, made.sequences)


# Saved with the model.


def test_it_is_saved_with_the_model_and_read_when_attached_again(tmp_path: Path) -> None:
    model, steps = gpt2(), bandit()
    tokens = tokens_of(steps)
    stock = model(tokens).logits
    options: dict[str, Any] = {"columns": every(2, 1), "ledger_input": "state", "reward_delay": 3}
    with hugging_face_accounts(model, BOOK, RULE, **options) as accounts:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        held = {id(one) for group in optimizer.param_groups for one in group["params"]}
        assert accounts.ledger_map is not None
        assert {id(one) for one in accounts.ledger_map.parameters()} <= held
        accounts.ledger_map.bias.data.add_(1.0)
        ours, kept = model(tokens, **steps).logits, copy.copy(model.state_dict())
        model.save_pretrained(tmp_path)
    assert {"ledger_input.weight", "ledger_input.bias"} == set(kept) - set(model.state_dict())
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path).eval()
    assert torch.equal(again(tokens).logits, stock)
    with pytest.raises(ValueError, match=r"read from .*, where the map of a ledger was saved.*or ledger_weights='new'"):
        hugging_face_accounts(again, BOOK, RULE, **options)
    with hugging_face_accounts(again, BOOK, RULE, **options, ledger_weights="new"):
        assert not torch.allclose(again(tokens, **steps).logits, ours, atol=1e-3)
    own = accounts.ledger_map.state_dict()
    for weights in (tmp_path, str(tmp_path), tmp_path / "model.safetensors", kept, own):
        with hugging_face_accounts(again, BOOK, RULE, **options, ledger_weights=weights):
            assert torch.equal(again(tokens, **steps).logits, ours)
    inner = transformers.GPT2LMHeadModel.from_pretrained(tmp_path).eval()
    with hugging_face_accounts(inner.transformer, BOOK, RULE, **options, ledger_weights=tmp_path):
        inner.save_pretrained(tmp_path / "inner")
        ours = inner.transformer(tokens, **steps).last_hidden_state
    with hugging_face_accounts(again.transformer, BOOK, RULE, **options, ledger_weights=tmp_path / "inner"):
        assert torch.equal(again.transformer(tokens, **steps).last_hidden_state, ours)
    with pytest.raises(ValueError, match=r"expected the weight and bias of one ledger_input in .*found none: save the"):
        hugging_face_accounts(again, BOOK, RULE, **options, ledger_weights=again.state_dict())
    with pytest.raises(ValueError, match=r"the saved map has shapes .*\(32, 5\).*expected .*\(32, 10\)"):
        hugging_face_accounts(
            again, BOOK, RULE, **options, channels=("balance", "mean"), ledger_weights=tmp_path
        )  # fmt: skip
    with pytest.raises(FileNotFoundError, match="no file of safetensors at"):
        hugging_face_accounts(again, BOOK, RULE, **options, ledger_weights=tmp_path / "nowhere")
    assert torch.equal(again(tokens).logits, stock)


def test_a_torch_model_is_attached_first_and_loaded_then() -> None:
    steps, x = bandit(), torch.randn(B, 3 * K, HIDDEN)
    model = encoder()
    with torch_accounts(model, BOOK, RULE, ledger_input="state"):
        ours, saved = model(x, **steps), {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(5)
    again = encoder()
    with torch_accounts(again, BOOK, RULE, ledger_input="state"):
        again.load_state_dict(saved)
        assert torch.equal(again(x, **steps), ours)


# Precision, frozen models, checkpoints, copies.


def test_a_model_in_half_precision_has_a_ledger_in_full() -> None:
    model, steps = llama(), bandit()
    tokens, options = tokens_of(steps), {"columns": every(2, 1), "ledger_input": "state", "channels": CHANNELS}
    with hugging_face_accounts(model, BOOK, RULE, **options) as accounts:
        exact = model(tokens, **steps).logits
        with torch.autocast("cpu", torch.bfloat16):
            rough = model(tokens, **steps).logits
        told = accounts.told(**steps)
        model.bfloat16()
        assert accounts.ledger_map is not None
        assert accounts.ledger_map.per_unit.dtype == torch.float32
        assert accounts.ledger_map(told).dtype == torch.float32
        rougher = model(tokens, **steps).logits
        assert rougher.dtype == torch.bfloat16
        half = {**steps, "rewards": steps["rewards"].bfloat16().double()}
        assert accounts.told(**half).dtype == torch.float32
    assert torch.allclose(rough.float(), exact, atol=0.05)
    assert torch.allclose(rougher.float(), exact, atol=0.05)
    later = llama().bfloat16()
    with hugging_face_accounts(later, BOOK, RULE, **options) as accounts:
        assert accounts.ledger_map is not None
        assert accounts.ledger_map.weight.dtype == torch.float32
        assert later(tokens, **steps).logits.dtype == torch.bfloat16


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_map_of_a_frozen_model_learns(checkpointing: bool) -> None:
    """Layers may be recomputed in the backward pass: what the ledger adds comes before them."""
    model, steps = gpt2().train(), bandit()
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    model.requires_grad_(False)
    if checkpointing:
        model.gradient_checkpointing_enable()
    with hugging_face_accounts(model, BOOK, RULE, columns=every(2, 1), ledger_input="state") as accounts:
        model(tokens_of(steps), **steps).logits.square().sum().backward()
        assert accounts.ledger_map is not None
        gradient = accounts.ledger_map.weight.grad
        learned = {name for name, one in model.named_parameters() if one.grad is not None}
    assert gradient is not None
    assert gradient.abs().sum() > 0
    assert learned == {"ledger_input.weight", "ledger_input.bias"}


def test_a_compiled_model_is_told() -> None:
    model, steps = gpt2(n_layer=1), bandit()
    tokens, options = tokens_of(steps), {"columns": every(2, 1), "ledger_input": "state", "reward_delay": 1}
    with hugging_face_accounts(model, BOOK, RULE, **options), torch.no_grad():
        expected = model(tokens, **steps).logits
        compiled = torch.compile(model, backend="eager")
        assert torch.allclose(compiled(tokens, **steps).logits, expected, atol=1e-5)


def test_copies_are_refused() -> None:
    model, other = gpt2(), encoder()
    with (
        hugging_face_accounts(model, BOOK, RULE, columns=every(2, 1), ledger_input="state"),
        torch_accounts(other, BOOK, RULE, ledger_input="state"),
    ):
        for one in (model, other):
            for how in (copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match="cannot be copied or pickled with accounts attached"):
                    how(one)
    copy.deepcopy(model)
    copy.deepcopy(other)


# TorchRL.


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["DTActor", "OnlineDTActor"])
def test_states_of_a_torchrl_actor_are_told(kind: str) -> None:
    pytest.importorskip("torchrl")
    import torchrl.modules

    from mental_accounts.integrations import torchrl_accounts
    from mental_accounts.integrations.torchrl_actors import rewards_of

    torch.manual_seed(0)
    sizes = {
        "n_embd": HIDDEN, "n_layer": 2, "n_head": 2, "n_inner": 64, "activation": "relu", "n_positions": 64,
        "resid_pdrop": 0.0, "attn_pdrop": 0.0,
    }  # fmt: skip
    actor, book = getattr(torchrl.modules, kind)(STATE, 2, sizes).eval(), ma.GridCodebook(dim=2, bins=2)
    inputs = {
        "observation": torch.randn(B, K, STATE), "action": torch.rand(B, K, 2) * 2 - 1,
        "return_to_go": torch.randn(B, K, 1),
    }  # fmt: skip

    def call() -> Tensor:
        output = actor(**inputs)
        found: Tensor = output[0] if isinstance(output, tuple) else output
        return found

    stock, names = call(), set(actor.state_dict())
    codes, rewards = book.route(inputs["action"]), rewards_of(inputs["return_to_go"].squeeze(-1))
    with torchrl_accounts(actor, book, RULE, ledger_input="state", channels=CHANNELS, reward_delay=1) as accounts:
        ours = call()
        ours.sum().backward()
        assert accounts.ledger_map is not None
        assert accounts.ledger_map.weight.grad is not None
        assert {name.split(".")[-2] for name in set(actor.state_dict()) - names} == {"ledger_input"}
        added = mapped(accounts, told_by_hand(codes, rewards, 4, 1)[:, :K])
        accounts.begin(B)
        for t in range(K - 1):
            accounts.post(inputs["action"][:, t], rewards[:, t])
        assert torch.allclose(call(), ours, atol=1e-5)
    backbone = next(one for one in actor.modules() if hasattr(one, "embed_state"))
    hook = backbone.embed_state.register_forward_hook(lambda module, args, output: output + added)
    assert torch.allclose(call(), ours, atol=1e-5)
    hook.remove()
    assert torch.equal(call(), stock)


def test_the_ledger_is_the_players_own() -> None:
    """In the study: the balances that the player keeps, up to what late rewards have lost by the time they come."""
    actions, rewards, balances = ledger_elsewhere.play(4, 12, seed=0)
    learner = ledger_elsewhere.Learner("llama", "ledger", 0, 12)
    assert learner.accounts is not None
    left = (1 - ledger_elsewhere.PHI) ** ledger_elsewhere.DELAY
    assert torch.allclose(learner.accounts.told(actions, rewards)[:, :-1], balances * left, atol=1e-6)
    assert not balances[:, : ledger_elsewhere.DELAY + 1].any()
    assert balances[:, ledger_elsewhere.DELAY + 1].any(dim=-1).all()


@pytest.mark.parametrize("case", ledger_elsewhere.CASES)
def test_the_study_runs(case: str) -> None:
    found = ledger_elsewhere.run("gpt2", case, 0, steps=6, episodes=16, updates=2, test=4)
    assert found["case"] == case
    assert abs(found["return"]) < 100


class TestBadInput:
    @pytest.mark.parametrize("attach", [hugging_face_accounts, torch_accounts])
    def test_settings_that_cannot_be(self, attach: Any) -> None:
        model = gpt2() if attach is hugging_face_accounts else encoder()
        told: dict[str, Any] = {"columns": every(2, 1), "ledger_input": "state"}
        for changes, message in (
            ({"ledger_input": "none"}, "the accounts would do nothing: give beta, for a bias, or ledger_input='state'"),
            ({"ledger_input": "none", "channels": ("mean",)}, "channels and ledger_weights are for ledger_input"),
            ({"ledger_input": "return"}, r"must be 'none', 'state' .* got 'return'"),
            ({"ledger_input": True}, r"must be 'none', 'state' .* got True"),
            ({"ledger_input": torch.tensor([1, 3])}, r"expected bool \(S,\) with some True, got torch.int64 \(2,\)"),
            ({"ledger_input": torch.zeros(4, dtype=torch.bool)}, "must select at least one token"),
            ({"channels": ("balances",)}, r"channels must be of \('balance', 'count', 'mean'\)"),
            ({"channels": "mean"}, "channels must be one or more of"),
            ({"reward_delay": -1}, "reward_delay must be"),
            ({"reward_delay": 1.5}, "reward_delay must be"),
        ):
            with pytest.raises((ValueError, TypeError), match=message):
                attach(model, BOOK, RULE, **{**told, **changes})
        assert not hasattr(model, "ledger_input")

    def test_tokens_that_are_not_there(self) -> None:
        model, steps = gpt2(), bandit()
        chosen = torch.arange(10) % 2 == 0
        with (
            hugging_face_accounts(model, BOOK, RULE, columns=every(2, 1), ledger_input=chosen),
            pytest.raises(ValueError, match=r"it has 18 tokens, but ledger_input selects from torch.bool \(10,\)"),
        ):
            model(tokens_of(steps), **steps)

    def test_rewards_that_are_no_numbers(self) -> None:
        model, steps = gpt2(), bandit()
        steps["rewards"][1, 2] = torch.nan
        with hugging_face_accounts(model, BOOK, RULE, columns=every(2, 1), ledger_input="state") as accounts:
            with pytest.raises(ValueError, match=r"rewards must be finite, but rewards\[1, 2\] is nan"):
                model(tokens_of(steps), **steps)
            accounts.begin(B)
            with pytest.raises(ValueError, match="rewards must be finite"):
                accounts.post(steps["actions"][:, 2], steps["rewards"][:, 2])

    def test_no_hidden_size(self) -> None:
        class Wrapper(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = gpt2()

        with pytest.raises(ValueError, match="the hidden size of Wrapper is unknown"):
            hugging_face_accounts(Wrapper(), BOOK, RULE, columns=every(2, 1), ledger_input="state")

    def test_nothing_told_or_too_little(self) -> None:
        model, steps = gpt2(), bandit()
        tokens = tokens_of(steps)
        with hugging_face_accounts(model, BOOK, RULE, columns=every(2, 1), ledger_input="state") as accounts:
            with pytest.raises(ValueError, match=r"have no actions and rewards: give ledger="):
                model(tokens)
            with pytest.raises(ValueError, match=r"ledger has shape \(3, 8, 5\), expected \(B, 9 or more, 5\)"):
                model(tokens, ledger=accounts.told(**steps)[:, : K - 1])
            with pytest.raises(ValueError, match=r"tokens are embedded as \(2, 18, 32\), but .* 3 sequences"):
                model(tokens[:2], **steps)
            with pytest.raises(RuntimeError, match=r"GPT2Model runs outside the call of the model"):
                model.transformer(tokens)
            model.resize_token_embeddings(12 + 64)
            model.set_input_embeddings(nn.Embedding(12, HIDDEN))
            with pytest.raises(RuntimeError, match=r"did not embed its tokens with the module that the ledger"):
                model(tokens, **steps)

    @pytest.mark.parametrize("attach", [hugging_face_accounts, torch_accounts])
    def test_a_name_that_is_taken_and_nothing_left_of_the_bias(self, attach: Any) -> None:
        model = gpt2() if attach is hugging_face_accounts else encoder()
        model.ledger_input = nn.Linear(2, 2)
        with pytest.raises(ValueError, match="already has something named ledger_input"):
            attach(model, BOOK, RULE, 0.5, columns=every(2, 1), ledger_input="state")
        assert not any(part._forward_pre_hooks or "forward" in part.__dict__ for part in model.modules())
        attach(model, BOOK, RULE, 0.5, columns=every(2, 1)).detach()
