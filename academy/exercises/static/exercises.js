// Which exercises are solved: kept in this browser, shown wherever a page links to one.
const KEY = "academy.exercises"

function solved() {
  try {
    return new Set(JSON.parse(localStorage.getItem(KEY)) ?? [])
  } catch {
    return new Set() // storage is switched off, or holds something else
  }
}

function mark() {
  const done = solved()
  for (const link of document.querySelectorAll(".md-content a[href]")) {
    const name = link.pathname.match(/\/exercises\/([^/]+\/[^/]+)\/$/)?.[1]
    if (!name || !done.has(name) || link.nextElementSibling?.matches(".exercise-done")) continue
    link.insertAdjacentHTML("afterend", '<span class="exercise-done" role="img" aria-label="solved" title="Solved in this browser"></span>')
  }
}

// The editor says how a check ended in the `data-state` of its outcome element.
function watch(editor) {
  const look = () => {
    if (!editor.querySelector('[data-academy="outcome"][data-state="passed"]')) return
    const done = solved().add(editor.dataset.exercise)
    try {
      localStorage.setItem(KEY, JSON.stringify([...done].sort()))
    } catch { /* storage is switched off: nothing is remembered */ }
  }
  new MutationObserver(look).observe(editor, { subtree: true, childList: true, attributes: true, attributeFilter: ["data-state"] })
}

document.addEventListener("DOMContentLoaded", () => {
  mark()
  for (const editor of document.querySelectorAll("[data-exercise]")) watch(editor)
})
addEventListener("pageshow", event => { if (event.persisted) mark() })
