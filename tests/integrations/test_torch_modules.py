"""Accounts in PyTorch's own modules: against their attention written out, with the bias added by hand."""

import copy
import math
import pickle
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mental_accounts as ma
from mental_accounts.integrations import every, torch_accounts

B, K, HIDDEN, HEADS, ACTION = 3, 5, 16, 4, 2
S = 3 * K
BOOK, RULE = ma.GridCodebook(dim=ACTION, bins=3), ma.EWA(phi=0.1, delta=0.8)


def make_encoder(layers: int = 2, batch_first: bool = True, norm_first: bool = False) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        HIDDEN, HEADS, 32, dropout=0.0, batch_first=batch_first, norm_first=norm_first, activation="gelu"
    )
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=batch_first and not norm_first).eval()


def steps() -> dict[str, Tensor]:
    return {"actions": torch.rand(B, K, ACTION) * 2 - 1, "rewards": torch.randn(B, K)}


def bias_of(told: dict[str, Tensor], beta: float | Tensor, columns: Tensor | None = None) -> Tensor:
    return ma.column_bias(RULE.trace(BOOK.route(told["actions"]), told["rewards"]), beta, columns=columns)


def attention_by_hand(module: nn.MultiheadAttention, x: Tensor, mask: Tensor) -> Tensor:
    """(B, S, hidden), mask (B, heads, S, S) -> (B, S, hidden)."""
    q, k, v = torch.nn.functional.linear(x, module.in_proj_weight, module.in_proj_bias).chunk(3, dim=-1)
    q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in (q, k, v))
    weights = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(HIDDEN // HEADS) + mask, dim=-1)
    mixed: Tensor = module.out_proj((weights @ v).transpose(1, 2).flatten(-2))
    return mixed


def encoder_by_hand(layers: Iterable[nn.Module], x: Tensor, masks: list[Tensor]) -> Tensor:
    for layer, mask in zip(layers, masks, strict=True):
        assert isinstance(layer, nn.TransformerEncoderLayer)

        def mlp(y: Tensor, layer: nn.TransformerEncoderLayer = layer) -> Tensor:
            widened: Tensor = layer.linear2(torch.nn.functional.gelu(layer.linear1(y)))
            return widened

        if layer.norm_first:
            x = x + attention_by_hand(layer.self_attn, layer.norm1(x), mask)
            x = x + mlp(layer.norm2(x))
        else:
            x = layer.norm1(x + attention_by_hand(layer.self_attn, x, mask))
            x = layer.norm2(x + mlp(x))
    return x


CAUSAL = torch.full((S, S), -math.inf).triu(1)
MASKS: dict[str, Any] = {
    "no mask": {},
    "float": {"mask": CAUSAL},
    "bool": {"mask": CAUSAL.isinf()},
    "hinted": {"mask": CAUSAL, "is_causal": True},
    "padded": {
        "mask": CAUSAL.isinf(),
        "src_key_padding_mask": torch.arange(S) >= torch.tensor([[S], [S - 3], [S - 6]]),
    },
    "only padded": {"src_key_padding_mask": torch.arange(S) >= torch.tensor([[S], [S - 3], [S - 6]])},
}


@pytest.mark.parametrize("masks", list(MASKS))
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("batch_first", [True, False])
def test_an_encoder_is_the_bias_added_by_hand(masks: str, norm_first: bool, inference: bool, batch_first: bool) -> None:
    """Also where PyTorch would take its fused path, or nested tensors: inference without gradients."""
    encoder, told, x = make_encoder(batch_first=batch_first, norm_first=norm_first), steps(), torch.randn(B, S, HIDDEN)
    full = torch.zeros(B, 1, S, S)
    if "mask" in MASKS[masks]:
        full = full + CAUSAL
    if "src_key_padding_mask" in MASKS[masks]:
        full = full.masked_fill(MASKS[masks]["src_key_padding_mask"][:, None, None, :], -math.inf)
    expected = encoder_by_hand(encoder.layers, x, [full + bias_of(told, 0.6)] * 2)
    with torch.set_grad_enabled(not inference), torch_accounts(encoder, BOOK, RULE, 0.6):
        ours = encoder(x if batch_first else x.transpose(0, 1), **MASKS[masks], **told)
    there = slice(0, S - 6)  # columns that no sequence pads
    ours = ours if batch_first else ours.transpose(0, 1)
    assert torch.allclose(ours[:, there], expected[:, there], atol=1e-6, rtol=0)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("masks", list(MASKS))
@pytest.mark.parametrize("inference", [False, True])
def test_zero_beta_and_detached_are_the_untouched_model_bit_for_bit(masks: str, inference: bool) -> None:
    encoder, told, x = make_encoder(), steps(), torch.randn(B, S, HIDDEN)
    before = {name: set(part.__dict__) for name, part in encoder.named_modules()}
    with torch.set_grad_enabled(not inference):
        untouched = encoder(x, **MASKS[masks])
        for beta in (0.0, torch.zeros(HEADS), ma.BiasScale(0.0)):
            with torch_accounts(encoder, BOOK, RULE, beta):
                assert torch.equal(encoder(x, **MASKS[masks], **told), untouched)
        with torch_accounts(encoder, BOOK, RULE, 0.5) as accounts:
            assert not torch.allclose(encoder(x, **MASKS[masks], **told), untouched, atol=1e-4)
        assert torch.equal(encoder(x, **MASKS[masks]), untouched)
    assert not accounts.is_attached
    assert {name: set(part.__dict__) for name, part in encoder.named_modules()} == before
    assert torch.backends.mha.get_fastpath_enabled()


def test_one_beta_per_layer_and_head_with_gradients() -> None:
    encoder, told, x = make_encoder(), steps(), torch.randn(B, S, HIDDEN)
    scale = ma.BiasScale(0.3, learned=True, layers=2, heads=HEADS)
    scale.beta.data.uniform_(-0.5, 0.5)
    bias = bias_of(told, scale.beta)  # (layers, B, heads, 1, S)
    encoder_by_hand(encoder.layers, x, [CAUSAL + bias[0], CAUSAL + bias[1]]).square().sum().backward()
    assert scale.beta.grad is not None
    expected, scale.beta.grad = scale.beta.grad.clone(), None
    with torch_accounts(encoder, BOOK, RULE, scale):
        encoder(x, mask=CAUSAL, **told).square().sum().backward()
    assert scale.beta.grad is not None
    assert scale.beta.grad.abs().min() > 0
    assert torch.allclose(scale.beta.grad, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("batched", [True, False])
def test_a_bare_attention_with_columns_of_its_own(batched: bool) -> None:
    torch.manual_seed(0)
    attention, told = nn.MultiheadAttention(HIDDEN, HEADS, batch_first=True).eval(), steps()
    columns = torch.arange(2 * K) % 2 == 1  # (state, action)
    x = torch.randn(B, 2 * K, HIDDEN)
    n = B if batched else 1
    told = {name: value[:n] for name, value in told.items()}
    expected = attention_by_hand(attention, x[:n], bias_of(told, 0.6, columns).expand(n, HEADS, 2 * K, 2 * K))
    for selector in (columns, every(2, 1)):
        with torch_accounts(attention, BOOK, RULE, 0.6, columns=selector), torch.no_grad():
            tokens = x if batched else x[0]
            ours, _ = attention(tokens, tokens, tokens, **told)
        assert torch.allclose(ours, expected if batched else expected[0], atol=1e-6, rtol=0)


class Policy(nn.Module):
    """A model of the user's, which knows nothing of accounts."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = make_encoder()
        self.head = nn.Linear(HIDDEN, ACTION)

    def act(self, tokens: Tensor) -> Tensor:
        return self.forward(tokens)

    def forward(self, tokens: Tensor) -> Tensor:
        S = tokens.shape[1]
        out: Tensor = self.head(self.encoder(tokens, mask=torch.full((S, S), -math.inf).triu(1)))
        return out


def test_a_model_around_an_encoder_and_its_own_loop() -> None:
    """Told before the call, and live: both give the trajectory's attractions."""
    model, told, x = Policy().eval(), steps(), torch.randn(B, S, HIDDEN)
    expected = model.head(encoder_by_hand(model.encoder.layers, x, [CAUSAL + bias_of(told, 0.6)] * 2))
    with torch_accounts(model, BOOK, RULE, 0.6) as accounts, torch.no_grad():
        accounts.enter(**told)
        assert torch.allclose(model(x), expected, atol=1e-6, rtol=0)
        accounts.begin(B)
        for t in range(K):
            seen = model(x[:, : 3 * t + 2])[:, -1]  # without the action to come
            assert torch.allclose(seen, expected[:, 3 * t + 1], atol=1e-6, rtol=0)
            accounts.post(told["actions"][:, t], told["rewards"][:, t])
        accounts.end()


@pytest.mark.parametrize("training", [False, True])
def test_attention_that_is_reached_past_the_models_call(training: bool) -> None:
    """By another method, or by a part of the model: the accounts as they stand at that time."""
    model, x = Policy().train(training), torch.randn(B, S, HIDDEN)
    plain, fast = model(x), torch.backends.mha.get_fastpath_enabled()
    with torch.set_grad_enabled(training), torch_accounts(model, BOOK, RULE, 0.6) as accounts:
        for _ in range(2):
            told = steps()
            accounts.enter(**told)
            expected = model(x)
            assert not torch.allclose(expected, plain, atol=1e-4)
            assert torch.equal(model.act(x), expected)
            assert torch.equal(model.head(model.encoder(x, mask=CAUSAL)), expected)
            layer = model.encoder.layers[0]
            by_hand = encoder_by_hand([layer], x, [bias_of(told, 0.6)])
            assert torch.allclose(layer(x), by_hand, atol=1e-6)
        accounts.begin(B)
        accounts.post(told["actions"][:, 0], told["rewards"][:, 0])
        assert torch.equal(model.act(x), model(x))
        assert not torch.equal(model(x), expected)
    assert torch.backends.mha.get_fastpath_enabled() == fast
    assert torch.allclose(model(x), plain, atol=1e-6)
    assert not any("forward" in part.__dict__ for part in model.modules())


class Told(Policy):
    """A model whose own call has actions and rewards."""

    def forward(self, tokens: Tensor, actions: Tensor | None = None, rewards: Tensor | None = None) -> Tensor:
        return super().forward(tokens)


def test_actions_that_the_models_own_call_has() -> None:
    model, told, x = Told().eval(), steps(), torch.randn(B, S, HIDDEN)
    with torch_accounts(model, BOOK, RULE, 0.6) as accounts, torch.no_grad():
        expected = model(x, attractions=accounts.trace(**told))
        accounts.enter(**steps())
        assert torch.equal(model(x, told["actions"], told["rewards"]), expected)
        assert torch.equal(model(x, **told), expected)
        assert torch.equal(model(x, told["actions"]), model(x))  # without rewards it is the model's own affair


def test_a_call_inside_of_a_call() -> None:
    class Twice(Policy):
        def forward(self, tokens: Tensor, again: Tensor | None = None) -> Tensor:
            if again is not None:
                self(again, attractions=torch.zeros(B, 2))
            return super().forward(tokens)

    model, told, x = Twice().eval(), steps(), torch.randn(B, S, HIDDEN)
    with torch_accounts(model, BOOK, RULE, 0.6) as accounts, torch.no_grad():
        expected = model(x, **told)
        accounts.enter(**steps())
        assert torch.equal(model(x, x[:, :6], **told), expected)


def test_a_checkpoint_around_the_model_reads_what_its_call_tells() -> None:
    model, told, x = Policy(), steps(), torch.randn(B, S, HIDDEN, requires_grad=True)
    gradients = []
    with torch_accounts(model, BOOK, RULE, 0.6) as accounts:
        for outer in (
            model,
            lambda x, **told: torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False, **told),
        ):
            loss = outer(x, **told).square().sum()
            accounts.enter(**steps())
            gradients.append(torch.autograd.grad(loss, x)[0])
            loss = outer(x).square().sum()
            if outer is not model:
                with pytest.raises(RuntimeError, match="gradient checkpointing recomputes attention"):
                    loss.backward()
    assert torch.allclose(*gradients, atol=1e-6)


def test_a_frozen_layer_does_not_take_the_gradient_of_beta() -> None:
    class Half(Policy):
        def forward(self, tokens: Tensor) -> Tensor:
            with torch.no_grad():
                tokens = self.encoder.layers[0](tokens)
            out: Tensor = self.encoder.layers[1](tokens)
            return out

    scale = ma.BiasScale(0.5, learned=True)
    model = Half()
    with torch_accounts(model, BOOK, RULE, scale):
        model(torch.randn(B, S, HIDDEN), **steps()).square().sum().backward()
    assert scale.beta.grad is not None
    assert scale.beta.grad.abs() > 0


def test_live_accounts_remember_what_a_shorter_sequence_did_not_need() -> None:
    model, told, x = Policy().eval(), steps(), torch.randn(B, S, HIDDEN)
    with torch_accounts(model, BOOK, RULE, 0.6) as accounts, torch.no_grad():
        whole = model(x[:, :-1], attractions=accounts.trace(**told))
        for keep in (None, 3):
            accounts.begin(B, **({} if keep is None else {"keep": keep}))
            for t in range(K - 1):
                accounts.post(told["actions"][:, t], told["rewards"][:, t])
            model(x[:, :5])
            if keep is None:
                assert torch.allclose(model(x[:, :-1]), whole, atol=1e-6)
            else:
                with pytest.raises(ValueError, match="of 4 actions are needed, but live accounts keep those"):
                    model(x[:, :-1])


def test_a_decoders_attention_to_its_memory_is_left_alone() -> None:
    torch.manual_seed(0)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(HIDDEN, HEADS, 32, 0.0, batch_first=True), 1).eval()
    told, x, memory = steps(), torch.randn(B, S, HIDDEN), torch.randn(B, 7, HIDDEN)
    layer = decoder.layers[0]
    assert isinstance(layer, nn.TransformerDecoderLayer)
    y = layer.norm1(x + attention_by_hand(layer.self_attn, x, CAUSAL + bias_of(told, 0.6)))
    y = layer.norm2(y + layer.multihead_attn(y, memory, memory)[0])
    expected = layer.norm3(y + layer.linear2(torch.relu(layer.linear1(y))))
    with torch_accounts(decoder, BOOK, RULE, 0.6):
        ours = decoder(x, memory, tgt_mask=CAUSAL, **told)
    assert torch.allclose(ours, expected, atol=1e-6, rtol=0)


