"""`academy bench`: goes on where it stopped, stops in time, loses nothing, and tells when something is wrong."""

import argparse
import json
import os
from pathlib import Path

import pytest

from academy.runtime import device
from academy.bench import command, run
from academy.results import store
from tests.bench.fake import FakeGpu, operation
from tests.bench.fake import inputs as fake_inputs


def session(folder, gpu=None, minutes=None, again=False, **changes):
    results = store.Results(FakeGpu.name, folder=folder)
    return command.Session([operation(**changes)], results, gpu or FakeGpu(), minutes, again)


def stored(folder):
    return json.loads((folder / "nvidia-fake-1" / "double.json").read_text())


def test_everything_is_measured_and_stored(tmp_path, capsys):
    assert session(tmp_path).run() == 0
    content = stored(tmp_path)
    assert [case["shape"] for case in content["cases"]] == [[4, 8], [3, 5]]
    assert content["host"][0]["providers"]["lesson"]["forward_us"] == 12.5
    printed = capsys.readouterr().out
    assert "copies 4.00 TB/s" in printed and "4x8" in printed and "backward" in printed


def test_what_is_measured_is_skipped(tmp_path):
    gpu = FakeGpu()
    session(tmp_path, gpu).run()
    calls = gpu.calls
    assert session(tmp_path, gpu).run() == 0 and gpu.calls == calls
    session(tmp_path, gpu, again=True).run()
    assert gpu.calls == 2 * calls


def test_a_new_shape_is_added_to_what_is_there(tmp_path):
    session(tmp_path, shapes=[(4, 8)]).run()
    first = stored(tmp_path)["cases"][0]
    session(tmp_path, shapes=[(4, 8), (3, 5)]).run()
    assert stored(tmp_path)["cases"][0] == first and len(stored(tmp_path)["cases"]) == 2
    session(tmp_path, shapes=[(2, 2), (3, 5), (4, 8)]).run()
    assert [case["shape"] for case in stored(tmp_path)["cases"]] == [[2, 2], [3, 5], [4, 8]], "in the order of BENCH"


@pytest.mark.parametrize("change", ["sources", "versions"])
def test_what_has_changed_is_measured_again(change, tmp_path):
    session(tmp_path).run()
    path = tmp_path / "nvidia-fake-1" / "double.json"
    content = stored(tmp_path)
    content["cases"][1][change] = {"torch": "1.0"} if change == "versions" else {"lesson": "another"}
    path.write_text(json.dumps(content))
    gpu = FakeGpu()
    session(tmp_path, gpu).run()
    assert gpu.calls == 3 * 2 * 2, "one case: two passes of two providers"
    assert stored(tmp_path)["cases"][1][change] == stored(tmp_path)["cases"][0][change]


def slow(monkeypatch, seconds):
    """(inputs that take so long to make, the clock). It stands still otherwise: a progress bar looks at it, too."""
    now = [0.0]
    monkeypatch.setattr(command.time, "monotonic", lambda: now[0])

    def inputs(shape, dtype, device):
        now[0] += seconds
        return fake_inputs(shape, dtype, device)

    return inputs, now


def test_it_stops_in_time_and_goes_on_later(tmp_path, monkeypatch, capsys):
    inputs, _ = slow(monkeypatch, 50)
    assert session(tmp_path, minutes=1.5, inputs=inputs).run() == 3
    assert len(stored(tmp_path)["cases"]) == 1
    assert "cases are left: the same command continues" in capsys.readouterr().out
    assert session(tmp_path).run() == 0 and len(stored(tmp_path)["cases"]) == 2


def test_nothing_is_started_that_would_not_be_done_in_time(tmp_path, monkeypatch):
    """A case takes 150 s here. After three of them 90 s are left of nine minutes, too few for a fourth."""
    inputs, now = slow(monkeypatch, 150)
    assert session(tmp_path, minutes=9, inputs=inputs, shapes=[(n, 8) for n in range(1, 9)]).run() == 3
    assert len(stored(tmp_path)["cases"]) == 3 and now[0] <= 9 * 60


def test_without_a_peer_its_results_stay(tmp_path, monkeypatch):
    def versions(**changes):
        real = {"torch": "2.0", "triton": "3.0", "liger-kernel": "1.0"} | changes
        now = {name: version for name, version in real.items() if version}
        monkeypatch.setattr(run, "provenance", lambda o: dict(date="2026-01-01", versions=now, sources=o.sources))

    versions()
    session(tmp_path).run()
    before, gpu = stored(tmp_path), FakeGpu()
    versions(**{"liger-kernel": None})
    assert session(tmp_path, gpu).run() == 0 and gpu.calls == 0 and stored(tmp_path) == before
    versions(**{"liger-kernel": "2.0"})
    session(tmp_path, gpu).run()
    assert gpu.calls > 0


def test_an_interrupted_run_loses_no_finished_case(tmp_path):
    class Interrupted(FakeGpu):
        def peak_bytes(self, run, prepare=None):
            if self.calls > 20:
                raise KeyboardInterrupt
            return 1

    with pytest.raises(KeyboardInterrupt):
        session(tmp_path, Interrupted()).run()
    assert [case["shape"] for case in stored(tmp_path)["cases"]] == [[4, 8]]


