// What pages do in the browser. They read without it: no formula, no text and no code depends on a script.

// Boxes that scroll sideways can be reached by keyboard.
const SCROLLING = {
  "div.arithmatex": "Formula, scrolls sideways",
  ".md-typeset__scrollwrap": "Table, scrolls sideways",
  ".k-code code, .highlight pre > code": "Code, scrolls sideways",
}

// A box whose content is cut says on which side: its edge there is soft.
function edges(box) {
  const left = box.scrollLeft > 1, right = box.scrollLeft + box.clientWidth < box.scrollWidth - 1
  box.classList.toggle("cut-left", left)
  box.classList.toggle("cut-right", right)
}

function reachable(boxes) {
  for (const box of boxes) {
    edges(box)
    if (box.scrollWidth > box.clientWidth && !box.hasAttribute("tabindex")) {
      box.tabIndex = 0
      box.setAttribute("role", "group")
      box.setAttribute("aria-label", Object.entries(SCROLLING).find(([selector]) => box.matches(selector))[1])
    }
  }
}

// The theme makes a landmark of each copy button and of each level of the table of contents; those are no landmarks.
function fewerLandmarks() {
  for (const nav of document.querySelectorAll(".md-code__nav:not([role]), .md-sidebar--secondary .md-nav .md-nav:not([role])")) {
    nav.removeAttribute("aria-label")
    nav.setAttribute("role", "presentation")
  }
}

// The switch between light and dark: each click shows. The theme's own order begins with the scheme that the reader has, for
// it doesn't know which that is. Here the first click leads to the other one, the next back to what the system says.
function themeSwitch() {
  const system = matchMedia("(prefers-color-scheme: dark)")
  const AUTO = 0, LIGHT = 1, DARK = 2
  const lead = (from, to) => {
    const input = document.getElementById(`__palette_${from}`), label = input?.nextElementSibling
    if (!label) return
    const words = to === AUTO ? "Follow the system" : to === DARK ? "Switch to dark" : "Switch to light"
    label.htmlFor = `__palette_${to}`
    label.title = words
    input.setAttribute("aria-label", words)
  }
  const arrange = () => {
    lead(AUTO, system.matches ? LIGHT : DARK)
    lead(LIGHT, system.matches ? AUTO : DARK)
    lead(DARK, system.matches ? LIGHT : AUTO)
  }
  system.addEventListener("change", arrange)
  arrange()
}

document.addEventListener("DOMContentLoaded", () => {
  themeSwitch()
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search")
  document.querySelector(".md-path")?.setAttribute("aria-label", "Path to this page")
  fewerLandmarks()
  const sizes = new ResizeObserver(entries => reachable(entries.map(entry => entry.target)))
  const known = new WeakSet()
  const scrolling = () => [...document.querySelectorAll(Object.keys(SCROLLING).join())]
  const newBoxes = () => {
    const boxes = scrolling().filter(box => !known.has(box))
    for (const box of boxes) {
      known.add(box)
      sizes.observe(box)
      box.addEventListener("scroll", () => edges(box), { passive: true })
    }
    return boxes
  }
  const boxes = newBoxes()
  // An editor or a run adds boxes later.
  const later = () => { fewerLandmarks(); newBoxes() }
  new MutationObserver(later).observe(document.querySelector(".md-content") ?? document.body, { childList: true, subtree: true })
  // What is out of sight is not laid out, and measuring lays it out: a few at a time, when there is nothing else to do.
  const idle = window.requestIdleCallback ?? (task => setTimeout(task, 50))
  const measure = () => {
    reachable(boxes.splice(0, 4))
    if (boxes.length) idle(measure)
    else document.documentElement.dataset.measured = "" // for tests
  }
  idle(measure)
  // Text that gets its font late may be wider than it was, in a box that stays as wide: nothing else tells.
  document.fonts?.addEventListener("loadingdone", () => {
    boxes.push(...scrolling())
    idle(measure)
  })
})
