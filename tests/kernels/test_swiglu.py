"""classics/swiglu: values, gradients, hostile inputs, errors, mutants. Most tests come from `GatedUnitTests`."""

import pytest
import torch

from annotated_examples.classics import swiglu as lesson
from tests.kernels import gated_units, harness
from tests.kernels.gated_units import GatedUnitTests, packed
from tests.kernels.harness import DTYPES, Mutant

MUTANTS = [
    Mutant("row stride of the gate ignored", "row * stride_gate", "row * n_cols", count=2),
    Mutant("row stride of up ignored", "row * stride_up", "row * n_cols", count=2),
    Mutant("row stride of the upstream gradient ignored", "row * stride_dout", "row * n_cols"),
    Mutant("row stride of the packed gradient ignored", "row * stride_grad", "row * n_cols", count=2),
    Mutant("column stride ignored", "t if t.stride(-1) == 1 else t.contiguous()", "t"),
    Mutant(
        "backward overwrites the gate",
        "dgate = torch.empty_like(gate, memory_format=torch.contiguous_format)",
        "dgate = gate.detach()",
    ),
    Mutant("backward overwrites up", "dup = torch.empty_like(dgate)", "dup = up.detach()"),
    Mutant(
        "forward overwrites up",
        "out = torch.empty_like(gate, memory_format=torch.contiguous_format)",
        "out = up.detach()",
    ),
    Mutant(
        "packed backward overwrites x",
        "dx = torch.empty_like(x, memory_format=torch.contiguous_format)",
        "dx = x.detach()",
    ),
    Mutant("halves swapped", "*x.chunk(2, dim=-1)", "*x.chunk(2, dim=-1)[::-1]", count=3),
    Mutant(
        "exp over one plus exp",
        "sigmoid = 1 / (1 + tl.exp(-gate))",
        "sigmoid = tl.exp(gate) / (1 + tl.exp(gate))",
        count=2,
    ),
    Mutant(
        "sigmoid of the wrong sign", "sigmoid = 1 / (1 + tl.exp(-gate))", "sigmoid = 1 / (1 + tl.exp(gate))", count=2
    ),
    Mutant("slope without its one", "sigmoid * (1 + gate * (1 - sigmoid))", "sigmoid * (gate * (1 - sigmoid))"),
    Mutant("slope of the sigmoid only", "sigmoid * (1 + gate * (1 - sigmoid))", "sigmoid * (1 - sigmoid)"),
    Mutant("slope with the gate's sign lost", "(1 + gate * (1 - sigmoid))", "(1 - gate * (1 - sigmoid))"),
    Mutant("gradient of the gate without up", "dgate = dactivation * slope", "dgate = dout * slope"),
    Mutant("gradient of up without the gate", "dup = dout * activation", "dup = dout * sigmoid"),
    Mutant("no overflow in float16", "dactivation = dactivation.to(tl.float16).to(tl.float32)", "pass"),
    Mutant("grid drops the tail", "(n_cols + BLOCK - 1) // BLOCK", "max(n_cols // BLOCK, 1)"),
    Mutant("every width a multiple of sixteen", "while VECTOR > 1 and", "while False and"),
    Mutant("row strides taken for multiples", "for size in (n_cols, *strides)", "for size in (n_cols,)"),
    Mutant("every program does the first block", "(pid % blocks_per_row)", "(pid % 1)"),
    Mutant("every program does the first block of one row", "block = pid.to(", "block = (0 * pid).to("),
    Mutant("every tensor is taken for one row", "ONE_ROW=rows == 1", "ONE_ROW=True"),
    Mutant("no tensor is taken for one row, and the last row for the first", "ONE_ROW=rows == 1", "ONE_ROW=rows > 2"),
    Mutant("the rest of a long row is forgotten", "    launch(kernel, 1, rest,", "    0 and launch(kernel, 1, rest,"),
    Mutant("the rest starts too late", "t.view(-1)[n_cols:]", "t.view(-1)[n_cols + 1 :]"),
    Mutant("mask off by one", "mask = cols < n_cols", "mask = cols < n_cols - 1", count=2),
    Mutant("no mask on the store", "out, mask=mask)", "out)"),
    Mutant("no mask on the gradients' store", "dup, mask=mask)", "dup)"),
    Mutant("rounded twice", "out = gate * sigmoid * up", "out = (gate * sigmoid).to(tl.bfloat16).to(tl.float32) * up"),
    Mutant("second derivative is silently wrong", "    @once_differentiable\n", "", count=2),
]


def check(module):
    """Everything a mutant has to get past."""
    gated_units.check(module.swiglu, module.swiglu_packed, lesson.swiglu_reference, lesson.swiglu_packed_reference)
    gated_units.stores_stay_inside(module.swiglu_forward_kernel, module.swiglu_backward_kernel)


def test_check_passes():
    check(lesson)


@pytest.mark.parametrize("mutant", harness.mutant_parameters(MUTANTS))
def test_mutant_is_caught(mutant, tmp_path):
    harness.assert_caught(lesson, mutant, check, tmp_path)


class TestSwiGLU(GatedUnitTests):
    function = staticmethod(lesson.swiglu)
    packed_function = staticmethod(lesson.swiglu_packed)
    reference = staticmethod(lesson.swiglu_reference)
    packed_reference = staticmethod(lesson.swiglu_packed_reference)
    forward = staticmethod(lesson.swiglu_forward)
    backward = staticmethod(lesson.swiglu_backward)
    packed_backward = staticmethod(lesson.swiglu_packed_backward)
    cost = staticmethod(lesson.cost)

    @pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
    def test_infinities_and_nan(self, dtype):
        gate, up = gated_units.special_pairs(dtype)
        self.right(gate, up, torch.ones_like(gate))
        self.right_packed(packed(gate, up), torch.full_like(gate, float("inf")))
