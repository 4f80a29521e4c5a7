"""Accounts for a game, without a transformer: two players learn by the canonical rule of Camerer and Ho (1999).

    python examples/game_with_the_canonical_rule.py

Many pairs of players repeat a game of two moves. A player enters its payoff and the foregone payoff of the other move
(weight δ), and chooses by a logit of its attractions. The script checks the live ledgers against the closed form, and
the moves against the probabilities from that closed form.
"""

import math

import torch

import mental_accounts as ma

PAIRS, ROUNDS, SENSITIVITY = 4_000, 40, 1.5
PAYS = torch.tensor([[[3.0, 0.0], [5.0, 1.0]], [[3.0, 5.0], [0.0, 1.0]]])  # player, row, column: a prisoner's dilemma


def main() -> None:
    torch.manual_seed(0)
    rule = ma.CanonicalEWA(phi=0.1, rho=0.1, delta=0.6)
    ledgers = [rule.ledger(num_codes=2, batch_shape=(PAIRS,)) for _ in range(2)]
    moves = torch.zeros(2, PAIRS, ROUNDS, dtype=torch.int64)
    payoffs, foregone = torch.zeros(2, PAIRS, ROUNDS), torch.zeros(2, PAIRS, ROUNDS, 2)
    for t in range(ROUNDS):
        for player, ledger in enumerate(ledgers):
            chances = torch.softmax(SENSITIVITY * ledger.attractions, dim=-1)  # (pairs, moves)
            moves[player, :, t] = torch.multinomial(chances, 1).squeeze(-1)
        row, column = moves[:, :, t]
        foregone[0, :, t] = PAYS[0][:, column].T  # the payoff of each move against the other's
        foregone[1, :, t] = PAYS[1][row]
        for player, ledger in enumerate(ledgers):
            payoffs[player, :, t] = foregone[player, :, t].gather(-1, moves[player, :, t, None]).squeeze(-1)
            ledger.post(moves[player, :, t], payoffs[player, :, t], foregone=foregone[player, :, t])

    for player, ledger in enumerate(ledgers):
        closed = rule.closed_form(moves[player], payoffs[player], num_codes=2, foregone=foregone[player])
        error = float((closed - ledger.attractions).abs().max())
        assert error < 1e-4, error
        # Round by round: the share of second moves against the mean of their probabilities by the closed form.
        worst = 0.0
        for t in range(1, ROUNDS):
            before = rule.closed_form(
                moves[player, :, :t], payoffs[player, :, :t], num_codes=2, foregone=foregone[player, :, :t]
            )
            expected = torch.softmax(SENSITIVITY * before, dim=-1)[:, 1]
            off = float(moves[player, :, t].float().mean() - expected.mean())
            spread = math.sqrt(max(float((expected * (1 - expected)).mean()), 1e-6) / PAIRS)
            worst = max(worst, abs(off) / spread)
        share = float((moves[player, :, -1] == 1).float().mean())
        print(f"player {player + 1}: ledger = closed form to {error:.0e}; moves within {worst:.1f} standard errors")
        print(f"          defects in {100 * share:.0f} % of the last rounds")
        assert worst < 4.5


if __name__ == "__main__":
    main()
