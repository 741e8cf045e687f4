"""Gradients: a tape of nodes, one for each operation whose inputs require a gradient. First derivatives only."""

from __future__ import annotations

import contextlib
import functools

_enabled = True
_keep_graph = False


class Node:
    """Inputs, and `pull(*upstream)`: from the gradients of the outputs to those of the inputs, a tuple with None."""

    def __init__(self, inputs, pull, outputs=1):
        self.inputs, self.pull, self.outputs = inputs, pull, outputs


def is_grad_enabled():
    return _enabled


class _Mode(contextlib.ContextDecorator):
    enabled = True

    def __enter__(self):
        global _enabled
        self.before, _enabled = _enabled, self.enabled

    def __exit__(self, *_):
        global _enabled
        _enabled = self.before

    def __call__(self, function):
        return functools.wraps(function)(lambda *args, **kwargs: _within(type(self)(), function, args, kwargs))


def _within(mode, function, args, kwargs):
    with mode:
        return function(*args, **kwargs)


class enable_grad(_Mode):
    pass


class no_grad(_Mode):
    enabled = False


def track(out, inputs, pull):
    """Mark `out` as the result of `inputs` if one of them requires a gradient."""
    if _enabled and any(getattr(value, "requires_grad", False) for value in inputs):
        out.requires_grad, out.grad_fn, out._output = True, Node(inputs, lambda upstream: pull(upstream)), 0
    return out


def _in_order(nodes):
    """Every node from which these nodes can be reached backward, each before those that it depends on."""
    order, seen, stack = [], set(), [(node, False) for node in nodes if node is not None]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack += [(value.grad_fn, False) for value in node.inputs if getattr(value, "grad_fn", None) is not None]
    return order[::-1]


def _run(tensors, upstreams, keep_graph):
    """(tensor, its gradient) for every leaf and every input of a node, in the order of the tape."""
    global _keep_graph
    waiting, leaves, before = {}, {}, _keep_graph
    _keep_graph = keep_graph

    def hand(value, gradient):
        slot = leaves.setdefault(id(value), [value, None])
        slot[1] = gradient if slot[1] is None else slot[1] + gradient
        if value.grad_fn is not None:
            slots = waiting.setdefault(id(value.grad_fn), [None] * value.grad_fn.outputs)
            slots[value._output] = gradient if slots[value._output] is None else slots[value._output] + gradient

    try:
        with no_grad():
            for value, upstream in zip(tensors, upstreams):
                if upstream is None and value.numel() != 1:
                    raise RuntimeError("grad can be implicitly created only for scalar outputs")
                hand(value, value.new_ones(value.shape) if upstream is None else upstream)
            for node in _in_order([value.grad_fn for value in tensors]):
                gradients = node.pull(*waiting.pop(id(node), [None] * node.outputs))
                for value, gradient in zip(node.inputs, gradients):
                    if gradient is not None and getattr(value, "requires_grad", False):
                        hand(value, gradient)
    finally:
        _keep_graph = before
    return leaves


def _listed(values):
    return list(values) if isinstance(values, (tuple, list)) else [values]


def _only_first_derivatives(create_graph):
    if create_graph:
        raise NotImplementedError("the browser's torch has first derivatives only: create_graph=True is left out")


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False):
    _only_first_derivatives(create_graph)
    tensors = _listed(tensors)
    upstreams = [None] * len(tensors) if grad_tensors is None else _listed(grad_tensors)
    if not any(value.requires_grad for value in tensors):
        raise RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn")
    for value, gradient in _run(tensors, upstreams, bool(retain_graph)).values():
        if value.grad_fn is None:
            value.grad = gradient.clone() if value.grad is None else value.grad + gradient


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, allow_unused=False):
    _only_first_derivatives(create_graph)
    outputs, inputs = _listed(outputs), _listed(inputs)
    upstreams = [None] * len(outputs) if grad_outputs is None else _listed(grad_outputs)
    found = _run(outputs, upstreams, bool(retain_graph))
    gradients = [found.get(id(value), [None, None])[1] for value in inputs]
    if None in [None if each is None else 0 for each in gradients] and not allow_unused:
        raise RuntimeError("One of the differentiated Tensors appears to not have been used in the graph")
    return tuple(gradients)


class saved_tensors_hooks:
    """What is saved for backward meanwhile goes through `pack`, and comes back through `unpack`."""

    inside: list = []

    def __init__(self, pack, unpack):
        self.pack, self.unpack = pack, unpack

    def __enter__(self):
        self.inside.append(self)

    def __exit__(self, *_):
        self.inside.pop()


class _Context:
    materialize, _saved, _unpack = True, (), None

    def save_for_backward(self, *tensors):
        self._saved = tensors
        for hooks in saved_tensors_hooks.inside[-1:]:
            self._saved = [None if each is None else hooks.pack(each) for each in tensors]
            self._unpack = hooks.unpack

    @property
    def saved_tensors(self):
        return tuple(each if self._unpack is None or each is None else self._unpack(each) for each in self._saved)

    def mark_non_differentiable(self, *tensors):
        self.constant = {id(each) for each in tensors}

    def set_materialize_grads(self, value):
        self.materialize = value

    def mark_dirty(self, *tensors):
        pass


class Function:
    @classmethod
    def apply(cls, *args):
        context = _Context()
        tracked = [_enabled and getattr(value, "requires_grad", False) for value in args]
        context.needs_input_grad = tuple(tracked)
        with no_grad():
            result = cls.forward(context, *args)
        outputs = list(result) if isinstance(result, tuple) else [result]
        if not any(tracked):
            return result
        shapes = [(out.shape, out.dtype) if hasattr(out, "dtype") else None for out in outputs]

        def pull(*upstream):
            if context.materialize:
                like = outputs[0]
                upstream = [
                    like.new_zeros(shape[0], dtype=shape[1]) if each is None and shape else each
                    for each, shape in zip(upstream, shapes)
                ]
            gradients = cls.backward(context, *upstream)
            gradients = gradients if isinstance(gradients, tuple) else (gradients,)
            if len(gradients) != len(args):
                told = f"(expected {len(args)}, got {len(gradients)})"
                raise RuntimeError(f"function {cls.__name__}Backward returned an incorrect number of gradients {told}")
            return gradients

        node = Node(list(args), pull, len(outputs))
        constant = getattr(context, "constant", set())
        for number, out in enumerate(outputs):
            if not hasattr(out, "dtype") or not out.dtype.is_floating_point or id(out) in constant:
                continue
            if any(out is value for value in args):
                out = outputs[number] = out.view_as(out)
            out.requires_grad, out.grad_fn, out._output = True, node, number
        return tuple(outputs) if isinstance(result, tuple) else outputs[0]
