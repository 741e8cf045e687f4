"""tutorials/matmul_autotuned: the cases that every product has to stand, the search, every configuration, mutants."""

import pytest
import torch
from triton.runtime import interpreter

from academy import accuracy, device
from annotated_examples.tutorials import matmul_autotuned as lesson
from tests.kernels import harness, matmul_cases
from tests.kernels.harness import Mutant, randn
from tests.kernels.matmul_cases import MatmulTests, tiled

MUTANTS = matmul_cases.MUTANTS + [
    Mutant("no mask on K", "k_mask = offs_k < K % BLOCK_K", "k_mask = offs_k < BLOCK_K"),
    Mutant("K must divide", "if K % BLOCK_K != 0:", "if K < 0:"),
    Mutant("store not masked", "c_offsets, ACTIVATION(acc), mask=c_mask)", "c_offsets, ACTIVATION(acc))"),
    Mutant(
        "adds to C, so tuning would add again",
        "tl.store(c_ptr + c_offsets, ACTIVATION",
        "tl.atomic_add(c_ptr + c_offsets, ACTIVATION",
    ),
    Mutant(
        "relu where leaky relu was asked for",
        '"leaky_relu": leaky_relu, "gelu": gelu',
        '"leaky_relu": relu, "gelu": gelu',
    ),
    Mutant("last block of K too few", "for k in range(0, tl.cdiv(K, BLOCK_K)):", "for k in range(0, K // BLOCK_K):"),
    Mutant(
        "raw integer pointers",
        "kernel[grid](a, b, c,",
        "kernel[grid](a.data_ptr(), b.data_ptr(), c,",
    ),
    Mutant("activation forgotten after descriptors", "c_desc, ACTIVATION(acc)", "c_desc, acc"),
    Mutant("slope forgotten", "activation_backward(dc, saved, activation)\n    da", "dc\n    da"),
]
if device.INTERPRET:
    # Where a copy begins changes no result, and a GPU that is told nonsense about copies may stop for good.
    MUTANTS += [
        Mutant("walk too short by the skew", "tl.cdiv(K + skew, BLOCK_K)", "tl.cdiv(K, BLOCK_K)"),
        Mutant("always the first phase", "phase = pid_m % PHASES", "phase = pid_m * 0"),
        Mutant("phases are no rows of their own", "pid_m // PHASES * BLOCK_M", "pid_m * BLOCK_M"),
        Mutant("odd phases forgotten", "phase = pid_m % PHASES", "phase = pid_m % PHASES // 2 * 2"),
        Mutant(
            "rows of a phase one apart",
            "[stride, phases * stride, 1]",
            "[stride, stride, 1]",
        ),
        Mutant("columns of b again", "start_k, start_n + 2 * BLOCK_N, B", "start_k, start_n + BLOCK_N, B"),
        Mutant("columns stored elsewhere", "start_n + 2 * width", "start_n + width"),
        Mutant(
            "strides of b exchanged", "b = b_desc.load([start_n, start_k]).T", "b = b_desc.load([start_k, start_n])"
        ),
        Mutant("unequal phases", "and a.shape[0] % row_phases(a) == 0", ""),
        Mutant("activation forgotten in one of three", "ACTIVATION(right)", "right"),
        Mutant("copies begin inside a line", "phase * (stride_am % LINE) % LINE", "phase * 0"),
        Mutant(
            "reads rows that don't exist",
            "a_ptrs, mask=m_mask[:, None], other",
            "a_ptrs, mask=(offs_m >= 0)[:, None], other",
        ),
        Mutant(
            "reads columns that don't exist",
            "b_ptrs, mask=n_mask[None, :], other",
            "b_ptrs, mask=(offs_n >= 0)[None, :], other",
        ),
    ]


#: what each of the tuned kernels may choose from
LISTS = {
    "tuned_matmul_kernel": "POINTER_CONFIGURATIONS",
    "tuned_descriptor_kernel": "DESCRIPTOR_CONFIGURATIONS",
    "tuned_interleaved_kernel": "INTERLEAVED_CONFIGURATIONS",
}


def take_small_blocks(module):
    """Nothing to choose from, so nothing is searched, which takes seconds for each shape and dtype. Small blocks, so
    that small matrices have several in each direction, and that they compile in no time.
    """
    module.tuned_matmul_kernel.configs = [module.configuration(32, 32, 16, 3, 4, 2)]
    module.tuned_descriptor_kernel.configs = [module.configuration(64, 32, 32, 3, 4, 3, module.set_block_shapes)]
    module.tuned_interleaved_kernel.configs = module.INTERLEAVED_CONFIGURATIONS[:1]


