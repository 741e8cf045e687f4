// Which tiles the first programs of a product load, in the order of annotated_examples/common/tile_order.py.
explorables.define("l2_order", ({ Panel, range }) => {
  /** The tile of each program, row by row within groups of rows, down a group first. */
  function order(rows, columns, group) {
    return range(0, rows * columns).map(pid => {
      const first = Math.floor(pid / (group * columns)) * group
      const height = Math.min(rows - first, group), inside = pid % (group * columns)
      return [first + inside % height, Math.floor(inside / height)]
    })
  }

  function model({ group }, { blocks }) {
    const tiles = order(blocks, blocks, group), first = tiles.slice(0, blocks)
    const rows = new Set(first.map(tile => tile[0])), columns = new Set(first.map(tile => tile[1]))
    return { tiles, left: rows.size * blocks, right: columns.size * blocks }
  }

  function panel({ tiles, left, right }, group, blocks) {
    const side = 18.5, at = 190, top = 205, drawn = new Panel(374, `GROUP_M = ${group}`)
    const first = tiles.slice(0, blocks)
    const rows = new Set(first.map(tile => tile[0])), columns = new Set(first.map(tile => tile[1]))
    drawn.text(0, 40, `The first ${blocks} programs load`, "small")
    drawn.text(0, 60, `${left} tiles of x`)
    drawn.text(0, 80, `${right} tiles of y`)
    drawn.text(0, 104, `together ${left + right}`, "bold")
    drawn.cells(at, 24, blocks, blocks, side, (_, column) => columns.has(column) ? "b" : "")
    drawn.text(at - 8, 40, "y", "", "end")
    drawn.cells(0, top, blocks, blocks, side, row => rows.has(row) ? "a" : "")
    drawn.text(0, top - 6, "x")
    tiles.forEach(([row, column], pid) => {
      const x = at + column * side, y = top + row * side
      drawn.box(x, y, side, side, pid < blocks ? "g" : "")
      drawn.text(x + side / 2, y + 13.5, pid, "tiny", "middle")
    })
    return drawn
  }

  return {
    model,
    draw: (found, { group }, facts) =>
      [panel(model({ group: 1 }, facts), 1, facts.blocks), panel(found, group, facts.blocks)],
    words: ({ left, right }, { group }, { blocks }) =>
      `With GROUP_M = ${group} the first ${blocks} programs load ${left} tiles of x and ${right} of y, together ${left + right}. ` +
      `Row by row it is ${blocks} and ${blocks * blocks}, together ${blocks + blocks * blocks}.`,
  }
})
