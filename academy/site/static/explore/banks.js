// Thirty-two lanes of a warp read a tile in shared memory. A word of 4 bytes lies in bank `word mod 32`; a bank hands out
// one word at a time, to all lanes that want it.
explorables.define("banks", ({ Panel, plural, range }) => {
  const LANES = 32, BANKS = 32

  /** Where element (row, column) of the tile lies, in elements. Swizzled: the columns of row r are exchanged by xor with r. */
  function place(row, column, { width, padding, swizzle }) {
    const turned = swizzle ? column ^ (row % Math.min(width, BANKS)) : column
    return row * (width + padding) + turned
  }

  function model(values) {
    const { access, size, width } = values
    const words = range(0, LANES).map(lane => {
      const [row, column] = access === "a column" ? [lane, 0] : [Math.floor(lane / width), lane % width]
      return Math.floor(place(row, column, values) * size / 4)
    })
    const banks = range(0, BANKS).map(bank => [...new Set(words.filter(word => word % BANKS === bank))])
    // In which pass a lane gets its word: words of one bank are served one after the other.
    const trips = words.map(word => banks[word % BANKS].indexOf(word))
    return { words, trips, count: Math.max(...trips) + 1, used: banks.filter(bank => bank.length).length }
  }

  function draw({ words, trips, count }, { access }) {
    const CELL = 10.4, LEFT = 26, TOP = 44
    const panel = new Panel(404, `Each lane reads from one bank: ${plural(count, "pass", "passes")}`)
    panel.text(LEFT, 36, "bank 0", "tiny")
    panel.text(LEFT + BANKS * CELL, 36, "31", "tiny", "end")
    for (const lane of range(0, LANES)) {
      const y = TOP + lane * CELL
      if (lane % 8 === 0 || lane === LANES - 1) panel.text(LEFT - 5, y + 9, lane, "tiny", "end")
      panel.line([[LEFT, y + CELL / 2], [LEFT + BANKS * CELL, y + CELL / 2]], "rule")
      panel.box(LEFT + words[lane] % BANKS * CELL, y + 0.5, CELL, CELL - 1, trips[lane] ? "r" : "b")
    }
    panel.box(0, 386, 12, 12, "b")
    panel.text(17, 397, "served in the first pass", "small")
    panel.box(178, 386, 12, 12, "r")
    panel.text(195, 397, "has to wait for a later one", "small")
    return [panel]
  }

  return {
    model,
    draw,
    words({ words, count, used }, { access, size, width, padding, swizzle }) {
      const layout = swizzle ? `swizzled${padding ? " and padded" : ""}` : padding ? `padded by ${padding}` : "plain"
      const touched = `${plural(new Set(words).size, "word")} in ${plural(used, "bank")}`
      const cost = count === 1 ? "one pass, no conflict" : `${count} passes instead of 1`
      return `32 lanes read ${access} of a tile ${width} elements wide, ${size} bytes each, rows ${layout}: ` +
        `they want ${touched}, which takes ${cost}.`
    },
  }
})
