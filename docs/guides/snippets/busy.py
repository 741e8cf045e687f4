"""Sums with the numbers of an H200, for the guide "Keep the card busy"."""

# --8<-- [start:imports]
import triton

SMS = 132
# --8<-- [end:imports]


# --8<-- [start:l2]
for name, elements in {"4096 x 4096": 4096**2, "8192 x 8192": 8192**2}.items():
    megabytes = elements * 2 / 1e6
    print(f"{name} in bfloat16: {megabytes:.0f} MB, {megabytes / 62.9:.1f} times the L2 cache")
# → 4096 x 4096 in bfloat16: 34 MB, 0.5 times the L2 cache
# → 8192 x 8192 in bfloat16: 134 MB, 2.1 times the L2 cache
# --8<-- [end:l2]


# --8<-- [start:occupancy]
def limits(num_warps, registers, shared_bytes=0):
    """How many programs each resource of an H200's SM has room for.

    `registers` is the number per thread (`kernel.n_regs`), `shared_bytes` the bytes per program.
    """
    per_warp = triton.cdiv(registers, 8) * 8 * 32  # handed out in units of 8 a thread
    return {
        "warps": 64 // num_warps,
        "programs": 32,
        "registers": 65536 // per_warp // 4 * 4 // num_warps,  # each quarter of an SM has a quarter of them
        "shared memory": 228 * 1024 // (shared_bytes + 1024),  # 1 KB of each is the system's
    }


def programs_per_sm(num_warps, registers, shared_bytes=0):
    """How many programs fit on one SM, and what stops the next one."""
    found = limits(num_warps, registers, shared_bytes)
    tightest = min(found, key=found.get)
    return found[tightest], tightest


print(programs_per_sm(num_warps=4, registers=32))  # → (16, 'warps')
print(programs_per_sm(num_warps=4, registers=64))  # → (8, 'registers')
print(programs_per_sm(num_warps=4, registers=32, shared_bytes=32 * 1024))  # → (6, 'shared memory')
# --8<-- [end:occupancy]


# --8<-- [start:flight]
def in_flight(bandwidth, latency):
    """Little's law: bytes that must be under way at any moment, on the whole card and on each SM."""
    return bandwidth * latency, bandwidth * latency / SMS


card, sm = in_flight(4.8e12, 0.5e-6)
print(f"{card / 1e6:.1f} MB, {sm / 1024:.0f} KB an SM")  # → 2.4 MB, 18 KB an SM
print(f"{sm / 16:.0f} loads of 16 bytes an SM")  # → 1136 loads of 16 bytes an SM
# --8<-- [end:flight]


# --8<-- [start:tile]
BLOCK_M, BLOCK_N, BLOCK_K = 128, 256, 64
num_warps, num_stages = 8, 3

shared = (BLOCK_M + BLOCK_N) * BLOCK_K * 2 * num_stages  # bfloat16: 2 bytes
accumulators = BLOCK_M * BLOCK_N // (32 * num_warps)  # float32: one register each
print(shared // 1024, "KB of shared memory")  # → 144 KB of shared memory
print(accumulators, "registers a thread for the sums")  # → 128 registers a thread for the sums
print(programs_per_sm(num_warps, 168, shared))  # → (1, 'registers')
# --8<-- [end:tile]


# --8<-- [start:intensity]
def operations_per_byte(block_m, block_n, element_size=2):
    """Of one step along K: 2·M·N·K operations for (M + N)·K elements loaded."""
    return 2 * block_m * block_n / ((block_m + block_n) * element_size)


for tile in ((16, 16), (64, 64), (128, 256)):
    print(tile, round(operations_per_byte(*tile)))
# → (16, 16) 8
# → (64, 64) 32
# → (128, 256) 85
# --8<-- [end:intensity]
