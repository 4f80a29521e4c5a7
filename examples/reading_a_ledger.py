"""Reading a ledger while acting: which kinds of action paid off, and what that does to attention.

    python examples/reading_a_ledger.py

A small policy acts in two pendulum environments. Every 25 steps it prints the best and the worst account of each, and
how far the bias moves attention (drift), with its sharp bound.
"""

import gymnasium
import torch

import mental_accounts as ma
from mental_accounts.policy import action_spec_of, state_dim_of
from mental_accounts.policy.attention_probe import attention_of

STEPS = 100


def main() -> None:
    torch.manual_seed(0)
    env = gymnasium.make_vec("Pendulum-v1", num_envs=2, vectorization_mode="sync")
    accounts = ma.AccountsConfig(bins=5, num_codes=None, reward_transform="centred", reward_clip=5.0, beta=0.1)
    config = ma.PolicyConfig(
        state_dim=state_dim_of(env.single_observation_space),
        action=action_spec_of(env.single_action_space),
        hidden=32,
        layers=2,
        heads=2,
        context_length=10,
        accounts=accounts,
    )
    policy = ma.DecisionTransformer(config)
    policy.fit_normalisation(torch.randn(500, 3), torch.rand(500, 1) * 4 - 2, torch.randn(500) * 3 - 6)
    assert policy.accounts is not None
    centres = policy.accounts.books.codebook.centers
    assert centres is not None

    context = policy.context(num_envs=2, target_return=-200.0)
    observations, _ = env.reset(seed=0)
    for t in range(1, STEPS + 1):
        actions = policy.act(observations, context, sample=True)
        observations, rewards, terminated, truncated, _ = env.step(actions)
        context.record(rewards, terminated | truncated)
        if t % 25:
            continue
        assert context.ledger is not None
        for actor, balances in enumerate(context.ledger.attractions):  # (codes,)
            extremes = [
                (2 * float(centres[code]), float(balances[code])) for code in (balances.argmax(), balances.argmin())
            ]
            text = ", ".join(f"torque {torque:+.1f} has {balance:+6.2f}" for torque, balance in extremes)
            print(f"step {t:3d}, pendulum {actor}: {text}")
        layer = attention_of(policy, context.window())[0]
        drift, bound = float(layer.drift().max()), float(layer.bound().max())
        print(f"          attention moves by up to {drift:.3f} (bound {bound:.3f})")
        assert drift <= bound + 1e-6
    env.close()


if __name__ == "__main__":
    main()
