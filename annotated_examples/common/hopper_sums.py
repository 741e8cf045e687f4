r"""
# Tiles that are added in global memory

Hopper's TMA unit can also *add* a tile to what global memory holds, element by element. Several programs may add to
the same tile. A sum of floats depends on the order, so where the same call has to give the same bits, they take turns.
What such a kernel needs stands here.
"""

from academy.runtime import device  # noqa: F401  before anything imports triton

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma

# Triton 3.8 has a name for the addition. The compilers of 3.6 and 3.7 can do it, too, and lack only the name.
if hasattr(tma, "async_atomic_add"):
    tma_add = tma.async_atomic_add
else:
    from triton._C.libtriton import ir
    from triton.experimental.gluon.language._core import builtin

    @builtin
    def async_atomic_add(tensor_desc, coord, src, _semantic=None):
        coord = _semantic._convert_to_ir_values(coord, require_i64=False)
        _semantic.builder.create_async_tma_reduce(ir.DESCRIPTOR_REDUCE_KIND.ADD, tensor_desc.handle, coord, src.handle)

    tma_add = async_atomic_add


# `tma.store_wait` waits until the TMA unit has *read* a tile from shared memory, so that its buffer may be used again.
# It doesn't say whether the tile has arrived in global memory by then. A program that wants to tell another one has to
# wait for that as well. It is one instruction, which Gluon has a name for from Triton 3.8 on.
@gluon.jit
def tma_arrived():
    lanes: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    zero = gl.full([32], 0, gl.int32, lanes)
    gl.inline_asm_elementwise("cp.async.bulk.wait_group 0; mov.b32 $0, $1;", "=r,r", [zero], gl.int32, False, 1)


# A counter in global memory says whose turn it is. Whoever reads it with `acquire` also sees what was written before it
# was set with `release`.
@gluon.jit
def wait_for_turn(counter, turn):
    while gl.atomic_add(counter, 0, sem="acquire") != turn:
        pass


@gluon.jit
def pass_turn(counter, turn):
    tma_arrived()
    gl.atomic_xchg(counter, turn + 1, sem="release")
