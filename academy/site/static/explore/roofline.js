// A calculation between the card's two limits. `facts`: bytes and operations a second, in 10^12, the axes, what was measured.
explorables.define("roofline", ({ Panel, axes, clamp, short }) => ({
  model({ operations, moved }, { bytes, operations: most }) {
    const times = { memory: moved / bytes, arithmetic: operations / most }
    const bound = times.memory >= times.arithmetic ? "memory" : "arithmetic"
    return { intensity: operations / moved, bound, least: times[bound] }
  },

  draw({ intensity, bound, least }, _, { bytes, operations: most, sheet, xs, ys, dots }) {
    const plot = new Panel(352, "TFLOP/s against operations per byte")
    const at = axes(plot, [44, 42, 306, 236], xs, ys, ["operations per byte", ""], [true, true])
    const roof = (rate, top, kind) =>
      plot.line([Math.max(xs[0], ys[0] / rate), top / rate, xs.at(-1)].map(x => at(x, Math.min(x * rate, top))), kind)
    roof(...sheet, "dashed p")
    roof(bytes, most, "curve p")
    for (const { x, y } of dots) plot.dot(...at(x, y), "b")
    for (const { label, row } of dots.map((dot, row) => ({ ...dot, row: row + 1 }))) plot.text(label[0], label[1] + 4, row, "tiny", "middle")
    const x = clamp(intensity, xs[0], xs.at(-1))
    plot.dot(...at(x, clamp(Math.min(most, intensity * bytes), ys[0], ys.at(-1))), "a", 6)
    plot.text(0, 346, `${short(intensity)} operations per byte: ${bound}, ${short(least)} µs`, "small")
    const legend = new Panel(32 + 24 * dots.length, "Kernels of this site, measured")
    dots.forEach(({ name, x, y }, row) => {
      const line = 40 + 24 * row
      legend.text(0, line, `${row + 1}  ${name}`, "small")
      legend.text(255, line, `${x >= 100 ? Math.round(x) : short(x)} op/byte`, "small", "end")
      legend.text(360, line, `${short(y)} TFLOP/s`, "small", "end")
    })
    return [plot, legend]
  },

  words: ({ intensity, bound, least }) =>
    `${short(intensity)} operations for each byte: ${bound} sets the limit, ${short(least)} µs at ` +
    `${bound === "memory" ? "copy speed" : "the rate of a large product"}.`,
}))
