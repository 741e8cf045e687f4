// Warps that wait for memory, on one multiprocessor. Model: a warp asks for some loads at once, waits until all have come, works on
// them, and begins again. A load comes back after the latency at the earliest, and one after the other: the multiprocessor's
// share of the memory's bandwidth passes so many bytes in a nanosecond. `facts.rate`: that share.
explorables.define("latency", ({ Panel, axes, bytes, clamp, plural, range }) => {
  const LANES = 32, SLOTS = 64, END = 2000, HIGH = 256

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

  /** How long a warp is busy with one round: from asking until it asks again, if it has the memory to itself. */
  const round = ({ loads, size, latency, work }, rate) => latency + (loads - 1) * LANES * size / rate + work

  /** The share of the bandwidth that is used, once all is under way: the formula below the picture. */
  const share = (values, rate) => Math.min(1, values.warps * values.loads * LANES * values.size / (rate * round(values, rate)))

  /** `least`: what has to be asked for at once by Little's law, if a warp asked again at once for what has come. `needed`: what
      it takes here, where a warp asks again only after its whole round. */
  function model(values, { rate }) {
    const asked = values.warps * values.loads * LANES * values.size, ns = round(values, rate)
    return {
      rounds: simulate(values, rate, END), share: share(values, rate), asked, least: rate * values.latency, needed: rate * ns, ns,
      registers: values.loads * values.size / 4,
    }
  }

  /** Rounded down: 100% is all of it. */
  const told = used => `${Math.floor(100 * used)}%`

  function timeline({ rounds }, { warps, loads, latency, time }) {
    const panel = new Panel(392, `${warps} ${warps === 1 ? "warp" : "warps"}, ${loads} ${loads === 1 ? "load" : "loads"} at once`)
    const left = 64, wide = 296, top = 84, high = Math.min(16, HIGH / warps), at = ns => left + wide * clamp(ns, 0, time) / END
    panel.text(0, 56, "memory", "small")
    panel.box(left, 40, wide, 24, "off")
    panel.text(0, top + 12, "warps", "small")
    panel.box(left, top, wide, HIGH, "off bare", "", "", { "fill-opacity": 0.4 })
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
      panel.line([[x, 40], [x, top + HIGH + 4]], "rule")
      panel.text(x, top + HIGH + 18, ns, "tiny", ns === END ? "end" : "middle")
    }
    panel.text(0, top + HIGH + 18, "ns", "tiny")
    const legend = [["a", "waits"], ["b", "its bytes come"], ["g", "works"]]
    legend.forEach(([kind, words], place) => {
      panel.box([64, 146, 268][place], 372, 14, 14, kind)
      panel.text([84, 166, 288][place], 384, words, "small")
    })
    return panel
  }

  function plot({ share: used, asked, least, needed, registers }, values, { rate }) {
    const panel = new Panel(392, "Share of the bandwidth, against warps")
    const at = axes(panel, [44, 42, 296, 200], [0, 16, 32, 48, 64], [0, 0.5, 1], ["warps on the SM", ""])
    for (const loads of [1, 2, 4, 8]) {
      const points = range(0, SLOTS + 1).map(warps => at(warps, share({ ...values, loads, warps }, rate)))
      panel.line(points, loads === values.loads ? "curve b" : "curve rule")
    }
    for (const loads of [1, 2, 4, 8]) {
      const full = range(1, SLOTS + 1).find(warps => share({ ...values, loads, warps }, rate) === 1)
      if (full) panel.text(at(full, 1)[0], 37, loads === 1 ? "1 load" : loads, "tiny", loads > 1 ? "middle" : full > 48 ? "end" : "")
    }
    panel.dot(...at(values.warps, used), "a", 7)
    // Green only where memory never pauses: Little's law is not enough where warps pause between their rounds.
    const at_least = 150 * least / needed
    panel.text(0, 292, `asked for at once: ${bytes(asked)}`, "small")
    panel.text(at_least, 311, `Little's law: ${bytes(least)} or more`, "small")
    panel.box(0, 320, 300, 16, "off")
    panel.box(0, 320, Math.min(300, 150 * asked / needed), 16, asked >= needed ? "g" : asked >= least ? "a" : "r", "", "asked")
    panel.line([[at_least, 315], [at_least, 340]], "strong")
    panel.line([[150, 316], [150, 344]], "strong")
    panel.text(156, 352, `with these rounds: ${bytes(needed)}`, "small")
    panel.text(0, 371, `occupancy ${told(values.warps / SLOTS)}`, "small")
    panel.text(0, 388, `${plural(registers, "register")} a thread for what is under way`, "small")
    return panel
  }

  return {
    model,
    draw: (found, values, facts) => [timeline(found, values), plot(found, values, facts)],
    names: { latency: ns => `${ns} ns`, work: ns => `${ns} ns`, time: ns => `${ns} ns`, size: size => `${size} bytes` },
    words({ share: used, asked, least, needed, ns, registers }, { warps, loads, size }) {
      return `${used === 1 ? "Memory never pauses." : `Memory sends ${told(used)} of what it could.`} ` +
        `${warps} of ${SLOTS} warps, each thread with ${plural(loads, "load")} of ${size} bytes: ${bytes(asked)} are asked for at once. ` +
        `Little's law wants ${bytes(least)} at least. A warp asks again only after ${Math.round(ns)} ns, so it takes ${bytes(needed)}. ` +
        `A thread needs ${plural(registers, "register")} for what is under way.`
    },
  }
})
