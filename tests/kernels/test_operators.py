"""Every custom operator of ours: its schema has the defaults of its launcher."""

import importlib
import inspect
import pkgutil
import sys

import pytest
import torch

import annotated_examples

for module in pkgutil.walk_packages(annotated_examples.__path__, "annotated_examples."):
    if module.name.split(".")[1] not in ("gluon", "integrations", "capstone"):
        importlib.import_module(module.name)

SCHEMAS = [schema for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("annotated_examples_")]


def launcher(schema: torch._C.FunctionSchema):
    """The function that the operator is named after."""
    namespace, name = schema.name.split("::")
    (module,) = (each for path, each in sys.modules.items() if path.replace(".", "_") == namespace)
    return inspect.unwrap(getattr(module, name))


def as_python(value):
    return tuple(value) if isinstance(value, list) else value


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)
def test_defaults(schema):
    """What may be left out of a launcher's call may be left out inside `torch.compile`, and means the same."""
    declared = {each.name: each for each in schema.arguments}
    for name, parameter in inspect.signature(launcher(schema)).parameters.items():
        if name in declared:
            assert declared[name].has_default_value() == (parameter.default is not parameter.empty), name
            if declared[name].has_default_value():
                assert as_python(declared[name].default_value) == parameter.default, name


def test_all_operators_are_looked_at():
    assert len(SCHEMAS) > 40
