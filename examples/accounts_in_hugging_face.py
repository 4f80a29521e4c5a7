"""Accounts in a Hugging Face model: fine-tune it on built-in data with a learned β, then act with a live ledger.

    pip install 'mental-accounts[hf,mujoco]' && python examples/accounts_in_hugging_face.py

The model's source is not touched. `with hugging_face_accounts(...)` is all it takes; afterwards the model is unchanged.
"""

import gymnasium
import torch
from transformers import DecisionTransformerConfig, DecisionTransformerModel

import mental_accounts as ma
from mental_accounts.data import WindowSampler, load_task
from mental_accounts.integrations import hugging_face_accounts

K, UPDATES = 10, 80


def main() -> None:
    task, store = load_task("hopper-medium", 5_000, workers=1)
    book, rule, transform = ma.GridCodebook(dim=3, bins=3), ma.EWA(), ma.RewardTransform.fit(store.rewards)
    store.annotate(book, rule, transform)  # the attractions of whole trajectories, longer than any window
    mean, std = store.observations.mean(dim=0), store.observations.std(dim=0) + 1e-6

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "n_layer": 2, "n_head": 1, "max_ep_len": 1000, "vocab_size": 1}
    tokens = {"bos_token_id": 0, "eos_token_id": 0}  # it has no vocabulary
    model = DecisionTransformerModel(DecisionTransformerConfig(state_dim=11, act_dim=3, **sizes, **tokens))
    scale = ma.BiasScale(0.05, learned=True)

    with hugging_face_accounts(model, book, rule, scale, transform=transform) as accounts:
        sampler = WindowSampler(store, 32, K, torch.Generator().manual_seed(0))
        optimizer = torch.optim.AdamW([*model.parameters(), *scale.parameters()], lr=1e-3)
        losses = []
        for _ in range(UPDATES):
            w = sampler()
            predicted = model(
                states=(w.observations - mean) / std,
                actions=w.actions,
                returns_to_go=w.returns_to_go.unsqueeze(-1) / 1000,
                timesteps=w.timesteps,
                attention_mask=w.mask.long(),
                attractions=w.attractions,
            ).action_preds
            loss = (predicted - w.actions)[w.mask].square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        print(f"loss {sum(losses[:10]) / 10:.3f} -> {sum(losses[-10:]) / 10:.3f}, β {float(scale.beta.detach()):.4f}")
        assert sum(losses[-10:]) < 0.8 * sum(losses[:10])

        model.eval()
        env = gymnasium.make(task.env_id)
        observation, _ = env.reset(seed=0)
        accounts.begin(1)  # a live ledger for one actor
        states, actions, returns = [], [], [task.target_return / 1000]
        total, over = 0.0, False
        while not over and len(states) < 200:
            states.append((torch.tensor(observation, dtype=torch.float32) - mean) / std)
            actions.append(torch.zeros(3))
            n = min(K, len(states))
            with torch.no_grad():
                action = model(
                    states=torch.stack(states[-n:])[None],
                    actions=torch.stack(actions[-n:])[None],
                    returns_to_go=torch.tensor(returns[-n:]).view(1, n, 1),
                    timesteps=torch.arange(len(states) - n, len(states))[None],
                ).action_preds[0, -1]
            observation, reward, terminated, truncated, _ = env.step(action.numpy())
            actions[-1] = action
            accounts.post(action[None], torch.tensor([float(reward)]))
            returns.append(returns[-1] - float(reward) / 1000)
            total, over = total + float(reward), terminated or truncated
        assert accounts.ledger is not None
        used = int((accounts.ledger.attractions != 0).sum())
        print(f"{len(states)} steps, return {total:.0f}; {used} of {book.num_codes} accounts in use")


if __name__ == "__main__":
    main()
