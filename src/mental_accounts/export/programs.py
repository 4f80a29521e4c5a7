"""A policy's acting step as a program: torch.export (policy.pt2) or ONNX (policy.onnx), with a .json that describes it.

Windows and ledger are inputs and outputs, so the program is stateless and needs neither this package nor Python. The
written file is read back and compared with `policy.act` before it is put in place.
"""

import contextlib
import copy
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from mental_accounts.checks import check_count
from mental_accounts.errors import UsageError
from mental_accounts.export.acting_step import ActingStep
from mental_accounts.export.export_formats import FILES, ExportFormat
from mental_accounts.extras import check_library
from mental_accounts.files import whole_file, write_atomically
from mental_accounts.policy import DecisionTransformer

FORMAT = 1
TOLERANCE = 1e-5
CHECKED_STEPS = 200

Program = Callable[[list[np.ndarray]], list[np.ndarray]]
"""Inputs and state in order -> action and new state."""

HOW_TO_RUN_ONNX = """\
import json, numpy as np, onnxruntime
about = json.load(open("policy.onnx.json"))
session = onnxruntime.InferenceSession(about["file"])
state = {s["name"]: np.full(s["shape"], s["first"], s["dtype"]) for s in about["state"]}
answer = {i["name"]: np.full(i["shape"], i["dtype"] == "bool", i["dtype"]) for i in about["inputs"][1:]}
def act(observation, target_return):  # then put what the environment answers into `answer`
    answer["target_return"] = np.full(about["num_envs"], target_return, "float32")
    action, *new = session.run(None, {"observation": observation, **answer, **state})
    state.update(zip(state, new))
    return action
"""
HOW_TO_RUN_TORCH = """\
import json, torch
about = json.load(open("policy.pt2.json"))
program = torch.export.load(about["file"]).module()
kind = lambda entry: getattr(torch, entry["dtype"])
state = [torch.tensor(s["first"], dtype=kind(s)).expand(s["shape"]).clone() for s in about["state"]]
answer = {i["name"]: torch.full(i["shape"], i["dtype"] == "bool", dtype=kind(i)) for i in about["inputs"][1:]}
def act(observation, target_return):  # then put what the environment answers into `answer`
    answer["target_return"] = torch.full((about["num_envs"],), float(target_return))
    with torch.no_grad():
        action, *state[:] = program(observation, *answer.values(), *state)
    return action
"""


