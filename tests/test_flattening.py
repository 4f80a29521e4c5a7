"""Observations of any space as flat vectors: what Gymnasium makes of them, many at a time."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from mental_accounts.errors import UsageError
from mental_accounts.flattening import flatten, observation_spec_of, parts_of
from mental_accounts.observation_spec import ObservationPart, check_observation
from mental_accounts.policy_options import PolicyConfig
from tests.policy.helpers import BOX, make_policy, tiny

SPACES: dict[str, spaces.Space[Any]] = {
    "vector": spaces.Box(-2, 2, (3,)),
    "matrix": spaces.Box(-2, 2, (2, 3), np.float64),
    "number": spaces.Box(-2, 2, ()),
    "discrete": spaces.Discrete(5, start=-2),
    "multi-discrete": spaces.MultiDiscrete([2, 5, 3]),
    "multi-discrete, two rows": spaces.MultiDiscrete([[2, 5], [3, 1]]),
    "multi-binary": spaces.MultiBinary((2, 2)),
    "tuple": spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,)), spaces.MultiBinary(2)]),
    "dict": spaces.Dict({"z": spaces.Discrete(3), "a": spaces.Box(-1, 1, (2, 2)), "0": spaces.Box(0, 9, (1,), int)}),
    "nested": spaces.Dict({"b": spaces.Tuple([spaces.Dict({"c": spaces.Discrete(2)}), spaces.Box(0, 1, (2,))])}),
}  # fmt: skip


def batched(space: spaces.Space[Any], singles: list[Any]) -> Any:
    """As a vector environment gives them."""
    return concatenate(space, singles, create_empty_array(space, len(singles)))


@pytest.mark.parametrize("name", list(SPACES))
def test_as_gymnasium_flattens_them(name: str) -> None:
    space = SPACES[name]
    space.seed(0)
    singles = [space.sample() for _ in range(4)]
    expected = np.stack([spaces.flatten(space, one) for one in singles]).astype(np.float32)
    parts = parts_of(space)
    assert observation_spec_of(space) == (() if name == "vector" else parts)
    assert sum(part.size for part in parts) == spaces.flatdim(space) == expected.shape[1]
    for given in (singles, batched(space, singles), expected, torch.from_numpy(expected)):
        found = flatten(parts, given, 4)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, expected)
    assert batch_space(space, 4).contains(batched(space, singles))


def test_the_smallest_value_of_a_multi_discrete_space_is_its_first() -> None:
    space = spaces.MultiDiscrete([2, 3], start=[5, -1])
    assert flatten(parts_of(space), [np.array([6, -1])], 1).tolist() == [[0, 1, 1, 0, 0]]


def test_parts_survive_a_file() -> None:
    config = tiny(state_dim=11, observation=(*observation_spec_of(SPACES["nested"]), ObservationPart(("x",), (7,))))
    assert PolicyConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_a_policy_takes_observations_as_they_are() -> None:
    space = SPACES["tuple"]
    policy = make_policy(tiny(state_dim=7, observation=observation_spec_of(space), action=BOX))
    space.seed(1)
    singles = [space.sample() for _ in range(2)]
    flat = np.stack([spaces.flatten(space, one) for one in singles])
    acted = [policy.act(given, policy.context(2, 1.0)) for given in (flat, singles, batched(space, singles))]
    np.testing.assert_array_equal(acted[0], acted[1])
    np.testing.assert_array_equal(acted[0], acted[2])


@pytest.mark.parametrize(
    ("observation", "words"),
    [
        ({"z": 1, "a": np.zeros((2, 2))}, r"observation\['0'\] is missing: there is no '0' in \['a', 'z'\]"),
        ({"z": 3, "a": np.zeros((2, 2)), "0": [0]}, r"observation\['z'\] must be whole numbers from \(0,\)"),
        ({"z": 1, "a": np.zeros(4), "0": [0]}, r"observation\['a'\] must be numbers of shape \(1, 2, 2\), got"),
        ({"z": "one", "a": np.zeros((2, 2)), "0": [0]}, r"observation\['z'\] must be numbers"),
        (np.zeros(3), r"observation\['0'\] is missing: there is no '0' in 'ndarray'"),
    ],
)
def test_observations_of_another_space_are_refused_in_words(observation: Any, words: str) -> None:
    parts = parts_of(SPACES["dict"])
    with pytest.raises(ValueError, match=words):
        flatten(parts, [observation], 1)
    with pytest.raises(ValueError, match="one for each of 2 environments, got 1"):
        flatten(parts, [observation], 2)


def test_spaces_that_have_no_flat_vectors() -> None:
    with pytest.raises(UsageError, match=r"observation\['t'\] must be of a Box, Discrete.*TransformObservation"):
        observation_spec_of(spaces.Dict({"t": spaces.Text(3)}))
    with pytest.raises(UsageError, match="1 to 1,000,000 numbers, got none"):
        observation_spec_of(spaces.Dict({}))
    with pytest.raises(UsageError, match="1 to 1,000,000 numbers"):
        observation_spec_of(spaces.Discrete(2_000_000))
    with pytest.raises(ValueError, match=r"observation\['eye'\] is an image of shape \(8, 8, 3\).*FlattenObservation"):
        check_observation(parts_of(spaces.Dict({"eye": spaces.Box(0, 255, (8, 8, 3), np.uint8)})), 192, encoder=None)
    with pytest.raises(ValueError, match="must have state_dim = 4 numbers together, got 5"):
        tiny(state_dim=4, observation=parts_of(spaces.Discrete(5)))
