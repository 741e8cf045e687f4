"""Is the code of this checkout as fast as that of another one? Both are measured in turn, in one process.

`python benchmarks/against.py OTHER_CHECKOUT [--json FILE]` takes every operation, or the ones after `--only`, and times
the two versions of its fast function (or lesson) round by round on the same tensors. It prints the ratio new : old of
the medians, and beside it the lesson's time against PyTorch's own operation.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 5


def imported_from(checkout: Path, names: list[str]) -> dict:
    """Modules of another checkout, imported without getting in the way of this one's."""
    ours = {name: module for name, module in sys.modules.items() if _belongs(name)}
    for name in ours:
        del sys.modules[name]
    sys.path.insert(0, str(checkout))
    found = {}
    for name in names:
        if checkout.joinpath("annotated_examples", *name.split(".")).with_suffix(".py").is_file():
            found[name] = importlib.import_module(f"annotated_examples.{name}")
    sys.path.remove(str(checkout))
    for name in [name for name in sys.modules if _belongs(name)]:
        del sys.modules[name]
    sys.modules.update(ours)
    return found


def _belongs(name: str) -> bool:
    return name.split(".")[0] in ("academy", "annotated_examples")


def compare(variant, shape, dtype, functions: dict, gpu) -> list[dict]:
    """A row for each pass: the median time of each function, measured in turn."""
    import torch

    from academy.bench.run import Call

    torch.manual_seed(0)
    inputs = variant.inputs(shape, dtype, gpu.device)
    calls = {name: Call(function, inputs, variant) for name, function in functions.items()}
    upstream = None
    for call in calls.values():
        out = call()
        upstream = torch.randn_like(out) if upstream is None and out.dim() else upstream
        call.upstream = upstream
    rows = []
    for which in variant.passes:
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(ROUNDS):
            for name, call in calls.items():
                if variant.timing == "graph":
                    times[name].append(gpu.graph_milliseconds(call).median)
                else:
                    times[name].append(gpu.milliseconds(call.run(which), call.prepare(which)).median)
        rows.append({"pass": which, **{name: statistics.median(values) for name, values in times.items()}})
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("other", type=Path, help="another checkout of the project")
    parser.add_argument("--json", type=Path, help="write all rows there as well")
    parser.add_argument("--only", action="append", help="only this operation; may be repeated")
    parser.add_argument("--variant", help="only the variant of this name")
    parser.add_argument("--shapes", type=int, default=6, help="how many shapes of each variant (default: 6)")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from academy.runtime import timing
    from academy.bench import operation
    from academy.book import facts, layout

    gpu = timing.Gpu(warmup_ms=10, measure_ms=30)
    chosen = [o for o in operation.discover() if not arguments.only or o.name in arguments.only]
    names = {o.name: facts.module_name(list(o.files.values())[-1]) for o in chosen}
    lessons = {o.name: facts.module_name(o.files["lesson"]) for o in chosen}
    others = imported_from(arguments.other.resolve(), [*names.values(), *lessons.values()])
    rows = []
    for each in chosen:
        module = facts.load(layout.facts(ROOT, each.name))
        other = others.get(names[each.name]) or others.get(lessons[each.name])
        bench = {"old": getattr(other, module.FUNCTION)}
        olds = {v.name: v.ours["old"] for v in operation.read(module.BENCH, module.cost, bench, each.name)}
        for variant in each.variants:
            if arguments.variant not in (None, variant.name):
                continue
            step = max(1, len(variant.shapes) // arguments.shapes)
            for shape in variant.shapes[step - 1 :: step]:
                functions = {"old": olds[variant.name], **variant.ours, "eager": variant.eager}
                for row in compare(variant, tuple(shape), variant.dtypes[0], functions, gpu):
                    new = row.get("fast", row.get("lesson"))
                    row |= dict(operation=each.name, variant=variant.name, shape=list(shape))
                    row |= dict(new_to_old=new / row["old"], lesson_to_eager=row["lesson"] / row["eager"])
                    rows.append(row)
                    label = f"{each.name} {variant.name} {'x'.join(map(str, shape))} {row['pass']}"
                    print(
                        f"{label:58} old {row['old'] * 1e3:9.1f} µs  new : old {row['new_to_old']:.3f}  "
                        f"lesson : eager {row['lesson_to_eager']:.2f}",
                        flush=True,
                    )
                    if arguments.json:
                        arguments.json.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
