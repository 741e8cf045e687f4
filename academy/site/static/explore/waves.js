// Programs on 132 SMs, one on each at a time. Model: a program takes its start and its work; the work is 1, more or less by
// the jitter. The next program goes where a place becomes free. A persistent kernel starts once on each multiprocessor, and takes
// every 132nd piece of the work.
explorables.define("waves", ({ Panel, percent, plural, range }) => {
  /** Between 0 and 1, the same for every reader. */
  function chance(number) {
    let x = Math.imul(number + 1, 0x9E3779B1) >>> 0
    x = Math.imul(x ^ x >>> 15, 0x85EBCA6B) >>> 0
    return ((x ^ x >>> 13) >>> 0) / 2 ** 32
  }

  function model({ programs, jitter, start, split, persistent }, { sms }) {
    const free = Array(sms).fill(0), pieces = [], count = programs * split, cost = start / 100
    let work = 0
    for (let piece = 0; piece < count; piece++) {
      const length = (1 + jitter / 100 * (2 * chance(Math.floor(piece / split)) - 1)) / split
      const place = persistent ? piece % sms : free.indexOf(Math.min(...free))
      const begins = persistent && free[place] ? 0 : cost
      pieces.push({ place, from: free[place], begins, until: free[place] + begins + length })
      free[place] = pieces.at(-1).until
      work += length
    }
    const end = Math.max(...free)
    return { pieces, count, end, work, busy: work / (sms * end), rounds: Math.ceil(count / sms), first: Math.min(...free) }
  }

  const SCALES = [2.6, 5, 7.5, 12]  // the time that the drawing holds

  function panel({ pieces, end, busy, rounds }, { programs, split, time }, { sms }) {
    const drawn = new Panel(372, `${plural(programs, "program")}${split > 1 ? `, each cut in ${split}` : ""}`)
    const wide = 330 / sms, left = 30, top = 42, longest = SCALES.find(scale => end <= scale), high = 300 / longest, now = Math.min(time / 100, end)
    drawn.text(left, 36, `${sms} SMs, side by side`, "tiny")
    drawn.box(left, top, 330, high * end, "off")
    const kinds = ["a", "b", "g", "p"], turn = Array(sms).fill(0)
    for (const { place, from, begins, until } of pieces) {
      const kind = kinds[turn[place]++ % kinds.length]
      if (from >= now) continue
      const x = left + place * wide, y = top + from * high
      if (begins) drawn.box(x, y, wide, (Math.min(from + begins, now) - from) * high, "r bare")
      if (from + begins < now) drawn.box(x, y + begins * high, wide, (Math.min(until, now) - from - begins) * high, `${kind} bare`)
    }
    for (const at of range(0, Math.floor(longest) + 1)) {
      drawn.text(left - 8, top + at * high + 5, at, "tiny", "end")
      drawn.line([[left - 4, top + at * high], [left, top + at * high]])
    }
    drawn.line([[left, top + now * high], [360, top + now * high]], "strong")
    drawn.text(0, 366, `${plural(rounds, "wave")}, time ${end.toFixed(2)}`, "bold")
    drawn.text(360, 366, `${percent(busy)} of the places busy`, "", "end")
    return drawn
  }

  return {
    model,
    draw: (found, values, facts) => [panel(found, values, facts)],
    highest: (values, facts) => ({ time: Math.ceil(20 * model(values, facts).end) * 5 }),
    names: { jitter: share => `± ${share}%`, start: share => `${share}%`, time: time => (time / 100).toFixed(2) },
    words({ end, work, busy, rounds, count, first }, { persistent }, { sms }) {
      return `${plural(count, "piece")} of work on ${sms} SMs${persistent ? ", persistent" : ""}: ${plural(rounds, "wave")}, done after ${end.toFixed(2)}. ` +
        `Shared evenly, the work would take ${(work / sms).toFixed(2)}. ${percent(busy)} of the places are busy` +
        (first < end - 1e-9 ? `. The first multiprocessor to run out of work does so after ${first.toFixed(2)}.` : ".")
    },
  }
})
