"""TorchRL's OnlineDTActor and OnlineDTLoss: likelihood and entropy, AdamW, clipping, the multiplier's own step."""

from collections.abc import Callable

import torch
import torchrl
from batch import ACTION, HEADS, HIDDEN, LAYERS, STATE, make_batch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.modules import OnlineDTActor, ProbabilisticActor, TanhNormal
from torchrl.modules.models.decision_transformer import DecisionTransformer
from torchrl.objectives import OnlineDTLoss


def version() -> str:
    return f"torchrl {torchrl.__version__}, torch {torch.__version__}"


def make(case: dict, device: str) -> Callable[[], object]:
    if case["method"] != "odt":
        raise NotImplementedError("has no accounts")
    config = DecisionTransformer.DTConfig(
        n_embd=HIDDEN, n_layer=LAYERS, n_head=HEADS, n_inner=4 * HIDDEN, activation="relu",
        n_positions=max(1024, 3 * case["context"]), resid_pdrop=0.1, attn_pdrop=0.1,
    )  # fmt: skip
    network = TensorDictModule(
        OnlineDTActor(STATE, ACTION, config, device=device),
        in_keys=["observation", "action", "return_to_go"], out_keys=["loc", "scale"],
    )  # fmt: skip
    actor = ProbabilisticActor(
        network, in_keys=["loc", "scale"], out_keys=["action_chosen"], distribution_class=TanhNormal,
        distribution_kwargs={"low": -1.0, "high": 1.0, "tanh_loc": False}, return_log_prob=False,
    ).to(device)  # fmt: skip
    batch = make_batch(case["batch"], case["context"], device)
    data = TensorDict(
        {"observation": batch["states"], "action": batch["actions"], "return_to_go": batch["returns"],
         "target_action": batch["actions"]},
        batch_size=[case["batch"]], device=device,
    )  # fmt: skip
    half = torch.autocast(device, dtype=torch.bfloat16, enabled=case["precision"] == "bf16")
    if case["what"] == "act":
        actor.eval()

        @torch.no_grad()
        def act() -> object:
            with half:
                return network(data.clone(False))["loc"][:, -1].float().cpu()

        return act
    actor.train()
    loss_module = OnlineDTLoss(actor, alpha_init=0.1, target_entropy=-float(ACTION))
    loss_module.set_keys(action_target="target_action")
    optimizer = torch.optim.AdamW(actor.parameters(), lr=1e-4, weight_decay=5e-4, fused=True)
    multiplier = torch.optim.Adam([loss_module.log_alpha], lr=1e-4)

    def update() -> None:
        with half:
            losses = loss_module(data.clone(False))
        loss = losses["loss_log_likelihood"] + losses["loss_entropy"]
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(actor.parameters(), 0.25)
        optimizer.step()
        multiplier.zero_grad()
        losses["loss_alpha"].backward()
        multiplier.step()

    return update
