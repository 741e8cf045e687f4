r"""# Tiles of 32 x 32

**What was slow?** Each number that is loaded is used once. And a column of B lies scattered over memory: of every 32
bytes that are fetched for it, 2 are used.

**What changes?** A program computes a tile of C, as in [the first lesson](../../tutorials/matmul_blocked.py). It
multiplies tiles of A and B with `tl.dot`: a number that is loaded serves 32 sums, and the tensor cores multiply.

**Predict:** a thirty-second of the loads, and another unit that multiplies.
"""

from annotated_examples.tutorials.matmul_blocked import matmul_forward as lesson_forward


def matmul_forward(a, b):
    """`a @ b` of matrices with any strides."""
    return lesson_forward(a, b, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32)
