"""Sanitizers: what their tools print is read, a call under one ends in time, and the judge says what it left out.

The tools need a card. Here a stand-in takes compute-sanitizer's place, and the calls run in the interpreter; the texts
are those that the tools print.
"""

import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from academy.runtime import device
from academy import cli
from academy.compiler import instrumented
from academy.judge import sanitized, sanitizers, session, subject
from academy.judge.findings import Remark, Skipped, Wrong
from academy.judge.trials import ON_A_CARD, Plan
from tests.judge.test_faults import KERNELS

ROWS = KERNELS / "rows.py"
#: What CUDA prints of an assertion (CUDA C++ Programming Guide, "Assertion"), with the words and the empty name of
#: `assert_msg` in triton/experimental/gsan/src/GSanLibrary.cu, 3.9.0; then ConSan's, of test_consan.py in Triton.
GSAN = "/home/me/kernel.py:9: : block: [3,0,0], thread: [32,0,0] Assertion `Read after write race detected` failed.\n"
CONSAN = (
    "/home/me/kernel.py:21: kernel: block: [0,1,2], thread: [0,0,0] Assertion `Buffer being accessed has outstanding "
    "writes.` failed.\n"
)
#: Of triton-viz issue 158: a Triton kernel, under a version that gives the name of its file alone.
MEMCHECK = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 16 bytes
=========     at matmul_kernel+0xec0 in matmul_triton2.py:43
=========     by thread (18,0,0) in block (7,0,0)
=========     Access to 0x74505bccca10 is out of bounds
=========     and is 17 bytes after the nearest allocation at 0x74505bccc800 of size 512 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: cuLaunchKernel in libcuda.so.1
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call.
========= ERROR SUMMARY: 2 errors
"""
#: Of sglang issue 2599: an older version, with the path, the kernel behind it.
OLDER = """========= Invalid __global__ read of size 16 bytes
=========     at 0xda0 in /opt/sglang/fused_moe.py:175:fused_moe_kernel
=========     by thread (96,0,0) in block (44,0,0)
=========     Address 0x763995f9f000 is out of bounds
========= ERROR SUMMARY: 1 error
"""
#: Of the manual of compute-sanitizer ("Example Use of Initcheck", "Understanding Racecheck Analysis Reports"), with the
#: names of a Triton kernel and its file.
INITCHECK = """========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at add_kernel+0x70 in kernel.py:41
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000fc
========= ERROR SUMMARY: 1 error
"""
RACECHECK = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at reverse_kernel+0xf0 in kernel.py:40
=========     and Read access at reverse_kernel+0x280 in kernel.py:46 [4 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
SYNCCHECK = """========= COMPUTE-SANITIZER
========= Barrier error detected. Missing wait.
=========     at kernel+0xbb10 in kernel.py:98
=========     by thread (128,0,0) in block (0,0,0)
========= ERROR SUMMARY: 1 error
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"


@pytest.mark.parametrize(
    "text, message, file, line, program",
    [
        (GSAN, "Read after write race detected", "/home/me/kernel.py", 9, "3, 0, 0"),
        (CONSAN, "Buffer being accessed has outstanding writes", "/home/me/kernel.py", 21, "0, 1, 2"),
        (MEMCHECK, "Invalid __global__ read of size 16 bytes, 17 bytes after an allocation of 512 bytes",
         "matmul_triton2.py", 43, "7, 0, 0"),
        (OLDER, "Invalid __global__ read of size 16 bytes", "/opt/sglang/fused_moe.py", 175, "44, 0, 0"),
        (INITCHECK, "Uninitialized __global__ memory read of size 4 bytes", "kernel.py", 41, "1, 0, 0"),
        (RACECHECK, "Race reported between Write access", "kernel.py", 40, ""),
        (SYNCCHECK, "Barrier error detected. Missing wait", "kernel.py", 98, "0, 0, 0"),
    ],
)  # fmt: skip
def test_what_a_tool_prints_is_read(text, message, file, line, program):
    (found,) = sanitizers.reports(f"loading…\n{text}the program's own words\n")
    assert (found.message, found.file, found.line, found.program) == (message, file, line, program)


def test_a_clean_run_has_no_reports():
    assert sanitizers.reports(CLEAN + "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n") == []


def test_the_element_is_named_where_the_memory_is_an_argument_s():
    (found,) = sanitizers.reports(MEMCHECK)
    assert "element 132 of the memory of x), in program (7, 0, 0)" in found.told({0x74505BCCC800: ("x", 4)})
    assert "element" not in found.told({0x74505BCCC000: ("x", 4)})


