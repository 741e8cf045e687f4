// The online softmax: a maximum and a sum relative to it, chunk by chunk, as `softmax_forward_kernel` of
// annotated_examples/tutorials/softmax.py keeps them. Fields x0 … x5 are the row, `first` and `second` where a chunk ends.
explorables.define("online", ({ Panel, clamp, plural, range, short }) => {
  const COUNT = 6, LOW = -4, HIGH = 8, CELL = 60
  const TOP = 34, PER_UNIT = 12, ZERO = TOP + HIGH * PER_UNIT
  const row = values => range(0, COUNT).map(place => values[`x${place}`])

  /** The chunks as [begin, end). */
  function chunks({ first, second }) {
    const ends = [...new Set([Math.min(first, second), Math.max(first, second), COUNT])].sort((a, b) => a - b)
    return ends.map((end, place) => [ends[place - 1] ?? 0, end])
  }

  function model(values) {
    const x = row(values), found = chunks(values)
    let max = -Infinity, sum = 0
    const steps = found.map(([begin, end]) => {
      const before = max, held = sum
      max = Math.max(max, ...x.slice(begin, end))
      const factor = Math.exp(before - max)  // 0 at first: nothing was summed
      sum = held * factor + x.slice(begin, end).reduce((total, each) => total + Math.exp(each - max), 0)
      return { max, sum, factor, held, scaled: held * factor }
    })
    const largest = Math.max(...x)
    return { chunks: found, steps, largest, exact: x.reduce((total, each) => total + Math.exp(each - largest), 0) }
  }

  const signed = m => String(m).replace("-", "−"), inside = m => m < 0 ? `(${signed(m)})` : m
  const seen_of = (values, found) => Math.min(values.step, found.length)

  function scores({ chunks: found }, values) {
    const panel = new Panel(236, "Drag the scores, and where chunks end")
    const seen = found[seen_of(values, found) - 1]?.[1] ?? 0
    panel.line([[0, ZERO], [360, ZERO]], "rule")
    row(values).forEach((x, place) => {
      const kind = place < seen ? "b" : "off"
      const y = ZERO - x * PER_UNIT
      panel.box(place * CELL + 8, Math.min(y, ZERO), 44, Math.abs(x) * PER_UNIT, kind)
      panel.text(place * CELL + 30, 196, x, "small", "middle")
      panel.box(place * CELL + 4, y - 4, 52, 8, "p")
      panel.box(place * CELL, y - 22, CELL, 44, "bare", "", `x-${place}`)
    })
    for (const [, end] of found.slice(0, -1)) panel.line([[end * CELL, 26], [end * CELL, 212]], "dashed")
    for (const name of ["second", "first"]) {
      const x = clamp(values[name] * CELL, 8, 352)
      panel.box(x - 8, 212, 16, 16, "a")
      panel.box(x - 22, 192, 44, 44, "bare", "", name)
    }
    return panel
  }

  function sums({ chunks: found, steps }, values) {
    const seen = seen_of(values, found), panel = new Panel(236, seen ? `After chunk ${seen}: e^(x − m)` : "Before the first chunk")
    const now = steps[seen - 1]
    row(values).forEach((x, place) => {
      const isSeen = place < (found[seen - 1]?.[1] ?? 0), isNew = isSeen && place >= found[seen - 1][0]
      const high = isSeen ? Math.exp(x - now.max) * 84 : 0
      panel.box(place * CELL + 8, 132 - (isSeen ? high : 8), 44, isSeen ? high : 8, isNew ? "a" : isSeen ? "b" : "off dashed")
      if (isSeen) panel.text(place * CELL + 30, 127 - high, short(Math.exp(x - now.max)), "small", "middle")
    })
    panel.text(0, 158, now ? `m = ${signed(now.max)}` : "m = −∞", "bold")
    panel.text(0, 180, seen > 1
      ? `old sum: ${now.held.toFixed(3)} × e^(${signed(steps[seen - 2].max)} − ${inside(now.max)}) = ${now.held.toFixed(3)} × ${short(now.factor)} = ${short(now.scaled)}`
      : seen ? "nothing was summed before" : "nothing summed", "small")
    panel.text(0, 204, `l = ${now ? now.sum.toFixed(3) : 0}`, "bold")
    return panel
  }

  return {
    model,
    draw: (found, values) => [scores(found, values), sums(found, values)],
    highest: values => ({ step: chunks(values).length }),
    names: { step: (step, values) => `${step} of ${chunks(values).length}` },
    words({ chunks: found, steps, largest, exact }, values) {
      const seen = seen_of(values, found), now = steps[seen - 1]
      const cut = `${plural(found.length, "chunk")}.`
      if (!seen) return `The row comes in ${cut} Nothing is summed yet: m is minus infinity, l is 0.`
      const scaled = seen === 1 ? "" : now.factor === 1
        ? " It brought no larger score, so the old sum stays as it is."
        : ` It brought a larger score, so the old sum, ${now.held.toFixed(3)}, was multiplied by ${short(now.factor)}.`
      const end = seen === found.length
        ? ` That was the last one. Two passes, maximum first, give the same: ${largest} and ${exact.toFixed(3)}.` : ""
      return `After chunk ${seen} of ${found.length} the maximum m is ${now.max} and the sum l ${now.sum.toFixed(3)}.${scaled}${end}`
    },
    touch(part, { x, y }, values) {
      if (part === "first" || part === "second") return { [part]: clamp(Math.round(x / CELL), 1, COUNT) }
      const place = part.split("-")[1]
      return { [`x${place}`]: clamp(Math.round(2 * (ZERO - y) / PER_UNIT) / 2, LOW, HIGH) }
    },
  }
})
