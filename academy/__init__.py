"""The machinery of Triton Academy. A kernel file imports from `academy.runtime`; the other folders are used by tests,
pages and the command `academy`.

Modules that have moved are found under their old names, too: files that somebody downloaded import them.
"""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec

from academy.runtime import plugs

plugs.plug(
    simulate="academy.gluon.simulator:launched",
    report="academy.judge.accuracy:Report",
    said="academy.judge.public:of_script",
    three="academy.judge.verdict:three",
    speed="academy.bench.command:print_speed",
)

#: Old name -> where it is now: a module, or a package with all that is in it.
MOVED = {
    "academy.accuracy": "academy.judge.accuracy",
    "academy.autograd": "academy.runtime.autograd",
    "academy.book.benchmarks": "academy.book.facts",
    "academy.cache": "academy.files.cache",
    "academy.checks": "academy.runtime.checks",
    "academy.collecting": "academy.command.garbage",
    "academy.compiler.refused": "academy.compiler.rules.refused",
    "academy.device": "academy.runtime.device",
    "academy.exercises.allowed": "academy.compiler.rules.allowed",
    "academy.exercises.apart": "academy.exercises.limited",
    "academy.exercises.rounds": "academy.exercises.loop_limit",
    "academy.exercises.wire": "academy.exercises.limited",
    "academy.geometry": "academy.runtime.call_cache",
    "academy.imports": "academy.files.dependencies",
    "academy.interpreter.kinds": "academy.interpreter.quick.kinds",
    "academy.interpreter.moves": "academy.interpreter.quick.moves",
    "academy.interpreter.operators": "academy.interpreter.quick.operators",
    "academy.interpreter.speed": "academy.interpreter.quick",
    "academy.launch": "academy.runtime.launch",
    "academy.misspelt": "academy.command.misspelt",
    "academy.practice": "academy.compiler.rules",
    "academy.progress": "academy.command.progress",
    "academy.script": "academy.runtime.script",
    "academy.setup_environment": "academy.command.setup_environment",
    "academy.simulate": "academy.gluon.command",
    "academy.site.beforehand": "academy.site.background",
    "academy.site.explained": "academy.site.taught_before_used",
    "academy.site.helper": "academy.site.worker",
    "academy.site.lint": "academy.book.lists",
    "academy.textfiles": "academy.files.textfiles",
    "academy.timing": "academy.runtime.timing",
    "academy.traffic": "academy.bench.collectives",
    "academy.vendored": "academy.files.vendored",
    "academy.watching": "academy.gluon.watching",
    "annotated_examples.choosing": "annotated_examples.sampling",
    "annotated_examples.common.opaque": "annotated_examples.common.custom_operator",
}


def current(name: str) -> str:
    """What the module of this name is called now."""
    old = name
    while old not in MOVED:
        old = old.rpartition(".")[0]
        if not old:
            return name
    return MOVED[old] + name[len(old) :]


class _Moved:
    """Finds the very module that is meant, not a second one with a state of its own. Python shows the warning where a
    script imports it, and not where another module does; of what moved to the same place one is named."""

    said: set[str] = set()

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if not name.startswith(("academy.", "annotated_examples.")) or (new := current(name)) == name:
            return None
        if (place := new.rpartition(".")[0]) not in self.said:
            import warnings

            self.said.add(place)
            warnings.warn(f"{name} is {new} now", DeprecationWarning, stacklevel=2)
        return ModuleSpec(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> object:
        module = import_module(current(spec.name))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: object) -> None:
        """It has run. Python has given it the spec of its old name."""
        module.__spec__ = module.__spec__.loader_state  # type: ignore[attr-defined]


# Before Python's own, which would find what is in a package that moved, and run it a second time.
sys.meta_path.insert(0, _Moved())
