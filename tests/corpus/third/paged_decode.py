"""One query a sequence over a paged cache: grouped heads, the context in partitions, a second launch merges them by their
log-sum-exp. A sequence of no tokens gives zeros."""
import torch
import triton
import triton.language as tl

PAGE = 4


def paged_decode_inputs(seqs, pages):
    g = torch.Generator().manual_seed(seqs * 31 + pages)
    seqs, pages = max(seqs, 1), max(pages, 1)
    width = min(pages, 6)
    table = torch.stack([torch.randperm(pages, generator=g)[:width] for _ in range(seqs)]).to(torch.int32)
    lens = torch.randint(0, width * PAGE + 1, (seqs,), generator=g).to(torch.int32)
    return {"q": torch.randn(seqs, 4, 16, generator=g), "k_cache": torch.randn(pages, PAGE, 2, 16, generator=g),
            "v_cache": torch.randn(pages, PAGE, 2, 16, generator=g), "block_table": table, "seq_lens": lens}


@triton.jit
def _partial(Q, K, V, TABLE, LENS, OUT, LSE, sq_s, sq_h, sk_p, sk_t, sk_h, sv_p, sv_t, sv_h, width, scale,
             GROUP: tl.constexpr, HEADS: tl.constexpr, PARTS: tl.constexpr, PAGE: tl.constexpr, D: tl.constexpr):
    s = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1)
    part = tl.program_id(2)
    n = tl.load(LENS + s)
    blocks = tl.cdiv(n, PAGE)
    per = tl.cdiv(blocks, PARTS)
    d = tl.arange(0, D)
    t = tl.arange(0, PAGE)
    q = tl.load(Q + s * sq_s + h * sq_h + d).to(tl.float32) * scale
    m = -float("inf")
    l = 0.0
    acc = tl.zeros((D,), dtype=tl.float32)
    for b in range(part * per, tl.minimum(blocks, (part + 1) * per)):
        page = tl.load(TABLE + s * width + b).to(tl.int64)
        ok = b * PAGE + t < n
        k = tl.load(K + page * sk_p + t[:, None] * sk_t + (h // GROUP) * sk_h + d[None, :], mask=ok[:, None], other=0.0).to(tl.float32)
        v = tl.load(V + page * sv_p + t[:, None] * sv_t + (h // GROUP) * sv_h + d[None, :], mask=ok[:, None], other=0.0).to(tl.float32)
        score = tl.where(ok, tl.sum(q[None, :] * k, axis=1), -float("inf"))
        mn = tl.maximum(m, tl.max(score, axis=0))
        ms = tl.where(mn == -float("inf"), 0.0, mn)
        p = tl.exp(score - ms)
        a = tl.exp(m - ms)
        l = l * a + tl.sum(p, axis=0)
        acc = acc * a + tl.sum(p[:, None] * v, axis=0)
        m = mn
    at = (s * HEADS + h) * PARTS + part
    tl.store(OUT + at * D + d, tl.where(l > 0, acc / l, acc))
    tl.store(LSE + at, tl.where(l > 0, m + tl.log(l), tl.where(l == 0, -float("inf"), l)))


@triton.jit
def _merge(PART, LSE, LENS, OUT, HEADS: tl.constexpr, PARTS: tl.constexpr, D: tl.constexpr):
    s = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1)
    p = tl.arange(0, PARTS)
    d = tl.arange(0, D)
    base = (s * HEADS + h) * PARTS
    lse = tl.load(LSE + base + p)
    m = tl.max(lse, axis=0)
    m = tl.where(m == -float("inf"), 0.0, m)
    w = tl.exp(lse - m)
    o = tl.load(PART + (base + p)[:, None] * D + d[None, :])
    total = tl.sum(w, axis=0)
    out = tl.sum(w[:, None] * o, axis=0)
    tl.store(OUT + (s * HEADS + h) * D + d, tl.where(tl.load(LENS + s) == 0, 0.0, out / total))


def paged_decode(q, k_cache, v_cache, block_table, seq_lens):
    seqs, heads, D = q.shape
    if k_cache.shape != v_cache.shape or k_cache.dim() != 4 or k_cache.shape[1] != PAGE or k_cache.shape[3] != D or heads % k_cache.shape[2]:
        raise ValueError("caches: (pages, 4, kv heads, dim)")
    if block_table.dim() != 2 or block_table.shape[0] != seqs or seq_lens.shape != (seqs,):
        raise ValueError("block_table: (seqs, width), seq_lens: (seqs,)")
    if seqs and int(seq_lens.max()) > block_table.shape[1] * PAGE:
        raise ValueError("a sequence is longer than its row of the table")
    if torch.is_grad_enabled() and (q.requires_grad or k_cache.requires_grad or v_cache.requires_grad):
        raise RuntimeError("decoding has no backward pass")
    q = q if q.stride(2) == 1 else q.contiguous()
    k_cache = k_cache if k_cache.stride(3) == 1 else k_cache.contiguous()
    v_cache = v_cache if v_cache.stride(3) == 1 else v_cache.contiguous()
    block_table, seq_lens = block_table.contiguous(), seq_lens.contiguous()
    PARTS = 4
    out = torch.empty((seqs, heads, D), dtype=q.dtype, device=q.device)
    if seqs == 0:
        return out
    part = torch.empty((seqs, heads, PARTS, D), dtype=torch.float32, device=q.device)
    lse = torch.empty((seqs, heads, PARTS), dtype=torch.float32, device=q.device)
    _partial[(seqs, heads, PARTS)](q, k_cache, v_cache, block_table, seq_lens, part, lse, q.stride(0), q.stride(1),
                                   *k_cache.stride()[:3], *v_cache.stride()[:3], block_table.shape[1], D ** -0.5,
                                   GROUP=heads // k_cache.shape[2], HEADS=heads, PARTS=PARTS, PAGE=PAGE, D=D)
    _merge[(seqs, heads)](part, lse, seq_lens, out, HEADS=heads, PARTS=PARTS, D=D)
    return out


def paged_decode_reference(q, k_cache, v_cache, block_table, seq_lens):
    group = q.shape[1] // k_cache.shape[2]
    rows = []
    for s, n in enumerate(seq_lens.tolist()):
        pages = block_table[s, : -(-n // PAGE)].long()
        k = k_cache[pages].flatten(0, 1)[:n].repeat_interleave(group, 1).float()
        v = v_cache[pages].flatten(0, 1)[:n].repeat_interleave(group, 1).float()
        score = torch.einsum("hd,thd->ht", q[s].float(), k) * q.shape[2] ** -0.5
        rows.append(torch.einsum("ht,thd->hd", score.softmax(-1), v))
    return torch.stack(rows).to(q.dtype) if rows else torch.empty_like(q)
