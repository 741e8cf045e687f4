// Points of a plot say what they stand for: under the mouse, at a touch, and with the arrow keys when the plot has the focus.
// Without this script they have their titles, which browsers show too, and the table under the plot.
function plotPoints(plot) {
  const tip = document.createElement("div")
  tip.className = "bench-tip"
  tip.setAttribute("role", "status")
  let at = null
  const shown = () => [...plot.querySelectorAll(".bench-point")].filter(point => point.getBoundingClientRect().width)
  const show = point => {
    at?.classList.remove("bench-at")
    at = point
    tip.remove()
    if (!at) return
    at.classList.add("bench-at")
    tip.textContent = at.dataset.told
    plot.append(tip)
    const box = plot.getBoundingClientRect(), mark = at.getBoundingClientRect()
    tip.style.left = `${Math.max(0, Math.min(mark.x - box.x - tip.offsetWidth / 2, box.width - tip.offsetWidth))}px`
    tip.style.top = `${mark.y - box.y - tip.offsetHeight - 4}px`
  }
  for (const point of plot.querySelectorAll(".bench-point")) {
    const title = point.querySelector("title")
    point.dataset.told = title.textContent
    title.remove() // or the browser would show it over ours
  }
  plot.addEventListener("pointerover", event => show(event.target.closest(".bench-point")))
  plot.addEventListener("pointerleave", () => show(null))
  plot.addEventListener("blur", () => show(null))
  plot.addEventListener("focus", () => { if (plot.matches(":focus-visible")) show(shown()[0]) })
  plot.addEventListener("keydown", event => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key]
    if (!by) return event.key === "Escape" && show(null)
    event.preventDefault()
    const points = shown()
    show(points[Math.max(0, Math.min(points.length - 1, points.indexOf(at) + by))])
  })
}

document.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".bench-plot").forEach(plotPoints))
