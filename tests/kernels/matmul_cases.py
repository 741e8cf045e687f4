"""What every matrix product with a fused activation has to stand: `activation(a @ b)`, by pointers and by descriptors.
A test class for each lesson inherits from `MatmulTests`, names the lesson and lists the mutants of its own.
"""

import pytest
import torch
import triton
import triton.language as tl
from triton.compiler.errors import CompilationError
from triton.runtime.errors import InterpreterError

from academy import accuracy, device
from tests.kernels import addresses, harness
from tests.kernels.harness import DTYPES, LAYOUTS, Mutant, randn

ACTIVATIONS = (None, "relu", "leaky_relu", "gelu", "silu")

#: small tiles: several programs, groups and loop steps even for small matrices (tensor cores want at least 16)
TILES = dict(BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, GROUP_M=3)

#: mistakes that can be made in either lesson, in the same words
MUTANTS = [
    Mutant("last group divided by GROUP_M", "tl.minimum(num_pid_m - first_pid_m, GROUP_M)", "GROUP_M"),
    Mutant("columns swapped for rows in a group", "pid_in_group // group_size_m", "pid_in_group % group_size_m"),
    Mutant("strides taken for bytes", "offs_m[:, None] * stride_am +", "offs_m[:, None] * (stride_am // 4) +"),
    Mutant(
        "stride of b ignored",
        "offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn",
        "offs_k[:, None] * N + offs_n[None, :]",
    ),
    Mutant("no step along K", "a_ptrs += BLOCK_K *", "a_ptrs += 0 *"),
    Mutant("mismatched K unchecked", "if a.shape[1] != b.shape[0]:", "if False:"),
    Mutant("relu keeps negatives", "tl.where(z < 0, 0.0, z)", "tl.where(z < 0, z, z)"),
    Mutant("leaky slope wrong", "tl.where(z < 0, 0.01 * z, z)", "tl.where(z < 0, 0.1 * z, z)"),
    Mutant(
        "gelu by tanh",
        "1.0 + tl.erf(z * 0.7071067811865476)",
        "2.0 * tl.sigmoid(1.5957691216 * (z + 0.044715 * z * z * z))",
    ),
    Mutant("gelu slope without the bell", "saved * 0.3989422804014327", "saved * 0.0"),
    Mutant("silu slope sign", "1.0 + saved * (1.0 - sigmoid)", "1.0 - saved * (1.0 - sigmoid)"),
    Mutant("relu slope at zero", "tl.where(saved <= 0, 0.0, dc)", "tl.where(saved < 0, 0.0, dc)"),
    Mutant("saves the result where the input is needed", "else z if save_z else None)", "else c if save_z else None)"),
    Mutant("upstream strides ignored", "* stride_dcm + offs_n[None, :] * stride_dcn", "* N + offs_n[None, :]"),
    Mutant("da without the transpose", "matmul_forward(dz, b.T, **", "matmul_forward(dz, b.reshape(b.shape[::-1]), **"),
    Mutant("rows that overlap described", "stride_row >= columns and stride_row % 8 == 0", "stride_row % 8 == 0"),
    Mutant("transposed block not turned back", "a_desc.load([start_k, start_m]).T", "a_desc.load([start_k, start_m])"),
    Mutant("second derivative lost", "    @once_differentiable\n", ""),
    Mutant(
        "one chain of float32 sums",
        "tl.fma(tl.dot(a, b, input_precision=INPUT_PRECISION), 1.0, acc)",
        "acc + tl.dot(a, b, input_precision=INPUT_PRECISION)",
        gpu=True,
    ),
    Mutant("gradient penalty lost", "from academy.autograd import", "from torch.autograd.function import"),
]


def tiled(module, **options):
    """The public function, but with small tiles and the pointer kernel (or what `options` say)."""
    options = {"descriptors": False, **options}

    class Tiled(module.MatMul):
        @staticmethod
        def forward(ctx, a, b, activation):
            c, z = module.matmul_forward(a, b, activation, save_z=True, **options)
            ctx.activation, ctx.options = activation, options
            ctx.save_for_backward(a, b, c if activation in ("relu", "leaky_relu") else z)
            return c

        @staticmethod
        def backward(ctx, dc):
            a, b, saved = ctx.saved_tensors
            return *module.matmul_backward(dc, a, b, saved, ctx.activation, **ctx.options), None

    return Tiled.apply


