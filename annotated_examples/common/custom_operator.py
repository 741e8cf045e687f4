r"""
# Launchers that `torch.compile` doesn't look into

The compiler can trace the launch of a kernel, but not one with tuples or functions among its arguments. And from a
kernel's code it finds out which tensors the kernel writes: where the code has a scan, PyTorch 2.11 misses the store,
and the result is never filled. So inside `torch.compile` such a launcher is a custom operator, of which the compiler
knows the arguments and the shapes of the results. Elsewhere it is called directly, and
[replayed](../../academy/runtime/replay.py): what it does on the host is the same for all tensors of one geometry.
"""

from academy.runtime import device  # noqa: F401  before anything imports triton
from academy.runtime.replay import replayed

import functools
import inspect
import re

import torch


# An argument's name in a schema.
NAME = r"\w+(?=[,)])"


def opaque(schema, empty):
    """Decorate a launcher: inside `torch.compile` it is a custom operator.

    Args:
        schema: of the operator, such as `"(Tensor x, *, bool inverse) -> Tensor"`. The launcher's defaults are added to
            it. A compiled call drops keyword arguments that it doesn't name, and the launcher's defaults hold: the
            sizes of tiles and the like, and in some backward passes `needs`, so that all gradients are computed there.
            `Tensor(a!) state` is written to, and so are all of `Tensor(a!)[] pads`.
        empty: takes the same arguments and returns empty tensors like the results.
    """

    def decorate(launch):
        launch = replayed(launch)
        arguments, arrow, results = schema.partition(" ->")
        parameters = inspect.signature(launch).parameters.values()
        defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
        positional, keywords = (re.findall(NAME, part) for part in (arguments + ",").partition("*")[::2])
        named = {*positional, *keywords}
        declared = re.sub(NAME, lambda name: with_default(name[0], defaults), arguments) + arrow + results
        written = re.findall(r"Tensor\(\w!\)(?:\[\])? (\w+)", schema)
        name = f"{launch.__module__.replace('.', '_')}::{launch.__name__}"
        operator = torch.library.custom_op(name, launch, mutates_args=written, schema=declared)

        @operator.register_fake
        def fake(*given, **options):
            # PyTorch leaves out what is as the schema says.
            rest = (defaults[name] for name in positional[len(given) :])
            return empty(*given, *rest, **{name: defaults[name] for name in keywords if name in defaults} | options)

        @functools.wraps(launch)
        def launcher(*tensors, **options):
            if torch.compiler.is_compiling():
                return operator(*tensors, **{name: value for name, value in options.items() if name in named})
            return launch(*tensors, **options)

        return launcher

    return decorate


def with_default(name, defaults):
    """An argument of a schema with its default, if it has one, as PyTorch writes it."""
    if name not in defaults:
        return name
    value = defaults[name]
    text = f'"{value}"' if isinstance(value, str) else list(value) if isinstance(value, tuple) else value
    return f"{name}={text}"


# ## Low-bit products
#
# In the products with packed weights the zero point may be a number, which an operator can't take in the place of a
# tensor.
PRODUCT = (
    "(Tensor a, Tensor words, Tensor? scales, Tensor? zeros, float zero, Tensor? scales_a, *, int W_nbits, "
    "int group_size, int W_group_mode, int channel_scale_mode, ScalarType? out_dtype{}) -> Tensor"
)
HINTS = ", str tile_order, int A_load_order, str meta_evict_policy, bool data_contiguous"


def opaque_product(more="", hints=HINTS):
    """As `opaque`, for a launcher of a low-bit product. more: what its schema has besides."""

    def empty(a, words, scales, zeros, zero, scales_a, *, out_dtype, **options):
        return a.new_empty(a.shape[0], words.shape[1], dtype=out_dtype or a.dtype)

    def decorate(launch):
        launch = replayed(launch)

        @functools.wraps(launch)
        def product(a, words, scales, zeros, zero, scales_a=None, **options):
            return launch(a, words, scales, zero if zeros is None else zeros, scales_a=scales_a, **options)

        compiled = opaque(PRODUCT.format(hints + more), empty)(product)

        @functools.wraps(launch)
        def launcher(a, words, scales, zeros, *, scales_a=None, **options):
            if not torch.compiler.is_compiling():
                return launch(a, words, scales, zeros, scales_a=scales_a, **options)
            is_tensor = isinstance(zeros, torch.Tensor)
            number = 0.0 if is_tensor or zeros is None else float(zeros)
            return compiled(a, words, scales, zeros if is_tensor else None, number, scales_a, **options)

        return launcher

    return decorate
