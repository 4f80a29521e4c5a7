"""What may be passed as an environment, and the name that a run folder records."""

import functools
import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from mental_accounts.errors import UsageError
from mental_accounts.learning.make_env import declared_limit, environment_source, longest_episode, make_environment
from mental_accounts.learning.parallel_envs import Environments

from .tiny_env import ENV_ID, Aim


class Sized(Aim):
    """Needs an argument."""

    def __init__(self, size: int, *, colour: str, depth: int = 3) -> None:
        super().__init__()


def local_class() -> type[gymnasium.Env[Any, Any]]:
    class Local(Aim):
        pass

    return Local


def test_names_that_another_process_finds() -> None:
    assert environment_source("CartPole-v1").name == "CartPole-v1"
    own = environment_source(Aim)
    assert own.name == "tests.learning.tiny_env:Aim"
    assert isinstance(make_environment(own.name).unwrapped, Aim)
    assert isinstance(own().unwrapped, Aim)
    with gymnasium.make("CartPole-v1") as made:
        assert environment_source(made.spec).name == "CartPole-v1"
    assert longest_episode(make_environment(own.name)) == 1000
    assert declared_limit(make_environment(own.name)) is None
    assert declared_limit(make_environment("CartPole-v1")) == 500


@pytest.mark.parametrize(
    ("env", "name"),
    [
        (local_class(), "local_class.<locals>.Local (own)"),
        (lambda: Aim(), "<lambda> (own)"),  # noqa: PLW0108
        (functools.partial(Sized, 3, colour="red"), "partial (own)"),
        (gymnasium.make("CartPole-v1", max_episode_steps=7).spec, "CartPole-v1 (own)"),
        (gymnasium.wrappers.ClipAction(gymnasium.make(ENV_ID)).spec, "Aim-v0 (own)"),
    ],
)
def test_names_that_only_this_process_knows(env: Any, name: str) -> None:
    source = environment_source(env)
    assert source.name == name
    made = source()
    assert made.observation_space.shape in ((1,), (4,))
    with pytest.raises(UsageError, match=r"has no name by which another process could find it: pass it again"):
        make_environment(name)
    envs = Environments(source, 3, 2, pytest.fail)  # in processes of their own too
    try:
        envs.reset([1, 2, 3])
        alone = [source().reset(seed=seed)[0] for seed in (1, 2, 3)]
        np.testing.assert_array_equal(envs.board.observations, alone)
    finally:
        envs.close()


def test_a_changed_spec_is_made_as_it_is() -> None:
    changed = environment_source(gymnasium.make("CartPole-v1", max_episode_steps=7).spec)
    assert longest_episode(changed()) == 7
    limited = environment_source(lambda: gymnasium.wrappers.TimeLimit(Aim(), 6))
    assert longest_episode(limited()) == 6


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Aim(), r"env is an instance of Aim.*pass the class \(env=Aim\), a function .* or the instance's env\.spec"),
        (gymnasium.make("CartPole-v1"), "env is an instance of CartPoleEnv"),
        (Sized, r"Sized cannot be made without its arguments \(size, colour\).*env=lambda: Sized\(size=\.\.\., col"),
        (lambda size: Aim(), r"cannot be made without its arguments \(size\)"),
        (dict, "must be the id of a Gymnasium environment, a gymnasium.Env class"),
        (3, "got 3"),
    ],
)
def test_what_is_no_environment_is_refused(env: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        environment_source(env)


def test_a_function_that_makes_something_else() -> None:
    with pytest.raises(UsageError, match=r"must inherit from the gymnasium\.Env class, actual class: <class .str.>"):
        environment_source(lambda: "a robot")()


@pytest.mark.parametrize("name", ["os:abort", "shutil:rmtree", "tests.learning.tiny_env:STEPS", "builtins:print"])
def test_a_name_never_calls_what_is_no_environment(name: str) -> None:
    """A run folder may come from a stranger."""
    with pytest.raises(UsageError, match="cannot be made"):
        make_environment(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere:Aim", "there is no module nowhere, here or installed"),
        ("tests.nowhere.deep:Aim", "there is no module tests.nowhere, here or installed"),
        ("tests/learning/tiny_env.py:Aim", "write tests.learning.tiny_env:Aim"),
        ("tiny_env.py", "write tiny_env:Class"),
        ("tests.learning.tiny_env.Aim", "did you mean tests.learning.tiny_env:Aim?"),
        (
            "tests.learning.tiny_env:Aimm",
            "nor defines an environment Aimm; did you mean tests.*:Aim?",
        ),
    ],
)
def test_names_that_are_nearly_right(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=f"{re.escape(name)} cannot be made: .*{said.replace('?', '[?]')}"):
        make_environment(name)


def test_a_module_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_missing.py").write_text("import nowhere_at_all")
    (tmp_path / "own_broken.py").write_text("1 / 0")
    for module, said in (("own_missing", "failed: No module named 'nowhere_at_all'"), ("own_broken", "ZeroDivision")):
        with pytest.raises(UsageError, match=f"{module}:Env cannot be made: importing {module} .*{said}"):
            make_environment(f"{module}:Env")
