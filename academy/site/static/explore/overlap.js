// A ring of buffers over time, by the model of the chapter docs/learn/overlap.py: its function `schedule`.
explorables.define("overlap", ({ Panel, clamp, plural, range, short }) => {
  const LEFT = 84, TRACK = 276, TOP = 24, LANE = 26, MOST = 5

  function schedule(buffers, { copy, latency, compute }, steps) {
    const times = []
    for (let k = 0; k < steps; k++) {
      const free = k >= buffers ? times[k - buffers].done : 0, last = times[k - 1]
      const begins = Math.max(free, last ? last.begins + copy : 0), there = begins + copy + latency
      const starts = Math.max(there, last ? last.done : 0)
      times.push({ begins, sent: begins + copy, there, starts, done: starts + compute })
    }
    return times
  }

  function model(values, { steps }) {
    const { buffers, copy, latency, compute, time } = values
    const times = schedule(buffers, values, steps), end = times[steps - 1].done
    const limits = { "the tensor cores": compute, "the TMA": copy, "the buffers": (copy + latency + compute) / buffers }
    const longest = Math.max(...Object.values(limits))
    const at = (from, to) => times.flatMap((each, k) => each[from] <= time && time < each[to] ? [k] : [])
    return {
      times, end, alone: schedule(1, values, steps)[steps - 1].done, busy: steps * compute, each: longest,
      limit: Object.keys(limits).find(name => limits[name] === longest),
      now: { sent: at("begins", "sent"), coming: at("sent", "there"), waiting: at("there", "starts"), multiplied: at("starts", "done") },
    }
  }

  const unit = ({ alone }) => TRACK / alone

  function draw(found, { buffers, time }, { steps }) {
    const { times, end, alone, busy } = found
    const panel = new Panel(TOP + (2 + MOST) * LANE + 44, "What is under way when")
    const bar = (lane, first, last, kind, words = "") => {
      const x = LEFT + first * unit(found), width = (last - first) * unit(found), y = TOP + lane * LANE
      panel.box(x, y, width, LANE - 6, kind)
      if (words !== "" && width >= 9) panel.text(x + width / 2, y + 15, words, "tiny", "middle")
    }
    const names = ["TMA", "tensor cores", ...range(0, buffers).map(each => `buffer ${each}`)]
    names.forEach((name, lane) => panel.text(0, TOP + lane * LANE + 15, name, "small"))
    times.forEach(({ begins, sent, there, starts, done }, k) => {
      const lane = 2 + k % buffers
      bar(0, begins, sent, "b", k)
      bar(1, starts, done, "a", k)
      bar(lane, begins, there, "b", k)
      if (starts > there) bar(lane, there, starts, "off")
      bar(lane, starts, done, "a")
    })
    const bottom = TOP + (2 + MOST) * LANE, x = LEFT + Math.min(time, end) * unit(found)
    panel.line([[x, TOP - 4], [x, bottom - 4]], "r")
    panel.text(0, bottom + 16, `${steps} steps: ${end} units of time (one buffer: ${alone})`, "bold")
    panel.text(0, bottom + 36, `tensor cores at work: ${busy} of ${end}, ${Math.floor(100 * busy / end)}%`)
    panel.box(LEFT, TOP - 4, TRACK, bottom - TOP, "off bare", "", "track", { "fill-opacity": 0, style: "touch-action: pan-y" })
    return [panel]
  }

  const tiles = which => which.length === 1 ? `tile ${which[0]}` : `tiles ${which.slice(0, -1).join(", ")} and ${which.at(-1)}`

  function words({ end, alone, busy, each, limit, now }, { buffers, time }, { steps }) {
    const parts = [
      now.sent.length && `${tiles(now.sent)} is being sent`,
      now.coming.length && `${tiles(now.coming)} ${now.coming.length > 1 ? "are" : "is"} on the way`,
      now.waiting.length && `${tiles(now.waiting)} ${now.waiting.length > 1 ? "wait" : "waits"} in a buffer`,
      now.multiplied.length ? `${tiles(now.multiplied)} is being multiplied` : "nothing is multiplied",
    ].filter(Boolean)
    return `With ${plural(buffers, "buffer")} ${steps} steps take ${end} units of time, with one ${alone}. The tensor cores work for ` +
      `${busy} of the ${end}. In the long run a step takes ${short(each)}: ${limit} decide${limit.endsWith("s") ? "" : "s"}. ` +
      `At time ${time}: ${time >= end ? "all is done" : parts.join(", ")}.`
  }

  return {
    model, draw, words,
    highest: (values, { steps }) => ({ time: schedule(values.buffers, values, steps)[steps - 1].done }),
    touch: (part, { x }, values, facts, found) =>
      part === "track" ? { time: clamp(Math.round((x - LEFT) / unit(found)), 0, found.end) } : undefined,
  }
})
