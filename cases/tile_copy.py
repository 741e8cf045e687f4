"""Which calls are compared with the formulas of backprop_math/tile_copy.md."""

from academy.formulas.cases import case


@case(modules="gluon.tile_copy", returns="CP", gradients={"X": "CP-X"}, sizes={"m": 70, "n": 150})
def copy(module, X, s):
    return module.copy(X, float(s))


@case(modules="gluon.tile_copy", returns="CP", forward_only=True, sizes={"m": 50, "n": 70}, pytorch="copy_reference")
def one_tile_a_program(module, X, s):
    return module.copy_tile(X, float(s), ROWS=16)


@case(modules="gluon.tile_copy", returns="CP", forward_only=True, sizes={"m": 50, "n": 70}, pytorch="copy_reference")
def through_registers(module, X, s):
    return module.copy_lanes(X, float(s), ROWS=16)
