"""One update of a policy: windows -> losses -> a step of the weights, then a step of λ; critics learn before it.

Losses are summed on the device and read once per iteration.
"""

import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

from mental_accounts.config import TrainConfig
from mental_accounts.data.windows import WindowSampler
from mental_accounts.errors import DivergenceError
from mental_accounts.learning.checkpoint import load_optimizer_tensors, optimizer_tensors, part_of
from mental_accounts.learning.objective import Losses, Objective
from mental_accounts.learning.optimizers import Lamb, WarmUp, clip_gradients, make_optimizer
from mental_accounts.learning.values import ValueLearner
from mental_accounts.old_configs import rename_weights
from mental_accounts.policy import DecisionTransformer, Window, autocast, resolve_precision
from mental_accounts.policy.half_weights import HalfWeights
from mental_accounts.policy.heads import DeterministicHead

COMPILED_FORMS = 64
"""After so many runs of a process, what was compiled for them is dropped. Until then runs of one form share it."""
_COMPILED = itertools.count()
SUMMED = ("loss", "loss_square", "nll", "entropy", "gradient_norm")


class Updater:
    """Policy, objective, optimisers and critics, and the sums of their losses."""

    def __init__(self, policy: DecisionTransformer, config: TrainConfig, reward_scale: float = 1.0) -> None:
        """`reward_scale` is that of the data, for critics that are to use it."""
        device = policy.device
        self.policy, self.config = policy, config
        self._precision = resolve_precision(device, config.precision)  # resolved once: not possible under torch.compile
        self._half = None
        if self._precision == "bf16" and policy.transformer is not None:
            self._half = HalfWeights(policy.transformer)
        self.objective = Objective(policy.config, config.initial_lambda, config.target_entropy).to(device)
        self.optimizer = make_optimizer(config.optimizer, policy.parameters(), config.lr, config.weight_decay, device)
        self.warm_up = WarmUp(self.optimizer, config.warmup_updates, config.total_updates if config.anneal else None)
        on_gpu = device.type == "cuda"
        self.lambda_optimizer = torch.optim.Adam(
            [self.objective.log_lambda], lr=config.lambda_lr, capturable=on_gpu, fused=on_gpu
        )
        self.values = ValueLearner(policy, config, reward_scale) if config.improve == "td3" else None
        learns_aside = on_gpu and self.values is not None and not policy.config.has_images  # they share the encoder
        self._side = torch.cuda.Stream(device) if learns_aside else None
        self.fit = "squared_error" if isinstance(policy.head, DeterministicHead) else "nll"
        self.latest_nll = torch.zeros((), device=device)
        self.sums = torch.zeros(len(SUMMED), dtype=torch.float64, device=device)
        self.uncompile()

    def compile(self) -> None:
        """Compile losses, gradients, LAMB and sums. It happens at the next update, which may raise."""
        self.is_compiled = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # loading the compiler triggers PyTorch's own deprecation warnings
            if next(_COMPILED) % COMPILED_FORMS == 0:
                torch._dynamo.reset()  # before the limit below is reached: beyond it nothing would be compiled
            torch._dynamo.config.cache_size_limit = max(torch._dynamo.config.cache_size_limit, COMPILED_FORMS + 1)
            self._losses: Callable[[Window], tuple[Tensor, Losses, Tensor | None]] = torch.compile(
                self._compute_losses, dynamic=False
            )
            self._tally: Callable[..., None] = torch.compile(tally, dynamic=False)
            if isinstance(self.optimizer, Lamb):
                self.optimizer.compile()
        if self.values is not None:
            self.values.compile()

    def uncompile(self) -> None:
        """Return to unfused kernels."""
        self.is_compiled = False
        self._losses, self._tally = self._compute_losses, tally
        if isinstance(self.optimizer, Lamb):
            self.optimizer.uncompile()
        if self.values is not None:
            self.values.uncompile()

    def _compute_losses(self, window: Window) -> tuple[Tensor, Losses, Tensor | None]:
        """The loss to minimise, the losses to report, and the value of the policy's actions (None without critics).

        θ and λ have a term each, without a gradient in the other.
        """
        with autocast(self.policy.device, self._precision):
            predicted = self.policy(window)
        losses: Losses = self.objective(predicted, self.policy.action_scale.to_unit(window.actions), window.counted)
        total, value = losses.loss, None
        if self.values is not None:
            pull, value = self.values.policy_loss(predicted, window)
            total = self.values.supervised(losses) + pull
        if self.objective.constrained:
            total = total + self.objective.lambda_loss(losses.entropy, losses.target_entropy)
        return total, Losses(losses.loss.detach(), losses.nll.detach(), losses.entropy.detach()), value

    def _in_half(self) -> AbstractContextManager[None]:
        return nullcontext() if self._half is None else self._half.in_place()

    def learn_from(self, sampler: WindowSampler) -> None:
        """One update on windows drawn by the sampler: of the critics, where there are any, and of the policy."""
        if self.values is None:
            self.update(sampler())
            return
        transitions = sampler.transitions()
        with self._aside():
            self.values.learn(transitions)
        value = self.update(transitions.now)
        if self._side is not None:
            torch.cuda.current_stream().wait_stream(self._side)
        assert value is not None
        self.values.follow(value)

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """On a GPU, in a stream of its own: the critics' many small kernels run beside the policy's."""
        if self._side is None:
            yield
            return
        self._side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._side):
            yield

    def update(self, window: Window) -> Tensor | None:
        """One update of the policy; the value of its actions (None without critics)."""
        self.policy.train()
        self.optimizer.zero_grad(set_to_none=True)
        self.lambda_optimizer.zero_grad(set_to_none=True)
        with self._in_half():
            total, losses, value = self._losses(window)
            total.backward()
        norm = clip_gradients(self.policy.parameters(), self.config.grad_clip)
        self.optimizer.step()
        self.warm_up.advance()
        if self.objective.constrained:
            self.lambda_optimizer.step()
        self._tally(self.sums, self.latest_nll, losses, norm)
        return value

    def check(self) -> None:
        """Raise, before continuing or saving, if a loss was not finite."""
        norms = torch.stack([value.detach().norm() for value in self.policy.parameters()])
        if not bool(torch.isfinite(self.sums).all()) or not bool(torch.isfinite(norms).all()):
            raise DivergenceError(
                "the loss is no longer finite: training diverged; lower --lr, lengthen --warmup-updates, or use "
                "--precision float32"
            )
        if self.values is not None:
            self.values.check()

    def drain(self, updates: int) -> dict[str, float]:
        """The means over the updates since the last call, as metrics."""
        self.check()
        if updates == 0:
            return {}
        loss, square, nll, entropy, norm = (self.sums / updates).tolist()
        self.sums.zero_()
        found = {
            "training/loss_mean": loss,
            "training/loss_std": math.sqrt(max(square - loss * loss, 0.0)),
            f"training/{self.fit}": nll,
            f"training/{self.fit}_last": float(self.latest_nll),
            "training/entropy": entropy,
            "training/gradient_norm": norm,
            "training/lambda": float(self.objective.multiplier.detach()),
            "training/lr": float(self.optimizer.param_groups[0]["lr"]),
        }
        return found if self.values is None else found | self.values.drain(updates)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors to save, by name."""
        found = {f"policy.{name}": value for name, value in self.policy.state_dict().items()}
        found |= {f"objective.{name}": value for name, value in self.objective.state_dict().items()}
        found |= optimizer_tensors("optimizer", self.optimizer)
        found |= optimizer_tensors("lambda_optimizer", self.lambda_optimizer)
        found |= {} if self.values is None else self.values.tensors()
        return found | {"warm_up.updates": self.warm_up.updates, "sums": self.sums, "latest_nll": self.latest_nll}

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """The inverse of `tensors`."""
        self.policy.load_state_dict(rename_weights(part_of(tensors, "policy.")))
        self.objective.load_state_dict(part_of(tensors, "objective."))
        load_optimizer_tensors("optimizer", self.optimizer, tensors)
        load_optimizer_tensors("lambda_optimizer", self.lambda_optimizer, tensors)
        self.warm_up.load_state_dict({"updates": tensors["warm_up.updates"]})
        if self.values is not None:
            self.values.load_tensors(tensors)
        self.sums.copy_(tensors["sums"])
        self.latest_nll.copy_(tensors["latest_nll"])


def tally(sums: Tensor, latest_nll: Tensor, losses: Losses, norm: Tensor) -> None:
    """Add one update to the sums, in the order of SUMMED, in place."""
    latest_nll.copy_(losses.nll)
    sums.add_(torch.stack([losses.loss, losses.loss.square(), losses.nll, losses.entropy, norm]))
