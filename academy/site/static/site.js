// What pages do in the browser. They read without it: no formula, no text and no code depends on a script.

// Boxes that scroll sideways can be reached by keyboard.
function reachable() {
  for (const box of document.querySelectorAll("div.arithmatex, .md-typeset__scrollwrap")) {
    if (box.scrollWidth > box.clientWidth + 1 && !box.hasAttribute("tabindex")) {
      box.tabIndex = 0
      box.setAttribute("role", "group")
      box.setAttribute("aria-label", box.matches(".arithmatex") ? "Formula, scrolls sideways" : "Table, scrolls sideways")
    }
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

  // Read and Run. The viewer listens to "academy:mode" on .k-file; it can also ask for a mode by that event.
  const modes = [...bar.querySelectorAll("[data-k-mode]")]
  const panel = file.querySelector(":scope > .k-panel")
  const setMode = mode => keepPlace(() => {
    file.classList.toggle("k-running", mode === "run")
    panel.hidden = mode !== "run"
    notes.hidden = mode === "run"
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
  fewerLandmarks()
  new MutationObserver(fewerLandmarks).observe(document.querySelector(".md-content") ?? document.body, { childList: true, subtree: true })
  const file = document.querySelector(".k-file")
  const bar = document.querySelector(".k-bar")
  if (file && bar) kernelPage(file, bar)
  reachable()
  addEventListener("resize", reachable)
})
