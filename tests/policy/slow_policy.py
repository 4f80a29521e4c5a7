"""The policy written out slowly in float64: one example, one head and one row at a time. Independent of the package.

Takes the weights of a `DecisionTransformer` by name, and computes every token, also those that nobody reads.
"""

import torch


def layer_norm(x, weight, bias):
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred / torch.sqrt((centred**2).mean(dim=-1, keepdim=True) + 1e-5) * weight + bias


def linear(w, name, x):
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def softmax(z):
    e = torch.exp(z - z.max())
    return e / e.sum()


def expected_reward(w, state):
    """A constant, and terms in the standardised state and its squares, number by number."""
    coefficients, total = w["reward_baseline.coefficients"].double(), 0.0
    for place in range(len(state)):
        z = (state[place] - w["reward_baseline.mean"][place].double()) / w["reward_baseline.std"][place].double()
        z = z.clamp(-10, 10)
        total = total + coefficients[1 + place] * z + coefficients[1 + len(state) + place] * z * z
    return coefficients[0] + total


def tokens_of(w, config, window, n):
    """(3K, hidden) tokens of example n, and which of them are there."""
    K = window["observations"].shape[1]
    there = window["mask"][n] if window.get("mask") is not None else torch.ones(K, dtype=torch.bool)
    tokens, present, place = [], [], 0
    for t in range(K):
        g = linear(w, "embedding.embed_return", window["returns_to_go"][n, t].double().reshape(1) * config.return_scale)
        normal = (window["observations"][n, t].double() - w["state_mean"]) / w["state_std"]
        s = linear(w, "embedding.embed_state", normal)
        if config.reward_input in ("state", "advantage") and int(window["timesteps"][n, t]) > 0:
            paid = window["previous_rewards"][n, t].double()
            if config.reward_input == "advantage":
                paid = paid - expected_reward(w, window["previous_observations"][n, t].double())
            s = s + w["embed_reward.weight"][:, 0] * (paid - w["reward_mean"]) / w["reward_std"]
        if config.action.is_discrete:
            a = w["embedding.embed_action.weight"][int(window["actions"][n, t]) - config.action.start]
        else:
            low, high = torch.tensor(config.action.low).double(), torch.tensor(config.action.high).double()
            unit = 2 * (window["actions"][n, t].double() - low) / (high - low) - 1
            a = linear(w, "embedding.embed_action", unit)
        for raw in (g, s, a):
            token = raw
            if config.timestep_embedding:
                step = min(int(window["timesteps"][n, t]), config.max_timestep - 1)
                token = token + w["embedding.embed_timestep.weight"][step]
            if config.order_embedding:
                token = token + w["embedding.embed_order.weight"][place]
            tokens.append(layer_norm(token, w["embedding.norm.weight"], w["embedding.norm.bias"]))
            present.append(bool(there[t]))
        place += int(there[t])
    return torch.stack(tokens), present


def column_bias_of(w, config, window, n, layer, head):
    """b[row][column]: Eq. 10's bias, or the balances as they stand at the row's time."""
    K = window["observations"].shape[1]
    bias = torch.zeros(3 * K, 3 * K, dtype=torch.float64)
    if not config.has_bias:
        return bias
    accounts = config.accounts
    beta = w["accounts.scale.beta"]
    if beta.ndim == 2:
        beta = beta[layer if beta.shape[0] > 1 else 0]
    if beta.ndim == 1:
        beta = beta[head if beta.shape[0] > 1 else 0]
    A = window["attractions"][n].double()
    codes = window.get("codes")
    if A.ndim == 1:
        A = A.unsqueeze(-1)
        codes = None if codes is None else codes.unsqueeze(-1)
    for row in range(3 * K):
        for i in range(K):
            column = 3 * i + 2
            if column > row:
                continue
            value = 0.0
            for g in range(A.shape[1]):
                if accounts.read == "then":
                    value = value + A[i, g] / A.shape[1]
                else:
                    posted = row // 3 if row % 3 == 2 else row // 3 - 1  # the last step posted when this row is made
                    last = max((t for t in range(i, posted + 1) if codes[n, t, g] == codes[n, i, g]), default=None)
                    if last is not None:
                        value = value + A[last, g] * (1 - accounts.phi) ** (posted - last) / A.shape[1]
            b = beta * value
            if accounts.bias_clip is not None:
                b = torch.as_tensor(b, dtype=torch.float64).clamp(-accounts.bias_clip, accounts.bias_clip)
            bias[row, column] = b
    return bias


def state_outputs(w, config, window):
    """The final state of every state token: (B, K, hidden)."""
    outputs = []
    for n in range(window["observations"].shape[0]):
        x, present = tokens_of(w, config, window, n)
        S, d = len(x), config.hidden // config.heads
        for layer in range(config.layers):
            at = f"transformer.blocks.{layer}"
            normed = layer_norm(x, w[f"{at}.attention_norm.weight"], w[f"{at}.attention_norm.bias"])
            q = linear(w, f"{at}.attention.query", normed)
            kv = linear(w, f"{at}.attention.key_value", normed)
            k, v = kv[:, : config.hidden], kv[:, config.hidden :]
            mixed = []
            for head in range(config.heads):
                part = slice(head * d, (head + 1) * d)
                bias = column_bias_of(w, config, window, n, layer, head)
                rows = []
                for row in range(S):
                    columns = [c for c in range(row + 1) if present[c] or c == row]
                    logits = torch.stack([q[row, part] @ k[c, part] / d**0.5 + bias[row, c] for c in columns])
                    weights = softmax(logits)
                    rows.append(sum(weight * v[c, part] for weight, c in zip(weights, columns, strict=True)))
                mixed.append(torch.stack(rows))
            x = x + linear(w, f"{at}.attention.output", torch.cat(mixed, dim=-1))
            normed = layer_norm(x, w[f"{at}.mlp_norm.weight"], w[f"{at}.mlp_norm.bias"])
            x = x + linear(w, f"{at}.mlp.2", torch.relu(linear(w, f"{at}.mlp.0", normed)))
        x = layer_norm(x, w["transformer.norm.weight"], w["transformer.norm.bias"])
        outputs.append(x[1::3])
    return torch.stack(outputs)


def predictions(w, config, window):
    """The head's numbers by name, each (B, K, size)."""
    x = state_outputs(w, config, window)
    if config.action.is_discrete:
        logits = linear(w, "head.logits", x)
        return {"log_probs": logits - torch.logsumexp(logits, dim=-1, keepdim=True)}
    if config.method == "dt":
        return {"action": torch.tanh(linear(w, "head.action", x))}
    raw = torch.tanh(linear(w, "head.log_std", x))
    return {"mean": linear(w, "head.mean", x), "log_std": -5 + 3.5 * (raw + 1)}
