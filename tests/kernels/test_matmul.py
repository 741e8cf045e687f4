"""classics/matmul: the cases that every product has to stand, its notes' picture and example, mutants of its own."""

import inspect
import re

import pytest
import torch

from academy import device
from annotated_examples.classics import matmul as lesson
from tests.kernels import harness, matmul_cases
from tests.kernels.harness import Mutant
from tests.kernels.matmul_cases import MatmulTests

MUTANTS = matmul_cases.MUTANTS + [
    Mutant("no mask on K", "k_mask = offs_k < K - k * BLOCK_K", "k_mask = offs_k < BLOCK_K"),
    Mutant("store not masked", "tl.store(c_ptr + c_offsets, c, mask=c_mask)", "tl.store(c_ptr + c_offsets, c)"),
    Mutant("one step of K too few", "tl.cdiv(K, BLOCK_K)):\n        # Three", "K // BLOCK_K):\n        # Three"),
    Mutant(
        "raw integer pointers",
        "matmul_kernel[(blocks,)](a, b, c,",
        "matmul_kernel[(blocks,)](a.data_ptr(), b.data_ptr(), c,",
    ),
    Mutant("activation forgotten after descriptors", "c_desc, activate(acc, ACTIVATION)", "c_desc, acc"),
    Mutant("slope forgotten", "activation_backward(dc, saved, activation)\n    # [[tag", "dc\n    # [[tag"),
]
if device.INTERPRET:  # out-of-bounds reads change no result: only the interpreter can be asked for the addresses
    MUTANTS += [
        Mutant(
            "no mask on M loads",
            "mask=(offs_m[:, None] < M) & k_mask[None, :]",
            "mask=(offs_m[:, None] >= 0) & k_mask[None, :]",
        ),
        Mutant(
            "no mask on N loads",
            "mask=k_mask[:, None] & (offs_n[None, :] < N)",
            "mask=k_mask[:, None] & (offs_n[None, :] >= 0)",
        ),
    ]


class TestMatmul(MatmulTests):
    lesson = lesson

    @pytest.mark.parametrize("mutant", harness.mutant_parameters(MUTANTS))
    def test_mutant_is_caught(self, mutant, tmp_path):
        harness.assert_caught(lesson, mutant, self.check, tmp_path)

    def test_swizzle_picture(self):
        """The picture of 32 program ids above `block_of_program` is what the kernel computes."""
        picture = re.findall(r"# pid_m = (\d)((?: +\d+){4})", inspect.getsource(lesson))
        seen = {int(row): [int(pid) for pid in pids.split()] for row, pids in picture}
        assert sorted(seen) == list(range(8)) and sorted(sum(seen.values(), [])) == list(range(32))
        computed = matmul_cases.blocks(lesson, 8, 4, 3)
        for pid_m, row in seen.items():
            for pid_n, pid in enumerate(row):
                assert computed[pid] == (pid_m, pid_n)

    @pytest.mark.skipif(not device.INTERPRET, reason="tiles of 2 x 2 run in the interpreter only")
    def test_examples_run(self):
        assert lesson.EXAMPLE() == dict(shape=(16, 8, 16), dtype=torch.float32, activation="relu")
