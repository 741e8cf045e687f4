// A plot's readout: everything that stands in the row nearest to the mouse or the finger, or chosen by the arrow keys.
// An entry of the legend shows its series alone; several pressed ones are compared.
// Without this script points have their titles, which browsers show too, and the table under the plot.
function plotReadout(plot) {
  const figure = plot.closest("figure"), legend = figure.querySelector(".bench-legend")
  const rows = JSON.parse(plot.dataset.rows ?? "[]")
  const buttons = [...legend?.querySelectorAll("button") ?? []]
  const tip = document.createElement("div")
  tip.className = "bench-tip"
  tip.setAttribute("role", "status")
  let at = null
  const chosen = () => buttons.filter(button => button.getAttribute("aria-pressed") === "true")
  const isShown = series => !chosen().length || chosen().some(button => button.dataset.series === series)
  const seriesOf = point => point.closest("[data-series]").dataset.series
  const points = () => [...plot.querySelectorAll(".bench-point")]
    .filter(point => point.getBoundingClientRect().width && isShown(seriesOf(point)))

  const line = (words, mark, name) => {
    const made = document.createElement("div")
    made.className = name
    if (mark) made.append(mark.cloneNode(true))
    made.append(words)
    return made
  }
  const show = point => {
    for (const each of plot.querySelectorAll(".bench-at")) each.classList.remove("bench-at")
    at = point
    tip.remove()
    if (!at) return
    const [heading, ...values] = rows[at.dataset.row]
    for (const each of points()) if (each.dataset.row === at.dataset.row) each.classList.add("bench-at")
    const told = values.flatMap((value, series) => {
      if (!value || !isShown(String(series))) return []
      const button = buttons.find(each => each.dataset.series === String(series))
      const name = button ? `${button.textContent}: ` : ""
      const text = line(name + value, button?.firstElementChild, String(series) === seriesOf(at) ? "bench-this" : "")
      return [[parseFloat(value), text]]
    })
    told.sort(([a], [b]) => b - a)
    tip.replaceChildren(line(heading, null, "bench-row"), ...told.map(([, text]) => text))
    plot.append(tip)
    const box = plot.getBoundingClientRect(), mark = at.getBoundingClientRect()
    const left = mark.x + mark.width / 2 - box.x - tip.offsetWidth / 2, above = mark.y - box.y - tip.offsetHeight - 12
    tip.style.left = `${Math.max(0, Math.min(left, box.width - tip.offsetWidth))}px`
    tip.style.top = `${box.y + above < 0 ? mark.bottom - box.y + 12 : above}px`
  }
  const nearest = event => {
    let found = null, least = 48
    for (const point of points()) {
      const { x, y, width, height } = point.getBoundingClientRect()
      const far = Math.hypot(x + width / 2 - event.clientX, y + height / 2 - event.clientY)
      if (far < least) { found = point; least = far }
    }
    return found
  }

  if (rows.length) {
    for (const title of plot.querySelectorAll(".bench-point > title")) title.remove() // the browser's would lie over ours
    plot.addEventListener("pointermove", event => {
      const found = event.pointerType === "mouse" ? nearest(event) : at
      if (found !== at) show(found)
    })
    plot.addEventListener("click", event => show(nearest(event)))
    plot.addEventListener("pointerleave", event => { if (event.pointerType === "mouse") show(null) })
    document.addEventListener("pointerdown", event => { if (at && !plot.contains(event.target)) show(null) })
    plot.addEventListener("blur", () => show(null))
    plot.addEventListener("focus", () => { if (plot.matches(":focus-visible")) show(points()[0] ?? null) })
    plot.addEventListener("keydown", event => {
      const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key]
      if (!by) return event.key === "Escape" && show(null)
      event.preventDefault()
      const firsts = new Map() // a point for each row, of the series shown first
      for (const point of points()) if (!firsts.has(point.dataset.row)) firsts.set(point.dataset.row, point)
      const order = [...firsts.keys()].sort((a, b) => a - b)
      const place = at ? order.indexOf(at.dataset.row) + by : 0
      show(firsts.get(order[Math.max(0, Math.min(order.length - 1, place))]))
    })
  }
  legend?.addEventListener("click", event => {
    const button = event.target.closest("button")
    if (!button) return
    button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"))
    for (const drawn of plot.querySelectorAll("[data-series]"))
      drawn.classList.toggle("bench-dim", !isShown(drawn.dataset.series))
    show(null)
  })
}

document.querySelectorAll(".bench-plot").forEach(plotReadout)
