"""What the operations on packed sequences share."""

import torch


def ends(tokens):
    """Three sequences in one, the second without tokens."""
    return torch.tensor([0, tokens // 3, tokens // 3, tokens], dtype=torch.int32)


def ends_made_inside(tokens, *names):
    """Sequences whose ends are made inside of the function that is compiled."""

    def wrap(function):
        def call(**tensors):
            device = next(iter(tensors.values())).device
            return function(**tensors | {name: ends(tokens).to(device) for name in names})

        return call

    return wrap


def with_a_copied_state(step):
    """What a step returns, and the state that it leaves."""

    def call(state, **others):
        state = state.clone() if isinstance(state, torch.Tensor) else state
        return step(state, **others), state

    return call


def sequences_of(reference):
    """A packed recurrence from one of a batch: one sequence after the other. Rows of no sequence are 0."""

    def packed(cu_seqlens, *, initial_state=None, return_final_state=False, **inputs):
        options = {name: x for name, x in inputs.items() if not torch.is_tensor(x)}
        tokens = {name: x for name, x in inputs.items() if torch.is_tensor(x)}
        starts, outs, states = cu_seqlens.tolist(), [], []
        for i, (start, end) in enumerate(zip(starts, starts[1:])):
            alone = {name: x[start:end][None] for name, x in tokens.items()}
            state = None if initial_state is None else initial_state[i : i + 1]
            o, state = reference(**alone, initial_state=state, return_final_state=True, **options)
            outs.append(o[0])
            states.append(state)
        o = torch.cat([*outs, torch.zeros_like(tokens["v"][starts[-1] :])])
        if not return_final_state:
            return o
        return o, torch.cat(states) if states else initial_state

    return packed