def export_policy(
    policy: DecisionTransformer,
    folder: str | Path,
    format: ExportFormat,
    *,
    num_envs: int = 1,
    about: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Write the program and its .json into `folder`, and check it; returns the contents of the .json.

    `about` is added to these (environment, target return).
    """
    if format not in get_args(ExportFormat):
        raise UsageError(f"format must be one of {list(get_args(ExportFormat))}, got {format!r}")
    check_count("num_envs", num_envs, 1)
    if format == "onnx":
        try:
            for library in ("onnx", "onnxscript", "onnxruntime"):
                check_library(library, "exporting to ONNX")
        except ImportError as error:
            raise ImportError(f"{error}; --format torch-export needs PyTorch alone") from None
    if policy.device.type != "cpu":
        raise UsageError(f"the policy must be on the CPU to be exported, it is on {policy.device}")
    # With a learned β, attention would be traced with one kernel and converted with another.
    step = ActingStep(copy.deepcopy(policy).requires_grad_(False), num_envs)
    path = Path(folder) / FILES[format]
    with whole_file(path) as temporary:
        _write(step, temporary, format)
        difference = largest_difference(policy, num_envs, _read(temporary, format, step))
        if not difference <= TOLERANCE:
            raise UsageError(
                f"the {format} program differs from policy.act by {difference:.3g} over {CHECKED_STEPS} steps, more "
                f"than {TOLERANCE:g}; it was not written"
            )
    described = {
        **_describe(step, format, path.name, num_envs),
        "checked": {"steps": CHECKED_STEPS, "largest_difference_of_actions": difference},
        **(about or {}),
    }
    write_atomically(path.with_name(f"{path.name}.json"), (json.dumps(described, indent=2) + "\n").encode())
    return described


def largest_difference(policy: DecisionTransformer, num_envs: int, program: Program, seed: int = 0) -> float:
    """How far a program's actions are from `policy.act`, over episodes of random observations and rewards.

    Relative to half the action range where that exceeds 1, since float32 errors grow with the numbers.
    """
    rng = np.random.default_rng(seed)
    step = ActingStep(policy, num_envs)
    state = [value.numpy() for value in step.first_state().values()]
    mean, std = policy.state_mean.numpy(), policy.state_std.numpy()
    target = np.full(num_envs, 1.0 / policy.config.return_scale, np.float32)
    context = policy.context(num_envs, target)
    reward, ended = np.zeros(num_envs, np.float32), np.ones(num_envs, bool)
    foregone = [value.numpy() for name, value in step.inputs.items() if name == "foregone"]
    choices = policy.config.action.choices if policy.config.action_masks else ()
    spec, worst = policy.config.action, 0.0
    unit = 1.0 if spec.is_discrete else np.maximum((np.array(spec.high) - np.array(spec.low)) / 2, 1.0)
    for _ in range(CHECKED_STEPS):
        observation = (mean + std * rng.standard_normal((num_envs, len(mean)))).astype(np.float32)
        masks = [_random_masks(rng, num_envs, choices)] if choices else []
        expected = policy.act(observation, context, action_masks=masks[0] if masks else None)
        action, *state = program([observation, reward, ended, target, *masks, *foregone, *state])
        difference = float((np.abs(action.astype(np.float64) - expected.astype(np.float64)) / unit).max())
        worst = difference if np.isnan(difference) else max(worst, difference)
        reward = rng.standard_normal(num_envs).astype(np.float32)
        ended = rng.random(num_envs) < 1 / 50
        foregone = [rng.standard_normal(value.shape).astype(np.float32) for value in foregone]
        context.record(reward, ended, foregone=foregone[0] if foregone else None)
    return worst


def _random_masks(rng: np.random.Generator, n: int, choices: Sequence[int]) -> np.ndarray:
    """Masks that allow about half of the values, (n, sum(choices)) bool, and at least one of each number."""
    parts = [rng.random((n, values)) for values in choices]
    return np.concatenate([(part < 0.5) | (part == part.min(axis=1, keepdims=True)) for part in parts], axis=1)


def _write(step: ActingStep, path: Path, format: ExportFormat) -> None:
    inputs, state = step.inputs, step.first_state()
    with torch.no_grad(), _quiet():
        program = torch.export.export(step, (*inputs.values(), *state.values()), strict=False)
    if format == "torch-export":
        with path.open("wb") as file:
            torch.export.save(program, file)
        return
    with _quiet():
        program = program.run_decompositions({torch.ops.aten.cummax.default: _cummax})
        made = torch.onnx.export(
            program,
            input_names=[*inputs, *state],
            output_names=["action", *(f"next_{name}" for name in state)],
            dynamo=True,
            verbose=False,
        )
    assert made is not None
    made.save(path)


def _read(path: Path, format: ExportFormat, step: ActingStep) -> Program:
    """The program as it will be used, with arrays in and out."""
    if format == "torch-export":
        with path.open("rb") as file:
            module: Any = torch.export.load(file).module()

        def run_module(inputs: list[np.ndarray]) -> list[np.ndarray]:
            with torch.no_grad():
                found: list[Tensor] = module(*(torch.from_numpy(np.asarray(value)) for value in inputs))
            return [value.numpy() for value in found]

        return run_module
    import onnxruntime  # type: ignore[import-untyped,unused-ignore]

    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    names = [*step.inputs, *step.state_names]

    def run_session(inputs: list[np.ndarray]) -> list[np.ndarray]:
        found: list[np.ndarray] = session.run(None, dict(zip(names, inputs, strict=True)))
        return found

    return run_session


def _describe(step: ActingStep, format: ExportFormat, file: str, num_envs: int) -> dict[str, Any]:
    """Everything needed to run the program without this package or Python."""
    config, state = step.policy.config, step.first_state()
    action = step._template.actions[:, 0]
    return {
        "format": FORMAT,
        "program": format,
        "file": file,
        "num_envs": num_envs,
        "observation": [asdict(part) for part in config.observation],
        "inputs": [
            {"name": name, "dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}
            for name, value in step.inputs.items()
        ],
        "state": [
            {
                "name": name,
                "dtype": str(value.dtype).removeprefix("torch."),
                "shape": list(value.shape),
                "first": _first(value),
                "output": f"next_{name}",
            }
            for name, value in state.items()
        ],
        "action": {
            "name": "action",
            "dtype": str(action.dtype).removeprefix("torch."),
            "shape": list(action.shape),
            "kind": config.action.kind,
            "low": list(config.action.low),
            "high": list(config.action.high),
        },
        "use": f"action, *state = program({', '.join(step.inputs)}, *state). reward and ended are "
        "the result of the previous action; ended is true at the first step of every episode. The outputs are in the "
        "order of the state." + (" action_mask says which actions are allowed now." if config.action_masks else ""),
        **(
            {"how_to_run_onnx": HOW_TO_RUN_ONNX.splitlines()}
            if format == "onnx"
            else {"how_to_run_torch": HOW_TO_RUN_TORCH.splitlines()}
        ),
    }


def _first(value: Tensor) -> float | list[float]:
    """What a tensor is filled with: a number, or one for each place of its last dimension."""
    row = value.flatten(0, -2)[0] if value.ndim > 1 else value
    return row[0].item() if bool((row == row[0]).all()) else row.tolist()


def _cummax(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """torch.cummax in operations that ONNX supports: values and indices."""
    along = x.movedim(dim, -1)  # (..., n)
    n = along.shape[-1]
    so_far = torch.ones(n, n, dtype=torch.bool, device=x.device).tril()
    lowest = torch.finfo(x.dtype).min if x.is_floating_point() else torch.iinfo(x.dtype).min
    values, places = torch.where(so_far, along.unsqueeze(-2), lowest).max(dim=-1)
    return values.movedim(-1, dim), places.movedim(-1, dim)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter, which reports unrelated libraries and warns about its own internals."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
