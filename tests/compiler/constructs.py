"""Bodies of kernels: what the compiler refuses whatever the types are, what it refuses for its types, what it takes.

Both lists are held against the compiler by test_refused.py.
"""

from academy.compiler.rules import refused

HEAD = """import contextlib
import math

import numpy as np
import torch
import triton
import triton.language as tl

GLOBAL = 3
TABLE = [1, 2]
CONST = tl.constexpr(4)

@triton.jit
def helper(x, a=1.0):
    return x * a

@triton.jit
def helper_pair(x):
    return x, x + 1

def plain(x):
    return x * 2

@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr, FLAG: tl.constexpr = True, SHAPE: tl.constexpr = (2, 3)):
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    y = x
"""
TAIL = "    tl.store(y_ptr + offs, y, mask=mask)\n"


#: Refused by the compiler and by `refused`.
REFUSED = {
    "list_append": "parts = []\nparts.append(x)\ny = parts[0]",
    "dict": "d = {'a': x}\ny = d['a']",
    "dict_empty": "d = {}",
    "dict_call": "d = dict(a=x)",
    "set": "s = {1, 2}",
    "set_call": "s = set()",
    "list_call": "s = list((1,2))",
    "try": "try:\n    y = x + 1\nexcept ValueError:\n    y = x",
    "try_finally": "try:\n    y = x + 1\nfinally:\n    y = x",
    "raise": "if n > 5:\n    raise ValueError('no')",
    "with": "with contextlib.nullcontext():\n    y = x + 1",
    "lambda": "f = lambda v: v + 1\ny = f(x)",
    "list_comp": "parts = [x * i for i in range(3)]\ny = parts[0]",
    "tuple_gen": "parts = tuple(x * i for i in (1,2))\ny = parts[0]",
    "gen": "y = sum(x for i in range(3))",
    "set_comp": "p = {i for i in (1,2)}",
    "dict_comp": "p = {i: i for i in (1,2)}",
    "yield": "yield x",
    "class": "class A:\n    pass",
    "nested_def": "def f(v):\n    return v + 1\ny = f(x)",
    "global_read": "y = x * GLOBAL",
    "global_list": "y = x * TABLE[0]",
    "global_stmt": "global GLOBAL\nGLOBAL = 4",
    "nonlocal": "import os",
    "import_from": "from math import pi",
    "fstring": "s = f'{n}'",
    "string_method": "s = 'abc'.upper()",
    "chain_compare": "if 3 < n < 100:\n    y = x + 1",
    "chain_block": "y = tl.where(0 < x < 3, x, 0.0)",
    "torch_call": "y = torch.exp(x)",
    "torch_dtype": "y = x.to(torch.float16)",
    "math_call": "y = math.exp(x)",
    "while_else": "i = 0\nwhile i < n:\n    i += 1\nelse:\n    y = x",
    "for_else": "for i in range(3):\n    y += x\nelse:\n    y = x",
    "break": "for i in range(n):\n    if i > 3:\n        break\n    y += x",
    "continue": "for i in range(n):\n    if i > 3:\n        continue\n    y += x",
    "break_static": "for i in tl.static_range(4):\n    if i == 2:\n        break\n    y += x",
    "while_break": "i = 0\nwhile i < n:\n    i += 1\n    break",
    "return_in_loop": "for i in range(n):\n    return",
    "for_list": "for i in [1, 2]:\n    y += x",
    "for_tuple": "for i in (1, 2):\n    y += x * i",
    "for_shape": "for i in SHAPE:\n    y += x * i",
    "for_enumerate": "for i, v in enumerate((1,2)):\n    y += x",
    "for_zip": "for i, v in zip((1,2),(3,4)):\n    y += x",
    "for_block": "for v in x:\n    y += v",
    "range_rev": "for i in reversed(range(3)):\n    y += x",
    "print_plain": "print(x)",
    "starstar": "y = helper(x, **{'a': 2.0})",
    "starred_assign": "a, *b = (x, x, x)",
    "walrus": "if (k := n + 1) > 3:\n    y = x * k",
    "multi_assign": "a = b = x\ny = a",
    "del": "del y\ny = x",
    "setitem": "y[0] = 1.0",
    "ptr_index": "y = x_ptr[0]",
    "attr_assign": "x.foo = 1",
    "abs": "y = abs(x)",
    "sum": "y = sum(x)",
    "round": "y = round(x)",
    "pow": "y = x ** 2",
    "matmul": "y = x @ x",
    "int_tensor": "k = int(n)",
    "bool": "k = bool(n)",
    "str": "k = str(n)",
    "type": "k = type(x)",
    "range_var": "r = range(3)\nfor i in r:\n    y += x",
    "plain_call": "y = plain(x)",
    "sort": "y = sorted(x)",
    "format": "s = 'a{}'.format(n)",
    "percent": "s = 'a%d' % n",
    "in": "if BLOCK in (16, 64):\n    y = x",
    "in_str": "if FLAG in [True]:\n    y = x",
    "match": "match n:\n    case 3:\n        y = x",
    "complex": "k = 1j",
    "bytes": "k = b'a'",
    "uadd": "y = +x",
    "list_of_blocks_grows": "parts = [x]\nfor i in tl.static_range(3):\n    parts.append(x)",
    "numpy_call": "y = np.exp(x)",
    "torch_zeros": "y = torch.zeros_like(x)",
    "try_in_loop": "for i in range(n):\n    try:\n        y += x\n    except ZeroDivisionError:\n        y = x",
    "nested_in_if": "if n > 3:\n    table = {0: x}\n    y = table[0]",
}

