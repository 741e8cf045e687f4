// A sum over ranks in three ways, over time. Model: a step takes a latency, and its bytes over the bandwidth of one link in one
// direction. A ring sends a part to the neighbour in each of 2 (R - 1) steps; a tree sends the whole tensor, log2 R steps up and as
// many down, where the root sends in each step down and nobody in more; one-shot sends the whole to all the others, in one step,
// over the same link. `sent` is what travels over one link in a step, `most` what the busiest rank sends in all.
explorables.define("all_reduce", ({ Panel, bytes, plural, range }) => {
  function model({ size, ranks }, { latency, bandwidth }) {
    const payload = size * 1024, levels = Math.ceil(Math.log2(ranks))
    const ways = [
      { name: "ring", kind: "b", steps: 2 * (ranks - 1), sent: payload / ranks, most: 2 * (ranks - 1) * payload / ranks },
      { name: "tree", kind: "g", steps: 2 * levels, sent: payload, most: levels * payload },
      { name: "one-shot", kind: "p", steps: 1, sent: payload * (ranks - 1), most: payload * (ranks - 1) },
    ].map(way => ({ ...way, step: latency + way.sent / bandwidth, wait: latency }))
    for (const way of ways) way.time = way.steps * way.step
    return { ways, fastest: ways.reduce((a, b) => b.time < a.time ? b : a).name }
  }

  const micros = time => time < 10 ? time.toFixed(1) : time < 10000 ? Math.round(time) : `${Math.round(time / 1000)} thousand`

  function panel({ ways, fastest }, { size, ranks }) {
    const drawn = new Panel(264, `${bytes(size * 1024)} on ${ranks} ranks`)
    const longest = Math.max(...ways.map(way => way.time)), wide = 356 / longest
    ways.forEach(({ name, kind, steps, step, wait, time, most }, place) => {
      const y = 44 + place * 72
      drawn.text(0, y, `${name}: ${plural(steps, "step")}, ${micros(time)} µs`, name === fastest ? "bold" : "")
      for (const at of range(0, steps)) {
        drawn.box(at * step * wide, y + 8, wait * wide, 26, "r bare")
        drawn.box((at * step + wait) * wide, y + 8, (step - wait) * wide, 26, `${kind} bare`)
      }
      for (const at of range(1, steps)) drawn.line([[at * step * wide, y + 8], [at * step * wide, y + 34]])
      const who = name === "tree" ? "the root, the busiest rank," : "each rank"
      drawn.text(0, y + 50, `${who} sends ${bytes(Math.round(most))}`, "small")
    })
    return drawn
  }

  return {
    model,
    draw: (found, values) => [panel(found, values)],
    names: { size: size => bytes(size * 1024) },
    words({ ways, fastest }, { size, ranks }) {
      const told = ways.map(({ name, steps, time }) => `${name} ${micros(time)} µs in ${plural(steps, "step")}`).join(", ")
      return `${bytes(size * 1024)} on ${ranks} ranks: ${told}. The fastest is ${fastest}.`
    },
  }
})
