// Which tiles of a product come from memory and which from the L2 cache, step by step. Model: as many programs run at a time as
// there are multiprocessors, in the order of annotated_examples/common/tile_order.py; in a step each loads its next tile
// of x and of y; the cache holds so many tiles, and what was used longest ago goes first.
explorables.define("l2", ({ Panel, axes, clamp, grouped, percent, range }) => {
  /** The tile of each program: down a group of rows first, then to the right. */
  function order(tiles, group) {
    return range(0, tiles * tiles).map(pid => {
      const first = Math.floor(pid / (group * tiles)) * group, height = Math.min(tiles - first, group), inside = pid % (group * tiles)
      return [first + inside % height, Math.floor(inside / height)]
    })
  }

  /** The running programs of a step: [pid, step along K]. Neighbours start `lag` steps apart. */
  function running(step, lag, { tiles, places }) {
    return range(0, places).flatMap(place => {
      const own = step - place * lag, pid = Math.floor(own / tiles) * places + place
      return own < 0 || pid >= tiles * tiles ? [] : [[pid, own % tiles]]
    })
  }

  const steps = (lag, { tiles, places }) => tiles * tiles / places * tiles + (places - 1) * lag

  /** Every load in turn, as the number of its tile (x first, then y), and where each step begins. */
  function loads(group, lag, facts) {
    const { tiles } = facts, at = order(tiles, group), found = [], starts = []
    for (let step = 0; step < steps(lag, facts); step++) {
      starts.push(found.length)
      for (const [pid, k] of running(step, lag, facts)) found.push(at[pid][0] * tiles + k, tiles * tiles + k * tiles + at[pid][1])
    }
    return { found, starts }
  }

  /** How many loads find their tile in a cache of each size, 0 to all tiles: from how many others were used since. */
  function hits(found, all) {
    const stack = [], at = Array(all + 1).fill(0)
    for (const tile of found) {
      const depth = stack.lastIndexOf(tile)
      if (depth >= 0) { at[stack.length - depth]++; stack.splice(depth, 1) }
      stack.push(tile)
    }
    for (let size = 1; size <= all; size++) at[size] += at[size - 1]
    return at
  }

  const kept = {}
  function curve(group, lag, facts) {
    const key = `${group} ${lag} ${facts.tiles} ${facts.places}`
    if (!kept[key]) {
      const all = loads(group, lag, facts)
      kept[key] = { ...all, hits: hits(all.found, 2 * facts.tiles ** 2) }
    }
    return kept[key]
  }

  function model({ group, capacity, lag, step }, facts) {
    const { found, starts, hits: whole } = curve(group, lag, facts)
    const now = clamp(step, 0, starts.length), end = starts[now] ?? found.length, begin = now ? starts[now - 1] : 0
    const cache = new Map(), last = new Map(), gone = new Set()
    let hit = 0
    for (let place = 0; place < end; place++) {
      const tile = found[place], isHit = cache.delete(tile)
      hit += isHit
      cache.set(tile, place)
      if (cache.size > capacity) {
        const oldest = cache.keys().next().value
        cache.delete(oldest)
        if (place >= begin) gone.add(oldest)
      }
      if (place >= begin) last.set(tile, last.get(tile) === false ? false : isHit)
    }
    return {
      step: now, steps: starts.length, loads: end, hit, whole: whole[capacity], all: found.length,
      rates: whole.map(each => each / found.length), plain: curve(1, lag, facts).hits.map(each => each / found.length),
      cached: [...cache.keys()], now: [...last], gone: [...gone], running: now ? running(now - 1, lag, facts).map(([pid]) => pid) : [],
    }
  }

  function matrices({ step, steps: most, cached, now, gone, running: pids, hit, loads: count }, { group }, { tiles }) {
    const panel = new Panel(400, `${tiles} x ${tiles} tiles, GROUP_M = ${group}`)
    const side = 10, wide = side * tiles, left = 190, top = 212, above = 30
    const held = new Set(cached), lost = new Set(gone), here = new Map(now)
    const kind = tile => here.has(tile) ? here.get(tile) ? "g strong" : "r strong" : held.has(tile) ? "a" : lost.has(tile) ? "off dashed" : "off"
    const draw = (x, y, first) => {
      const later = []
      range(0, tiles * tiles).forEach(place => {
        const box = [x + place % tiles * side, y + Math.floor(place / tiles) * side, side, side, kind(first + place)]
        if (here.has(first + place)) later.push(box)
        else panel.box(...box)
      })
      later.forEach(box => panel.box(...box))
    }
    panel.text(left - 8, above + 14, "y", "", "end")
    panel.text(0, top - 6, "x")
    draw(0, top, 0)
    draw(left, above, tiles * tiles)
    const at = order(tiles, group), busy = new Set(pids)
    const first = pids.length ? Math.min(...pids) : 0
    at.forEach(([row, column], pid) => panel.box(left + column * side, top + row * side, side, side, busy.has(pid) ? "b strong" : pid < first ? "b" : "off"))
    panel.text(0, 40, `step ${step} of ${most}`, "small")
    const fresh = now.filter(([, isHit]) => !isHit).length
    panel.text(0, 64, `${now.length} different tiles loaded,`, "small")
    panel.text(0, 82, `${fresh} from memory`, "small")
    panel.text(0, 106, `in L2: ${cached.length} tiles`, "small")
    panel.text(0, 136, "found in L2 so far:", "small")
    panel.text(0, 156, count ? `${percent(hit / count)} of ${grouped(count)} loads` : "nothing loaded yet", "small bold")
    const legend = [["r strong", "from memory"], ["g strong", "from L2"], ["a", "held"], ["b strong", "running"]]
    legend.forEach(([fill, words], place) => {
      panel.box([1, 108, 190, 256][place], 384, 11, 11, fill)
      panel.text([18, 125, 207, 273][place], 394, words, "small")
    })
    return panel
  }

  function plot({ rates, plain, whole, all }, { capacity, group }, { tiles }) {
    const panel = new Panel(400, "Share of all loads found in L2"), most = 2 * tiles * tiles
    const at = axes(panel, [44, 42, 306, 236], [0, 128, 256, 384, 512], [0, 0.25, 0.5, 0.75, 1], ["tiles that L2 holds", ""])
    const line = (shares, kind) => panel.line(range(0, most + 1, 4).map(size => at(size, shares[size])), `curve ${kind}`)
    line(plain, "p dashed")
    line(rates, "b")
    panel.dot(...at(capacity, rates[capacity]), "a", 7)
    const [x] = at(capacity, 0)
    panel.line([[x, 42], [x, 278]], "dashed")
    panel.line([[0, 336], [26, 336]], "curve b")
    panel.text(34, 340, `GROUP_M = ${group}: ${percent(whole / all)} with ${capacity} tiles`, "small")
    panel.line([[0, 360], [26, 360]], "curve p dashed")
    panel.text(34, 364, `row by row: ${percent(plain[capacity])}`, "small")
    panel.text(0, 392, `from memory: ${grouped(all - whole)} tiles; x and y have ${most}`, "small")
    return panel
  }

  return {
    model,
    draw: (found, values, facts) => [matrices(found, values, facts), plot(found, values, facts)],
    highest: ({ lag }, facts) => ({ step: steps(lag, facts) }),
    names: { lag: lag => lag === 0 ? "none" : lag === 1 ? "1 step" : `${lag} steps`, step: step => String(step) },
    words({ whole, all, plain, step, steps: most, loads: count, hit }, { group, capacity, lag }) {
      const sum = `With GROUP_M = ${group} and room for ${capacity} tiles, ${percent(whole / all)} of all loads find their tile in L2; row by row it is ${percent(plain[capacity])}. `
      const behind = lag ? `Each program runs ${lag} ${lag === 1 ? "step" : "steps"} behind its neighbour. ` : ""
      return `${sum}${behind}After step ${step} of ${most}: ${grouped(count)} loads, ${count ? percent(hit / count) : "none"} found.`
    },
  }
})
