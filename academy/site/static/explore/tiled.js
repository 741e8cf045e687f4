// A product in tiles, and where their size puts it on the roofline. Counts are those of annotated_examples/tutorials/
// matmul_blocked.py; `facts`: the side of the square matrices, bytes of a number, the card's two speeds in 10^12, its registers.
explorables.define("tiled", ({ Panel, axes, bytes, clamp, grouped, percent, range, short }) => {
  const WIDE = 160, LEFT = 196, TOP = 218
  const SPLIT = 0.9  // of the registers: the rest holds addresses and operands

  function model({ block_m: M, block_n: N, block_k: K, pid, step }, { side, size, registers }) {
    const columns = side / N, programs = side / M * columns, rounds = side / K
    const tile = clamp(pid, 0, programs - 1), round = M * K + K * N
    return {
      programs, rounds, pid: tile, row: Math.floor(tile / columns), column: tile % columns, step: clamp(step, 0, rounds),
      loaded: programs * rounds * round * size, stored: side * side * size,
      each: rounds * round * size, perByte: 2 * M * N / ((M + N) * size), sums: M * N * 4, fits: M * N <= SPLIT * registers,
    }
  }

  function matrices({ row, column, step, rounds, programs, pid, loaded }, { block_m: M, block_n: N, block_k: K }, { side, size }) {
    const panel = new Panel(392, `x · y, all ${side} × ${side}, tiles of ${M} × ${N}`)
    const wide = WIDE, unit = WIDE / side, left = LEFT, top = TOP, above = 36
    const framed = (x, y) => panel.box(x, y, wide, wide, "off")
    framed(left, above)
    framed(0, top)
    framed(left, top)
    panel.text(left - 8, above + 14, "y", "", "end")
    panel.text(0, top - 6, "x")
    for (const at of range(M, side, M)) panel.line([[left, top + at * unit], [left + wide, top + at * unit]], "rule")
    for (const at of range(N, side, N)) panel.line([[left + at * unit, top], [left + at * unit, top + wide]], "rule")
    // The bands that the program needs, what it has had, and the two tiles of this step.
    const y = top + row * M * unit, x = left + column * N * unit, k = (step ? step - 1 : 0) * K * unit
    panel.box(0, y, wide, M * unit, "a bare", "", "", { "fill-opacity": 0.45 })
    panel.box(x, above, N * unit, wide, "b bare", "", "", { "fill-opacity": 0.45 })
    panel.box(0, y, step * K * unit, M * unit, "a bare")
    panel.box(x, above, N * unit, step * K * unit, "b bare")
    if (step) panel.box(k, y, K * unit, M * unit, "a strong")
    if (step) panel.box(x, above + k, N * unit, K * unit, "b strong")
    panel.box(x, y, N * unit, M * unit, "g strong", "", "", { "fill-opacity": 0.15 + 0.85 * step / rounds })
    panel.box(left, top, wide, wide, "bare", "", "result", { fill: "none" })
    panel.text(0, 52, `program ${pid} of ${programs}: tile (${row}, ${column})`, "small")
    panel.text(0, 76, `step ${step} of ${rounds} along K`, "small")
    panel.text(0, 100, `loaded so far: ${bytes(step * (M + N) * K * size)}`, "small")
    panel.text(0, 130, `a number of x is used ${N} times,`, "small")
    panel.text(0, 148, `one of y ${M} times`, "small")
    panel.text(0, 178, `all programs: ${bytes(loaded)} loaded`, "small bold")
    return panel
  }

  function roofline({ perByte, sums, fits }, { block_m: M, block_n: N }, { bandwidth, operations, size, registers }) {
    const panel = new Panel(392, "TFLOP/s against operations per byte loaded"), xs = [1, 10, 100, 1000], ys = [1, 10, 100, 1000]
    const at = axes(panel, [44, 42, 306, 196], xs, ys, ["operations per byte", ""], [true, true])
    const limit = x => Math.min(x * bandwidth, operations)
    panel.line([1, operations / bandwidth, 1000].map(x => at(x, limit(x))), "curve p")
    for (const square of [16, 32, 64, 128, 256]) {
      const x = 2 * square * square / (2 * square * size)
      panel.dot(...at(x, limit(x)), "b", 3.5)
      panel.text(at(x, 1)[0], at(1, limit(x))[1] - 9, square, "tiny", "end")
    }
    panel.dot(...at(perByte, limit(perByte)), fits ? "a" : "r", 7, "dot")
    panel.text(0, 292, `${short(perByte)} operations per byte: ${short(limit(perByte))} TFLOP/s`, "small")
    panel.text(0, 324, `Sums: ${grouped(M * N)} of ${grouped(registers)} registers: ${fits ? "they fit" : "too many"}`, "small bold")
    panel.box(0, 332, 300, 18, "off")
    panel.box(0, 332, 300 * Math.min(1, sums / 4 / registers), 18, fits ? "g" : "r")
    panel.line([[300 * SPLIT, 328], [300 * SPLIT, 354]], "strong")
    panel.text(308, 346, percent(sums / 4 / registers), "small")
    panel.text(0, 372, `Up to the line, ${percent(SPLIT)}: addresses and operands need the rest.`, "small")
    return panel
  }

  return {
    model,
    draw: (found, values, facts) => [matrices(found, values, facts), roofline(found, values, facts)],
    highest: ({ block_m: M, block_n: N, block_k: K }, { side }) => ({ step: side / K, pid: side / M * side / N - 1 }),
    /** A press on the result picks its program. */
    touch(_, { x, y }, { block_m: M, block_n: N }, { side }) {
      const at = (place, start, block) => clamp(Math.floor((place - start) * side / WIDE / block), 0, side / block - 1)
      return { pid: at(y, TOP, M) * side / N + at(x, LEFT, N) }
    },
    words({ perByte, programs, rounds, loaded, each, fits }, { block_m: M, block_n: N }, { bandwidth, operations }) {
      const speed = Math.min(perByte * bandwidth, operations)
      return `Tiles of ${M} × ${N}: ${programs} programs of ${rounds} steps load ${bytes(each)} each, ${bytes(loaded)} in all. ` +
        `That is ${short(perByte)} operations for each byte. If every byte came from memory, it would be ${short(speed)} TFLOP/s, ` +
        `${percent(speed / operations)} of what the tensor cores do.${fits ? "" : " But the sums of such a tile don't fit into the registers."}`
    },
  }
})
