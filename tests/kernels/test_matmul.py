"""classics/matmul: what every product has to stand, the picture in its notes, mutants of its own."""

from academy.runtime import device
from annotated_examples.classics import matmul as lesson
from tests.kernels import harness, matmul_cases
from tests.kernels.harness import Mutant
from tests.kernels.matmul_cases import ProductTests

module = harness.modules(lesson)

# Out-of-bounds reads change no result: only the interpreter can be asked for the addresses.
MUTANTS = [
    Mutant("no mask on M loads", "m_mask[:, None] & k_mask", "(offs_m >= 0)[:, None] & k_mask"),
    Mutant("no mask on N loads", "k_mask[:, None] & n_mask[None, :]", "k_mask[:, None] & (offs_n >= 0)[None, :]"),
] * device.INTERPRET


test_mutant_is_caught = harness.mutant_test(lesson, MUTANTS, matmul_cases.reads_inside)


class TestMatmul(ProductTests):
    pass
