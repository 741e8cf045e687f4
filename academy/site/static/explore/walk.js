// Flash attention's walk: the loop of annotated_examples/attention/flash_attention.py, tile by tile.
// One head. Its scores are a formula, so that any query's row can be followed; tests/site/test_explorables.py gives the
// kernel the same ones, and compares tiles, bytes, maxima, sums and factors with its recorded run.
explorables.define("walk", ({ Panel, bytes, clamp, percent, range, short }) => {
  const T = 64, D = 16, SIZE = 4
  const score = (query, key) => 1.6 * Math.sin(0.7 * key + 0.35 * query) + 0.05 * key
  const value = key => Math.cos(0.4 * key)
  /** Q and K read, S written, S read, P written, P and V read, O written. */
  const NAIVE = (4 * T * D + 4 * T * T) * SIZE

  /** Keys that a query sees, from the first up to, but not including, the last: `keys_seen`. */
  function seen(query, { causal, window }) {
    const far = window === "all" ? T : window - 1
    return [Math.max(query - far, 0), Math.min(query + (causal ? 0 : far) + 1, T)]
  }

  /** Every tile that some program computes, in turn; and what its last query carries after it. */
  function walk(values) {
    const { block_m: M, block_n: N } = values, tiles = []
    for (let row = 0; row < T; row += M) {
      const rows = range(row, row + M).map(query => seen(query, values)), query = row + M - 1
      const first = Math.min(...rows.map(each => each[0])), last = Math.max(...rows.map(each => each[1]))
      let carried = { m: -Infinity, l: 0, acc: 0 }
      for (let start = Math.floor(first / N) * N; start < last; start += N) {
        const isFull = rows.every(([a, b]) => a <= start && start + N <= b)
        const keys = range(start, start + N).filter(key => rows[M - 1][0] <= key && key < rows[M - 1][1])
        const m = Math.max(carried.m, ...keys.map(key => score(query, key)))
        const alpha = m === -Infinity ? 1 : Math.exp(carried.m - m)
        const weights = keys.map(key => Math.exp(score(query, key) - m))
        const before = carried
        carried = {
          m,
          l: before.l * alpha + weights.reduce((sum, weight) => sum + weight, 0),
          acc: before.acc * alpha + weights.reduce((sum, weight, i) => sum + weight * value(keys[i]), 0),
        }
        tiles.push({ row, start, query, kind: isFull ? "full" : "masked", used: [Math.max(start, first), Math.min(start + N, last)], sees: keys.length, before, alpha, after: carried })
      }
    }
    return tiles
  }

  function model(values) {
    const { block_m: M, block_n: N } = values, tiles = walk(values)
    // Of a query: itself, its result, and a log-sum-exp in float64.
    const programs = T / M, fixed = programs * M * (2 * D + 2) * SIZE, round = 2 * N * D * SIZE
    const step = clamp(values.step, 0, tiles.length), done = tiles.slice(0, step)
    const begun = new Set(done.map(tile => tile.row)).size
    const count = { full: 0, masked: 0 }
    tiles.forEach(tile => count[tile.kind]++)
    const unseen = tiles.reduce((sum, { used: [from, until] }) => sum + N - (until - from), 0)
    return {
      unseen, idle: unseen * 2 * D * SIZE, tiles, step, count, skipped: programs * T / N - tiles.length, now: done.at(-1) ?? null,
      bytes: fixed + tiles.length * round, naive: NAIVE,
      moved: begun * fixed / programs + done.length * round,
    }
  }

  const FILL = { full: "g", masked: "a" }
  const LEFT = 46, SIDE = 4.8, TOP = 44, BOTTOM = TOP + T * SIDE

  function grid({ tiles, step, count, skipped, now, unseen }, { block_m: M, block_n: N, causal, window }) {
    const panel = new Panel(BOTTOM + 148, `${T} queries, ${T} keys, tiles of ${M} × ${N}`)
    panel.text(LEFT, 36, "keys, from 0 to 63", "small")
    panel.box(LEFT, TOP, T * SIDE, T * SIDE, "off")
    for (let at = N; at < T; at += N) panel.line([[LEFT + at * SIDE, TOP], [LEFT + at * SIDE, BOTTOM]], "rule")
    for (let at = M; at < T; at += M) panel.line([[LEFT, TOP + at * SIDE], [LEFT + T * SIDE, TOP + at * SIDE]], "rule")
    tiles.forEach((tile, place) => {
      const pale = { "fill-opacity": place < step ? 1 : 0.3 }
      const part = (from, until, kind) => panel.box(LEFT + from * SIDE, TOP + tile.row * SIDE, (until - from) * SIDE, M * SIDE, kind, "", "", pale)
      part(tile.start, tile.start + N, FILL[tile.kind])
      // A tile is loaded whole: what lies beside the keys that its queries see, too.
      const [from, until] = tile.used
      if (tile.start < from) part(tile.start, from, "r bare")
      if (until < tile.start + N) part(until, tile.start + N, "r bare")
    })
    if (now) {
      panel.box(LEFT + now.start * SIDE, TOP + now.row * SIDE, N * SIDE, M * SIDE, "strong")
      panel.text(LEFT - 6, TOP + (now.row + 1) * SIDE + 6, `${now.row}`, "tiny", "end")
      panel.text(LEFT - 6, TOP + (now.query + 1) * SIDE, M > 4 ? `${now.query}` : "", "tiny", "end")
    }
    // The scores of the query that the bars are about, below the keys that they belong to.
    const zero = BOTTOM + 82, unit = 12, query = now ? now.query : M - 1, [first, last] = seen(query, { causal, window })
    for (const key of range(first, last)) {
      const s = score(query, key) * unit
      const isPast = now && key < now.start + N, isNow = isPast && key >= now.start
      panel.box(LEFT + key * SIDE, zero - Math.max(s, 0), SIDE, Math.abs(s), isNow ? "p" : isPast ? "b" : "off bare")
    }
    panel.line([[LEFT, zero], [LEFT + T * SIDE, zero]], "rule")
    const steps = tiles.slice(0, step).filter(tile => now && tile.row === now.row && tile.after.l)
    const line = steps.flatMap(tile => [tile.start, tile.start + N].map(key => [LEFT + key * SIDE, zero - tile.after.m * unit]))
    if (line.length) panel.line(line, "curve r")
    panel.text(0, zero - 26, "scores", "small")
    panel.text(0, zero - 10, `of ${query}`, "small")
    const legend = [["g", `${count.full} full`, 0], ["a", `${count.masked} masked`, 74], ["off", `${skipped} skipped`, 168], ["r", `${unseen} unseen`, 268]]
    legend.forEach(([kind, words, x]) => {
      panel.box(x, BOTTOM + 126, 14, 14, kind)
      panel.text(x + 20, BOTTOM + 138, words, "small")
    })
    return panel
  }

  const number = x => x === -Infinity ? "−∞" : Math.abs(x) < 0.005 ? "0" : x.toFixed(2).replace("-", "−")

  /** What the tile did to its last query, as a formula and in words. */
  function told({ before, after, alpha, sees }) {
    if (!sees) return ["It sees none of these keys: nothing changes.", ""]
    if (!before.l) return ["Its first keys: there is nothing to rescale.", ""]
    const sums = `alpha = exp(${number(before.m)} − ${after.m < 0 ? `(${number(after.m)})` : number(after.m)}) = ${short(alpha)}`
    return [sums, alpha === 1 ? "No larger score: l and acc keep their size." : `A larger score: l and acc shrink to ${percent(alpha)}, then grow.`]
  }

  function bars({ now, bytes: whole, idle, unseen, moved, naive }, { block_m: M, block_n: N }) {
    const panel = new Panel(BOTTOM + 148, now ? `What query ${now.query} carries` : "What a query carries")
    const before = now?.before ?? { m: -Infinity, l: 0, acc: 0 }, after = now?.after ?? before
    const rows = [
      ["m", "largest score so far", 150, 30], ["l", "sum of exp(score − m)", 60, 18], ["acc", "the same sum, of weighted values", 150, 18],
    ]
    rows.forEach(([name, what, zero, unit], row) => {
      const y = 34 + row * 62, bar = x => x === -Infinity ? [zero, 0] : [zero + Math.min(x * unit, 0), Math.abs(x * unit)]
      panel.text(0, y + 12, name, "bold")
      panel.text(40, y + 12, what, "small")
      const [x, width] = bar(before[name])
      panel.box(x, y + 19, width, 9, "off")
      const [at, wide] = bar(after[name])
      panel.box(at, y + 29, wide, 13, "b")
      panel.line([[zero, y + 17], [zero, y + 44]])
      panel.text(360, y + 27, `before ${number(before[name])}`, "tiny dim", "end")
      panel.text(360, y + 42, number(after[name]), "small bold", "end")
    })
    const y = 226
    const said = now ? told(now) : ["No tile yet.", ""]
    panel.text(0, y, said[0], "small")
    panel.text(0, y + 20, said[1], "small")
    panel.text(0, 292, "Bytes that programs load and store", "bold")
    const most = 150000, scale = x => 300 * x / most
    panel.text(0, 316, "with the matrix of scores in memory", "small")
    panel.box(0, 322, scale(naive), 18, "r")
    panel.text(scale(naive) + 8, 336, bytes(naive), "small")
    panel.text(0, 366, `in one pass: ${bytes(whole)} in all, ${bytes(moved)} so far`, "small")
    panel.box(0, 372, scale(whole), 18, "off")
    panel.box(0, 372, scale(moved), 18, "b")
    panel.box(scale(whole - idle), 372, scale(idle), 18, "r")
    panel.text(scale(whole) + 8, 386, `${bytes(whole)} in all`, "small")
    panel.text(0, 414, unseen ? `${bytes(idle)} of it for keys that no query sees` : "nothing for keys that no query sees", "small")
    panel.text(0, 434, `scores held at once: ${bytes(SIZE * M * N)} instead of ${bytes(SIZE * T * T)}`, "small")
    return panel
  }

  return {
    model,
    draw: (found, values) => [grid(found, values), bars(found, values)],
    highest: values => ({ step: walk(values).length }),
    names: { step: (step, values) => `${step} of ${walk(values).length}` },
    words({ tiles, step, now, bytes: whole, naive, count, skipped, unseen, idle }, { block_m: M, block_n: N, window }) {
      const which = now && `Program ${now.row / M} has just seen keys ${now.start} to ${now.start + N - 1}. Query ${now.query} `
      const what = now && (!now.sees ? "sees none of them."
        : !now.before.l ? `starts with m = ${number(now.after.m)}.`
        : now.alpha === 1 ? "met no larger score, so nothing is rescaled."
        : `met a larger score: m rises from ${number(now.before.m)} to ${number(now.after.m)}, and l and acc are multiplied by ${short(now.alpha)}.`)
      const where = now ? `${which}${what} ` : ""
      const whole_tiles = unseen
        ? ` Tiles ${window === "all" ? "on the diagonal" : "at the edges of what is seen"} are read whole: ${bytes(idle)} of that are ${unseen} keys, and their values, that no query of their program sees.`
        : ""
      return `The whole walk moves ${bytes(whole)}; with the matrix of scores in memory it would be ${bytes(naive)}.${whole_tiles} ` +
        `${where}${step} of ${tiles.length} tiles are done (${count.full} full, ${count.masked} masked, ${skipped} skipped).`
    },
  }
})
