"""What the interpreter does in one step is what Triton's own many steps come to: bits, types, and errors."""

import inspect
import itertools
import math
import operator

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from academy.runtime import device
from academy import interpreter

if not device.INTERPRET:
    pytest.skip("compiled kernels don't pass through the interpreter", allow_module_level=True)

from triton.runtime import interpreter as triton_interpreter

from academy.interpreter.quick import kinds, operators

NUMBERS = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 fp16 bf16 fp32 fp64 int1 fp8e4nv".split()
DTYPES = {name: tl.dtype(name) for name in NUMBERS}
DTYPES |= {f"*{name}": tl.pointer_type(DTYPES[name]) for name in ("fp32", "int8", "int1", "bf16")}
SIZES = [(), (4,), (2,), (1, 4), (2, 1), (2, 4)]
#: As they stand in a kernel: Python's, too large ones, and what is no number of the block's type.
PYTHON = [0, 3, -1, 200, 2**31, 2**70, 1.5, -0.0, 1e-42, 1e300, math.inf, True, None]


@triton.jit
def kernel(x_ptr):
    tl.store(x_ptr, tl.load(x_ptr))


@pytest.fixture(autouse=True)
def inside_a_kernel():
    scope = triton_interpreter._patch_lang(kernel.fn)
    with np.errstate(all="ignore"):
        yield
    scope.restore()


def value(dtype: str, sizes: tuple[int, ...], seed: int = 0) -> tl.tensor:
    """Small numbers of both signs, the type's largest, and, where it has them, an infinity and a NaN."""
    kind = kinds.kind_of(DTYPES[dtype], sizes)
    few = np.random.default_rng(seed).integers(-5, 6, sizes or (1,))
    data = few.astype(kind.np_dtype)
    if data.size > 3 and kind.np_dtype.kind == "f":
        data.flat[:2] = np.inf, np.nan
    elif data.size > 3 and not dtype.startswith("*") and dtype != "int1":
        data.flat[0] = np.iinfo(kind.np_dtype).max
    return tl.tensor(triton_interpreter.TensorHandle(data, kind.dtype), kind.type)


def outcome(function, *arguments, **options) -> tuple:
    """What can be told of a result: its types, sizes and bits; or the error."""
    interpreter.used(reset=True)
    try:
        result = function(*arguments, **options)
    except Exception as error:
        return type(error), str(error)
    if result.handle is None:  # of a store
        return ()
    data = result.handle.data
    sizes = tuple(size.value for size in result.shape)
    types = str(result.type), str(result.dtype), str(result.handle.dtype), result.numel.value, sizes
    return *types, data.dtype, data.shape, data.tobytes(), tuple(interpreter.used(reset=True))


def assert_alike(quick, *arguments, **options):
    expected = outcome(quick.__wrapped__, *arguments, **options)
    assert outcome(quick, *arguments, **options) == expected
    assert outcome(quick, *arguments, **options) == expected  # now there is a plan


PAIRS = [(a, b) for a, b in itertools.product(SIZES, SIZES) if len(a) == len(b) or not (a and b) or a == (2,)]


@pytest.mark.parametrize("name", operators.OPERATORS)
def test_operators(name):
    quick = getattr(tl.tensor, name)
    for left, right in itertools.product(DTYPES, DTYPES):
        for a, b in PAIRS if left == right or {left, right} <= {"fp32", "int32", "*fp32"} else [((4,), (4,))]:
            assert_alike(quick, value(left, a), value(right, b, seed=1))
    for dtype, number in itertools.product(DTYPES, PYTHON):
        for sizes in [(), (4,)]:
            assert_alike(quick, value(dtype, sizes), number)
            assert_alike(quick, value(dtype, sizes), tl.constexpr(number))


def test_casts():
    own = triton_interpreter.interpreter_semantic
    quick = tl.semantic.TritonSemantic.cast
    for (source, target), sizes in itertools.product(itertools.product(DTYPES, NUMBERS), [(), (4,), (2, 4)]):
        assert_alike(quick, own, value(source, sizes), DTYPES[target])
    for rounding in ("rtz", "rtne"):
        assert_alike(quick, own, value("fp32", (4,)), tl.float16, rounding)


