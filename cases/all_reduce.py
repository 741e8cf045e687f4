"""Which calls are compared with the formulas of backprop_math/all_reduce.md. The ranks are a list in one process."""

from academy.formulas.cases import case

ALL = ("float32", "bfloat16", "float16")


@case(modules="distributed.all_reduce", returns="AR", forward_only=True, sizes={"R": 3, "n": 21}, dtypes=ALL)
def one_shot(module, X):
    memories = module.symmetric_list(list(X), programs=2)
    return [module.all_reduce_forward(x, memory, BLOCK=8) for x, memory in zip(X, memories)][-1]


@one_shot.pytorch
def _(X):
    return X.sum(0)


@case(modules="distributed.all_reduce", returns="AR", forward_only=True, sizes={"R": 1}, dtypes=ALL)
def alone(module, X):
    return module.all_reduce(X[0], module.symmetric_memory(X.shape[1], X.dtype, programs=2))


@alone.pytorch
def _(X):
    return X.sum(0)
