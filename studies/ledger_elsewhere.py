"""A ledger in GPT-2 and Llama: a drifting bandit whose rewards come three steps late, learned from a player's episodes.

    python studies/ledger_elsewhere.py [--models gpt2 llama] [--cases alone beta ledger hand] [--seeds 5] [--json FILE]

The task: 10 arms; arm j pays q_j + 0.5 N(0, 1), and each q_j follows a slow random walk. The reward of a step belongs
to the action of three steps before, and nothing says so. The data: 1,024 episodes of 60 steps of an EWA player that
does know (φ = 0.1, softmax of twice the attractions). Tokens: (reward, action) at each step, the reward in 12 bins.

Small models of transformers with random initial weights (hidden 64, 2 layers, 4 heads) learn to predict the player's
actions, and are then sampled from in 256 new episodes:

    alone     the model as it is
    beta      accounts in its attention, one learned β per layer and head, with reward_delay=3
    ledger    hugging_face_accounts(model, codebook, rule, ledger_input="state", reward_delay=3)
    hand      the same balances and a Linear, written out below without this package

Every case begins with the same weights of the model, gets the same batches and is tested on bandits that begin alike;
`player` is what the player itself gets on these.
"""

import argparse
import json
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mental_accounts as ma
from mental_accounts.integrations import AttachedAccounts, every, hugging_face_accounts
from mental_accounts.learning.run_folder import surroundings

ARMS, NOISE, DRIFT, DELAY, PHI = 10, 0.5, 0.01, 3, 0.1
BORDERS = torch.linspace(-2.0, 3.0, 11)
NO_REWARD = ARMS + len(BORDERS) + 1
HIDDEN, LAYERS, HEADS = 64, 2, 4
TEST_SEED = 10_000
CASES = ("alone", "beta", "ledger", "hand")


@dataclass
class Bandit:
    """Episodes in parallel, determined by a generator."""

    n: int
    chance: torch.Generator
    due: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.means = torch.randn(self.n, ARMS, generator=self.chance)

    def step(self, actions: Tensor) -> Tensor:
        """Pull arms (n,); the rewards that come now, (n,): 0 as long as none is due."""
        noise, moves = (torch.randn(size, generator=self.chance) for size in (self.n, self.means.numel()))
        self.due.append(self.means.gather(1, actions.unsqueeze(1)).squeeze(1) + NOISE * noise)
        self.means = (1 - DRIFT) ** 0.5 * self.means + DRIFT**0.5 * moves.view_as(self.means)
        return self.due.pop(0) if len(self.due) > DELAY else torch.zeros(self.n)


class Balances:
    """Decayed sums of what each arm paid, by someone who knows how late rewards are."""

    def __init__(self, n: int) -> None:
        self.now, self.taken = torch.zeros(n, ARMS), list[Tensor]()

    def post(self, actions: Tensor, rewards: Tensor) -> None:
        """Enter rewards (n,) under the actions that they belong to."""
        self.taken.append(actions)
        self.now = self.now * (1 - PHI)
        if len(self.taken) > DELAY:
            self.now = self.now.scatter_add(1, self.taken.pop(0).unsqueeze(1), rewards.unsqueeze(1))


