"""One token over each kind of cache: the calls are right ones, and their bytes are those of the chapter."""

import importlib
import re

import pytest
import torch

from academy.book.layout import ROOT
from academy.results import experiments
from benchmarks import bytes_per_token as experiment
from tests.bench.fake import FakeGpu

TOY = dict(heads=4, shared=2, width=16, rank=16, rotated=8, scorers=2, scorer=16, selected=8)


def test_each_way_is_measured_on_what_it_reads():
    results = {}

    def times(call):
        results[len(results)] = call()
        return 2.0

    found = experiment.values(2, 40, times, lambda moved: moved / 100, **TOY)
    moved = {name.split("/")[0]: value for name, (value, _) in found.items() if name.endswith("/bytes")}
    rows = {"heads": 2 * 2 * 2 * 16, "heads, 8 bits": 2 * 2 * (16 + 4), "heads, 4 bits": 2 * 2 * (8 + 8)}
    for way, size in (rows | {"latents": 2 * (16 + 8)}).items():
        assert moved[way] == 2 * 40 * size
    parts = [moved[f"selected: {part}"] for part in ("scores", "choice", "attention")]
    assert moved["selected"] == sum(parts) == 2 * (40 * (16 + 4 + 3 * 4) + 8 * 48)
    assert found["latents/2/40/share"] == (moved["latents"] / 200, "")
    assert all(torch.isfinite(x).any() and not x.float().isnan().any() for x in results.values())
    together, *_, apart = [results[at] for at in sorted(results)][-4:]
    assert torch.equal(together, apart), "the three calls, one after the other"


def test_the_chapter_counts_the_same(monkeypatch):
    """Of one text; the sizes are those of the script."""
    chapter = (ROOT / "docs/learn/fewer_bytes.py").read_text("utf-8")
    counts = dict.fromkeys(re.findall(r"^def (?:bytes_of_\w+|read)\(.*?(?=\n\n\n|\n# %%)", chapter, re.M | re.S))
    names: dict = {}
    exec("\n".join(counts), names)
    sizes, tokens = experiment.SIZES, 5000
    assert names["read"](tokens, sizes["selected"]) == (
        1152 * tokens, (sizes["scorer"] + 4 + 12) * tokens + 2048 * 2 * (sizes["rank"] + sizes["rotated"]),
    )  # fmt: skip
    facts = importlib.import_module("operations.quantized_decode")
    for bits in (8, 4):
        assert names["bytes_of_heads"](8, bits=bits) == 2 * 8 * facts.bytes_of_a_row(sizes["width"], bits)


def test_it_writes_after_each_shape_and_begins_none_too_late(monkeypatch, tmp_path, capsys):
    gpu = FakeGpu()
    gpu.copy_milliseconds = lambda moved: 1.0
    monkeypatch.setattr(experiment, "SHAPES", [(1, 16), (2, 16)])
    monkeypatch.setattr(experiment, "SIZES", TOY)
    monkeypatch.setattr(experiment.experiment, "machine", lambda: "NVIDIA Fake 1")
    experiment.run(gpu, tmp_path, 60)
    content = experiment.experiment.kept(experiment.NAME, tmp_path, "values")
    lines = experiments.bytes_per_token(content)
    assert lines[0] == "| what is read | 1 text of 16 | 2 texts of 16 |" and len(lines) == 2 + 8
    assert all("50%" in line or "50 %" in line for line in lines[2:]), lines
    del content["values"]["latents/2/16/ms"]
    assert "| – |" in next(line for line in experiments.bytes_per_token(content) if line.startswith("| latents"))
    experiment.run(gpu, tmp_path, -1)
    assert capsys.readouterr().out.count("left out") == 2


def test_without_a_card_it_says_what_counts(monkeypatch):
    monkeypatch.setattr("sys.argv", ["bytes_per_token.py"])
    monkeypatch.setattr(experiment.device, "INTERPRET", True)
    with pytest.raises(SystemExit, match="docs/learn/fewer_bytes.py"):
        experiment.main()
