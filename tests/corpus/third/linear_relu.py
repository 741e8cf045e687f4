"""Persistent product with tensor descriptors made on the device, tiles in groups of rows, and a bias with ReLU behind it.
Rows that aren't a multiple of 16 bytes are padded first, as descriptors demand it."""
import torch
import triton
import triton.language as tl

INPUTS = {"a": "m k", "w": "n k", "bias": "n"}


def _alloc(size, align, stream):
    return torch.empty(size, dtype=torch.int8, device="cuda" if torch.cuda.is_available() else "cpu")


@triton.jit
def _persistent(A, W, BIAS, C, M, N, K, lda, ldw, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                GROUP: tl.constexpr):
    da = tl.make_tensor_descriptor(A, shape=[M, K], strides=[lda, 1], block_shape=[BM, BK])
    dw = tl.make_tensor_descriptor(W, shape=[N, K], strides=[ldw, 1], block_shape=[BN, BK])
    nm = tl.cdiv(M, BM)
    nn = tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), nm * nn, tl.num_programs(0)):
        width = GROUP * nn
        first = (tile // width) * GROUP
        size = tl.minimum(nm - first, GROUP)
        pm = first + (tile % width) % size
        pn = (tile % width) // size
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            a = da.load([pm * BM, k])
            w = dw.load([pn * BN, k])
            acc = tl.dot(a, w.T, acc, input_precision="ieee")
        rm = pm * BM + tl.arange(0, BM)
        rn = pn * BN + tl.arange(0, BN)
        acc += tl.load(BIAS + rn, mask=rn < N, other=0.0).to(tl.float32)[None, :]
        # (x < 0) and not maximum: a NaN passes, as it does in torch.relu
        acc = tl.where(acc < 0, 0.0, acc)
        tl.store(C + rm[:, None].to(tl.int64) * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


def _padded(t):
    step = 16 // t.element_size()
    if t.stride(1) != 1 or t.stride(0) * t.element_size() % 16 or t.data_ptr() % 16:
        t = torch.nn.functional.pad(t, (0, -t.shape[1] % step)).contiguous()
        if t.data_ptr() % 16:
            t = t.clone()
    return t


def linear_relu(a, w, bias):
    if a.dim() != 2 or w.dim() != 2 or bias.dim() != 1 or a.shape[1] != w.shape[1] or w.shape[0] != bias.shape[0]:
        raise ValueError("a: (m, k), w: (n, k), bias: (n,)")
    if not a.dtype == w.dtype == bias.dtype:
        raise TypeError("one dtype, please")
    if torch.is_grad_enabled() and any(t.requires_grad for t in (a, w, bias)):
        raise RuntimeError("no backward pass")
    M, K = a.shape
    N = w.shape[0]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    if c.numel() == 0:
        return c
    if K == 0:
        return bias.relu().expand(M, N).clone()
    a, w, bias = _padded(a), _padded(w), bias.contiguous()
    triton.set_allocator(_alloc)
    tiles = triton.cdiv(M, 32) * triton.cdiv(N, 32)
    _persistent[(min(tiles, 4),)](a, w, bias, c, M, N, K, a.stride(0), w.stride(0), BM=32, BN=32, BK=32, GROUP=2)
    return c


def linear_relu_reference(a, w, bias):
    return torch.relu(torch.nn.functional.linear(a, w, bias))
