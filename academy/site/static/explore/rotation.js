// A row before and after the rotation that `append_` of annotated_examples/attention makes: times diag(signs) H / √D, H Hadamard's
// matrix. `facts`: the row without its outlier and its mean, where the outlier is, and the signs.
explorables.define("rotation", ({ Panel, range }) => {
  const BASE = 124, TALL = 92
  const parity = number => [...number.toString(2)].filter(bit => bit === "1").length % 2

  function model({ outlier, mean, signed }, { row, place, signs }) {
    const before = row.map((x, at) => x + mean + (at === place ? outlier : 0))
    const turned = before.map((x, at) => signed ? x * signs[at] : x)
    const after = range(0, row.length).map(column =>
      turned.reduce((sum, x, at) => sum + (parity(at & column) ? -x : x), 0) / Math.sqrt(row.length))
    const step = numbers => (Math.max(...numbers) - Math.min(...numbers)) / 15
    return { before, after, steps: [step(before), step(after)] }
  }

  function bars(title, numbers, step, largest, kind) {
    const panel = new Panel(2 * TALL + 62, title), width = 360 / numbers.length, scale = TALL / largest
    numbers.forEach((x, place) =>
      panel.box(place * width + 2, x < 0 ? BASE : BASE - x * scale, width - 4, Math.max(Math.abs(x) * scale, 1), kind))
    panel.line([[0, BASE], [360, BASE]], "rule")
    panel.text(0, 2 * TALL + 56, `step ${step.toFixed(2)}`, "small")
    return panel
  }

  return {
    model,
    draw: ({ before, after, steps }) => {
      const largest = Math.max(...before.concat(after).map(Math.abs))
      return [bars("The row", before, steps[0], largest, "a"), bars("Rotated", after, steps[1], largest, "b")]
    },
    words: ({ steps: [before, after] }, { outlier, mean, signed }) =>
      `With an outlier of ${outlier} and a common mean of ${mean} a step of four bits is ${before.toFixed(2)}, and ` +
      `${after.toFixed(2)} after a rotation ${signed ? "with random signs" : "without signs"}: ` +
      `the codes are ${after < before ? "finer" : "no finer"} for it.`,
  }
})
