"""d3rlpy's DecisionTransformer: mean squared error, its own optimiser (AdamW) and clipping."""

from collections.abc import Callable

import d3rlpy
import torch
from batch import ACTION, HEADS, HIDDEN, LAYERS, LONGEST, STATE, make_batch
from d3rlpy.algos import DecisionTransformerConfig
from d3rlpy.models import VectorEncoderFactory
from d3rlpy.optimizers import GPTAdamWFactory
from d3rlpy.torch_utility import TorchTrajectoryMiniBatch


def version() -> str:
    return f"d3rlpy {d3rlpy.__version__}, torch {torch.__version__}"


def make(case: dict, device: str) -> Callable[[], object]:
    if case["method"] != "odt":
        raise NotImplementedError("has no accounts")
    if case["what"] == "act":
        raise NotImplementedError("acts in one environment at a time through NumPy; its network is the others'")
    config = DecisionTransformerConfig(
        batch_size=case["batch"], context_size=case["context"], max_timestep=LONGEST, learning_rate=1e-4,
        encoder_factory=VectorEncoderFactory([HIDDEN], exclude_last_activation=True),
        optim_factory=GPTAdamWFactory(weight_decay=5e-4, clip_grad_norm=0.25), num_heads=HEADS, num_layers=LAYERS,
        attn_dropout=0.1, resid_dropout=0.1, embed_dropout=0.1, activation_type="relu",
    )  # fmt: skip
    algo = config.create(device="cuda:0" if device == "cuda" else "cpu")
    algo.create_impl((STATE,), ACTION)
    batch = make_batch(case["batch"], case["context"], device)
    half = torch.autocast(device, dtype=torch.bfloat16, enabled=case["precision"] == "bf16")
    mini = TorchTrajectoryMiniBatch(
        observations=batch["states"], actions=batch["actions"], rewards=torch.zeros_like(batch["returns"]),
        returns_to_go=batch["returns"], terminals=torch.zeros_like(batch["returns"]), timesteps=batch["timesteps"],
        masks=batch["mask"].float(), device=device, numpy_batch=None,
    )  # fmt: skip

    def update() -> None:
        with half:
            algo.impl.inner_update(mini, 0)

    return update
