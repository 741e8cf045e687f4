r"""
# Grouped order of tiles

With a one-dimensional grid, the kernel itself decides which tile of the result a program computes. Programs that run at
the same time should share what they load. So the tiles are numbered down a group of `GROUP_M` rows first, then to the
right. [matmul_grouped](../tutorials/matmul_grouped.py) explains why, with a picture and a count.
"""

from academy.runtime import device  # noqa: F401  before anything imports triton

import triton
import triton.language as tl


# Turns a program id into the position of its tile. Why isn't the row `pid % GROUP_M`? That says which row
# inside a group, and not which group: all programs would stay in the first `GROUP_M` rows, and their columns would run
# past the right edge.
@triton.jit
def grouped_order(pid, num_pid_m, num_pid_n, GROUP_M: tl.constexpr):
    num_pid_in_group = GROUP_M * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP_M
    # The last group may have fewer rows than `GROUP_M`. Dividing by `GROUP_M` anyway is a classic mistake: programs of
    # the last group would compute tiles that don't exist, and tiles that do exist would be missing. `tl.minimum` takes
    # the smaller of two numbers.
    group_size_m = tl.minimum(num_pid_m - first_pid_m, GROUP_M)
    # Inside the group the numbers run down the rows first.
    pid_in_group = pid % num_pid_in_group
    pid_m = first_pid_m + pid_in_group % group_size_m
    pid_n = pid_in_group // group_size_m
    return pid_m, pid_n
