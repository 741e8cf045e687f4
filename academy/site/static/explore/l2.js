// Which tiles of a product come from memory and which from the L2 cache, step by step. Model: as many programs run at a time as
// there are multiprocessors, in the order of annotated_examples/common/tile_order.py; in a step each loads its next tile
// of x and of y; the cache holds so many tiles, and what was used longest ago goes first.
explorables.define("l2", ({ Panel, axes, clamp, grouped, percent, plural, range }) => {
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

  const HIGH = 420
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
    let hit = 0, fresh = 0
    for (let place = 0; place < end; place++) {
      const tile = found[place], isHit = cache.delete(tile)
      hit += isHit
      cache.set(tile, place)
      if (cache.size > capacity) {
        const oldest = cache.keys().next().value
        cache.delete(oldest)
        if (place >= begin) gone.add(oldest)
      }
      if (place < begin) continue
      fresh += !isHit
      const before = last.get(tile)
      last.set(tile, before === undefined ? isHit ? "found" : "brought" : before === "brought" && isHit ? "shared" : before)
    }
    return {
      step: now, steps: starts.length, loads: end, hit, whole: whole[capacity], all: found.length,
      rates: whole.map(each => each / found.length), plain: curve(1, lag, facts).hits.map(each => each / found.length),
      cached: [...cache.keys()], now: [...last], here: end - begin, fresh, gone: [...gone], running: now ? running(now - 1, lag, facts).map(([pid]) => pid) : [],
    }
  }

  /** How a tile is drawn that was loaded in this step: by whom it was found. */
  const LOADED = { brought: "r strong", shared: "r strong", found: "g strong" }

  function matrices({ step, steps: most, cached, now, here: asked, fresh, gone, running: pids, hit, loads: count }, { group }, { tiles }) {
    const panel = new Panel(HIGH, `${tiles} × ${tiles} tiles, GROUP_M = ${group}`)
    const side = 10, wide = side * tiles, left = 190, top = 212, above = 30
    const held = new Set(cached), lost = new Set(gone), here = new Map(now)
    const kind = tile => LOADED[here.get(tile)] ?? (held.has(tile) ? "a" : lost.has(tile) ? "off dashed" : "off")
    /** The lower half of a tile that one program brings and others of the step find. */
    const half = (x, y, size) => panel.box(x + 1.2, y + size / 2, size - 2.4, size / 2 - 1.2, "g bare")
    const draw = (x, y, first) => {
      const later = []
      range(0, tiles * tiles).forEach(place => {
        const box = [x + place % tiles * side, y + Math.floor(place / tiles) * side, side, side, kind(first + place)]
        if (here.has(first + place)) later.push([first + place, ...box])
        else panel.box(...box)
      })
      later.forEach(([place, ...box]) => {
        panel.box(...box)
        if (here.get(place) === "shared") half(box[0], box[1], side)
      })
    }
    panel.text(left - 8, above + 14, "y", "", "end")
    panel.text(0, top - 6, "x")
    draw(0, top, 0)
    draw(left, above, tiles * tiles)
    const at = order(tiles, group), busy = new Set(pids)
    const first = pids.length ? Math.min(...pids) : 0
    at.forEach(([row, column], pid) => panel.box(left + column * side, top + row * side, side, side, busy.has(pid) ? "b strong" : pid < first ? "b" : "off"))
    panel.text(0, 40, `Step ${step} of ${most}`, "small bold")
    panel.text(0, 60, step ? `${asked} loads of ${now.length} tiles:` : "nothing loaded yet", "small")
    panel.text(0, 78, step ? `${fresh} from memory, ${asked - fresh} found` : "", "small")
    panel.text(0, 98, `L2 now holds ${cached.length} tiles`, "small")
    panel.text(0, 134, `So far, after ${plural(step, "step")}`, "small bold")
    panel.text(0, 154, count ? `${percent(hit / count)} of ${grouped(count)} loads` : "nothing loaded yet", "small")
    panel.text(0, 172, count ? "found in L2" : "", "small")
    const legend = [
      ["r strong", "from memory", 1, 0], ["r strong", "from memory, then found by others", 108, 0],
      ["g strong", "found", 1, 1], ["a", "held", 72, 1], ["off dashed", "dropped", 132, 1], ["b strong", "running", 210, 1], ["b", "done", 286, 1],
    ]
    legend.forEach(([fill, words, x, row], place) => {
      panel.box(x, 384 + 20 * row, 11, 11, fill)
      if (place === 1) half(x, 384, 11)
      panel.text(x + 17, 394 + 20 * row, words, "small")
    })
    return panel
  }

  function plot({ rates, plain, whole, all }, { capacity, group }, { tiles }) {
    const panel = new Panel(HIGH, "The whole product: share of loads found in L2"), most = 2 * tiles * tiles
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
      const sum = `With GROUP_M = ${group} and room for ${capacity} tiles, the whole product finds ${percent(whole / all)} of its loads in L2; row by row it finds ${percent(plain[capacity])}. `
      const behind = lag ? `Each program runs ${lag} ${lag === 1 ? "step" : "steps"} behind its neighbour. ` : ""
      return `${sum}${behind}So far, after step ${step} of ${most}, ${count ? percent(hit / count) : "none"} of ${plural(count, "load")} found theirs.`
    },
  }
})
