import triton
import triton.language as tl

INPUTS = {"state": "n", "rate": (0.1, 0.9)}


@triton.jit
def decay_in_place_kernel(s_ptr, n, stride, factor, BLOCK: tl.constexpr):
    start = tl.minimum(tl.program_id(0) * BLOCK, tl.maximum(n - BLOCK, 0))
    at = start + tl.arange(0, BLOCK)
    s = tl.load(s_ptr + at * stride, mask=at < n, other=0.0).to(tl.float32)
    tl.store(s_ptr + at * stride, s * factor, mask=at < n)


def decay_in_place(state, rate):
    """Shrinks a state by a rate. The last block is moved back so that all blocks are full."""
    n = state.shape[0]
    if n == 0:
        return
    block = 16
    decay_in_place_kernel[(triton.cdiv(n, block),)](state, n, state.stride(0), 1.0 - rate, BLOCK=block)


def decay_in_place_reference(state, rate):
    state.copy_(state.float() * (1 - rate))
