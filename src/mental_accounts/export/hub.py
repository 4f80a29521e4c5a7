"""Policies on the Hugging Face Hub, through huggingface_hub's own mixin: safetensors and JSON, with a model card.

policy = HubPolicy.from_run("runs/hopper")     # or HubPolicy.load(folder)
policy.push_to_hub("somebody/hopper")          # or policy.save_pretrained(folder)
policy = HubPolicy.from_pretrained("somebody/hopper")
"""

from pathlib import Path
from typing import Any, Self

import torch

from mental_accounts.extras import check_library

check_library("huggingface_hub", "the Hub")

from huggingface_hub import ModelCard, ModelHubMixin, snapshot_download  # noqa: E402 (after the check, which says more)

from mental_accounts.export.model_card import card_text, read_run  # noqa: E402
from mental_accounts.policy import DecisionTransformer  # noqa: E402
from mental_accounts.policy.policy_files import HEADER  # noqa: E402

FILES = (HEADER, "weights-*.safetensors")


class HubPolicy(
    DecisionTransformer,
    ModelHubMixin,
    library_name="mental-accounts",
    tags=["reinforcement-learning", "decision-transformer", "mental-accounts"],
):
    """A policy that can be pushed to the Hub and read from it; otherwise a DecisionTransformer like any other."""

    run: dict[str, Any] | None = None
    """Facts about the run that trained it: config, task, summary and the last lines of its metrics."""

    @classmethod
    def from_run(cls, folder: str | Path, device: torch.device | str = "cpu") -> Self:
        """The policy of a run folder, with the facts about the run for its card."""
        path = Path(folder)
        if not (path / "policy").is_dir():
            raise FileNotFoundError(f"{path} holds no run with a policy: {path / 'policy'} is missing")
        policy = cls.load(path / "policy", device)
        policy.run = read_run(path)
        return policy

    def push_to_hub(self, repo_id: str, **kwargs: Any) -> str:
        """As the mixin's method, which documents the options; the card names the repository."""
        card = {"repo_id": repo_id, **(kwargs.pop("model_card_kwargs", None) or {})}
        return super().push_to_hub(repo_id, model_card_kwargs=card, **kwargs)

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        """The card: what the policy is, how it was trained, and how well it performed."""
        return ModelCard(card_text(self.config, self.run, **kwargs))

    def _save_pretrained(self, save_directory: Path) -> None:
        self.save(save_directory)

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        device: torch.device | str = "cpu",
        **_: Any,
    ) -> Self:
        folder = Path(model_id)
        if not folder.is_dir():
            folder = Path(
                snapshot_download(
                    repo_id=model_id,
                    revision=revision,
                    cache_dir=cache_dir,
                    force_download=force_download,
                    local_files_only=local_files_only,
                    token=token,
                    allow_patterns=list(FILES),
                )
            )
        return cls.load(folder, device)
