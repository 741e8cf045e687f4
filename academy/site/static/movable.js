// Pictures that can be moved. Each function redraws the parts of its picture (`data-part`) for the values of its inputs.
// The formulas are those of docs/guides/snippets/gpu.py and of the kernels; tests/site/test_pictures.py compares them.

const SHORT = value => String(Number(value.toPrecision(3)))

const PICTURES = {
  // The order of programs, as annotated_examples/common/tile_order.py computes it; as many run at a time as a row has blocks.
  l2_order({ group }, part, { blocks }) {
    const rows = new Set(), columns = new Set()
    for (let pid = 0; pid < blocks * blocks; pid++) {
      const first = Math.floor(pid / (group * blocks)) * group
      const height = Math.min(blocks - first, group)
      const inside = pid % (group * blocks)
      const row = first + inside % height, column = Math.floor(inside / height)
      const runs = pid < blocks
      if (runs) { rows.add(row); columns.add(column) }
      part(`z-${row}-${column}`).setAttribute("class", runs ? "g" : "")
      part(`pid-${row}-${column}`).textContent = pid
    }
    for (let row = 0; row < blocks; row++) {
      for (let column = 0; column < blocks; column++) {
        part(`x-${row}-${column}`).setAttribute("class", rows.has(row) ? "a" : "")
        part(`y-${row}-${column}`).setAttribute("class", columns.has(column) ? "b" : "")
      }
    }
    part("title").textContent = `GROUP_M = ${group}`
    part("left").textContent = `${rows.size * blocks} tiles of x`
    part("right").textContent = `${columns.size * blocks} tiles of y`
    part("total").textContent = `together ${(rows.size + columns.size) * blocks}`
  },

  occupancy({ warps, registers, shared }, part) {
    const perWarp = Math.ceil(registers / 8) * 8 * 32
    const limits = {
      warps: Math.floor(64 / warps),
      programs: 32,
      registers: Math.floor(65536 / (perWarp * warps)),
      "shared memory": Math.floor(228 / (shared + 1)),
    }
    const fit = Math.min(...Object.values(limits))
    const tightest = Object.keys(limits).find(name => limits[name] === fit)
    Object.entries(limits).forEach(([name, room], row) => {
      part(`bar-${row}`).setAttribute("width", 200 * Math.min(room, 32) / 32)
      part(`bar-${row}`).setAttribute("class", name === tightest ? "a" : "b")
      part(`room-${row}`).textContent = room
    })
    part("fit").textContent = `${fit} programs fit, limit: ${tightest}`
    part("occupancy").textContent = `${fit * warps} of 64 warps: occupancy ${100 * fit * warps / 64}%`
  },

  roofline({ operations, moved }, part, { bytes, operations: most, ends, place }) {
    const perByte = operations / moved
    const times = { memory: moved / bytes, arithmetic: operations / most }
    const bound = times.memory >= times.arithmetic ? "memory" : "arithmetic"
    const [left, top, width, height] = place
    const share = (value, [low, high]) => Math.min(1, Math.max(0, Math.log(value / low) / Math.log(high / low)))
    part("dot").setAttribute("cx", left + share(perByte, ends[0]) * width)
    part("dot").setAttribute("cy", top + (1 - share(Math.min(most, perByte * bytes), ends[1])) * height)
    part("limit").textContent = `${SHORT(perByte)} operations per byte: ${bound}, at least ${SHORT(times[bound])} µs`
  },

  coalescing({ stride, size }, part) {
    const lanes = new Map()
    for (let lane = 0; lane < 32; lane++) {
      const sector = Math.floor(lane * stride * size / 32)
      lanes.set(sector, (lanes.get(sector) ?? 0) + 1)
    }
    for (let sector = 0; sector < 128; sector++) {
      const name = `sector-${Math.floor(sector / 16)}-${sector % 16}`
      part(name).setAttribute("class", lanes.has(sector) ? "a" : "off")
      part(`${name}-text`).textContent = lanes.get(sector) ?? ""
    }
    part("title").textContent = `Stride ${stride}, ${size} bytes each`
    part("fetched").textContent = `${lanes.size} sectors = ${lanes.size * 32} bytes fetched`
    part("useful").textContent = `${32 * size} bytes wanted: ${Number((100 * size / lanes.size).toPrecision(4))}% useful`
  },
}

for (const figure of document.querySelectorAll("figure[data-moves]")) {
  const form = figure.querySelector("form"), facts = JSON.parse(figure.dataset.facts)
  const part = name => figure.querySelector(`[data-part="${name}"]`)
  const draw = () => {
    const fields = [...form.elements].filter(field => field.name)
    if (!form.checkValidity()) return
    for (const field of fields) if (field.nextElementSibling) field.nextElementSibling.textContent = field.value
    PICTURES[figure.dataset.moves](Object.fromEntries(fields.map(field => [field.name, Number(field.value)])), part, facts)
  }
  form.addEventListener("submit", event => event.preventDefault())
  form.addEventListener("input", draw)
  form.addEventListener("reset", () => setTimeout(draw))
  form.hidden = false
  draw()
}