def take_large_blocks(module):
    """The largest of each list, 128 x 256 or 128 x 192."""
    area = lambda configuration: configuration.kwargs["BLOCK_M"] * configuration.kwargs["BLOCK_N"]  # noqa: E731
    for tuner, configurations in LISTS.items():
        getattr(module, tuner).configs = [max(getattr(module, configurations), key=area)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    for tuner in LISTS:
        monkeypatch.setattr(getattr(lesson, tuner), "configs", None)  # put back afterwards
    take_small_blocks(lesson)


@pytest.fixture
def every_configuration(small_blocks, monkeypatch):
    """For tests that do search, with nothing found before. On a GPU only: the interpreter can time nothing."""
    for tuner, configurations in LISTS.items():
        monkeypatch.setattr(getattr(lesson, tuner), "configs", getattr(lesson, configurations))
        monkeypatch.setattr(getattr(lesson, tuner), "cache", {})


#: a shape for each kernel, in which no block is a multiple: the search and the test of each configuration share what
#: was compiled for it
DESCRIBED = dict(shape=(521, 776, 200), dtype=torch.bfloat16, activation="silu")
POINTED = dict(shape=(519, 77, 201), dtype=torch.float16, activation="gelu")


def matrices(shape, dtype, activation):
    """(inputs, activation, upstream gradient)"""
    M, N, K = shape
    return dict(a=randn(M, K, dtype=dtype), b=randn(K, N, dtype=dtype)), activation, randn(M, N, dtype=dtype)


#: small in the interpreter; compiled, the blocks that the list has
INTERLEAVED_TILES = dict(BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, GROUP_M=3)
if not device.INTERPRET:
    INTERLEAVED_TILES = dict(BLOCK_M=128, BLOCK_N=64, BLOCK_K=64, GROUP_M=4, num_warps=4, num_stages=4)


def at_a_line(rows, columns, dtype=torch.bfloat16):
    """A contiguous matrix that begins where a cache line begins, wherever the allocator starts."""
    memory = torch.full((rows * columns + 64,), float("nan"), dtype=dtype, device=harness.DEVICE)
    start = -memory.data_ptr() % 128 // 2
    return memory[start : start + rows * columns].view(rows, columns).copy_(randn(rows, columns, dtype=dtype))


def copies_whole_lines(module):
    """What the interleaving is for: each row of each copied block of `a` begins where a cache line begins."""
    a, b = at_a_line(16, 200), randn(200, 24, dtype=torch.bfloat16)
    handle, seen = interpreter.TensorDescHandle, []
    original = handle.materialize_pointers

    def watched(self, offsets):
        pointers, mask = original(self, offsets)
        if self.base.data.item() == a.data_ptr():
            seen.append(pointers.data[0, :, 0] % 128)
        return pointers, mask

    handle.materialize_pointers = watched
    try:
        module.matmul_forward(a, b, interleaved=True, BLOCK_M=2, BLOCK_N=16, BLOCK_K=64, GROUP_M=2)
    finally:
        handle.materialize_pointers = original
    assert len(seen) >= 8 and not any(offsets.any() for offsets in seen), "a copy begins inside a cache line"


class TestMatmulAutotuned(MatmulTests):
    lesson = lesson

    def prepare(self, module, large=False):
        take_large_blocks(module) if large else take_small_blocks(module)

    def identity(self, module):
        return module.identity

    def check_all(self, module):
        super().check_all(module)
        self.interleaved_right(module, 48, 104, 24, "silu")
        self.interleaved_right(module, 16, 104, 40, None, transposed=True)
        with pytest.raises(ValueError, match="interleaving needs rows of a that start at a cache line"):
            module.matmul_forward(at_a_line(12, 24), randn(24, 16).bfloat16(), interleaved=True)
        if device.INTERPRET:
            copies_whole_lines(module)

    def interleaved_right(self, module, M, N, K, activation, dtype=torch.bfloat16, transposed=False, **tiles):
        """The product and what was saved before its activation."""
        a = at_a_line(M, K, dtype=dtype)
        b = randn(N, K, dtype=dtype).T if transposed else randn(K, N, dtype=dtype)
        tiles = tiles or INTERLEAVED_TILES
        with harness.unchanged(a=a, b=b), harness.fenced_allocations():
            c, z = module.matmul_forward(a, b, activation, save_z=True, interleaved=True, **tiles)
        doubles = a.double(), b.double()
        for name, actual, kind in (("c", c, activation), ("z", z, None)):
            pytorch, exact = (lesson.matmul_reference(*pair, kind) for pair in ((a, b), doubles))
            accuracy.check(name, actual, pytorch, exact)

    @pytest.mark.parametrize("mutant", harness.mutant_parameters(MUTANTS))
    def test_mutant_is_caught(self, mutant, tmp_path):
        harness.assert_caught(lesson, mutant, self.check, tmp_path)

    def test_benchmark_runs_what_its_lines_are_called(self):
        """Sizes 128 to 4096 in steps of 128, and four lines: each computes what its name says."""
        squares = [shape[0] for shape in lesson.BENCH["shapes"] if len(set(shape)) == 1 and shape[0] <= 4096]
        assert squares == list(range(128, 4097, 128))
        a, b = randn(16, 16), randn(16, 16)
        ((name, line),) = ((n, v) for n, v in lesson.BENCH["variants"].items() if n in lesson.ACTIVATIONS)
        assert name == "leaky_relu" and line["eager_name"] == "cuBLAS + leaky_relu"
        expected = torch.nn.functional.leaky_relu(a @ b, 0.01)
        for product in (line["ours"](a, b), line["eager"](a, b)):
            torch.testing.assert_close(product, expected, rtol=1e-4, atol=1e-4)
        for product in (lesson.BENCH["ours"](a, b), lesson.BENCH["eager"](a, b)):
            torch.testing.assert_close(product, a @ b, rtol=1e-4, atol=1e-4)

    @pytest.mark.skipif(not device.INTERPRET, reason="tiles of 2 x 4 run in the interpreter only")
    def test_example_runs(self):
        assert lesson.EXAMPLE() == dict(shape=(9, 6, 10), dtype=torch.float32, activation="leaky_relu")

    @pytest.mark.parametrize("transposed", [False, True])
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=harness.dtype_name)
    @pytest.mark.parametrize(
        ("M", "N", "K", "phases"),
        [(48, 104, 24, 8), (16, 8, 8, 8), (8, 200, 72, 8), (36, 56, 16, 4), (34, 48, 96, 2), (33, 64, 64, 1)],
    )
    def test_interleaved(self, M, N, K, phases, dtype, transposed):
        """Rows that begin in 8, 4, 2 and 1 ways; phases with less than a block of rows; b as it is stored or not."""
        assert lesson.row_phases(at_a_line(M, K, dtype=dtype)) == phases
        self.interleaved_right(lesson, M, N, K, "silu", dtype, transposed)

    def test_interleaved_sliced_rows(self):
        """The stride decides about the phases, and what lies between the rows is never read."""
        a = harness.nan_fenced(at_a_line(24, 72))[:, :40]
        memory = torch.full((24 * 72 + 128,), float("nan"), dtype=torch.bfloat16, device=harness.DEVICE)
        start = -memory.data_ptr() % 128 // 2
        view = memory[start : start + 24 * 72].view(24, 72)[:, :40]
        view.copy_(a)
        assert lesson.row_phases(view) == 8
        b = randn(40, 48, dtype=torch.bfloat16)
        c, _ = lesson.matmul_forward(view, b, interleaved=True, **INTERLEAVED_TILES)
        accuracy.check("c", c, view @ b, view.double() @ b.double())

    def test_interleaving_bypassed(self):
        """Rows that don't divide into phases, an address inside a line, float32: the other kernels take over."""
        whole = at_a_line(24, 24)
        assert lesson.can_interleave(whole, "rows")
        assert not lesson.can_interleave(whole, "columns")
        assert not lesson.can_interleave(whole[:12], "rows")
        assert not lesson.can_interleave(at_a_line(25, 24)[1:], "rows")
        b = randn(24, 16, dtype=torch.bfloat16)
        with pytest.raises(ValueError, match="interleaving needs rows of a that start at a cache line"):
            lesson.matmul_forward(whole[:12], b, interleaved=True)
        with pytest.raises(ValueError, match="descriptors need 16-bit matrices"):
            lesson.matmul_forward(whole.float(), b.float(), interleaved=True)

    @pytest.mark.parametrize(
        ("M", "N", "phases", "pays"),
        [(1000, 3000, 8, True), (3000, 3000, 8, True), (4000, 4000, 8, False), (1000, 1000, 8, False)]
        + [(n, n, 1, False) for n in (2048, 4096, 8192)],
    )
    def test_rule_of_interleaving(self, M, N, phases, pays):
        """With 132 multiprocessors, as it was measured."""
        assert lesson.interleaving_pays(M, N, phases, 132) == pays

    @pytest.mark.skipif(not device.INTERPRET, reason="only the interpreter can be asked for addresses")
    def test_copies_whole_lines(self):
        copies_whole_lines(lesson)

    @pytest.mark.gpu
    @pytest.mark.parametrize("number", range(len(lesson.INTERLEAVED_CONFIGURATIONS)))
    def test_every_interleaved_configuration_is_right(self, number):
        chosen = lesson.INTERLEAVED_CONFIGURATIONS[number]
        options = dict(chosen.kwargs, num_warps=chosen.num_warps, num_stages=chosen.num_stages)
        self.interleaved_right(lesson, 1032, 776, 200, "gelu", **options)
        self.interleaved_right(lesson, 1032, 776, 200, "gelu", transposed=True, **options)

    @pytest.mark.gpu
    def test_search_among_interleaved_configurations(self, every_configuration):
        a, b = at_a_line(1000, 5000), randn(5000, 3000, dtype=torch.bfloat16)
        with harness.unchanged(a=a, b=b):
            c = lesson.matmul(a, b)
        tuner = lesson.tuned_interleaved_kernel
        assert set(tuner.configs_timings) == set(tuner.configs), "not every configuration was timed"
        accuracy.check("c", c, a @ b, a.double() @ b.double())

    @pytest.mark.gpu
    @pytest.mark.parametrize(
        ("tuner", "case"),
        [(lesson.tuned_descriptor_kernel, DESCRIBED), (lesson.tuned_matmul_kernel, POINTED)],
        ids=["descriptors", "pointers"],
    )
    def test_search_leaves_inputs_and_result_right(self, tuner, case, every_configuration):
        """The first call for a shape runs the kernel many times: inputs stay, the result is as if it had run once."""
        inputs, activation, upstream = matrices(**case)
        self.right(lesson.matmul, inputs, activation, upstream)
        assert len(tuner.cache) == 3, "one search for the product, one for each gradient"
        assert set(tuner.configs_timings) == set(tuner.configs), "not every configuration was timed"
        assert max(times[0] for times in tuner.configs_timings.values()) < float("inf"), "a configuration can't run"
        first, second = (lesson.matmul(**inputs, activation=activation) for _ in range(2))
        assert torch.equal(first, second)
        assert len(tuner.cache) == 3, "searched again for a shape that was known"

    @pytest.mark.gpu
    def test_float32_search_leaves_large_blocks_out(self, every_configuration):
        """Compiling them takes longer than all the others together."""
        a, b = randn(70, 40), randn(40, 50)
        accuracy.check("c", lesson.matmul(a, b), a @ b, a.double() @ b.double())
        tried = set(lesson.tuned_matmul_kernel.configs_timings)
        assert 1 < len(tried) < len(lesson.POINTER_CONFIGURATIONS)
        assert lesson.POINTER_CONFIGURATIONS[0] in tried

    @pytest.mark.gpu
    def test_each_precision_has_its_own_search(self, every_configuration, monkeypatch):
        a, b = randn(70, 40), randn(40, 50)
        lesson.matmul(a, b)
        monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", True)
        lesson.matmul(a, b)
        assert len(lesson.tuned_matmul_kernel.cache) == 2

    @pytest.mark.gpu
    def test_each_layout_has_its_own_search(self, every_configuration):
        a, b = (randn(256, 256, dtype=torch.bfloat16) for _ in range(2))
        for left, right in ((a, b), (a, b.T), (a.T, b), (a, b)):
            lesson.matmul(left, right)
        assert len(lesson.tuned_descriptor_kernel.cache) == 3

    @pytest.mark.gpu
    @pytest.mark.parametrize("number", range(len(lesson.DESCRIPTOR_CONFIGURATIONS)))
    def test_every_descriptor_configuration_is_right(self, number):
        chosen = lesson.DESCRIPTOR_CONFIGURATIONS[number]
        options = dict(chosen.kwargs, num_warps=chosen.num_warps, num_stages=chosen.num_stages, descriptors=True)
        self.right(tiled(lesson, **options), *matrices(**DESCRIBED))

    @pytest.mark.gpu
    @pytest.mark.parametrize("number", range(len(lesson.POINTER_CONFIGURATIONS)))
    def test_every_pointer_configuration_is_right(self, number):
        chosen = lesson.POINTER_CONFIGURATIONS[number]
        options = dict(chosen.kwargs, num_warps=chosen.num_warps, num_stages=chosen.num_stages, descriptors=False)
        self.right(tiled(lesson, **options), *matrices(**POINTED))
