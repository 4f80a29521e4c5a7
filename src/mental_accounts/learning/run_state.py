"""The state of a run in its folder: weights, optimisers, generators, and the episodes that were collected."""

from collections.abc import Callable
from dataclasses import asdict

import torch

from mental_accounts.data.trajectories import Trajectories
from mental_accounts.learning.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from mental_accounts.learning.critic_files import PolicyCritics, write_critics
from mental_accounts.learning.episodes import Episode, as_episodes, as_trajectories
from mental_accounts.learning.held_out import HeldOut
from mental_accounts.learning.run_folder import RunFolder
from mental_accounts.learning.run_progress import Progress
from mental_accounts.learning.update import Updater

WINDOWS, CPU, CUDA = "generator.windows", "generator.cpu", "generator.cuda"
"""The generators' names among a checkpoint's tensors."""


class RunState:
    """Writes and restores all that a run needs to go on exactly; collected episodes are written once each."""

    def __init__(
        self, folder: RunFolder, updater: Updater, held_out: HeldOut | None, generator: torch.Generator
    ) -> None:
        """`generator` draws windows."""
        self.updater, self.held_out, self.generator = updater, held_out, generator
        self._folder, self._collected = folder.path, folder.path / "trajectories"
        self._unwritten: list[Episode] = []

    def collect(self, episodes: list[Episode]) -> None:
        """Take note of new episodes, to be written with the next checkpoint."""
        self._unwritten += episodes

    def write(self, progress: Progress) -> None:
        """Save everything. Weights that are no numbers are never saved over good ones."""
        self.updater.check()
        policy, values = self.updater.policy, self.updater.values
        if self._unwritten:
            name = f"{len(progress.files):05d}.safetensors"
            collected = as_trajectories(self._unwritten, action_spec=policy.config.action)
            collected.save(self._collected / name)
            progress.files.append(name)
            self._unwritten = []
        tensors = self.updater.tensors() | ({} if self.held_out is None else self.held_out.tensors())
        tensors |= {WINDOWS: self.generator.get_state(), CPU: torch.get_rng_state()}
        if policy.device.type == "cuda":
            tensors[CUDA] = torch.cuda.get_rng_state(policy.device)
        write_checkpoint(self._folder / "checkpoint", Checkpoint(tensors, asdict(progress)))
        policy.save(self._folder / "policy")
        if values is not None and not policy.config.is_recurrent:
            write_critics(self._folder, PolicyCritics(values.critics, values.options.discount, values.reward_scale))

    def read(self, say: Callable[[str], None]) -> Checkpoint | None:
        """The newest checkpoint that can be used with its episodes, if there is one; says which ones cannot."""
        return read_checkpoint(self._folder / "checkpoint", say, self.collected)

    def collected(self, checkpoint: Checkpoint) -> list[Episode]:
        """The episodes that had been collected when the checkpoint was written."""
        stores = [Trajectories.load(self._collected / name) for name in Progress.from_state(checkpoint.state).files]
        return [episode for store in stores for episode in as_episodes(store)]

    def restore_weights(self, checkpoint: Checkpoint) -> None:
        """Weights and optimiser states as they were."""
        self.updater.load_tensors(checkpoint.tensors)
        if self.held_out is not None:
            self.held_out.load_tensors(checkpoint.tensors)

    def restore_generators(self, checkpoint: Checkpoint) -> None:
        """All random numbers from here on as they would have been; last, since setting up a run draws some."""
        self.generator.set_state(checkpoint.tensors[WINDOWS])
        torch.set_rng_state(checkpoint.tensors[CPU])
        device = self.updater.policy.device
        if device.type == "cuda":
            torch.cuda.set_rng_state(checkpoint.tensors[CUDA], device)
