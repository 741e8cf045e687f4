// Softmax as one to five kernels. Each kernel reads a matrix that it needs once, and writes once what a later one needs; a
// column of maxima or sums is small, and not counted. Fields join1 … join4: is operation i in the kernel of the one before?
// `facts`: bytes of an element, rows, copy speed in bytes a second, what was measured: {width, apart, together} in ms.
explorables.define("fusion", ({ Panel, bytes, percent, plural, range, short, clamp }) => {
  const OPERATIONS = [
    { name: "maximum", reads: ["x"], makes: "", is_reduction: true },
    { name: "x − maximum", reads: ["x"], makes: "d" },
    { name: "exp", reads: ["d"], makes: "e" },
    { name: "sum", reads: ["e"], makes: "", is_reduction: true },
    { name: "divide", reads: ["e"], makes: "y" },
  ]
  const COUNT = OPERATIONS.length
  /** Registers that a thread has beside the row: addresses, masks, counters. */
  const OTHERS = 32

  function kernels(values) {
    const found = [[0]]
    for (const i of range(1, COUNT)) values[`join${i}`] ? found.at(-1).push(i) : found.push([i])
    return found
  }

  function model(values, { itemsize, rows, copy }) {
    const { width, warps } = values
    const groups = kernels(values).map(inside => {
      const made = inside.map(i => OPERATIONS[i].makes).filter(Boolean)
      const reads = [...new Set(inside.flatMap(i => OPERATIONS[i].reads))].filter(name => !made.includes(name))
      const later = OPERATIONS.slice(inside.at(-1) + 1).flatMap(each => each.reads)
      const writes = made.filter(name => name === "y" || later.includes(name))
      // Behind a reduction the row is needed again: until then it has to stay in registers.
      const holds = inside.some(i => OPERATIONS[i].is_reduction && i !== inside.at(-1))
      return { inside, reads, writes, holds }
    })
    const trips = groups.reduce((sum, { reads, writes }) => sum + reads.length + writes.length, 0)
    const allowed = Math.min(255, Math.floor(65536 / (32 * warps)))
    const wanted = Math.ceil(width / (32 * warps)) + OTHERS
    const spilled = Math.max(0, wanted - allowed) * 32 * warps
    const holding = groups.filter(group => group.holds).length
    // A spilled value is a float32 that is written and read again.
    const spills = holding * rows * Math.min(spilled, width) * 8
    const moved = trips * rows * width * itemsize
    return { groups, trips, moved, spills, wanted, allowed, holding, ms: (moved + spills) / copy * 1e3, least: 2 * rows * width * itemsize }
  }

  const TOP = 32, STEP = 54, HIGH = 44

  function flow({ groups }) {
    const panel = new Panel(306, plural(groups.length, "kernel"))
    for (const { inside, reads, writes } of groups) {
      const top = TOP + inside[0] * STEP, bottom = TOP + inside.at(-1) * STEP + HIGH
      panel.box(104, top - 3, 152, bottom - top + 6, "g")
      const middle = (top + bottom) / 2
      reads.forEach(name => {
        panel.arrow(34, middle, 100, middle)
        panel.text(6, middle + 5, name, "mono")
      })
      writes.forEach(name => {
        panel.arrow(260, middle, 326, middle)
        panel.text(336, middle + 5, name, "mono")
      })
    }
    OPERATIONS.forEach(({ name }, i) => panel.box(112, TOP + i * STEP, 136, HIGH, "b", name, `op-${i}`))
    return panel
  }

  function cost({ trips, moved, spills, wanted, allowed, holding, ms, least }, { width }) {
    const panel = new Panel(306, spills
      ? `${plural(trips, "pass", "passes")} over memory, and spilled registers: ${short(ms)} ms`
      : `${plural(trips, "pass", "passes")} over memory: ${short(ms)} ms`)
    const most = 4 * least, wide = amount => Math.min(360, 360 * amount / most)
    panel.text(0, 44, "Bytes moved", "small")
    panel.box(0, 52, 360, 26, "off bare")
    panel.box(0, 52, wide(moved), 26, "b")
    panel.box(wide(moved), 52, wide(moved + spills) - wide(moved), 26, "r")
    panel.line([[wide(least), 48], [wide(least), 82]], "strong")
    panel.text(wide(least) + 5, 98, "read once, write once", "small")
    panel.text(0, 124, `${bytes(moved, 1000)} loaded and stored`, "small")
    panel.text(0, 144, spills ? `${bytes(spills, 1000)} spilled` : "nothing spilled", "small")

    panel.text(0, 186, "Registers of a thread", "small")
    const most_registers = 512, share = count => Math.min(360, 360 * count / most_registers)
    panel.box(0, 194, 360, 26, "off bare")
    const used = holding ? wanted : Math.min(OTHERS + 16, allowed)
    panel.box(0, 194, share(Math.min(used, allowed)), 26, "p")
    panel.box(share(allowed), 194, share(used) - share(allowed), 26, "r")
    panel.line([[share(allowed), 190], [share(allowed), 224]], "strong")
    panel.text(Math.min(share(allowed) + 5, 236), 240, `at most ${allowed}`, "small")
    panel.text(0, 266, holding ? `a row of ${width} waits for its reduction:` : "no row has to wait for a reduction:", "small")
    panel.text(0, 286, holding ? `${wanted} registers wanted` : "its elements come and go", "small")
    return panel
  }

  return {
    model,
    draw: (found, values) => [flow(found), cost(found, values)],
    words({ groups, trips, moved, spills, ms, least }, { width }, { measured, rows }) {
      const named = groups.map(({ inside }) => inside.map(i => OPERATIONS[i].name).join(", ")).join(" | ")
      const spilled = spills
        ? ` The row no longer fits in the registers: ${bytes(spills, 1000)} spill, ${percent(spills / moved)} of what is loaded and stored.` : ""
      const time = width !== measured.width ? ""
        : groups.length === COUNT ? ` Measured, step by step in PyTorch: ${measured.apart} ms.`
          : groups.length === 1 ? ` Measured, as one kernel: ${measured.together} ms.` : ""
      return `${plural(groups.length, "kernel")} (${named}) on ${rows} rows of ${width}: ${plural(trips, "pass", "passes")} over memory, ` +
        `${bytes(moved, 1000)}, where ${bytes(least, 1000)} must move. At copy speed ${short(ms)} ms.${spilled}${time}`
    },
    /** Pressing an operation cuts it off or joins it to the one before; dragging it over others puts all into one kernel. */
    touch(part, { y, start }, values) {
      const from = Number(part.split("-")[1])
      const to = clamp(Math.round((y - TOP - HIGH / 2) / STEP), 0, COUNT - 1)
      if (start) return from ? { [`join${from}`]: 1 - values[`join${from}`] } : undefined
      if (to === from) return undefined
      return Object.fromEntries(range(Math.min(from, to) + 1, Math.max(from, to) + 1).map(i => [`join${i}`, 1]))
    },
  }
})
