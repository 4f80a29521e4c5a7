"""Hugging Face's DecisionTransformerModel: mean squared error, AdamW, clipping."""

from collections.abc import Callable

import torch
import transformers
from batch import ACTION, HEADS, HIDDEN, LAYERS, LONGEST, STATE, make_batch
from transformers import DecisionTransformerConfig, DecisionTransformerModel


def version() -> str:
    return f"transformers {transformers.__version__}, torch {torch.__version__}"


def make(case: dict, device: str) -> Callable[[], object]:
    if case["method"] != "odt":
        raise NotImplementedError("has no accounts")
    config = DecisionTransformerConfig(
        state_dim=STATE, act_dim=ACTION, hidden_size=HIDDEN, n_layer=LAYERS, n_head=HEADS, max_ep_len=LONGEST,
        n_positions=max(1024, 3 * case["context"]), activation_function="relu", resid_pdrop=0.1, attn_pdrop=0.1,
        embd_pdrop=0.1,
    )  # fmt: skip
    model = DecisionTransformerModel(config).to(device)
    batch = make_batch(case["batch"], case["context"], device)
    half = torch.autocast(device, dtype=torch.bfloat16, enabled=case["precision"] == "bf16")

    def predict() -> torch.Tensor:
        with half:
            return model(
                states=batch["states"], actions=batch["actions"], rewards=None, returns_to_go=batch["returns"],
                timesteps=batch["timesteps"], attention_mask=batch["mask"].long(),
            ).action_preds  # fmt: skip

    if case["what"] == "act":
        model.eval()

        @torch.no_grad()
        def act() -> object:
            return predict()[:, -1].float().cpu()

        return act
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=5e-4, fused=True)

    def update() -> None:
        predicted = predict()
        mask = batch["mask"]
        loss = (predicted[mask].float() - batch["actions"][mask]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()

    return update
