"""The guide to profiling: its code exists, its numbers are those that the script writes, and their readers read."""

import re

import pytest

from academy.results import figures
from benchmarks import profiling
from tests.kernels.harness import ROOT

GUIDE = (ROOT / "docs" / "guides" / "profiling.md").read_text("utf-8")
#: As Nsight Compute prints it: lines of its own, then a table with a row for each metric.
NCU = """==PROF== Connected to process 1
==PROF== Disconnected
"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","layernorm_forward_kernel","gpu__time_duration.sum","ns","145,120"
"0","layernorm_forward_kernel","dram__bytes_read.sum","byte","268000000"
"0","layernorm_forward_kernel","lts__t_sector_hit_rate.pct","%","n/a"
"""


def node(name, children=(), **metrics):
    return {"frame": {"name": name, "type": "function"}, "children": list(children), "metrics": metrics}


def test_times_are_summed_by_scope_and_kernel():
    kernel = node("layernorm_forward_kernel", count=20, **{"time (ns)": 2e6})
    others = [node("void at::reduce<1>", **{"time (ns)": 1e5}), node("void at::fill<2>", **{"time (ns)": 3e5})]
    tree = node("ROOT", [node("lesson", [kernel, *others]), node("fast", [kernel])])
    assert profiling.kernel_times(tree) == {
        "lesson/layernorm_forward_kernel": 100.0,
        "lesson/PyTorch": 20.0,
        "fast/layernorm_forward_kernel": 100.0,
    }


def test_counters_are_read_from_the_table():
    assert profiling.counters(NCU) == {"time": 145.12, "read": 268.0}
    assert profiling.counters("==ERROR== ERR_NVGPUCTRPERM") == {}


def test_a_missing_tool_is_named(monkeypatch):
    monkeypatch.setattr(profiling.shutil, "which", lambda name: None)
    assert profiling.counted("layernorm_forward_kernel") == ({}, "ncu is not installed")


def test_what_could_not_be_measured_is_not_measured_yet(tmp_path):
    folder = tmp_path / "benchmarks/results/nvidia-h200/experiments"
    assert figures.measured("profiling/a", tmp_path) == figures.NOT_YET
    folder.mkdir(parents=True)
    values = '{"values": {"a": {"value": null, "unit": "%"}, "b/c": {"value": 2.5, "unit": "%"}}}'
    (folder / "profiling.json").write_text(values)
    found = [figures.measured(f"profiling/{name}", tmp_path) for name in ("a", "b/c", "d")]
    assert found == [figures.NOT_YET, "2.5 %", None]


@pytest.mark.gpu
def test_proton_sees_every_kernel():
    times = profiling.kernel_times(profiling.proton_tree())
    quoted = re.findall(r"\[\[bench: profiling/((?:lesson|fast)/\w+)\]\]", GUIDE)
    assert set(quoted) <= set(times)
