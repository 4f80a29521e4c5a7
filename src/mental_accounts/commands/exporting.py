"""export: a trained policy as a program that needs neither this package nor Python."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from mental_accounts.export.export_formats import ExportFormat
from mental_accounts.learning.run_folder import RunFolder
from mental_accounts.zoo import beside, folder_of


@dataclass(frozen=True)
class Export:
    """Write the acting step of a trained policy, ledger and all, as a torch.export or ONNX program."""

    run: tyro.conf.Positional[Path]
    """The folder of a run, or of a saved policy."""
    format: ExportFormat = "onnx"
    """onnx: policy.onnx, for onnxruntime (extra `onnx`). torch-export: policy.pt2, for PyTorch."""
    output: Path | None = None
    """The folder to write into; None: `export` in the run folder (zoo/NAME: `NAME-export` here)."""
    num_envs: int = 1
    """Number of environments (robots) that act in parallel."""

    def execute(self) -> int:
        """Write the program, check it against the policy, and print its path."""
        from mental_accounts.export.programs import export_policy
        from mental_accounts.learning.footprint import check_episodes
        from mental_accounts.policy import DecisionTransformer
        from mental_accounts.policy.run_policy import policy_folder

        folder, about, run = policy_folder(self.run), dict[str, Any](), RunFolder(folder_of(self.run))
        if run.is_run:
            about = {"env_id": run.read_task()["env_id"], "target_return": run.target_return()}
        output = self.output or beside(self.run, "export")
        policy = DecisionTransformer.load(folder)
        check_episodes(policy.config, self.num_envs, "--num-envs")
        written = export_policy(policy, output, self.format, num_envs=self.num_envs, about=about)
        checked = written["checked"]
        print(f"program: {output / written['file']}   how to run it: {output / written['file']}.json")
        print(
            f"the same actions as the policy's to {checked['largest_difference_of_actions']:.1e}, "
            f"over {checked['steps']} steps"
        )
        return 0
