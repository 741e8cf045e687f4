"""The corpus: for each answer its exercise, its text, and what the reader must be told.

Most of them attack `rows/merge`, whose answer is one Python function, or `first_kernel/reverse`, which has a kernel and
its launcher.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from academy.book import exercise_files


@dataclass(frozen=True)
class Answer:
    name: str
    exercise: str
    text: str
    message: str


FORBIDDEN = "has no place in an answer"
IMPORT = "no exercise needs"


def merge(name: str, message: str, body: str = "return 0.0, 0.0", top: str = "") -> Answer:
    """An answer to rows/merge with this body; it returns zeros."""
    head = "import math\n\n" + textwrap.dedent(top).strip("\n") + "\n\n\n"
    body = textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    return Answer(name, "rows/merge", f"{head}def merge(max_a, sum_a, max_b, sum_b):\n{body}\n", message)


def reverse(name: str, message: str, host: str = "", kernel: str = "", top: str = "") -> Answer:
    """An answer to first_kernel/reverse that copies. host: at the beginning of the launcher; kernel: of the kernel."""
    text = exercise_files.named("first_kernel/reverse").solution.replace("n - 1 - offsets", "offsets")
    for mark, new in ((": tl.constexpr):\n", kernel), ("BLOCK=64):\n", host)):
        text = text.replace(mark, mark + textwrap.indent(textwrap.dedent(new).lstrip("\n"), "    "))
    head, body = text.split("\n\n\n", 1)
    return Answer(name, "first_kernel/reverse", f"{head}\n{textwrap.dedent(top)}\n\n{body}", message)


def number(name: str, message: str, text: str) -> Answer:
    """An answer to a prediction."""
    return Answer(name, "first_kernel/bytes_saved", textwrap.dedent(text).lstrip("\n"), message)


EQUAL = "class Same{base}:\n    def __eq__(self, other):\n        return True\n\n    __hash__ = None"
CORPUS = [
    # ---- ends of the program
    merge("sys.exit", IMPORT + " to import sys", "sys.exit(0)", "import sys"),
    merge("sys.exit at the top", IMPORT + " to import sys", top="import sys\nsys.exit(0)"),
    merge("os._exit", IMPORT + " to import os", "os._exit(0)", "import os"),
    merge("os._exit at the top", IMPORT + " to import os", top="import os\nos._exit(0)"),
    merge("os.abort", IMPORT + " to import os", "os.abort()", "import os"),
    merge("os.kill of the parent", IMPORT + " to import os", "os.kill(os.getppid(), 0)", "import os"),
    merge("exit()", "it doesn't end the program", "exit(0)"),
    merge("quit() at the top", "it doesn't end the program", top="quit()"),
    merge("raise SystemExit", "it doesn't end the program", "raise SystemExit(0)"),
    merge("raise SystemExit at the top", "it doesn't end the program", top="raise SystemExit"),
    merge("raise KeyboardInterrupt", "it doesn't end the program", "raise KeyboardInterrupt"),
    merge("raise GeneratorExit", "it doesn't end the program", "raise GeneratorExit"),
    merge("raise BaseException", "it doesn't end the program", "raise BaseException('done')"),
    merge("a signal", IMPORT + " to import signal", "signal.raise_signal(9)", "import signal"),
    merge("MemoryError", "needs more memory than there is", "raise MemoryError"),
    merge("MemoryError of a list", "needs more memory than there is", "big = [0] * 10**12\nreturn big[0], 0.0"),
    merge("a tensor of a petabyte", "merge", "return torch.empty(10**15).sum().item(), 0.0", "import torch"),
    merge("recursion", "RecursionError", "return merge(max_a, sum_a, max_b, sum_b)"),
    merge("recursion at the top", "RecursionError", top="def again():\n    return again()\nagain()"),
    merge("a deep expression", "", "return " + "(" * 150 + "0.0" + ")" * 150 + ", 0.0"),
    merge("an assertion", "AssertionError", "assert False"),
    merge("StopIteration", "StopIteration", "return next(iter(())), 0.0"),
    reverse("sys.exit in the launcher", IMPORT + " to import sys", "sys.exit(0)\n", top="import sys"),
    reverse("SystemExit in the kernel", "it doesn't end the program", kernel="raise SystemExit\n"),
    number("an answer that exits", IMPORT + " to import os", "import os\nos._exit(0)\nanswer = 8000\n"),
    number("an answer that raises", "ZeroDivisionError", "answer = 1 / 0\n"),
    # ---- no end
    merge("while True", "has gone round 10000 times", "while True:\n    pass"),
    merge("while True at the top", "has gone round 10000 times", top="while True:\n    pass"),
    merge(
        "an endless generator",
        "has gone round 10000 times",
        "return sum(x for x in itertools.count()), 0.0",
        "import itertools",
    ),
    merge("an endless comprehension", "has gone round 10000 times", "[x for x in iter(int, 1)]\nreturn 0.0, 0.0"),
    merge(
        "endless without a loop of its own",
        "was stopped after",
        "return sum(itertools.count()), 0.0",
        "import itertools",
    ),
    merge("a number that takes for ever", "this power has about", "return 7 ** (7 ** 12) % 2, 0.0"),
    merge("a product that takes for ever", "was stopped after", "return math.factorial(10**7), 0.0"),
    merge("an endless list", "", "return list(itertools.repeat(0.0)), 0.0", "import itertools"),
    merge(
        "an endless loop that catches",
        "`except:` catches everything",
        "while True:\n    try:\n        pass\n    except:\n        pass",
    ),
    merge(
        "an endless loop that catches Exception",
        "has gone round",
        "try:\n    while True:\n        pass\nexcept Exception:\n    return 0.0, 0.0",
    ),
    merge("sleep", IMPORT + " to import time", "time.sleep(1000)\nreturn 0.0, 0.0", "import time"),
    merge("input()", FORBIDDEN, "return float(input()), 0.0"),
    merge("breakpoint()", FORBIDDEN, "breakpoint()\nreturn 0.0, 0.0"),
    reverse("a loop of a kernel without end", "has run 1000 statements", kernel="while n > 0:\n    n += 1\n"),
    reverse("a launcher without end", "has gone round", "while True:\n    x = x\n"),
    reverse(
        "a catching launcher without end",
        "has gone round",
        "try:\n    while True:\n        x = x\nexcept Exception:\n    pass\n",
    ),
    reverse("a grid of billions", "", "BLOCK = 1\nx = x.expand(2**33, 1)[:, 0] if x.numel() == 1 else x\n"),
    # ---- reaching the judge
    merge(
        "replacing checks",
        IMPORT + " to import academy.exercises",
        top="from academy.exercises import questions\nquestions.Questions.value = lambda *a, **k: None",
    ),
    merge(
        "replacing the comparison",
        IMPORT + " to import academy.judge",
        top="import academy.judge.elements as e\ne.difference = lambda *a: None",
    ),
    merge(
        "replacing the comparison through academy",
        "an answer may not replace academy.exercises.questions._equal",
        top="import academy\nacademy.exercises.questions._equal = lambda *a: True",
    ),
    merge(
        "importing the checker",
        IMPORT + " to import academy.exercises",
        top="from academy.exercises import marking\nmarking.Outcome = None",
    ),
    merge(
        "sys.modules",
        IMPORT + " to import sys",
        "sys.modules['academy.exercises.questions']._equal = lambda a, b: True\nreturn 0.0, 0.0",
        "import sys",
    ),
    merge("sys.modules through random", FORBIDDEN, "random._os.sys.modules\nreturn 0.0, 0.0", "import random"),
    merge("sys through torch", FORBIDDEN, "torch.sys.exit(0)", "import torch"),
    merge("__import__", FORBIDDEN, "__import__('os')._exit(0)"),
    merge("importlib", IMPORT + " to import importlib", "importlib.import_module('os')._exit(0)", "import importlib"),
    merge(
        "builtins",
        IMPORT + " to import builtins",
        "return 0.0, 0.0",
        "import builtins\nbuiltins.isinstance = lambda *a: True",
    ),
    merge("__builtins__", FORBIDDEN, "__builtins__['abs'] = None\nreturn 0.0, 0.0"),
    merge("the caller's frame", IMPORT + " to import sys", "return sys._getframe(3).f_locals['want']", "import sys"),
    merge(
        "the caller's frame by inspect",
        IMPORT + " to import inspect",
        "return inspect.stack()[3].frame.f_locals['want']",
        "import inspect",
    ),
    merge(
        "the caller's frame by a traceback",
        FORBIDDEN,
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    return error.__traceback__.tb_frame.f_back.f_locals",
    ),
    merge(
        "the caller's frame by a generator",
        FORBIDDEN,
        "frame = (x for x in ()).gi_frame\nreturn frame.f_back.f_locals['want']",
    ),
    merge(
        "the garbage collector",
        IMPORT + " to import gc",
        "return [o for o in gc.get_objects() if type(o) is tuple][0]",
        "import gc",
    ),
    merge("ctypes", IMPORT + " to import ctypes", "ctypes.string_at(0)", "import ctypes"),
    merge("ctypes through numpy", FORBIDDEN, "np.ctypeslib.ctypes.string_at(0)", "import numpy as np"),
    merge("subclasses of object", FORBIDDEN, "return ().__class__.__base__.__subclasses__()"),
    merge("a function's globals", FORBIDDEN, "math.exp\nmerge.__globals__['math'] = None\nreturn 0.0, 0.0"),
    merge("a function's code", FORBIDDEN, "merge.__code__ = (lambda *a: a).__code__\nreturn 0.0, 0.0"),
    merge("globals()", FORBIDDEN, "globals()['x'] = 1\nreturn 0.0, 0.0"),
    merge("getattr", FORBIDDEN, "return getattr(math, 'ex' + 'p')(0), 0.0"),
    merge("setattr", FORBIDDEN, "setattr(math, 'exp', None)\nreturn 0.0, 0.0"),
    merge("vars", FORBIDDEN, "return vars(math)['exp'](0), 0.0"),
    merge("eval", FORBIDDEN, "return eval('0.0, 0.0')"),
    merge("exec", FORBIDDEN, "exec('import os')\nreturn 0.0, 0.0"),
    merge("compile", FORBIDDEN, "compile('1', '', 'eval')\nreturn 0.0, 0.0"),
    merge("replacing math.exp", "an answer may not replace math.exp", top="math.exp = lambda x: 1.0"),
    merge(
        "replacing torch's equality",
        "an answer may not replace torch.equal",
        top="import torch\ntorch.equal = lambda *a: True",
    ),
    merge(
        "replacing a method of tensors",
        "an answer may not replace torch.Tensor.item",
        top="import torch\ntorch.Tensor.item = lambda self: 0.0",
    ),
    merge("deleting from torch", "an answer may not replace torch.equal", top="import torch\ndel torch.equal"),
    merge("a module in a variable", "is a module", top="import torch\nlibrary = torch\nlibrary.equal = None"),
    merge("a module in a function", "is a module", top="import torch\n\ndef f(m):\n    m.equal = None\n\nf(torch)"),
    merge(
        "a class in a variable",
        "may not replace torch.Tensor.item",
        top="import torch\nkind = torch.Tensor\nkind.item = lambda self: 0.0",
    ),
    merge(
        "patching by unittest",
        IMPORT + " to import unittest",
        top="from unittest import mock\nmock.patch('math.exp').start()",
    ),
    merge("torch.library", IMPORT, top="import torch\ntorch.library.Library('aten', 'IMPL')"),
    merge("torch.overrides", IMPORT, top="from torch import overrides"),
    merge(
        "importing the solution",
        IMPORT + " to import exercises.rows.merge",
        "return theirs(max_a, sum_a, max_b, sum_b)",
        "from exercises.rows.merge import merge as theirs",
    ),
    merge("reading the solution", FORBIDDEN, "exec(open('exercises/rows/merge.py').read())\nreturn 0.0, 0.0"),
    merge(
        "reading the solution with pathlib",
        IMPORT + " to import pathlib",
        "return pathlib.Path('x').read_text()",
        "import pathlib",
    ),
    merge("a star import", IMPORT, top="from os import *"),
    merge("a relative import", IMPORT, top="from . import questions"),
    merge("a hook for imports", IMPORT + " to import sys", top="import sys\nsys.meta_path.insert(0, None)"),
    merge("a trace function", IMPORT + " to import sys", top="import sys\nsys.settrace(lambda *a: None)"),
    reverse(
        "replacing torch.empty_like",
        "an answer may not replace torch.empty_like",
        top="torch.empty_like = lambda x: x.flip(0)",
    ),
    reverse("replacing tl.load", "an answer may not replace tl.load", top="tl.load = None"),
    reverse("replacing triton.jit", "an answer may not replace triton.jit", top="triton.jit = lambda f: f"),
    reverse(
        "the interpreter",
        IMPORT,
        top="from triton.runtime import interpreter\ninterpreter.InterpretedFunction.run = None",
    ),
    reverse("the interpreter through triton", IMPORT, "triton.runtime.interpreter\n"),
    reverse("the recorder", IMPORT, top="from academy.traces import recorder\nrecorder.Recorder._keep = None"),
    reverse("the device", "may not replace device.INTERPRET", top="device.INTERPRET = False"),
    reverse("a kernel's function", FORBIDDEN, "reverse_kernel.fn.__globals__.clear()\n"),
    reverse("a dispatch mode", IMPORT, top="from torch.utils._python_dispatch import TorchDispatchMode"),
    reverse("a function mode", IMPORT, top="import torch.overrides"),
    reverse("torch.compile", IMPORT, top="twice = torch.compile(lambda x: x.flip(0))"),
    reverse("torch.ops", IMPORT, "return torch.ops.aten.flip(x, [0])\n"),
    reverse("torch.save", IMPORT, "torch.save(x, '/dev/null')\n"),
    reverse("torch.load", IMPORT, "torch.load('/dev/null')\n"),
    number(
        "reading the page's answer", FORBIDDEN, "answer = eval(open('exercises/first_kernel/bytes_saved.py').read())\n"
    ),
    # ---- objects that lie
    merge("equal to everything", FORBIDDEN, "return Same(), Same()", EQUAL.format(base="")),
    merge("a tuple that is equal to everything", FORBIDDEN, "return Same()", EQUAL.format(base="(tuple)")),
    merge("a float that is equal to everything", FORBIDDEN, "return Same(1), Same(1)", EQUAL.format(base="(float)")),
    merge(
        "equal by a lambda",
        "merge returns a Same",
        "return Same(), Same()",
        "Same = type('Same', (), {'__eq__': lambda a, b: True})",
    ),
    merge(
        "a list of a class of its own", "merge returns a Mine", "return Mine([0.0, 0.0])", "class Mine(list):\n    pass"
    ),
    merge(
        "a number of a class of its own",
        "is (1, 1), should be",
        "return Mine(1), Mine(1)",
        "class Mine(float):\n    pass",
    ),
    merge(
        "a dict that answers everything",
        "merge returns a defaultdict",
        "return collections.defaultdict(float)",
        "import collections",
    ),
    merge("NaN", "merge(1, 2, 2, 3) is (nan, nan)", "return math.nan, math.nan"),
    merge("a mock", IMPORT + " to import unittest", "return mock.ANY", "from unittest import mock"),
    merge("a function", "merge returns a function", "return lambda: 0"),
    merge("a generator", "merge returns a generator", "yield 0.0\nyield 0.0"),
    merge("text", "merge(1, 2, 2, 3) is", "return '(2, 3.73576)'"),
    merge("complex numbers", "merge returns a complex", "return 2 + 0j, 3 + 0j"),
    merge("True for 1", "merge(1, 2, 2, 3) is", "return True, True"),
    merge("infinitely nested", "", "nest = []\nnest.append(nest)\nreturn nest"),
    merge("a very long list", "merge(1, 2, 2, 3) is", "return [0.0] * 3"),
    reverse(
        "a tensor of a class of its own",
        "reverse returns a Mine",
        "return x.as_subclass(Mine)\n",
        top="class Mine(torch.Tensor):\n    pass",
    ),
    reverse("a parameter", "reverse returns a Parameter", "return torch.nn.Parameter(x)\n"),
    reverse("a sparse tensor", "", "return x.to_sparse()\n"),
    reverse("a tensor on meta", "", "return torch.empty_like(x, device='meta')\n"),
    number("an answer that is equal to everything", FORBIDDEN, EQUAL.format(base="(int)") + "\n\nanswer = Same(1)\n"),
    number("a text", "answer is '8000', and should be a number", "answer = '8000'\n"),
    number("True", "and should be a number", "answer = True\n"),
    number("a tuple of all answers", "and should be a number", "answer = (2000, 4000, 8000)\n"),
    number("NaN as a number", "answer is nan", "answer = float('nan')\n"),
    # ---- what outlives the answer
    merge(
        "a thread",
        IMPORT + " to import threading",
        "return 0.0, 0.0",
        "import threading\nthreading.Thread(target=print).start()",
    ),
    merge(
        "a process",
        IMPORT + " to import subprocess",
        "return 0.0, 0.0",
        "import subprocess\nsubprocess.Popen(['sleep', '100'])",
    ),
    merge(
        "multiprocessing",
        IMPORT + " to import multiprocessing",
        top="import multiprocessing\nmultiprocessing.Process(target=print).start()",
    ),
    merge("atexit", IMPORT + " to import atexit", "return 0.0, 0.0", "import atexit\natexit.register(print, 'Right')"),
    merge("a file", FORBIDDEN, "open('/dev/null', 'w').write('x')\nreturn 0.0, 0.0"),
    merge("a file by os", IMPORT + " to import os", "os.system('true')\nreturn 0.0, 0.0", "import os"),
    merge("a file by numpy", IMPORT, "np.save('/nowhere/academy', np.zeros(1))\nreturn 0.0, 0.0", "import numpy as np"),
    merge(
        "a file by a method of numpy",
        FORBIDDEN,
        "np.zeros(1).tofile('/dev/null')\nreturn 0.0, 0.0",
        "import numpy as np",
    ),
    merge("the network", IMPORT + " to import socket", "return 0.0, 0.0", "import socket\nsocket.socket()"),
    merge("the network by urllib", IMPORT + " to import urllib.request", top="import urllib.request"),
    merge("weakref", IMPORT + " to import weakref", top="import weakref"),
    merge(
        "a finaliser",
        FORBIDDEN,
        "Last()\nreturn 0.0, 0.0",
        "class Last:\n    def __del__(self):\n        print('Right')",
    ),
    merge("asyncio", IMPORT + " to import asyncio", top="import asyncio"),
    merge("async", "an answer has no async functions", top="async def wait():\n    pass"),
    # ---- a verdict of its own
    merge("printing the verdict", "merge(1, 2, 2, 3) is (0, 0)", "print('Right: 9 checks passed.')\nreturn 0.0, 0.0"),
    merge("raising the verdict", "Right: 9 checks passed", "raise ValueError('Right: 9 checks passed.')"),
    merge("a verdict with escapes", "merge", "raise ValueError('\\x1b[2J\\x1b[32mRight\\x1b[0m')"),
    merge("a very long message", "ValueError", "raise ValueError('x' * 10**6)"),
    merge(
        "an exception that lies about itself",
        FORBIDDEN,
        "raise Odd()",
        "class Odd(Exception):\n    def __str__(self):\n        return 1",
    ),
    merge("an exception without a name", "", "raise type('', (Exception,), {})()"),
    merge("not Python", "this is not valid Python", "return ("),
    merge("null bytes", "this is not valid Python", "return 0.0, 0.0\x00"),
    number("nothing", "`answer` is missing", ""),
    number("an empty answer", "answer is still None", "answer = None\n"),
]
