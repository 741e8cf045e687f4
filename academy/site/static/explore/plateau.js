// Which keys of a row of scores are selected, as `select_keys` of annotated_examples/attention chooses them: the larger score
// first, of equal ones the earlier key. Field `k` is how many; `facts.scores` the row.
explorables.define("plateau", ({ Panel, plural, range }) => {
  const CELL = 15, HIGH = 120, FOOT = 172

  function model({ k }, { scores }) {
    const order = range(0, scores.length).sort((a, b) => scores[b] - scores[a] || a - b)
    const threshold = scores[order[k - 1]]
    const above = scores.filter(x => x > threshold).length, tied = scores.filter(x => x === threshold).length
    return { keys: order.slice(0, k).sort((a, b) => a - b), threshold, above, tied }
  }

  function row({ keys, threshold }, { k }, { scores }) {
    const panel = new Panel(232, `${scores.length} scores, ${k} selected`), largest = Math.max(...scores)
    const low = Math.min(...scores, 0), scale = HIGH / (largest - low), zero = FOOT + low * scale
    const height = x => zero - x * scale
    scores.forEach((x, place) => {
      const left = place * CELL, kept = keys.includes(place)
      const kind = !kept ? "off" : x === threshold ? "a" : "b"
      panel.box(left + 2, Math.min(height(x), zero) - (x === 0 ? 2 : 0), CELL - 4, Math.max(Math.abs(x * scale), 4), kind)
      if (kept) panel.text(left + CELL / 2, 194, place, "tiny", "middle")
      panel.box(left, 26, CELL, 176, "bare", "", `key-${place}`)
    })
    panel.line([[0, zero], [360, zero]], "rule")
    panel.line([[0, height(threshold)], [360, height(threshold)]], "strong")
    panel.text(0, 222, `threshold ${threshold}`.replace("-", "−"), "small")
    return panel
  }

  return {
    model,
    draw: (found, values, facts) => [row(found, values, facts)],
    words: ({ threshold, above, tied }, { k }) =>
      `The threshold is ${String(threshold).replace("-", "−")}. ${plural(above, "score")} above it ${above === 1 ? "is" : "are"} kept, and ` +
      `of the ${plural(tied, "score")} at it the first ${plural(k - above, "one")}.`,
    touch: (part, point, values, { scores }, found) => {
      const place = Number(part.split("-")[1])
      const before = scores.filter((x, other) => x > scores[place] || (x === scores[place] && other < place)).length
      return { k: before + 1 }
    },
  }
})