class TestBadInput:
    def test_no_attention(self) -> None:
        with pytest.raises(ValueError, match=r"Linear cannot take a bias: it has no torch\.nn\.MultiheadAttention"):
            torch_accounts(nn.Linear(2, 2), BOOK, RULE, 0.1)

    def test_columns_that_nobody_knows(self) -> None:
        with pytest.raises(ValueError, match="add_bias_kv and add_zero_attn"):
            torch_accounts(nn.MultiheadAttention(HIDDEN, HEADS, add_zero_attn=True), BOOK, RULE, 0.1)

    def test_another_layout(self) -> None:
        encoder = make_encoder()
        message = r"attractions have shape \(3, 5\), expected \(B, 4\) for 12 tokens with 4 action columns"
        with torch_accounts(encoder, BOOK, RULE, 0.1):
            assert encoder(torch.randn(B, 3 * K - 1, HIDDEN), **steps()).shape == (B, 3 * K - 1, HIDDEN)
            with pytest.raises(ValueError, match=r"expected \(B, 7\) for 21 tokens"):
                encoder(torch.randn(B, 21, HIDDEN), **steps())
        with torch_accounts(encoder, BOOK, RULE, 0.1, columns=torch.arange(S) % 3 == 2) as accounts:
            with pytest.raises(ValueError, match="attention has 12 columns, but columns is"):
                encoder(torch.randn(B, 12, HIDDEN), **steps())
            assert accounts.selector(S).sum() == K
        with (
            torch_accounts(encoder, BOOK, RULE, 0.1, columns=every(3, 2)),
            pytest.raises(ValueError, match=message.replace("3, 5", "3, 6")),
        ):
            encoder(torch.randn(B, 12, HIDDEN), attractions=torch.zeros(B, 6))

    def test_a_copy_would_not_share_the_accounts(self) -> None:
        model = Policy()
        with torch_accounts(model, BOOK, RULE, 0.6):
            for how in (copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match=r"cannot be copied or pickled with accounts attached.*detach\(\)"):
                    how(model)
        copy.deepcopy(model)
        pickle.dumps(model)

    def test_a_copy_of_a_part_without_attention_is_free(self) -> None:
        model = Policy()
        with torch_accounts(model, BOOK, RULE, 0.6):
            head = copy.deepcopy(model.head)
        other = nn.Sequential(make_encoder(), head)
        with torch_accounts(other, BOOK, RULE, 0.6) as accounts:
            assert accounts.is_attached

    def test_two_threads_at_once(self) -> None:
        class Asks(Policy):
            def forward(self, tokens: Tensor) -> Tensor:
                with ThreadPoolExecutor(1) as pool:
                    self.answer = pool.submit(self, tokens, **told).exception()
                return super().forward(tokens)

        model, told, x = Asks().eval(), steps(), torch.randn(B, S, HIDDEN)
        with torch_accounts(model, BOOK, RULE, 0.6), torch.no_grad():
            ours = model(x, **told)
        assert "accounts serve one thread at a time" in str(model.answer)
        expected = model.head(encoder_by_hand(model.encoder.layers, x, [CAUSAL + bias_of(told, 0.6)] * 2))
        assert torch.allclose(ours, expected, atol=1e-6)

    def test_accounts_twice_in_one_model(self) -> None:
        model = Policy()
        for one, other in ((model, model.encoder), (model.encoder, model)):
            with (
                torch_accounts(one, BOOK, RULE, 0.6),
                pytest.raises(ValueError, match="the model, or a part of it, already has accounts"),
            ):
                torch_accounts(other, BOOK, RULE, 0.6)

    @pytest.mark.parametrize("reentrant", [False, True])
    def test_attention_that_runs_again_in_the_backward_pass(self, reentrant: bool) -> None:
        class Saving(Policy):
            def forward(self, tokens: Tensor) -> Tensor:
                for layer in self.encoder.layers:
                    tokens = torch.utils.checkpoint.checkpoint(layer, tokens, use_reentrant=reentrant)
                return tokens

        model, x = Saving(), torch.randn(B, S, HIDDEN, requires_grad=True)
        with torch_accounts(model, BOOK, RULE, 0.6) as accounts:
            accounts.enter(**steps())
            loss = model(x, **steps()).sum()
            with pytest.raises(RuntimeError, match="gradient checkpointing recomputes attention after the accounts"):
                loss.backward()

    @pytest.mark.parametrize("shape", [(3,), (2, 3), (3, 4), (1, 2, 4)])
    def test_a_beta_that_is_not_of_the_models_shape(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match=r"shape \(4,\) or \(2, 4\): the model has 2 layers of 4 heads; got"):
            torch_accounts(make_encoder(), BOOK, RULE, torch.ones(shape))

    def test_a_codebook_that_does_not_say_how_many_codes_it_has(self) -> None:
        class Mine(ma.GridCodebook):
            def __init__(self) -> None:
                nn.Module.__init__(self)
                self.dim = ACTION

        with pytest.raises(TypeError, match=r"Mine must set num_codes, centers in its __init__"):
            torch_accounts(make_encoder(), Mine(), RULE, 0.6)

    def test_nothing_told(self) -> None:
        encoder = make_encoder()
        with torch_accounts(encoder, BOOK, RULE, 0.1), pytest.raises(ValueError, match="have no actions and rewards"):
            encoder(torch.randn(B, S, HIDDEN))
        assert torch.backends.mha.get_fastpath_enabled()

    def test_another_number_of_sequences(self) -> None:
        encoder = make_encoder()
        with (
            torch_accounts(encoder, BOOK, RULE, 0.1),
            pytest.raises(ValueError, match=r"2 sequences of 15 columns, the accounts have \(3, 15\)"),
        ):
            encoder(torch.randn(2, S, HIDDEN), **steps())

    def test_posting_before_beginning(self) -> None:
        accounts = torch_accounts(make_encoder(), BOOK, RULE, 0.1)
        with pytest.raises(RuntimeError, match=r"call begin\(num_actors\) first"):
            accounts.post(torch.zeros(1, ACTION), torch.zeros(1))

    def test_a_selector_that_cannot_be(self) -> None:
        with pytest.raises(ValueError, match="offset must be below period = 2, got 2"):
            every(2, 2)
