"""Which call is compared with the formulas of backprop_math/vector_add.md."""

from academy.formulas.cases import case


@case(modules="tutorials.vector_add", returns="VA", gradients={"x": "VA-x", "y": "VA-y"}, sizes={"n": 2500})
def vector_add(module, x, y):
    return module.vector_add(x, y)