def test_a_wrong_kernel_fails_the_run_and_is_named(tmp_path, capsys):
    assert session(tmp_path, ours=lambda x: x * 3).run() == 1
    assert "double 4x8 float32: lesson: out: RMS error" in " ".join(capsys.readouterr().out.split())
    assert "lesson" not in stored(tmp_path)["cases"][0]["passes"]["forward"]["providers"]


def test_a_case_that_cannot_be_measured_does_not_end_the_run(tmp_path, capsys):
    def inputs(shape, dtype, device):
        if shape == (4, 8):
            raise MemoryError("too large")
        return fake_inputs(shape, dtype, device)

    assert session(tmp_path, inputs=inputs).run() == 1
    assert [case["shape"] for case in stored(tmp_path)["cases"]] == [[3, 5]]
    assert "double 4x8 float32: MemoryError: too large" in " ".join(capsys.readouterr().out.split())


def test_a_missing_or_failing_peer_is_named_under_the_table(tmp_path, capsys):
    def factory():
        raise ImportError("no such library")

    def broken():
        raise RuntimeError("too wide")

    session(tmp_path, peers={"liger-kernel": factory, "other": broken}).run()
    printed = " ".join(capsys.readouterr().out.split())
    assert "liger-kernel is missing (ImportError: no such library); other failed (RuntimeError: too wide)" in printed


def test_results_of_another_device_stop_it_before_anything_is_measured(tmp_path):
    store.write(tmp_path / "nvidia-fake-1" / "double.json", {"device": "Another", "cases": []})
    gpu = FakeGpu()
    with pytest.raises(store.OtherDevice):
        session(tmp_path, gpu).run()
    assert gpu.calls == 0


def names(*chosen):
    return [argparse.Namespace(name=name) for name in chosen]


def test_only():
    operations = names("gemm", "gemm_splitK", "matmul", "matmul_blocked", "softmax")
    assert [o.name for o in command.select(operations, None)] == [o.name for o in operations]
    assert [o.name for o in command.select(operations, ["matmul"])] == ["matmul"]
    assert [o.name for o in command.select(operations, ["matmul*"])] == ["matmul", "matmul_blocked"]
    assert [o.name for o in command.select(operations, ["softmax", "gemm_splitK"])] == ["softmax", "gemm_splitK"]
    with pytest.raises(ValueError, match="--only soft: there are gemm, gemm_splitK, matmul, matmul_blocked, softmax"):
        command.select(operations, ["soft"])


@pytest.mark.skipif(not device.INTERPRET, reason="there is a GPU here")
def test_without_a_gpu_it_says_so(capsys):
    assert command.main([]) == 2
    assert "no CUDA device" in capsys.readouterr().err


def test_list_and_unknown_operation(capsys):
    assert command.main(["--list"]) == 0
    assert "vector_add" in capsys.readouterr().out
    assert command.main(["--only", "nothing"]) == 2
    assert "--only nothing: there are" in capsys.readouterr().err


@pytest.mark.gpu
def test_a_kernel_script_shows_its_speed_in_seconds(capsys):
    import time

    from annotated_examples.tutorials import vector_add

    begin = time.monotonic()
    command.print_speed(Path(vector_add.__file__))
    assert time.monotonic() - begin < 25
    printed = capsys.readouterr().out
    assert "lesson" in printed and "torch.compile" in printed and "%" in printed


def test_two_sessions_do_not_measure_each_other(tmp_path):
    lock = tmp_path / "new" / "bench.lock"
    with command.only_one(lock):
        with pytest.raises(ValueError, match=rf"another academy bench \(process {os.getpid()}\) is measuring"):
            with command.only_one(lock):
                pass
    with command.only_one(lock):
        pass


def test_the_parts_are_the_whole_and_as_large_as_each_other():
    operations = command.select(command.discover(), None)
    parts = [command.part(operations, f"{at}/4") for at in (1, 2, 3, 4)]
    assert sorted(o.name for some in parts for o in some) == sorted(o.name for o in operations)
    sizes = [sum(len(list(o.cases())) for o in some) for some in parts]
    assert max(sizes) - min(sizes) <= max(len(list(o.cases())) for o in operations)
    for wrong in ("0/4", "5/4", "1", "1/0", "-1/2"):
        with pytest.raises(ValueError, match="write K/N with 1 <= K <= N"):
            command.part(operations, wrong)


def test_two_writers_of_one_result_leave_a_whole_file(tmp_path, monkeypatch):
    """Each writes to a file of its own first."""
    written = []
    monkeypatch.setattr(store.textfiles.os, "replace", lambda new, path: written.append(str(new)))
    for _ in range(2):
        store.write(tmp_path / "double.json", {"cases": []})
    assert len(set(written)) == 2


def test_the_installed_package_has_no_benchmarks(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "ROOT", tmp_path)
    assert command.main(["--list"]) == 2
    assert "part of the repository" in capsys.readouterr().err
