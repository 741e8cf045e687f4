"""classics/matmul: what every product has to stand, the picture in its notes, mutants of its own."""

import inspect
import re

from academy.runtime import device
from annotated_examples.classics import matmul as lesson
from annotated_examples.common.tile_order import grouped_order
from tests.kernels import harness, matmul_cases
from tests.kernels.harness import Mutant
from tests.kernels.matmul_cases import ProductTests

module = harness.modules(lesson)

MUTANTS = [
    Mutant("mismatched K unchecked", "contract(a=a, b=b, activation=activation, allowed=ACTIVATIONS)", "pass"),
]  # fmt: skip
if device.INTERPRET:  # out-of-bounds reads change no result: only the interpreter can be asked for the addresses
    MUTANTS += [
        Mutant("no mask on M loads", "m_mask[:, None] & k_mask", "(offs_m >= 0)[:, None] & k_mask"),
        Mutant("no mask on N loads", "k_mask[:, None] & n_mask[None, :]", "k_mask[:, None] & (offs_n >= 0)[None, :]"),
    ]


test_mutant_is_caught = harness.mutant_test(lesson, MUTANTS, matmul_cases.check_product)


def test_swizzle_picture():
    """The picture of 32 program ids is what the kernel's own function computes."""
    picture = re.findall(r"# pid_m = (\d)((?: +\d+){4})", inspect.getsource(lesson))
    seen = {int(row): [int(pid) for pid in pids.split()] for row, pids in picture}
    assert sorted(seen) == list(range(8)) and sorted(sum(seen.values(), [])) == list(range(32))
    computed = matmul_cases.program_order(grouped_order, 8, 4, 3)
    for pid_m, row in seen.items():
        for pid_n, pid in enumerate(row):
            assert computed[pid] == (pid_m, pid_n)


class TestMatmul(ProductTests):
    pass
