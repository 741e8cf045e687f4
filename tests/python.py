"""`run`: Python in a process of its own, like `subprocess.run([sys.executable, …])`, with PyTorch imported already.

Importing it takes a second and a half, and about a hundred processes of these tests do little else. They are forks of
one that has imported PyTorch, and nothing of this project nor of Triton. What it has made none searches for cycles, nor
at its end, which took half a second; what is new is searched rarely, which took a tenth of the time of those that
compile. What is about how a process starts or is stopped starts one itself.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from academy.book.layout import ROOT
from academy.files import cache, dependencies

#: Reads jobs, answers with the exit status of each. A fork leaves the loop, does its job, and ends as any Python does.
_SERVER = """
import gc, json, os, runpy, sys, types
import torch
gc.freeze(), gc.set_threshold(20_000, 20, 100)
for line in sys.stdin:
    job = json.loads(line)
    if not (child := os.fork()):
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
for number, name in enumerate([os.devnull, job["out"], job["err"]]):
    os.dup2(os.open(name, os.O_RDWR), number)
os.environ.clear(), os.environ.update(job["env"]), os.chdir(job["cwd"])
first, *others = job["arguments"]
folder = {"-c": "", "-m": os.getcwd()}.get(first, os.path.dirname(os.path.realpath(first)))
sys.path[:1] = [folder, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
sys.argv = ["-c", *others[1:]] if first == "-c" else others if first == "-m" else [first, *others]
if first == "-c":
    sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(others[0], "<string>", "exec"), vars(sys.modules["__main__"]))
elif first == "-m":
    runpy.run_module(others[0], run_name="__main__", alter_sys=True)
else:
    runpy.run_path(first, run_name="__main__")
"""
_server: subprocess.Popen | None = None


def run(
    arguments: Sequence[str | Path],
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 300,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """`python arguments`, which are a script, `-m` and a module, or `-c` and a text, and what comes after it.

    Raises:
        subprocess.TimeoutExpired, CalledProcessError: as `subprocess.run`.
    """
    global _server
    if _server is None or _server.poll() is not None:
        own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
        pipes: dict = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        _server = subprocess.Popen([sys.executable, "-c", _SERVER], env=own, text=True, **pipes)
    assert _server.stdin and _server.stdout
    arguments = [str(each) for each in arguments]
    with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
        job = dict(arguments=arguments, env=dict(os.environ if env is None else env), out=out.name, err=err.name)
        _server.stdin.write(json.dumps(job | {"cwd": str(cwd or Path.cwd())}) + "\n")
        _server.stdin.flush()
        try:
            with selectors.DefaultSelector() as waiting:
                waiting.register(_server.stdout, selectors.EVENT_READ)
                if not waiting.select(timeout):
                    raise subprocess.TimeoutExpired(arguments, timeout, out.read(), err.read())
            status = int(_server.stdout.readline())
        except BaseException:  # a test's own time limit, say: the answer would be taken for that of the next job
            os.killpg(_server.pid, signal.SIGKILL)
            _server.communicate()
            raise
        done = subprocess.CompletedProcess(arguments, status, out.read(), err.read())
    if check:
        done.check_returncode()
    return done


def told(script: Path, *arguments: str, kept: bool = False, timeout: float = 500) -> Any:
    """What a script prints last, read as JSON.

    kept: until the script, a file of this project that it imports or names, Python, PyTorch or Triton is another; for
    one that compiles for seconds.
    """

    def printed() -> Any:
        done = run([script, *arguments], timeout=timeout)
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout.splitlines()[-1])

    if not kept:
        return printed()
    key = [script.name, *arguments, sys.version, *map(metadata.version, ("torch", "triton")), *_made_of(script)]
    with open(script) as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # of two processes that want it, one waits
        return cache.kept("told", key, printed)


def _made_of(script: Path) -> list[str]:
    """The texts of a script and of the files of this project that it imports, directly or not, or names."""
    texts: dict[Path, str] = {}
    waiting = [script, *(ROOT / name for name in re.findall(r'"([\w./-]+\.\w+)"', script.read_text("utf-8")))]
    while waiting:
        if (file := waiting.pop()) in texts or not file.is_file():
            continue
        texts[file] = file.read_text("utf-8")
        for name in dependencies.imported(texts[file], ".".join(file.relative_to(ROOT).parent.parts)):
            module = ROOT.joinpath(*name.split("."))
            waiting += [module.with_suffix(".py"), *(folder / "__init__.py" for folder in (module, *module.parents))]
    return [texts[file] for file in sorted(texts)]
