"""Through every argument of every public function: what nobody should pass works, or is refused by name."""

import inspect

import pytest
import torch

from academy.judge import public
from operations.indexer_loss import some_lists
from operations.linear import under_older_scales
from operations.policy_loss import constants
from tests.kernels import hostile_arguments
from tests.kernels.harness import DEVICE

CASES = public.calls()

#: One case of each function and set of tensors.
#: Those of `adamw_` are lists, which tests/kernels/test_adamw.py has.
FUNCTIONS = {(case.module, case.function, *sorted(case.inputs())): case for case in CASES if case.function != "adamw_"}


def called(case):
    """The function itself, not wrapped, and its inputs."""
    function, inputs = case.public.function(), case.inputs()
    if case.function.startswith("apply_"):
        kind = torch.nn.LayerNorm if case.function == "apply_layernorm" else torch.nn.RMSNorm
        first = next(iter(inspect.signature(function).parameters))
        inputs[first] = kind(1000, device=DEVICE, dtype=torch.bfloat16)
    if case.function == "cumsum":
        inputs["x"] = inputs["x"][:, :90]  # long in one dimension: along another one there are thousands of programs
    if case.function == "rope":
        angles = torch.arange(6 * 12, device=DEVICE).view(6, 12) / 10
        inputs |= dict(cos=angles.cos(), sin=angles.sin())
    if case.function == "grpo_loss":
        inputs |= dict(zip(("old_logprobs", "advantages"), constants(inputs["logprobs"])))
    if case.function == "dpo_loss":
        inputs |= dict(ref_chosen=inputs["chosen"] / 2, ref_rejected=inputs["rejected"] / 2)
    if case.function == "indexer_loss":
        inputs |= dict(zip(("indices", "target"), some_lists(inputs["q"], inputs["k"])))
    if case.function == "selected_probabilities":
        inputs |= dict(lse=torch.zeros(inputs["q"].shape[:2], device=DEVICE))
    if "square" in inputs:
        inputs["d"] = inputs["square"] + inputs.pop("square").mT
    if case.function == "float8_linear_delayed":
        inputs |= under_older_scales(function).keywords
    return function, inputs


def complaints(case, tried):
    function, inputs = called(case)
    for name, what, arguments in list(hostile_arguments.attempts(function, inputs, case.options))[tried]:
        message = hostile_arguments.complaint(function, name, arguments)
        if message:
            yield f"{case.module}.{case.function}({name}={what}): {message}"


@pytest.mark.parametrize("number", range(len(FUNCTIONS)), ids=["-".join(key[:2]) for key in FUNCTIONS])
def test_some_arguments(number):
    """Every ninth, another ninth for each function."""
    found = list(complaints([*FUNCTIONS.values()][number], slice(number % 9, None, 9)))
    assert not found, "\n".join(found)


@pytest.mark.nightly
@pytest.mark.parametrize("case", FUNCTIONS.values(), ids=str)
def test_all_arguments(case):
    found = list(complaints(case, slice(None)))
    assert not found, "\n".join(found)


SEEN = [
    ("flash_attention", "sinks", [0.0] * 4, TypeError, "sinks must be a torch.Tensor, got list"),
    ("flash_attention_varlen", "sinks", [0.0] * 4, TypeError, "sinks must be a torch.Tensor, got list"),
    ("decode_attention", "num_splits", 2**63, ValueError, "num_splits must be at most 65535"),
    ("cross_entropy_loss", "n_items", torch.tensor(2, device="meta"), ValueError, "n_items must be .* on meta"),
    ("cross_entropy_loss", "n_items", 2**70, ValueError, "n_items must fit into 64 bits"),
    ("cross_entropy_loss", "ignore_index", 2**70, ValueError, "ignore_index must be at most"),
    ("cross_entropy_loss", "logit_scaling", 1e-45, ValueError, "logit_scaling must be 0 or at least 1.18e-38"),
    ("linear_cross_entropy", "n_items", torch.tensor(2, device="meta"), ValueError, "n_items must be .* on meta"),
    ("layernorm", "eps", 2**70, ValueError, "eps must fit into 64 bits"),
    ("rmsnorm", "eps", 2**70, ValueError, "eps must fit into 64 bits"),
    ("gemm_splitK", "split_k", 2**31, ValueError, "split_k must be at most 65535"),
    ("gemm", "data_contiguous", "yes", ValueError, "data_contiguous must be one of True, False, got 'yes'"),
    ("flash_attention", "window", 2**70, None, ""),
    ("dropout", "seed", 2**70, ValueError, "seed must"),
]


@pytest.mark.parametrize(("name", "argument", "value", "error", "words"), SEEN)
def test_seen_once(name, argument, value, error, words):
    """In the lesson and in the fast file, with and without gradients."""
    for case in {case.module: case for case in CASES if case.function == name}.values():
        function, inputs = called(case)
        for gradients in (False, True) if case.differentiable else (False,):
            leaves = {n: v.detach().requires_grad_(gradients and v.is_floating_point()) for n, v in inputs.items()}
            arguments = leaves | case.options | {argument: value}
            if error is None:
                assert torch.is_tensor(function(**arguments))
                continue
            with pytest.raises(error, match=words):
                function(**arguments)


@pytest.mark.parametrize("case", FUNCTIONS.values(), ids=str)
def test_a_nested_tensor_is_named(case):
    function, inputs = called(case)
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            nested = hostile_arguments.strided_nested(value)
            with pytest.raises(TypeError, match=f"{name} must be .* dense .*, got a nested tensor"):
                function(**inputs | case.options | {name: nested})