def play(n: int, steps: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """The player's actions and rewards, (n, steps), and its balances before each step, (n, steps, arms)."""
    chance = torch.Generator().manual_seed(seed)
    bandit, balances = Bandit(n, chance), Balances(n)
    actions, rewards, before = [], [], []
    for _ in range(steps):
        before.append(balances.now)
        actions.append(torch.multinomial(torch.softmax(2.0 * balances.now, -1), 1, generator=chance).squeeze(1))
        rewards.append(bandit.step(actions[-1]))
        balances.post(actions[-1], rewards[-1])
    return torch.stack(actions, 1), torch.stack(rewards, 1), torch.stack(before, 1)


def reward_tokens(rewards: Tensor) -> Tensor:
    """(...) -> (...)."""
    return ARMS + torch.bucketize(rewards.contiguous(), BORDERS)


def make_model(name: str, steps: int) -> Any:
    """A small model over 10 arms, 12 bins of rewards, and "no reward yet"."""
    import transformers

    library: Any = transformers
    ends: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    if name == "gpt2":
        drops: dict[str, Any] = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        return library.GPT2LMHeadModel(
            library.GPT2Config(
                vocab_size=NO_REWARD + 1, n_embd=HIDDEN, n_layer=LAYERS, n_head=HEADS, n_positions=2 * steps, **drops,
                **ends,
            )
        )  # fmt: skip
    return library.LlamaForCausalLM(
        library.LlamaConfig(
            vocab_size=NO_REWARD + 1, hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
            intermediate_size=4 * HIDDEN, max_position_embeddings=2 * steps, **ends,
        )
    )  # fmt: skip


class Learner:
    """One case: a model, and what it is told."""

    def __init__(self, model: str, case: str, seed: int, steps: int) -> None:
        torch.manual_seed(seed)
        self.model, self.case = make_model(model, steps), case
        self.accounts: AttachedAccounts | None = None
        extra: list[nn.Parameter] = []
        book, rule, columns = ma.DiscreteCodebook(ARMS), ma.EWA(phi=PHI, delta=1.0), every(2, 1)
        if case == "beta":
            scale = ma.BiasScale(0.1, learned=True, layers=LAYERS, heads=HEADS)
            extra = list(scale.parameters())
            self.accounts = hugging_face_accounts(self.model, book, rule, scale, columns=columns, reward_delay=DELAY)
        elif case == "ledger":
            self.accounts = hugging_face_accounts(
                self.model, book, rule, columns=columns, ledger_input="state", reward_delay=DELAY
            )
        self.by_hand = nn.Linear(ARMS, HIDDEN) if case == "hand" else None
        extra += [] if self.by_hand is None else list(self.by_hand.parameters())
        self.optimizer = torch.optim.AdamW([*self.model.parameters(), *extra], lr=2e-3, weight_decay=0.01)

    def logits(self, tokens: Tensor, told: dict[str, Tensor], balances: Tensor | None, cache: Any = None) -> Any:
        """The model's output for tokens (B, S); balances (B, S, arms), 0 at actions, for the case `hand`."""
        if self.by_hand is None or balances is None:
            return self.model(tokens, past_key_values=cache, use_cache=cache is not None, **told)
        added = self.by_hand(PHI * balances) * (tokens >= ARMS).unsqueeze(-1)
        embedded = self.model.get_input_embeddings()(tokens) + added
        return self.model(inputs_embeds=embedded, past_key_values=cache, use_cache=cache is not None)

    def update(self, actions: Tensor, rewards: Tensor, balances: Tensor) -> float:
        """One update on episodes, (B, steps)."""
        B, K = actions.shape
        came = F.pad(reward_tokens(rewards[:, :-1]), (1, 0), value=NO_REWARD)
        tokens = torch.stack([came, actions], dim=2).reshape(B, 2 * K)
        told = {} if self.accounts is None else {"actions": actions, "rewards": rewards}
        found = self.logits(tokens, told, balances.repeat_interleave(2, dim=1)).logits[:, 0::2, :ARMS]
        loss = F.cross_entropy(found.reshape(B * K, ARMS), actions.reshape(-1))
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return float(loss.detach())

    @torch.no_grad()
    def act(self, n: int, steps: int, seed: int) -> float:
        """The mean return of n episodes of sampled actions, token by token with a cache."""
        from transformers import DynamicCache

        self.model.eval()
        chance = torch.Generator().manual_seed(seed)
        bandit, balances, cache = Bandit(n, chance), Balances(n), DynamicCache()
        if self.accounts is not None:
            self.accounts.begin(n)
        new, total = torch.full((n, 1), NO_REWARD), torch.zeros(n)
        for _ in range(steps):
            output = self.logits(new, {}, balances.now.unsqueeze(1).expand(-1, new.shape[1], -1), cache)
            chances = torch.softmax(output.logits[:, -1, :ARMS], -1)
            actions = torch.multinomial(chances, 1, generator=chance).squeeze(1)
            rewards = bandit.step(actions)
            total += rewards
            balances.post(actions, rewards)
            if self.accounts is not None:
                self.accounts.post(actions, rewards)
            new = torch.stack([actions, reward_tokens(rewards)], dim=1)
        if self.accounts is not None:
            self.accounts.end()
        self.model.train()
        return float(total.mean())


def run(model: str, case: str, seed: int, *, steps: int, episodes: int, updates: int, test: int) -> dict[str, Any]:
    """Train and sample one model."""
    began = time.perf_counter()
    actions, rewards, balances = play(episodes, steps, seed)
    learner, order = Learner(model, case, seed, steps), torch.Generator().manual_seed(seed)
    schedule = torch.optim.lr_scheduler.LambdaLR(learner.optimizer, lambda t: min(1.0, 2.0 * (1 - t / updates)))
    losses = []
    for _ in range(updates):
        rows = torch.randint(episodes, (16,), generator=order)
        losses.append(learner.update(actions[rows], rewards[rows], balances[rows]))
        schedule.step()
    return {
        "model": model, "case": case, "seed": seed, "loss": statistics.mean(losses[-50:]),
        "return": learner.act(test, steps, TEST_SEED + seed), "data": float(rewards.sum(dim=1).mean()),
        "player": float(play(test, steps, TEST_SEED + seed)[1].sum(dim=1).mean()),
        "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    """Run all cases, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["gpt2", "llama"], choices=["gpt2", "llama"])
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--episodes", type=int, default=1024)
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--test", type=int, default=256)
    parser.add_argument("--json", type=Path, help="also write the runs here")
    args = parser.parse_args(arguments)
    sizes = {"steps": args.steps, "episodes": args.episodes, "updates": args.updates, "test": args.test}
    runs = []
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        for model in args.models:
            for case in args.cases:
                runs.append(run(model, case, seed, **sizes))
                print(json.dumps(runs[-1]), flush=True)
                if args.json:
                    about = {"what": __doc__.splitlines()[0], "command": sys.argv, **surroundings(), **sizes}
                    args.json.write_text(json.dumps({**about, "runs": runs}, indent=1) + "\n")
    for model in args.models:
        for case in args.cases:
            found = [one["return"] for one in runs if (one["model"], one["case"]) == (model, case)]
            spread = statistics.stdev(found) if len(found) > 1 else 0.0
            print(f"{model:6} {case:7} {statistics.mean(found):6.1f} ± {spread:.1f} over {len(found)} seeds")


if __name__ == "__main__":
    main()
