"""What a kernel file may import of academy, and nothing else.

`device` decides where kernels run, `checks` holds arguments against the contract, `autograd` joins a kernel with
PyTorch's gradients, `launch` and `geometry` make a call cheap, `script` is what a file does when it is run, and
`timing` how an autotuner measures.

Below it are the repairs of the interpreter. What is above and called from here is plugged in: see `plugs`.
"""