@triton.jit
def store_block_kernel(out_ptr, num_pid_m, num_pid_n, BLOCK_OF_PROGRAM: tl.constexpr, GROUP_M: tl.constexpr):
    pid = tl.program_id(0)
    pid_m, pid_n = BLOCK_OF_PROGRAM(pid, num_pid_m, num_pid_n, GROUP_M)
    tl.store(out_ptr + 2 * pid, pid_m)
    tl.store(out_ptr + 2 * pid + 1, pid_n)


def blocks(lesson, num_pid_m, num_pid_n, group):
    """The block of each program, in the order of their ids, as the kernel's own function says."""
    out = torch.empty(num_pid_m * num_pid_n, 2, dtype=torch.int32, device=harness.DEVICE)
    store_block_kernel[(len(out),)](out, num_pid_m, num_pid_n, lesson.block_of_program, GROUP_M=group)
    return [tuple(pair) for pair in out.tolist()]


def assert_long_sums_right(multiply, K):
    """float32 sums of K terms. Compiled, and added one after the other, they are far less accurate than PyTorch's."""
    x, y = randn(70, K), randn(K, 50)
    accuracy.check(f"K = {K}", multiply(x, y), x @ y, x.double() @ y.double())


class MatmulTests:
    """`lesson` is the module, `identity` its kernels' "no activation". A lesson that searches for configurations may
    choose one in `prepare`, for itself or a mutated copy.
    """

    lesson = None

    def prepare(self, module, large=False):
        pass

    def identity(self, module):
        return None

    def right(self, function, inputs, activation=None, upstream=None):
        harness.assert_right(
            lambda a, b: function(a, b, activation),
            lambda a, b: self.lesson.matmul_reference(a, b, activation),
            inputs,
            upstream,
        )

    # ------------------------------------------------------------ mutants

    def check(self, module):
        """Everything a mutant has to get past."""
        try:
            self.prepare(module)
            self.check_all(module)
        except (pytest.fail.Exception, InterpreterError, CompilationError) as error:
            raise AssertionError(str(error)) from error

    def check_all(self, module):
        self.stays_inside(module)  # first: a stray store elsewhere would damage the test itself
        fenced, multiply = harness.nan_fenced, tiled(module, **TILES)
        inputs = dict(a=fenced(randn(70, 37)), b=fenced(randn(37, 50)))
        self.right(multiply, inputs, None, randn(70, 50))
        self.right(module.matmul, inputs, "gelu")
        for activation in ("relu", "leaky_relu", "silu"):
            self.right(module.matmul, dict(a=randn(20, 24), b=randn(24, 40).T.contiguous().T), activation)
        # whole numbers: sums that are exactly zero show which side zero is on
        whole = torch.randint(-2, 3, (9, 6), device=harness.DEVICE).float()
        self.right(module.matmul, dict(a=whole, b=torch.eye(6, device=harness.DEVICE)), "relu", randn(9, 6))
        # 16-bit matrices that a descriptor can describe, transposed and not, and K with a rest
        for a, b in [(randn(40, 24), randn(24, 48)), (randn(24, 40).T, randn(48, 24).T)]:
            self.right(module.matmul, dict(a=a.bfloat16(), b=b.bfloat16()), "silu")
        # rows that overlap: a window of 16 that moves on by 8
        windows = randn(200, dtype=torch.float16).as_strided((16, 16), (8, 1))
        assert module.storage_order(windows) is None
        if device.INTERPRET:
            self.reads_inside(module)
        self.inner_sizes_are_checked(module)
        if not device.INTERPRET:  # the interpreter's sums are NumPy's
            assert_long_sums_right(module.matmul, 4096)
        inputs = dict(a=randn(4, 4), b=randn(4, 4))
        harness.assert_gradient_penalty_raises(lambda a, b: module.matmul(a * a, b), inputs)

    def stays_inside(self, module):
        """C is cut out of a larger piece of memory: what lies around it must survive."""
        memory = torch.full((40, 40), 7.0, device=harness.DEVICE)
        a, b, c = randn(20, 18), randn(18, 20), memory[:20, :20]
        options = dict(ACTIVATION=self.identity(module), SAVE_Z=False, INPUT_PRECISION="ieee", **TILES)
        strides = (*a.stride(), *b.stride(), *c.stride())
        module.matmul_kernel[(4,)](a, b, c, c, 20, 20, 18, *strides, **options)
        assert (memory[20:] == 7.0).all() and (memory[:, 20:] == 7.0).all(), "wrote outside of C"

    def reads_inside(self, module):
        for K in (16, 18):  # with and without a rest
            a, b = randn(20, K), randn(K, 20)
            with addresses.loads_inside(a, b):
                module.matmul_forward(a, b, **TILES)

    def inner_sizes_are_checked(self, module):
        with pytest.raises(
            ValueError, match=r"b must have as many rows as a has columns, 4, got shapes \(3, 4\) and \(5, 2\)"
        ):
            module.matmul(randn(3, 4), randn(5, 2))

    def test_check_passes(self):
        self.check(self.lesson)

    # ------------------------------------------------------------ values and gradients

    @pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
    @pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
    def test_activations(self, activation, dtype):
        inputs = dict(a=randn(50, 40, dtype=dtype), b=randn(40, 72, dtype=dtype))
        self.right(self.lesson.matmul, inputs, activation, randn(50, 72, dtype=dtype))

    @pytest.mark.parametrize("dtype", DTYPES, ids=harness.dtype_name)
    @pytest.mark.parametrize(
        ("M", "N", "K"), [(1, 1, 1), (1, 70, 33), (70, 1, 33), (33, 17, 1), (16, 16, 10), (129, 65, 130), (64, 64, 64)]
    )
    def test_sizes(self, M, N, K, dtype):
        inputs = dict(a=harness.nan_fenced(randn(M, K, dtype=dtype)), b=harness.nan_fenced(randn(K, N, dtype=dtype)))
        self.right(self.lesson.matmul, inputs, "leaky_relu", randn(M, N, dtype=dtype))

    @pytest.mark.parametrize("activation", ["relu", "gelu"])
    @pytest.mark.parametrize("group", [1, 2, 3, 8])
    def test_small_tiles_and_groups(self, group, activation):
        inputs = dict(a=harness.nan_fenced(randn(70, 40)), b=harness.nan_fenced(randn(40, 37)))
        self.right(tiled(self.lesson, **{**TILES, "GROUP_M": group}), inputs, activation, randn(70, 37))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=harness.dtype_name)
    @pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
    def test_descriptors_with_small_tiles(self, activation, dtype):
        """Several blocks in every direction, the last ones partly full; the gradients use every order of storage."""
        function = tiled(self.lesson, descriptors=True, BLOCK_M=64, BLOCK_N=32, BLOCK_K=16, GROUP_M=2)
        a = harness.nan_fenced(randn(136, 40, dtype=dtype))
        b = harness.nan_fenced(randn(40, 72, dtype=dtype))
        self.right(function, dict(a=a, b=b), activation, randn(136, 72, dtype=dtype))

    @pytest.mark.parametrize("scale", [1e-4, 1e4])
    @pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
    def test_large_and_small_values(self, activation, scale):
        inputs = dict(a=randn(30, 20, scale=scale), b=randn(20, 24))
        self.right(self.lesson.matmul, inputs, activation, randn(30, 24))

    @pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
    def test_infinities_and_nan(self, activation):
        if activation == "gelu" and harness.DEVICE.type == "cpu":
            pytest.skip("PyTorch's vectorised GELU on the CPU turns inf into NaN, its scalar one does not")
        a = torch.tensor([[float("inf")], [float("-inf")], [float("nan")], [0.0], [1.0], [-1.0]], device=harness.DEVICE)
        self.right(self.lesson.matmul, dict(a=a, b=torch.ones(1, 3, device=harness.DEVICE)), activation)

    def test_float16_sums_are_formed_in_float32(self):
        """4096 ones: a float16 sum would stop at 2048."""
        ones = torch.ones(16, 4096, dtype=torch.float16, device=harness.DEVICE)
        assert (self.lesson.matmul(ones, ones.T) == 4096).all()

    @pytest.mark.parametrize("K", [1025, 2049, 8192])
    def test_float32_sums_of_many_terms(self, K):
        assert_long_sums_right(self.lesson.matmul, K)

    def test_float32_is_not_tf32(self):
        assert not torch.backends.cuda.matmul.allow_tf32
        inputs = dict(a=randn(40, 300), b=randn(300, 40))
        self.right(self.lesson.matmul, inputs)

    # ------------------------------------------------------------ layouts

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=harness.dtype_name)
    @pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
    def test_layouts(self, layout, dtype):
        a, b, upstream = (
            layout(randn(40, 24, dtype=dtype)),
            layout(randn(24, 32, dtype=dtype)),
            randn(40, 32, dtype=dtype),
        )
        self.right(self.lesson.matmul, dict(a=a, b=randn(24, 32, dtype=dtype)), "relu", upstream)
        self.right(self.lesson.matmul, dict(a=randn(40, 24, dtype=dtype), b=b), "silu", layout(upstream))
        self.right(self.lesson.matmul, dict(a=a, b=b), None, layout(upstream))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=harness.dtype_name)
    def test_expanded_inputs_and_upstream(self, dtype):
        a, b = harness.expanded(24, 16, dtype=dtype), harness.expanded(16, 32, dtype=dtype)
        self.right(self.lesson.matmul, dict(a=a, b=b), "gelu")
        self.right(self.lesson.matmul, dict(a=a, b=b), None, harness.expanded(24, 32, dtype=dtype))

    def test_slices_at_odd_addresses(self):
        """16-bit views that start at no multiple of 16 bytes can't be described; pointers must take over."""
        a = randn(40, 33, dtype=torch.bfloat16)[1:, 1:]
        b = randn(32, 48, dtype=torch.bfloat16)
        assert self.lesson.storage_order(a) is None and self.lesson.storage_order(b) == "rows"
        self.right(self.lesson.matmul, dict(a=a, b=b), "relu")

    def test_transposed_views_are_not_copied(self, monkeypatch):
        """The kernel gets the caller's memory: no `.contiguous()` on the way."""
        monkeypatch.setattr(torch.Tensor, "contiguous", lambda self: pytest.fail("made a copy"))
        a, b = randn(24, 40).T, randn(16, 24).T
        torch.testing.assert_close(self.lesson.matmul(a, b), a @ b, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize(("M", "N", "K"), [(0, 5, 4), (5, 0, 4), (5, 4, 0), (0, 0, 0)])
    @pytest.mark.parametrize("activation", [None, "gelu"])
    def test_empty(self, M, N, K, activation):
        inputs = dict(a=randn(M, K), b=randn(K, N))
        self.right(self.lesson.matmul, inputs, activation)

    def test_one_input_needs_a_gradient(self):
        a, b = randn(5, 6), randn(6, 7).requires_grad_()
        self.lesson.matmul(a, b, "silu").sum().backward()
        assert a.grad is None and b.grad.shape == (6, 7)
        c = self.lesson.matmul(a, b.detach(), "silu")
        assert not c.requires_grad

    def test_repeatable(self):
        inputs = dict(a=randn(70, 40), b=randn(40, 50))
        harness.assert_bitwise_repeatable(lambda a, b: self.lesson.matmul(a, b, "gelu"), inputs, randn(70, 50))

    def test_second_derivative_raises(self):
        harness.assert_gradient_penalty_raises(
            lambda a, b: self.lesson.matmul(a, b, "silu"), dict(a=randn(9, 5), b=randn(5, 4))
        )

    @pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
    def test_reference_gradcheck(self, activation):
        harness.assert_reference_gradcheck(
            lambda a, b: self.lesson.matmul_reference(a, b, activation), randn(4, 3), randn(3, 5)
        )

    # ------------------------------------------------------------ the order of the blocks

    @pytest.mark.parametrize(
        ("num_pid_m", "num_pid_n", "group"), [(8, 4, 3), (9, 9, 3), (1, 7, 4), (7, 1, 2), (5, 3, 8)]
    )
    def test_every_block_is_computed_once(self, num_pid_m, num_pid_n, group):
        every = [(m, n) for m in range(num_pid_m) for n in range(num_pid_n)]
        assert sorted(blocks(self.lesson, num_pid_m, num_pid_n, group)) == every

    # ------------------------------------------------------------ bad arguments

    @pytest.mark.parametrize(
        ("a", "b", "activation", "error", "words"),
        [
            ([1.0], torch.ones(1, 1), None, TypeError, "a must be a torch.Tensor, got list"),
            (
                torch.ones(2, 2).long(),
                torch.ones(2, 2).long(),
                None,
                TypeError,
                "a must be one of float32, float16, bfloat16",
            ),
            (
                torch.ones(2, 2),
                torch.ones(2, 2).half(),
                None,
                TypeError,
                "b must have the dtype of a, float32, got float16",
            ),
            (torch.ones(2), torch.ones(2, 2), None, ValueError, r"a must have 2 dimensions \(M, K\), got shape \(2,\)"),
            (
                torch.ones(2, 2),
                torch.ones(1, 2, 2),
                None,
                ValueError,
                r"b must have 2 dimensions \(K, N\), got shape \(1, 2, 2\)",
            ),
            (torch.ones(2, 3), torch.ones(2, 3), None, ValueError, "b must have as many rows as a has columns, 3"),
            (torch.ones(2, 2), torch.ones(2, 2), "tanh", ValueError, "activation must be one of None, 'relu'"),
            (torch.ones(2, 2, device="meta"), torch.ones(2, 2), None, ValueError, "a is on meta"),
        ],
        ids=[
            "type",
            "dtype",
            "mixed dtypes",
            "one dimension",
            "three dimensions",
            "inner sizes",
            "activation",
            "device",
        ],
    )
    def test_bad_arguments(self, a, b, activation, error, words):
        move = lambda v: v.to(harness.DEVICE) if isinstance(v, torch.Tensor) and v.device.type == "cpu" else v  # noqa: E731
        with pytest.raises(error, match=words):
            self.lesson.matmul(move(a), move(b), activation)

    def test_bad_launcher_arguments(self):
        with pytest.raises(ValueError, match="BLOCK_N must be a power of two, got 24"):
            self.lesson.matmul_forward(randn(5, 5), randn(5, 5), BLOCK_M=16, BLOCK_N=24, BLOCK_K=16, GROUP_M=1)
        with pytest.raises(ValueError, match="GROUP_M must be at least 1, got 0"):
            self.lesson.matmul_forward(randn(5, 5), randn(5, 5), BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, GROUP_M=0)
        with pytest.raises(ValueError, match="descriptors need 16-bit matrices"):
            self.lesson.matmul_forward(randn(5, 5), randn(5, 5), descriptors=True)

    # ------------------------------------------------------------ on a GPU

    @pytest.mark.gpu
    @pytest.mark.parametrize(
        "shape", [(2048, 2048, 2048), (1000, 3000, 5000), (4096, 512, 4097), (257, 8200, 1000)], ids=str
    )
    @pytest.mark.parametrize("activation", [None, "silu"])
    def test_large_shapes(self, shape, activation):
        self.prepare(self.lesson, large=True)
        M, N, K = shape
        for dtype in (torch.bfloat16, torch.float16):
            inputs = dict(a=randn(M, K, dtype=dtype), b=randn(K, N, dtype=dtype))
            self.right(self.lesson.matmul, inputs, activation, randn(M, N, dtype=dtype))

    @pytest.mark.gpu
    def test_offsets_beyond_32_bits(self):
        """Row 70000 of a matrix whose rows lie 40000 elements apart starts past 2³¹."""
        a = torch.zeros(70_000, 40_000, dtype=torch.bfloat16, device="cuda")[:, :32]
        a[-3:] = randn(3, 32, dtype=torch.bfloat16)
        b = randn(32, 16, dtype=torch.bfloat16)
        exact = a[-3:].double() @ b.double()
        for options in (dict(descriptors=True), dict(descriptors=False)):
            c, _ = self.lesson.matmul_forward(a, b, **options)
            torch.testing.assert_close(c[-3:].double(), exact, rtol=2e-2, atol=2e-2)