@pytest.mark.parametrize("name", "add sub mul truediv floordiv mod and or xor lshift rshift lt le gt ge eq ne".split())
def test_a_constant_beside_a_tensor_is_a_number(name):
    """As the compiler takes it, and no constant that holds a tensor."""
    python, tensor = getattr(operator, {"and": "and_", "or": "or_"}.get(name, name)), value("int32", (4,), seed=2)
    results = [python(constant, tensor) for constant in (tl.constexpr(12), 12)]
    assert [type(result) for result in results] == [tl.tensor] * 2
    assert outcome(lambda: results[0]) == outcome(lambda: results[1])


def test_casts_as_they_are_written():
    for (source, target), sizes in itertools.product(itertools.product(DTYPES, NUMBERS), [(), (4,)]):
        assert_alike(tl.tensor.to, value(source, sizes), DTYPES[target])
        assert_alike(tl.tensor.to, value(source, sizes), tl.constexpr(DTYPES[target]))
        assert_alike(tl.tensor.to, value(source, sizes), DTYPES[target], bitcast=True)
    assert_alike(tl.tensor.to, value("fp32", (4,)), tl.float16, fp_downcast_rounding="rtz")
    assert_alike(tl.tensor.to, value("fp32", (4,)), "fp16")


@pytest.mark.parametrize("name", ["minimum", "maximum"])
def test_smaller_and_larger(name):
    quick = getattr(tl, name)
    for left, right in itertools.product(DTYPES, DTYPES):
        for a, b in PAIRS if left == right or {left, right} <= {"fp32", "int32", "int64"} else [((4,), (4,))]:
            assert_alike(quick, value(left, a), value(right, b, seed=1))
    for (dtype, number), sizes in itertools.product(itertools.product(DTYPES, PYTHON), [(), (4,)]):
        assert_alike(quick, value(dtype, sizes), number)
        assert_alike(quick, number, value(dtype, sizes))
    for rule in (tl.PropagateNan.ALL, tl.PropagateNan.NONE):
        assert_alike(quick, value("int32", (4,)), value("int32", (4,), seed=1), propagate_nan=rule)


def test_a_handle_holds_no_wider_elements_than_its_type():
    for dtype, data in [(tl.int1, np.zeros(2, np.int8)), (tl.int32, np.zeros(2, np.int8)), (tl.int8, np.zeros(2))]:
        original = triton_interpreter.TensorHandle.__post_init__.__wrapped__
        handle = object.__new__(triton_interpreter.TensorHandle)
        handle.data, handle.dtype = data, dtype
        refused = []
        for check in (original, triton_interpreter.TensorHandle.__post_init__):
            try:
                check(handle)
            except ValueError as error:
                refused.append(str(error))
        assert len(refused) == (2 if dtype is tl.int8 else 0) and len(set(refused)) <= 1


@pytest.mark.parametrize(
    "slices", [np.s_[:, None], np.s_[None, :], np.s_[:, None, :], np.s_[None], np.s_[:], np.s_[1:]]
)
def test_new_axes(slices):
    for dtype, sizes in itertools.product(("fp32", "*fp32", "int1"), SIZES):
        assert_alike(tl.tensor.__getitem__, value(dtype, sizes), slices)


def test_blocks_from_nothing():
    for ends in [(0, 4), (4, 8), (0, 3), (2, 2), (4, 2), (0, 2**33), (0.0, 4.0)]:
        assert_alike(tl.arange, *ends)
    for shape, number, dtype in itertools.product([(4,), [2, 4], (), (3,), 4], PYTHON, NUMBERS):
        assert_alike(tl.full, shape, number, DTYPES[dtype])


@pytest.mark.filterwarnings("ignore:tl.where with a non-boolean condition")
def test_choices():
    conditions = [value("int1", sizes) for sizes in SIZES] + [value("int32", (4,)), True]
    for condition, x, y in itertools.product(conditions, ["fp32", "bf16", "int32", "*fp32"], ["fp32", "bf16"]):
        for a, b in PAIRS[::2]:
            assert_alike(tl.where, condition, value(x, a), value(y, b, seed=1))
    for x, number in itertools.product(DTYPES, PYTHON):
        assert_alike(tl.where, value("int1", (4,)), value(x, (4,)), number)
        assert_alike(tl.where, value("int1", (4,)), number, value(x, ()))


