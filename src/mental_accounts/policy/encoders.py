"""Images in observations -> vectors, by a network that is learned with the policy: `--model.encoder`.

An encoder is a torch module made by `make(shape, width)`: images (N, *shape), standardised, -> (N, width). `conv` is
built in; others are registered under a name:

    register_encoder("mine", MyEncoder)      # then encoder="mine" in a configuration

A saved policy has the name alone, and no name in a file ever imports anything: register it before loading the policy.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from mental_accounts.errors import UsageError
from mental_accounts.observation_spec import IMAGE_DIMENSIONS
from mental_accounts.policy_options import PolicyConfig

MOST_CHANNELS = 4
"""Of an image; where its last dimension has more, its channels come first."""
SMALLEST = 4
"""Height and width down to which `conv` halves images."""

EncoderMaker = Callable[[tuple[int, ...], int], nn.Module]


class ConvEncoder(nn.Module):
    """For small images (H, W, C) or (C, H, W): 3 × 3 convolutions that halve them, with ReLU, and a linear map."""

    def __init__(self, shape: tuple[int, ...], width: int) -> None:
        super().__init__()
        if len(shape) != IMAGE_DIMENSIONS:
            raise UsageError(
                f"encoder conv reads images (H, W, C) or (C, H, W), got {shape}; register_encoder takes your own"
            )
        self.channels_last = shape[-1] <= MOST_CHANNELS
        channels, *sides = (shape[-1], *shape[:-1]) if self.channels_last else shape
        layers: list[nn.Module] = []
        wide = 16
        while not layers or min(sides) > SMALLEST:
            layers += [nn.Conv2d(channels, wide, 3, stride=2, padding=1), nn.ReLU()]
            channels, wide, sides = wide, min(2 * wide, 64), [(side + 1) // 2 for side in sides]
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * sides[0] * sides[1], width), nn.ReLU())

    def forward(self, images: Tensor) -> Tensor:
        """(N, *shape) -> (N, width)."""
        encoded: Tensor = self.layers(images.movedim(-1, 1) if self.channels_last else images)
        return encoded


ENCODERS: dict[str, EncoderMaker] = {"conv": ConvEncoder}
"""By their names in a configuration."""


def register_encoder(name: str, make: EncoderMaker) -> None:
    """Let configurations name an encoder: `make(shape, width)` gives a module (N, *shape) -> (N, width)."""
    if not name or not isinstance(name, str) or not callable(make):
        raise UsageError(f"an encoder needs a name and a class or function that makes it, got {name!r} and {make!r}")
    ENCODERS[name] = make


class StateEncoder(nn.Module):
    """Flat observations with images -> the other parts as they are, and a vector of width `hidden` for each image."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.parts = config.observation
        images = [part.shape for part in self.parts if part.is_image]
        self.images = nn.ModuleList(_made(str(config.encoder), shape, config.hidden) for shape in images)

    def forward(self, states: Tensor) -> Tensor:
        """(B, K, state_dim) -> (B, K, state_features), in full precision even under autocast."""
        found, encoders = [], iter(self.images)
        with torch.autocast(states.device.type, enabled=False):
            for part, values in zip(self.parts, states.split([part.size for part in self.parts], dim=-1), strict=True):
                if part.is_image:
                    encoded = next(encoders)(values.reshape(-1, *part.shape))  # (B · K, hidden)
                    found.append(encoded.view(*states.shape[:-1], -1))
                else:
                    found.append(values)
        return torch.cat(found, dim=-1)


def _made(name: str, shape: tuple[int, ...], width: int) -> nn.Module:
    """A new encoder, tried on two black images."""
    if name not in ENCODERS:
        raise UsageError(
            f"there is no encoder {name!r} in this process, there are {list(ENCODERS)}; register your own first: "
            "mental_accounts.policy.register_encoder(name, make), for example in the module of your environment"
        )
    encoder = ENCODERS[name](shape, width)
    with torch.no_grad():
        given = encoder(torch.zeros(2, *shape))
    if tuple(given.shape) != (2, width):
        raise UsageError(f"encoder {name!r} must make ({width},) of an image {shape}, got {tuple(given.shape[1:])}")
    return encoder
