"""One judge for every kernel: this project's tests, the equation checker, the exercises, and the reader's own files.

- `layouts`: the same values in hostile places (strided, transposed, sliced, in the middle of NaN)
- `fences`: memory that shows a write outside of a tensor, and an element that nobody wrote
- `elements`: the first wrong element of a result, in words
- `compare`: output and gradients under the accuracy rule (`academy.accuracy`), inputs unchanged, second derivatives
- `mutants`: small edits of a kernel's source, by hand or made by the engine, that a test must catch

`layouts` and `elements` run in a browser too, where the exercises use them.
"""