def pointers(memory: torch.Tensor, dtype: str, sizes: tuple[int, ...]) -> tl.tensor:
    width = max(1, DTYPES[dtype].primitive_bitwidth // 8)
    offsets = np.arange(math.prod(sizes), dtype=np.uint64).reshape(sizes or (1,)) * np.uint64(width)
    kind = kinds.kind_of(tl.pointer_type(DTYPES[dtype]), sizes)
    return tl.tensor(triton_interpreter.TensorHandle(offsets + np.uint64(memory.data_ptr()), kind.dtype), kind.type)


OPTIONS = [{}, {"cache_modifier": ".cg"}, {"eviction_policy": "evict_last"}, {"eviction_policy": "soon"}]
OPTIONS += [{"volatile": True}, {"boundary_check": (0,)}]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_loads(dtype):
    memory = torch.arange(64, dtype=torch.uint8)
    for sizes, of_mask in itertools.product(SIZES[:5:2], [None, *SIZES[::2]]):
        mask = None if of_mask is None else value("int1", of_mask)
        for other in [None, 0, -0.0, 0.1, 7, -1, math.inf, value("fp32", of_mask or ()), value("int32", (4,))]:
            given = pointers(memory, dtype, sizes), mask, other
            result = outcome(tl.load.__wrapped__, *given)
            if len(result) == 2 or result[4] == sizes:  # else Triton 3.9 reads beyond the mask
                assert_alike(tl.load, *given)
    for options in OPTIONS:
        assert_alike(tl.load, pointers(memory, dtype, (4,)), **options)
    assert_alike(tl.load, pointers(memory, dtype, (4,)), value("fp32", (4,)))
    assert_alike(tl.load, pointers(memory, dtype, (4,)), True, 0)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_stores(dtype):
    quick, thorough = tl.store, tl.store.__wrapped__

    def written(function, sizes, given, mask, options):
        memory = torch.zeros(64, dtype=torch.uint8)
        error = outcome(function, pointers(memory, dtype, sizes), given, mask, **options)
        return memory.tolist(), error

    for sizes, of_mask in itertools.product(SIZES[:5:2], [None, *SIZES[::2]]):
        mask = None if of_mask is None else value("int1", of_mask)
        values = [value(source, a) for source in ("fp32", "int64", dtype, "*fp32") for a in ((), sizes, (2, 4))]
        for given in [*values, 3, 0.5]:
            assert written(quick, sizes, given, mask, {}) == written(thorough, sizes, given, mask, {})
    for options in OPTIONS:
        assert written(quick, (4,), 1, None, options) == written(thorough, (4,), 1, None, options)


@triton.jit
def double_kernel(x_ptr, scale: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, scale * tl.load(x_ptr + offsets))


def test_memory_of_arguments_is_not_copied(monkeypatch):
    def copied(*_):
        raise AssertionError("memory was copied onto itself")

    x = torch.ones(4)
    monkeypatch.setattr(torch.UntypedStorage, "copy_", copied)
    double_kernel[(1,)](x[:2], scale=3.0, BLOCK=2)
    assert x.tolist() == [3.0, 3.0, 1.0, 1.0]


def plain(a, b, c=3, *, d=4):
    pass


@pytest.mark.parametrize("function", [lambda a, b=2: 0, lambda: 0, lambda a, *b: 0, lambda **a: 0, plain])
@pytest.mark.parametrize("positional", [(), (1,), (1, 2), (1, 2, 3)])
@pytest.mark.parametrize("named", [{}, {"b": 5}, {"a": 5}, {"d": 5}, {"a": 1, "b": 2}])
def test_arguments_are_bound_as_python_binds_them(function, positional, named):
    found = []
    for bind in (triton_interpreter.inspect.getcallargs, inspect.getcallargs):
        try:
            found.append(bind(function, *positional, **named))
        except TypeError as error:
            found.append(str(error))
    assert found[0] == found[1]


@triton.jit
def failing_kernel(x_ptr):
    tl.store(x_ptr, tl.load(x_ptr) + undefined)  # noqa: F821


def test_a_launch_leaves_the_language_as_it_was():
    """Here, too, where another one seems to be under way; and when it fails."""
    during = {owner: dict(vars(owner)) for owner in (tl, tl.core, tl.tensor)}
    x = torch.ones(4)
    double_kernel[(1,)](x, scale=3.0, BLOCK=4)
    double_kernel[(1,)](x, scale=3.0, BLOCK=4)
    with pytest.raises(triton_interpreter.InterpreterError):
        failing_kernel[(1,)](x)
    assert x.tolist() == [9.0] * 4
    for owner, attributes in during.items():
        assert dict(vars(owner)) == attributes