@pytest.mark.parametrize(
    "name, text, ended, state, message, error, said",
    [
        ("gsan", GSAN, True, "failed", "CUDA error", Wrong, "gsan: Read after write race detected, in program (3"),
        ("gsan", GSAN, False, "", "", Wrong, "Read after write"),  # found before it hung
        ("fpsan", "", True, "wrong", "one warp gives another result", Wrong, "fpsan: one warp gives"),
        ("gsan", "", False, "", "", Skipped, "did not end within 5 s"),
        ("gsan", "out of memory\n", True, "", "", Skipped, "status 9: out of memory"),
        ("gsan", "", True, "failed", "OutOfMemoryError: no room", Skipped, "OutOfMemoryError: no room"),
        ("memcheck", "", True, "right", "", Skipped, "gave no summary"),
        ("memcheck", CLEAN.replace("0 errors", "1 error") + "========= Invalid __global__ read of size 4 bytes\n"
         "=========     at vectorized_elementwise_kernel+0x70\n", True, "right", "", Remark, "names no line"),
        ("memcheck", CLEAN, True, "right", "", None, ""),
        ("gsan", "", True, "right", "", None, ""),
    ],
)  # fmt: skip
def test_what_a_run_means(name, text, ended, state, message, error, said):
    def judge():
        sanitizers._judge(name, text, 9, ended, 5.0, "/home/me/kernel.py", state, message, {})

    if error is None:
        judge()
        return
    with pytest.raises(error) as found:
        judge()
    assert said in str(found.value)
    if error is Wrong and text:
        assert found.value.line == 9


def test_a_line_of_another_file_is_named_with_it():
    with pytest.raises(Wrong) as found:
        sanitizers._judge("gsan", GSAN, 0, True, 5.0, "/home/me/other.py", "failed", "", {})
    assert found.value.line is None and "(/home/me/kernel.py:9)" in str(found.value)


def test_files_of_one_name_are_told_apart_by_the_kernel(tmp_path):
    for folder, kernel in (("fast", "few_rows_kernel"), ("gluon", "reverse_kernel")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "kernel.py").write_text(f"def {kernel}():\n    pass\n")
    for folder, line in (("fast", None), ("gluon", 40)):
        with pytest.raises(Wrong) as found:
            sanitizers._judge("racecheck", RACECHECK, 0, True, 5.0, str(tmp_path / folder / "kernel.py"), "", "", {})
        assert found.value.line == line and ("(kernel.py:40)" in str(found.value)) is (line is None)


def test_a_run_ends_in_time_and_takes_what_it_started_along(tmp_path):
    kept = tmp_path / "pid"
    script = f"import subprocess; p = subprocess.Popen(['sleep', '60']); open({str(kept)!r}, 'w').write(str(p.pid))"
    script += "; p.wait()"
    start = time.monotonic()
    text, _, ended = sanitizers._run([sys.executable, "-c", script], {}, 3.0)
    assert not ended and text == "" and time.monotonic() - start < 20
    state = Path(f"/proc/{kept.read_text()}/stat")
    for _ in range(50):  # until it is gone, or a zombie that nobody has asked for yet
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    raise AssertionError("the process that it has started is still there")


def test_without_a_card_the_report_says_what_was_left_out(monkeypatch):
    monkeypatch.setattr(device, "INTERPRET", True)
    missing = sanitizers.missing([*ON_A_CARD, "sizes"])
    assert list(missing) == list(ON_A_CARD)
    assert sanitizers.in_words(missing) == f"not tried: {', '.join(ON_A_CARD)} (no NVIDIA GPU runs the kernels here)"


