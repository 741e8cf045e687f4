// A program's loop over tiles, pipelined. A tile comes `latency` cycles after it was asked for, however many are under way.
// As on Hopper: `stages` buffers, the tile in use has one of them, and the next load goes out when a step begins.
// `facts`: operations of an SM in a cycle, bytes of shared memory that a program may have, BLOCK_K.
explorables.define("pipeline", ({ Panel, plural, percent, range }) => {
  const STEPS = 8, MOST = 6
  const sizes = tile => tile.split(" × ").map(Number)

  function model({ stages, latency, tile }, { operations, shared, block_k }) {
    const [m, n] = sizes(tile)
    const compute = 2 * m * n * block_k / operations, buffer = 2 * (m + n) * block_k
    const steps = []
    for (let k = 0; k < STEPS; k++) {
      const last = steps[k - 1]?.end ?? 0
      const asked = stages === 1 ? last : k < stages - 1 ? 0 : k === stages - 1 ? null : steps[k - stages + 1].start
      // The load of step `stages - 1` goes out when step 0 begins.
      const from = asked ?? steps[0].start
      const start = Math.max(last, from + latency)
      steps.push({ asked: from, arrives: from + latency, start, end: start + compute })
    }
    const total = steps[STEPS - 1].end
    const needed = 1 + Math.ceil(latency / compute)
    const bytes = stages * buffer
    // Behind the first tiles a round of loads takes as long as the slower of the two: the latency, or what is computed.
    const share = stages === 1 ? compute / (compute + latency) : Math.min(1, (stages - 1) * compute / latency)
    return { compute, buffer, bytes, fits: bytes <= shared, steps, total, waits: total - STEPS * compute, needed, share }
  }

  function draw({ compute, buffer, bytes, fits, steps, total }, { stages, latency }, { shared }) {
    const LEFT = 62, WIDE = 298, ROW = 24
    const panel = new Panel(372, `${STEPS} steps: ${plural(total, "cycle")}`)
    const at = cycles => LEFT + cycles * WIDE / (STEPS * (compute + latency))
    for (const buffer of range(0, MOST)) {
      const y = 28 + buffer * ROW
      panel.text(0, y + 15, `buffer ${buffer}`, buffer < stages ? "small" : "small dim")
      panel.box(LEFT, y, WIDE, ROW - 4, buffer < stages ? "bare" : "off bare", "", "", { "fill-opacity": 0.5 })
      steps.forEach(({ asked, arrives, start, end }, k) => {
        if (k % stages !== buffer) return
        panel.box(at(asked), y, at(arrives) - at(asked), ROW - 4, "b")
        panel.box(at(arrives), y, at(start) - at(arrives), ROW - 4, "off")
        panel.box(at(start), y, at(end) - at(start), ROW - 4, "g", at(end) - at(start) > 12 ? k : "")
      })
    }
    const y = 28 + MOST * ROW + 8
    panel.text(0, y + 17, "cores", "bold small")
    let last = 0
    for (const { start, end } of steps) {
      if (start > last) panel.box(at(last), y, at(start) - at(last), 26, last ? "r" : "a")
      panel.box(at(start), y, at(end) - at(start), 26, "g")
      last = end
    }
    const keys = [["b", "loading", 0, 0], ["off", "waits for its turn", 90, 0], ["g", "computing", 224, 0],
      ["a", "idle: the first load", 0, 1], ["r", "idle: a later one", 150, 1]]
    for (const [kind, words, x, row] of keys) {
      panel.box(x, y + 36 + 20 * row, 12, 12, kind)
      panel.text(x + 17, y + 47 + 20 * row, words, "small")
    }

    const top = y + 84, most = 320 * 1024, wide = share => 360 * share / most
    panel.text(0, top + 14, `Shared memory: ${Math.round(bytes / 1024)} KB of ${Math.round(shared / 1024)} KB`, "bold")
    panel.box(0, top + 24, 360, 24, "off bare")
    for (const stage of range(0, stages)) {
      const from = Math.min(360, wide(stage * buffer)), to = Math.min(360, wide((stage + 1) * buffer))
      panel.box(from, top + 24, to - from, 24, (stage + 1) * buffer > shared ? "r" : "p")
    }
    panel.line([[wide(shared), top + 20], [wide(shared), top + 56]], "strong")
    panel.text(wide(shared) + 4, top + 64, `limit: ${Math.round(shared / 1024)} KB`, "small")
    panel.text(0, top + 84, fits ? "It fits." : "It doesn't fit: this kernel is refused before it runs.", "small")
    return [panel]
  }

  return {
    model,
    draw,
    words({ compute, bytes, fits, waits, needed, share }, { stages, tile, latency }, { shared }) {
      const busy = share >= 1 ? "always have a tile to work on" : `compute ${percent(share)} of the time`
      const later = waits - latency
      const idle = `In these ${STEPS} steps they wait ${plural(latency, "cycle")} for the first load` +
        (later ? ` and ${plural(later, "cycle")} for later ones.` : ", and for no later one.")
      const enough = `A step computes for ${plural(compute, "cycle")}, a load takes ${latency}, so ` +
        `${plural(needed, "stage")} ${stages < needed ? "would hide" : needed === 1 ? "hides" : "hide"} the wait.`
      const memory = fits
        ? `${Math.round(bytes / 1024)} KB of shared memory fit.`
        : `But ${Math.round(bytes / 1024)} KB of shared memory are more than the ${Math.round(shared / 1024)} KB of a program.`
      return `${plural(stages, "stage")}, tiles of ${tile}: after the first tiles the tensor cores ${busy}. ${idle} ${enough} ${memory}`
    },
    names: { latency: value => `${value} cycles` },
  }
})
