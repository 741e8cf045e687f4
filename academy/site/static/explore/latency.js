// Warps that wait for memory, on one multiprocessor. Model: a warp asks for some loads at once, waits until all have come, works on
// them, and begins again. A load comes back after the latency at the earliest, and one after the other: the multiprocessor's
// share of the memory's bandwidth passes so many bytes in a nanosecond. `facts`: that share, and the guide's bytes in flight.
explorables.define("latency", ({ Panel, axes, bytes, clamp, percent, range }) => {
  const LANES = 32, SLOTS = 64, END = 2000

  /** What each warp does, and when memory sends: [warp, asked, sent from, sent until, ready again]. */
  function simulate({ warps, loads, size, latency, work }, rate, end) {
    const service = LANES * size / rate, rounds = [], ready = Array(warps).fill(0)
    let free = 0
    for (;;) {
      const start = Math.min(...ready)
      if (start >= end) return rounds
      const warp = ready.indexOf(start), sent = []
      for (let load = 0; load < loads; load++) {
        free = Math.max(start + latency - service, free) + service
        sent.push(free)
      }
      ready[warp] = free + work
      rounds.push({ warp, start, sent, service, ready: ready[warp] })
    }
  }

  /** The share of the bandwidth that is used, once all is under way: the formula below the picture. */
  function share({ warps, loads, size, latency, work }, rate) {
    const service = LANES * size / rate
    return Math.min(1, warps * loads * service / (latency + (loads - 1) * service + work))
  }

  function model(values, { rate }) {
    const rounds = simulate(values, rate, END), asked = values.warps * values.loads * LANES * values.size
    return { rounds, share: share(values, rate), inFlight: asked, wanted: rate * values.latency, registers: values.loads * values.size / 4 }
  }

  function timeline({ rounds }, { warps, loads, latency, time }) {
    const panel = new Panel(392, `${warps} ${warps === 1 ? "warp" : "warps"}, ${loads} ${loads === 1 ? "load" : "loads"} at once`)
    const left = 64, wide = 296, top = 84, high = 4, at = ns => left + wide * clamp(ns, 0, time) / END
    panel.text(0, 56, "memory", "small")
    panel.box(left, 40, wide, 24, "off")
    panel.text(0, top + 12, "warps", "small")
    panel.box(left, top, wide, high * SLOTS, "off bare", "", "", { "fill-opacity": 0.4 })
    // What memory sends runs together where it never pauses.
    const sent = rounds.flatMap(({ sent: ends, service }) => ends.map(end => [end - service, end])), spans = []
    for (const [from, until] of sent) {
      if (spans.length && from - spans.at(-1)[1] < 1e-6) spans.at(-1)[1] = until
      else spans.push([from, until])
    }
    for (const [from, until] of spans) if (from < time) panel.box(at(from), 40, at(until) - at(from), 24, "b")
    for (const { warp, start, sent: ends, service, ready } of rounds) {
      if (start >= time) continue
      const y = top + warp * high, done = ends.at(-1)
      panel.box(at(start), y + 0.5, at(done) - at(start), high - 1, "a bare")
      for (const end of ends) panel.box(at(end - service), y + 0.5, Math.max(0.8, at(end) - at(end - service)), high - 1, "b bare")
      panel.box(at(done), y + 0.5, at(ready) - at(done), high - 1, "g bare")
    }
    for (const ns of [0, 500, 1000, 1500, 2000]) {
      const x = left + wide * ns / END
      panel.line([[x, 40], [x, top + high * SLOTS + 4]], "rule")
      panel.text(x, top + high * SLOTS + 18, ns, "tiny", ns === END ? "end" : "middle")
    }
    panel.text(0, top + high * SLOTS + 18, "ns", "tiny")
    const legend = [["a", "waits"], ["b", "its bytes come"], ["g", "works"]]
    legend.forEach(([kind, words], place) => {
      panel.box([64, 146, 268][place], 372, 14, 14, kind)
      panel.text([84, 166, 288][place], 384, words, "small")
    })
    return panel
  }

  function plot({ share: used, inFlight, wanted, registers }, values, { rate }) {
    const panel = new Panel(392, "Share of the bandwidth, against warps")
    const at = axes(panel, [44, 42, 296, 200], [0, 16, 32, 48, 64], [0, 0.5, 1], ["warps on the multiprocessor", ""])
    for (const loads of [1, 2, 4, 8]) {
      const points = range(0, SLOTS + 1).map(warps => at(warps, share({ ...values, loads, warps }, rate)))
      panel.line(points, loads === values.loads ? "curve b" : "curve rule")
    }
    for (const loads of [1, 2, 4, 8]) {
      const full = range(1, SLOTS + 1).find(warps => share({ ...values, loads, warps }, rate) === 1)
      if (full) panel.text(at(full, 1)[0], 37, loads === 1 ? "1 load" : loads, "tiny", loads > 1 ? "middle" : full > 48 ? "end" : "")
    }
    panel.dot(...at(values.warps, used), "a", 7)
    panel.text(0, 300, `asked for at once: ${bytes(inFlight)}`, "small")
    panel.box(0, 308, 300, 16, "off")
    panel.box(0, 308, 300 * Math.min(1, inFlight / wanted / 2), 16, inFlight < wanted ? "r" : "g")
    panel.line([[150, 304], [150, 328]], "strong")
    panel.text(156, 342, `Little's law: ${bytes(wanted)}`, "small")
    panel.text(0, 366, `occupancy ${percent(values.warps / SLOTS)}`, "small")
    panel.text(0, 386, `${registers} ${registers === 1 ? "register" : "registers"} a thread for what is under way`, "small")
    return panel
  }

  return {
    model,
    draw: (found, values, facts) => [timeline(found, values), plot(found, values, facts)],
    names: { latency: ns => `${ns} ns`, work: ns => `${ns} ns`, time: ns => `${ns} ns`, size: size => `${size} bytes` },
    words({ share: used, inFlight, wanted, registers }, { warps, loads, size }) {
      return `${warps} of ${SLOTS} warps, each thread with ${loads} ${loads === 1 ? "load" : "loads"} of ${size} bytes under way: ` +
        `${bytes(inFlight)} are asked for at once, Little's law wants ${bytes(wanted)}. ` +
        `${used >= 0.995 ? "Memory never pauses." : `Memory sends ${percent(used)} of what it could.`} A thread needs ${registers} ${registers === 1 ? "register" : "registers"} for them.`
    },
  }
})
