r"""# Tiles in groups

**What was slow?** Perhaps the order. It goes down one column of tiles after the other: the first 132 programs need all
32 rows of tiles of A, and 5 columns of B.

**What changes?** The order of the tiles, as in [the grouped lesson](../../tutorials/matmul_grouped.py): down a group of
8 rows, then to the right. The first 132 then need 12 rows, and all 16 columns.

**Predict:** a column of tiles is as many bytes as two rows. And the L2 cache of an H200 has 62.9 MB; A and B have 33.6
MB each.
"""

from annotated_examples.tutorials.matmul_grouped import matmul_forward as lesson_forward


def matmul_forward(a, b):
    """`a @ b` of matrices with any strides."""
    return lesson_forward(a, b, BLOCK_M=128, BLOCK_N=256, GROUP_M=8, num_warps=8)
