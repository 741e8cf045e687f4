// The sectors of 32 bytes that one load of a warp touches: `sectors` of docs/guides/snippets/gpu.py.
explorables.define("coalescing", ({ Panel, short }) => {
  const SECTOR = 32, LANES = 32, SHOWN = 128, COLUMNS = 16

  function model({ stride, size }) {
    const lanes = Array(SHOWN).fill(0)
    for (let lane = 0; lane < LANES; lane++) lanes[Math.floor(lane * stride * size / SECTOR)]++
    const sectors = lanes.filter(Boolean).length
    return { lanes, sectors, useful: LANES * size / (SECTOR * sectors) }
  }

  function panel({ lanes, sectors, useful }, { stride, size }) {
    const drawn = new Panel(262, `Stride ${stride}, ${size} ${size === 1 ? "byte" : "bytes"} each`)
    drawn.cells(0, 26, SHOWN / COLUMNS, COLUMNS, 22.5,
      (row, column) => lanes[row * COLUMNS + column] ? "a" : "off", (row, column) => lanes[row * COLUMNS + column] || "")
    drawn.text(0, 230, `${sectors} sectors = ${sectors * SECTOR} bytes fetched`)
    drawn.text(0, 251, `${LANES * size} bytes wanted: ${Number((100 * useful).toPrecision(4))}% useful`)
    return drawn
  }

  const neighbours = size => ({ stride: 1, size })
  return {
    model,
    draw: (found, values) => [panel(model(neighbours(values.size)), neighbours(values.size)), panel(found, values)],
    words: ({ sectors, useful }, { stride, size }) =>
      `32 threads, ${stride === 1 ? "side by side" : `${stride} elements apart`}, ${size} bytes each: ` +
      `${sectors} sectors of 32 bytes are fetched, ${short(100 * useful)}% of that was asked for.`,
  }
})