#: Refused by the compiler because of the types, which the syntax doesn't show.
TYPED = {
    "if_block": "if x > 0:\n    y = x + 1",
    "ifexp_block": "y = x if x > 0 else -x",
    "while_block": "while x > 0:\n    y = x - 1",
    "index_int": "y = x[0]",
    "index_slice": "y = x[1:3]",
    "item": "k = x.item()",
    "bigint": "k = 2 ** 70",
    "floordiv_float": "y = x // 2.0",
    "shift_float": "y = x << 1",
    "retype": "acc = 0\nfor i in range(n):\n    acc += x\ny = acc",
    "retype_if": "if n > 3:\n    y = x.to(tl.float16)",
    "undefined_branch2": "if n > 3:\n    z = x + 1\ny = z",
    "arange_not_pow": "k = tl.arange(0, 48)",
    "arange_n": "k = tl.arange(0, n)",
    "zeros_np": "k = tl.zeros([48], tl.float32)",
}

#: Refused until a release of Triton, by both.
UNTIL = {"walrus": (3, 8), "chain_compare": (3, 9), "chain_block": (3, 9)}

#: Taken by both.
ACCEPTED = {
    "assert_block": "assert x > 0",
    "empty_list": "parts = []",
    "plain": "y = x * 2",
    "list_literal": "parts = [x, x]\ny = parts[0] + parts[1]",
    "list_comp_static": "parts = [x * i for i in (1, 2, 3)]\ny = parts[0]",
    "global_constexpr": "y = x * CONST",
    "fstring_assert": "tl.static_assert(BLOCK > 2, f'no {BLOCK}')",
    "string_const": "tl.static_assert(FLAG, 'x')",
    "and_block": "y = tl.where((x > 0) and mask, x, 0.0)",
    "or_block": "y = tl.where((x > 0) or mask, x, 0.0)",
    "not_block": "y = tl.where(not mask, x, 0.0)",
    "and_scalar": "if n > 3 and n < 100:\n    y = x + 1",
    "not_scalar": "if not n > 3:\n    y = x + 1",
    "ifexp_scalar": "y = x * (2 if n > 3 else 1)",
    "math_const": "y = x * math.pi",
    "early_return": "if n > 5:\n    return\ny = x",
    "static_range": "for i in tl.static_range(3):\n    y += x * i",
    "tl_range": "for i in tl.range(0, n, 2, num_stages=2):\n    y += x * i",
    "assert": "assert n > 3",
    "assert_msg": "assert n > 3, 'n'",
    "print": "print('x', x)",
    "device_print": "tl.device_print('x', x)",
    "default_arg": "y = helper(x)",
    "kw_arg": "y = helper(x, a=2.0)",
    "star_args": "t = (x, 2.0)\ny = helper(*t)",
    "tuple": "t = (x, x)\na, b = t\ny = a + b",
    "tuple_index": "t = (x, x)\ny = t[0] + t[1]",
    "tuple_concat": "t = (x,) + (x,)\ny = t[0]",
    "augassign": "y += x",
    "annassign": "z: tl.constexpr = 4\ny = x * z",
    "index_none": "y = tl.sum(x[:, None], axis=1)",
    "max": "y = max(x, 1.0)",
    "max_scalar": "y = x * max(n, 3)",
    "min": "y = min(x, 1.0)",
    "len": "y = x * len(SHAPE)",
    "pow_scalar": "y = x * (BLOCK ** 2)",
    "float": "y = x * float('inf')",
    "int": "y = x * int(3.5)",
    "isinstance": "if isinstance(x, tl.tensor):\n    y = x",
    "math_method": "y = x.exp()",
    "shape": "y = x * x.shape[0]",
    "numel": "y = x * x.numel",
    "pass": "pass",
    "ellipsis": "...",
    "docstring": "'a string'\ny = x",
    "is_none": "if n is None:\n    y = x",
    "is_not": "if x_ptr is not None:\n    y = x",
    "floordiv": "k = n // 3\ny = x * k",
    "mod_float": "y = x % 2.0",
    "divide": "y = x / 2",
    "invert": "y = tl.where(~mask, x, 0.0)",
    "neg": "y = -x",
    "getattr": "k = getattr(x, 'dtype')",
    "hasattr": "k = hasattr(x, 'dtype')",
    "undefined_branch": "if n > 3:\n    z = x + 1\nelse:\n    z = x\ny = z",
    "constexpr_branch": "if FLAG:\n    y = x + 1\nelse:\n    raise ValueError('not for this one')",
    "constexpr_only_branch": "if BLOCK == 32:\n    y = []\n    y.append(x)",
    "constexpr_local": "HALF: tl.constexpr = BLOCK // 2\ny = x * HALF",
    "fstring_constexpr": "tl.static_assert(BLOCK > 2, f'{BLOCK} is too small')",
    "while_scalar": "i = 0\nwhile i < n:\n    y += x\n    i += 1",
    "elif": "if n > 3:\n    y = x + 1\nelif n > 2:\n    y = x + 2\nelse:\n    y = x + 3",
    "nested_loops": "for i in range(n):\n    for j in range(0, n, 2):\n        y += x * j",
    "tuple_state": "m, s = helper_pair(x)\ny = m + s",
    "tuple_comprehension": "factors = (2, 3)\nparts = [x * i for i in factors]\ny = parts[1]",
    "static_assert": "tl.static_assert(BLOCK >= 16)",
    "dtype_of": "y = (x * 2).to(y_ptr.dtype.element_ty)",
    "where": "y = tl.where((x > 0) & mask, x, -x)",
    "reduce": "y = x - tl.sum(x, axis=0) / n",
}


for name, release in UNTIL.items():
    if refused.release() >= release:
        ACCEPTED[name] = REFUSED.pop(name)


def text(body: str) -> str:
    """A file with a kernel of this body between a load and a store."""
    return HEAD + "".join(f"    {line}\n" for line in body.split("\n")) + TAIL


#: The line of the body's first statement.
FIRST = HEAD.count("\n") + 1
