// What pages do in the browser. They read without it: no formula, no text and no code depends on a script.

// Boxes that scroll sideways can be reached by keyboard.
const SCROLLING = {
  "div.arithmatex": "Formula, scrolls sideways",
  ".md-typeset__scrollwrap": "Table, scrolls sideways",
  ".k-code code": "Code, scrolls sideways",
}

function reachable(boxes) {
  for (const box of boxes) {
    if (box.scrollWidth > box.clientWidth + 1 && !box.hasAttribute("tabindex")) {
      box.tabIndex = 0
      box.setAttribute("role", "group")
      box.setAttribute("aria-label", Object.entries(SCROLLING).find(([selector]) => box.matches(selector))[1])
    }
  }
}

// A button beside each piece of a kernel file, as the theme adds to other code; the theme's script does the copying.
function copyButtons(file) {
  for (const pre of file.querySelectorAll(":scope > .k-row > .k-code > pre")) {
    pre.id = `code-${pre.querySelector(".k-l").id}`
    pre.insertAdjacentHTML("afterbegin", `<div class="md-code__nav"><button type="button" class="md-code__button" data-md-type="copy" ` +
      `title="Copy to clipboard" aria-label="Copy to clipboard" data-clipboard-target="#${pre.id} code"></button></div>`)
  }
}

// The line of code that is topmost in sight keeps its place while `change` moves everything else.
function keepPlace(change) {
  const line = [...document.querySelectorAll(".k-l")].find(line => line.getBoundingClientRect().top > 120)
  const before = line?.getBoundingClientRect().top
  change()
  if (line) scrollBy({ top: line.getBoundingClientRect().top - before, behavior: "instant" })
}

function kernelPage(file, bar) {
  const root = document.documentElement
  const notes = bar.querySelector("[data-k-notes]")
  const showNotes = hidden => {
    root.classList.toggle("k-notes-hidden", hidden)
    notes.setAttribute("aria-pressed", hidden)
    notes.textContent = hidden ? "Show notes" : "Hide notes"
  }
  showNotes(root.classList.contains("k-notes-hidden"))
  notes.addEventListener("click", () => keepPlace(() => {
    const hidden = !root.classList.contains("k-notes-hidden")
    localStorage.setItem("academy.notes", hidden ? "hidden" : "shown")
    showNotes(hidden)
  }))

  // Read, Run and Edit. The viewer listens to "academy:mode" on .k-file; it can also ask for a mode by that event.
  const modes = [...bar.querySelectorAll("[data-k-mode]")]
  const panel = file.querySelector(":scope > .k-panel")
  const setMode = mode => keepPlace(() => {
    file.classList.toggle("k-running", mode === "run")
    file.classList.toggle("k-editing", mode === "edit")
    panel.hidden = mode !== "run"
    notes.hidden = mode !== "read"
    for (const button of modes) button.setAttribute("aria-pressed", button.dataset.kMode === mode)
  })
  for (const button of modes) {
    button.addEventListener("click", () => file.dispatchEvent(new CustomEvent("academy:mode", { detail: button.dataset.kMode })))
  }
  if (panel) file.addEventListener("academy:mode", event => setMode(event.detail))

  const copy = bar.querySelector("[data-k-copy]")
  copy.addEventListener("click", async () => {
    try {
      const answer = await fetch(bar.querySelector(".k-download").href)
      if (!answer.ok) throw new Error(answer.statusText)
      await navigator.clipboard.writeText(await answer.text())
      copy.textContent = "Copied"
    } catch {
      copy.textContent = "Not copied: use Download"
    }
    setTimeout(() => { copy.textContent = "Copy file" }, 2500)
  })
}

// The theme makes a landmark of each copy button and of each level of the table of contents; those are no landmarks.
function fewerLandmarks() {
  for (const nav of document.querySelectorAll(".md-code__nav:not([role]), .md-sidebar--secondary .md-nav .md-nav:not([role])")) {
    nav.removeAttribute("aria-label")
    nav.setAttribute("role", "presentation")
  }
}

document.addEventListener("DOMContentLoaded", () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search")
  document.querySelector(".md-path")?.setAttribute("aria-label", "Path to this page")
  fewerLandmarks()
  new MutationObserver(fewerLandmarks).observe(document.querySelector(".md-content") ?? document.body, { childList: true, subtree: true })
  const file = document.querySelector(".k-file")
  const bar = document.querySelector(".k-bar")
  if (file && bar) {
    kernelPage(file, bar)
    copyButtons(file)
  }
  const boxes = [...document.querySelectorAll(Object.keys(SCROLLING).join())]
  const sizes = new ResizeObserver(entries => reachable(entries.map(entry => entry.target)))
  for (const box of boxes) sizes.observe(box)
  // What is out of sight is not laid out, and measuring lays it out: a few at a time, when there is nothing else to do.
  const idle = window.requestIdleCallback ?? (task => setTimeout(task, 50))
  const measure = () => {
    reachable(boxes.splice(0, 4))
    if (boxes.length) idle(measure)
    else document.documentElement.dataset.measured = "" // for tests
  }
  idle(measure)
})
