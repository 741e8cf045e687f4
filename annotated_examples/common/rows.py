r"""
# Rows of any tensor

Softmax, LayerNorm and their like treat the last dimension as a row, whatever comes before it. Their kernels need a
matrix: `M` rows, `N` neighbouring columns, and a stride from one row to the next. These functions check that a tensor
has rows, and turn it into a matrix, copying only what has to be copied.
"""

from academy.runtime import checks, device  # noqa: F401  before anything imports triton


# Leading dimensions are merged. A slice of wider rows, or one row expanded to many, is read in place, through its row
# stride. Anything else, such as a transposed matrix, is copied first.
def as_rows(x):
    rows = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    return rows if rows.stride(1) == 1 or rows.shape[1] == 1 else rows.contiguous()


# The distance from one row to the next. For contiguous rows it is their width, which the caller knows. `stride` would
# return the same; but inside `torch.compile`, once the width has changed, it returns a symbol, which Dynamo can't turn
# into the constant that some kernels need.
def row_stride(rows, N):
    return N if rows.is_contiguous() else rows.stride(0)


# Kernels count columns in 32 bits, up to the end of the last chunk. That bounds the length of a row: 2¹⁴ is room for
# the largest chunk that a kernel takes.
LONGEST_ROW = 2**31 - 2**14


# Any tensor with at least one dimension is accepted, in a dtype that kernels take. (PyTorch's own
# sums along a dimension take no more than 64, and a `range` ends before its last number.)
def rows_contract(x):
    checks.tensors(x=x)
    checks.dtypes(x=x)
    checks.dimensions("x", x, range(1, 65), "rows lie along the last")
    if x.shape[-1] >= LONGEST_ROW:
        raise ValueError(f"x must have rows of fewer than {LONGEST_ROW} elements, got shape {tuple(x.shape)}")
