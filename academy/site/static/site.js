// What pages do in the browser. They read without it: no formula, no text and no code depends on a script.

// Boxes that scroll sideways can be reached by keyboard.
const SCROLLING = {
  "div.arithmatex": "Formula, scrolls sideways",
  ".md-typeset__scrollwrap": "Table, scrolls sideways",
  ".k-code code, .highlight pre > code": "Code, scrolls sideways",
}

// On which sides the content of a box is cut; there its edge is soft.
const sides = box => [box.scrollLeft > 1, box.scrollLeft + box.clientWidth < box.scrollWidth - 1]

function soften(box, [left, right]) {
  box.classList.toggle("cut-left", left)
  box.classList.toggle("cut-right", right)
}

// All are measured before the first is changed: turn about, each change would have the page laid out again.
function reachable(boxes) {
  const cut = boxes.map(sides), scrolls = boxes.map(box => box.scrollWidth > box.clientWidth)
  for (const [i, box] of boxes.entries()) {
    soften(box, cut[i])
    if (scrolls[i] && !box.hasAttribute("tabindex")) { // by a pixel, too, which cuts nothing
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

// The switch between light and dark: each click shows. The first leads to the other scheme than the system's, the next back
// to what the system says. `academyScheme` has applied what was chosen before the page was painted.
function schemeSwitch() {
  const button = document.querySelector(".scheme-switch"), system = matchMedia("(prefers-color-scheme: dark)")
  const WORDS = { "": "Follow the system", default: "Switch to light", slate: "Switch to dark" }
  const other = () => (system.matches ? "default" : "slate")
  const next = chosen => (chosen === other() ? "" : other())
  const show = () => {
    const chosen = academyScheme()
    button.dataset.chosen = chosen
    button.title = WORDS[next(chosen)]
    button.setAttribute("aria-label", button.title)
  }
  // All at once: the theme's sheet ends transitions while this attribute is set.
  const change = () => {
    document.body.setAttribute("data-md-color-switching", "")
    show()
    requestAnimationFrame(() => setTimeout(() => document.body.removeAttribute("data-md-color-switching")))
  }
  button.addEventListener("click", () => {
    const scheme = next(academyScheme())
    __md_set("__palette", scheme && { color: { scheme } })
    change()
  })
  system.addEventListener("change", change)
  addEventListener("pageshow", event => { if (event.persisted) show() })
  show()
}

// Boxes that scroll are measured when they get a size: what is far from the window is not laid out until it comes near.
function watchBoxes() {
  // After the theme's own look at the same boxes, which takes a phone's the keyboard's focus.
  const sizes = new ResizeObserver(entries => setTimeout(() => reachable(entries.map(entry => entry.target))))
  const known = new WeakSet()
  const scrolling = () => [...document.querySelectorAll(Object.keys(SCROLLING).join())]
  const newBoxes = () => {
    for (const box of scrolling()) {
      if (known.has(box)) continue
      known.add(box)
      sizes.observe(box)
      box.addEventListener("scroll", () => soften(box, sides(box)), { passive: true })
    }
  }
  newBoxes()
  // The theme, an editor or a run adds boxes later, and the theme the copy buttons: looked at once in a frame.
  const changed = new Set()
  new MutationObserver(records => {
    if (!changed.size) requestAnimationFrame(() => {
      fewerLandmarks()
      newBoxes()
      reachable(scrolling().filter(box => changed.has(box.parentElement)))
      changed.clear()
    })
    for (const { target } of records) changed.add(target)
  }).observe(document.querySelector(".md-content") ?? document.body, { childList: true, subtree: true })
  // Text that gets its font late may be wider than it was, in a box that stays as wide: nothing else tells.
  document.fonts?.addEventListener("loadingdone", () => requestAnimationFrame(() => {
    reachable(scrolling().filter(box => box.checkVisibility?.({ contentVisibilityAuto: true }) ?? true))
  }))
}

// The page has been read when its scripts come. Each begins at once, in a task of its own: all of them at the event that
// says so (DOMContentLoaded) would be one long task, along with the theme's, and a phone would not answer meanwhile.
schemeSwitch()
document.querySelector(".md-search")?.setAttribute("aria-label", "Search")
document.querySelector(".md-path")?.setAttribute("aria-label", "Path to this page")
fewerLandmarks()
watchBoxes()