def test_with_a_card_versions_and_tools_are_asked_for(monkeypatch):
    monkeypatch.setattr(device, "INTERPRET", False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(sanitizers, "_refused", lambda: "compute-sanitizer is not installed")
    monkeypatch.setattr(sanitizers.triton, "__version__", "3.7.1")
    said = sanitizers.in_words(sanitizers.missing(["gsan", "memcheck"]))
    assert said == (
        "not tried: gsan (Triton's is used from 3.9 on, and this is 3.7.1); "
        "memcheck (compute-sanitizer is not installed)"
    )
    monkeypatch.setattr(sanitizers.triton, "__version__", "3.10.0")
    assert list(sanitizers.missing(list(ON_A_CARD))) == list(ON_A_CARD[3:])


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """In place of compute-sanitizer: says what it is told to, and runs the rest of its command."""

    def write(text):
        (tmp_path / "said.txt").write_text(text)
        tool = tmp_path / "compute-sanitizer"
        tool.write_text(
            f'#!/bin/sh\nwhile [ "$1" != {sys.executable} ]; do shift; done\n"$@"; cat {tmp_path}/said.txt\n'
        )
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return write


def sanitized_rows(name="memcheck"):
    (one,) = subject.from_file(ROWS, ["softmax"])
    trial, *_ = Plan(one, interpreted=False).trials([name])
    sanitizers.check(name, one.origin, str(ROWS), [trial], 200.0)


@pytest.mark.skipif(not device.INTERPRET, reason="the stand-in's calls run in the interpreter")
def test_a_call_runs_in_a_process_under_the_tool(stand_in):
    stand_in(CLEAN)
    sanitized_rows()
    stand_in(INITCHECK.replace("add_kernel", "softmax_kernel").replace("kernel.py:41", "rows.py:12"))
    with pytest.raises(Wrong, match="Uninitialized __global__ memory read") as found:
        sanitized_rows()
    assert found.value.line == 12


def test_what_only_this_process_has_is_not_tried():
    with pytest.raises(Skipped, match="academy judge takes a file"):
        sanitizers.check("gsan", None, "", [])


def test_trials_on_a_card_have_tensors_of_their_own():
    (one,) = subject.from_file(ROWS, ["softmax"])
    assert Plan(one, interpreted=True).trials(list(ON_A_CARD)) == []
    for name in ON_A_CARD:
        trials = Plan(one, interpreted=False).trials([name])
        assert trials and {(each.group, each.layout, each.how) for each in trials} == {
            (name, "contiguous", "sanitized")
        }


def test_under_fpsan_another_launch_must_give_the_same_bits():
    answers = iter([1.0, 1.0, 1.0, 1.0 + 2**-23, 1.0])
    attempt = SimpleNamespace(
        inputs=lambda: {},
        results=lambda function, inputs, upstreams=None: ({"out": torch.tensor([1.0, next(answers)])}, []),
        subject=SimpleNamespace(function=None),
    )
    with pytest.raises(Wrong, match=r"eight warps gives another result: out\[1\]"):
        sanitized.without_order(attempt)
    answers = iter([1.0] * 5)
    sanitized.without_order(attempt)
    assert next(answers, None) is None  # each of the launches was made


def test_launch_options_are_replaced_but_not_gluon_s(monkeypatch):
    seen = []
    monkeypatch.setattr(instrumented.triton.JITFunction, "run", lambda kernel, *args, **options: seen.append(options))
    plain, below = SimpleNamespace(), SimpleNamespace(is_gluon=lambda: True)
    with instrumented.launched(num_warps=8):
        instrumented.triton.JITFunction.run(plain, grid=(1,), num_warps=4)
        instrumented.triton.JITFunction.run(below, num_warps=4)
    instrumented.triton.JITFunction.run(plain, num_warps=4)
    assert seen == [{"grid": (1,), "num_warps": 8}, {"num_warps": 4}, {"num_warps": 4}]


@pytest.mark.skipif(not device.INTERPRET, reason="with a card they are tried")
def test_the_command_says_so_in_one_line(tmp_path, capsys):
    status = cli.main(
        ["judge", str(ROWS), "softmax", "--only", "arguments,gsan,memcheck", "--json", f"{tmp_path}/r.json"]
    )
    said = capsys.readouterr().out
    assert status == 0 and said.count("not tried: gsan, memcheck (no NVIDIA GPU runs the kernels here)") == 1
    assert json.loads((tmp_path / "r.json").read_text())["left_out"].startswith("not tried: gsan")
    assert cli.main(["judge", str(ROWS), "softmax", "--only", "gsan"]) == 2
    assert "not tried: gsan (no NVIDIA GPU" in capsys.readouterr().err


def test_only_gsan_needs_memory_of_its_own():
    with instrumented.memory("consan") as pool:
        assert pool is None


def test_groups_that_are_missing_have_no_trials(monkeypatch):
    monkeypatch.setattr(sanitizers, "missing", lambda names: {"layouts": "it is a test"})
    made = session.Session(session.File(ROWS, ("softmax",)), ["layouts", "arguments"])
    report = made.run()
    assert {each.trial.group for each in report.judged[0].outcomes} == {"arguments"} and report.right
    assert report.left_out == "not tried: layouts (it is a test)"


def test_the_tool_is_found_in_its_wheel_too(tmp_path, monkeypatch):
    place = tmp_path / "nvidia/cu13/bin/compute-sanitizer"
    place.parent.mkdir(parents=True)
    place.write_text("#!/bin/sh\n")
    place.chmod(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    before = sanitizers.tool()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert sanitizers.tool() == (before or str(place))
