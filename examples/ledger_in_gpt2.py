"""A ledger in GPT-2 by one call: imitate a bandit player whose rewards come three steps late.

    pip install 'mental-accounts[hf]' && python examples/ledger_in_gpt2.py

Ten arms, whose pay drifts. Each reward belongs to the arm pulled three steps before, and no token says so. GPT-2 alone
would have to find that out, count for itself, and compare ten arms; `ledger_input="state"` tells it the balance of
every arm before each action. The map from balances to embeddings is a part of the model: it learns and is saved with
it.
"""

import tempfile

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

import mental_accounts as ma
from mental_accounts.integrations import AttachedAccounts, every, hugging_face_accounts

ARMS, LATE, STEPS, PHI = 10, 3, 40, 0.1
BORDERS = torch.linspace(-2.0, 3.0, 11)  # rewards as tokens: 12 bins, after the arms
FIRST = ARMS + len(BORDERS) + 1  # the token before the first action
BOOK, RULE = ma.DiscreteCodebook(ARMS), ma.EWA(phi=PHI, delta=1.0)
TOLD = {"columns": every(2, 1), "ledger_input": "state", "reward_delay": LATE}  # tokens: (reward, action)


class Bandit:
    def __init__(self, n: int) -> None:
        self.means, self.due = torch.randn(n, ARMS), [torch.zeros(n) for _ in range(LATE)]

    def step(self, arms: Tensor) -> Tensor:
        self.due.append(self.means.gather(1, arms[:, None]).squeeze(1) + 0.5 * torch.randn(len(arms)))
        self.means = 0.995 * self.means + 0.1 * torch.randn_like(self.means)
        return self.due.pop(0)


def play(n: int) -> tuple[Tensor, Tensor]:
    """Actions and rewards of a player who knows how late rewards are: (n, STEPS), twice."""
    bandit, balances = Bandit(n), torch.zeros(n, ARMS)
    actions, rewards = [], []
    for t in range(STEPS):
        actions.append(torch.multinomial(torch.softmax(2.0 * balances, -1), 1).squeeze(1))
        rewards.append(bandit.step(actions[t]))
        balances = balances * (1 - PHI)
        if t >= LATE:
            balances.scatter_add_(1, actions[t - LATE][:, None], rewards[t][:, None])
    return torch.stack(actions, 1), torch.stack(rewards, 1)


def token_of(rewards: Tensor) -> Tensor:
    return ARMS + torch.bucketize(rewards.contiguous(), BORDERS)


def train(model: GPT2LMHeadModel, actions: Tensor, rewards: Tensor, told: bool, updates: int = 200) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)  # the map's parameters among them
    before = F.pad(token_of(rewards[:, :-1]), (1, 0), value=FIRST)
    tokens = torch.stack([before, actions], dim=2).flatten(1)  # (n, 2 STEPS)
    for _ in range(updates):
        rows = torch.randint(len(actions), (16,))
        steps = {"actions": actions[rows], "rewards": rewards[rows]} if told else {}
        predicted = model(tokens[rows], **steps).logits[:, 0::2, :ARMS]
        loss = F.cross_entropy(predicted.flatten(0, 1), actions[rows].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def sample(model: GPT2LMHeadModel, n: int, accounts: AttachedAccounts | None) -> float:
    """The mean return of n episodes, token by token with a cache and live ledgers."""
    bandit, cache, total = Bandit(n), DynamicCache(), torch.zeros(n)
    if accounts is not None:
        accounts.begin(n)
    new = torch.full((n, 1), FIRST)
    for _ in range(STEPS):
        logits = model(new, past_key_values=cache, use_cache=True).logits[:, -1, :ARMS]
        actions = torch.multinomial(torch.softmax(logits, -1), 1).squeeze(1)
        rewards = bandit.step(actions)
        if accounts is not None:
            accounts.post(actions, rewards)
        total += rewards
        new = torch.stack([actions, token_of(rewards)], dim=1)
    return float(total.mean())


def main() -> None:
    torch.manual_seed(0)
    actions, rewards = play(512)
    data = float(rewards.sum(dim=1).mean())
    sizes = {"vocab_size": FIRST + 1, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 2 * STEPS}
    config = GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None)

    alone = GPT2LMHeadModel(config)
    train(alone, actions, rewards, told=False)
    without = sample(alone.eval(), 128, None)

    model = GPT2LMHeadModel(config)
    with hugging_face_accounts(model, BOOK, RULE, **TOLD) as accounts, tempfile.TemporaryDirectory() as folder:
        train(model, actions, rewards, told=True)
        told = sample(model.eval(), 128, accounts)
        model.save_pretrained(folder)  # ledger_input.weight and ledger_input.bias with all others
        again = GPT2LMHeadModel.from_pretrained(folder).eval()  # plain GPT-2, until it is attached again
        with hugging_face_accounts(again, BOOK, RULE, **TOLD, ledger_weights=folder) as its_own:
            saved = sample(again, 128, its_own)
    print(f"return in {STEPS} steps: data {data:.1f}, GPT-2 alone {without:.1f}, with a ledger {told:.1f}")
    print(f"saved, read and attached again: {saved:.1f}")
    assert told > without + 0.25 * data


if __name__ == "__main__":
    main()
