"""classics/matmul: what every product has to stand, the picture in its notes, mutants of its own."""

# ruff: noqa: E501  (the mutants: an edit reads best on one line)

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
    Mutant("strides taken for bytes", "offs_m[:, None] * stride_am +", "offs_m[:, None] * (stride_am // 4) +"),
    Mutant("stride of b ignored", "offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn", "offs_k[:, None] * N + offs_n[None, :]"),
    Mutant("no step along K", "a_ptrs += BLOCK_K *", "a_ptrs += 0 *"),
    Mutant("no mask on K", "k_mask = offs_k < K - k * BLOCK_K", "k_mask = offs_k < BLOCK_K"),
    Mutant("loop rounded down", "range(0, tl.cdiv(K, BLOCK_K))", "range(0, K // BLOCK_K)"),
    Mutant("store not masked", "tl.store(c_ptr + c_offsets, c, mask=c_mask)", "tl.store(c_ptr + c_offsets, c)"),
    Mutant("raw integer pointers", "[grid](\n            a, b, c, z,", "[grid](\n            a.data_ptr(), b, c, z,"),
    Mutant("activation forgotten", "c = ACTIVATION(acc)", "c = acc"),
    Mutant("the result saved for Z", "tl.store(z_ptr + c_offsets, acc,", "tl.store(z_ptr + c_offsets, c,"),
    Mutant("mismatched K unchecked", "contract(a=a, b=b, activation=activation, allowed=ACTIVATIONS)", "pass"),
    Mutant("slope forgotten", "dc, a, b, saved, activation, needs=needs", "dc, a, b, saved, None, needs=needs"),
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
