"""Small images in observations, read by an encoder that is learned with the policy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import mental_accounts as ma
from mental_accounts.export.programs import export_policy
from mental_accounts.flattening import flatten, observation_spec_of
from mental_accounts.learning.make_env import make_environment
from mental_accounts.policy import register_encoder
from mental_accounts.policy.encoders import ENCODERS, ConvEncoder
from mental_accounts.policy.size import count_parameters
from tests.policy.helpers import make_policy, tiny

from .live_and_offline import assert_live_is_offline, policy_for
from .spaces_envs import STEPS, Bars

BARS = "tests.learning.spaces_envs:Bars"
SMALL: dict[str, Any] = {
    "batch_size": 8, "online_iterations": 2, "updates_per_iteration": 3, "eval_episodes": 2, "eval_every": 1,
    "random_episodes": 4, "device": "cpu", "precision": "float32", "hidden": 16, "layers": 1, "context_length": 4,
}  # fmt: skip


class Halves(nn.Module):
    """An encoder of one's own: the means of the left and right half."""

    def __init__(self, shape: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.half, self.out = shape[1] // 2, nn.Linear(2, width)

    def forward(self, images: Tensor) -> Tensor:
        means = [part.flatten(1).mean(1) for part in (images[:, :, : self.half], images[:, :, self.half :])]
        encoded: Tensor = self.out(torch.stack(means, dim=1))
        return encoded


@pytest.fixture
def own_encoder() -> Any:
    register_encoder("halves", Halves)
    yield
    ENCODERS.pop("halves", None)


@pytest.mark.parametrize("shape", [(8, 8, 1), (3, 8, 8), (7, 7, 3), (84, 84, 4), (1, 1, 1), (16, 4, 3)])
def test_conv_reads_images_of_both_orders(shape: tuple[int, ...]) -> None:
    encoder = ConvEncoder(shape, 12)
    images = torch.rand(5, *shape)
    assert encoder(images).shape == (5, 12)
    if shape == (3, 8, 8):
        torch.manual_seed(0)
        first = ConvEncoder((3, 8, 8), 12)
        torch.manual_seed(0)
        last = ConvEncoder((8, 8, 3), 12)
        torch.testing.assert_close(first(images), last(images.movedim(1, -1)))


@pytest.mark.parametrize("method", ["bc", "gru", "dt", "ewa-vq-odt", "ledger-odt"])
def test_live_is_offline(method: Any) -> None:
    env = make_environment(BARS)
    policy = policy_for(env, method=method, encoder="conv")
    assert (policy.config.state_dim, policy.config.state_features) == (66, 8 + 2)
    store = assert_live_is_offline(policy, env)
    assert store.observations.shape == (STEPS, 66)
    held = sum(value.numel() for name, value in policy.named_parameters() if "encoder" not in name)
    assert count_parameters(policy.config) == held


def test_the_image_alone_goes_through_the_encoder() -> None:
    policy = policy_for(make_environment(BARS), method="bc", encoder="conv")
    observation, _ = Bars().reset(seed=0)
    context = policy.context(1, 0.0)
    context.observe([observation])
    features = policy.step_features(context.window())
    flat = flatten(policy.config.observation, [observation], 1)
    standardised = (torch.from_numpy(flat) - policy.state_mean) / policy.state_std
    torch.testing.assert_close(features[:, -1, 8:], standardised[:, 64:])
    eye = standardised[:, :64].reshape(1, 8, 8, 1)
    torch.testing.assert_close(features[:, -1, :8], policy.encoder.images[0](eye))


@pytest.mark.parametrize("improve", ["none", "td3"])
def test_a_run_with_an_own_encoder(improve: Any, tmp_path: Path, own_encoder: None) -> None:
    run = ma.train(Bars, run=tmp_path / "run", encoder="halves", improve=improve, method="odt", **SMALL)
    before = {name: value.clone() for name, value in run.policy.encoder.named_parameters()}
    assert all(torch.isfinite(value).all() for value in before.values())
    assert len(run.evaluate(episodes=2).returns) == 2
    del ENCODERS["halves"]
    with pytest.raises(ma.UsageError, match=r"no encoder 'halves' in this process, there are \['conv'\]; register"):
        ma.DecisionTransformer.from_run(run.folder)


def test_the_encoder_is_part_of_exported_programs(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    policy = policy_for(make_environment(BARS), method="odt", encoder="conv", layers=1)
    about = export_policy(policy, tmp_path, "onnx", num_envs=2)
    assert about["checked"]["largest_difference_of_actions"] == 0


@pytest.mark.learning
@pytest.mark.parametrize("method", ["bc", "ewa-vq-odt"])
def test_upright_bars_are_told_from_others(method: Any, tmp_path: Path) -> None:
    """In pictures of 8 × 8, with noise that was never seen."""
    env, seen, done = Bars(), [], []
    for episode in range(150):
        observation, _ = env.reset(seed=episode)
        for _ in range(STEPS):
            seen.append(observation)
            done.append(env.number)
            observation, _, _, _, _ = env.step(env.number)
    flat = flatten(observation_spec_of(Bars.observation_space), seen, len(seen))
    data = ma.Trajectories.from_steps(
        flat, np.array(done), np.ones(len(done)), lengths=[STEPS] * 150, terminated=[False] * 150,
        truncated=[True] * 150,
    )  # fmt: skip
    run = ma.train(
        Bars, data, method=method, encoder="conv", run=tmp_path / "run", hidden=32, layers=1, lr=3e-3, context_length=4,
        pretrain_iterations=1, updates_per_pretrain_iteration=250, online_iterations=0, device="cpu",
        reward_transform="raw",
    )  # fmt: skip
    assert run.evaluate(episodes=20).return_mean > 7.2  # a coin gets 4


class TestBadInput:
    def test_images_without_an_encoder(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"observation\['eye'\] is an image of shape \(8, 8, 1\), and there is no"):
            ma.train(Bars, run=tmp_path / "run", **SMALL)
        assert not (tmp_path / "run").exists()

    def test_encoders_that_do_not_exist_or_do_not_fit(self, tmp_path: Path) -> None:
        with pytest.raises(ma.UsageError, match=r"there is no encoder 'resnet' in this process, there are \['conv'\]"):
            ma.train(Bars, run=tmp_path / "run", encoder="resnet", **SMALL)
        with pytest.raises(ma.UsageError, match=r"reads images \(H, W, C\) or \(C, H, W\), got \(2, 8, 8, 3\)"):
            ConvEncoder((2, 8, 8, 3), 4)
        with pytest.raises(TypeError, match="encoder must be the name of an encoder"):
            tiny(encoder=3)
        with pytest.raises(ma.UsageError, match="an encoder needs a name and a class"):
            register_encoder("", ConvEncoder)

    def test_an_encoder_of_another_width(self, own_encoder: None) -> None:
        register_encoder("halves", lambda shape, width: Halves(shape, width + 1))
        parts = observation_spec_of(Bars.observation_space)
        with pytest.raises(ma.UsageError, match=r"must make \(8,\) of an image \(8, 8, 1\), got \(9,\)"):
            make_policy(tiny(state_dim=66, observation=parts, encoder="halves"))

    def test_an_encoder_without_images(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        ma.train("CartPole-v1", run=tmp_path / "run", encoder="conv", **SMALL)
        assert "--model.encoder changes nothing: there are no images" in capsys.readouterr().err
