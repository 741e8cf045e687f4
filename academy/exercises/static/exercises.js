// Which exercises are solved, and with which text: kept in this browser, shown wherever a list links to one.
const SOLVED = "academy.exercises", ANSWERS = "academy.answers"

function kept(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? otherwise
  } catch {
    return otherwise // storage is switched off, or holds something else
  }
}

function keep(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value))
  } catch { /* storage is switched off: nothing is remembered */ }
}

// Stages that were called otherwise, when an exercise of theirs was solved.
const STAGES = { choosing: "sampling", eight_bits: "fp8", experts: "moe", four_bits: "mx", low_bit: "gemlite" }
const now = exercise => exercise.replace(/^[^/]+/, stage => STAGES[stage] ?? stage)
const known = () => kept(SOLVED, []).map(now)
const answers = () => Object.fromEntries(Object.entries(kept(ANSWERS, {})).map(([name, text]) => [now(name), text]))

const exerciseOf = link => link.pathname.match(/\/exercises\/([^/]+\/[^/]+)\/$/)?.[1]
const TICK = '<span class="exercise-done" role="img" aria-label="solved" title="Solved in this browser"></span>'
// Breadcrumbs and the sidebar's sections lead to the first exercise below them, which is not what they name.
const LINKS = ".md-content li:not(.md-path__item) a[href], .exercise-links a[href], " +
  ".md-nav--primary .md-nav__item:not(.md-nav__item--nested, .md-nav__item--section) > a.md-nav__link[href]"

function mark() {
  const done = known()
  if (!done.length) return
  for (const link of document.querySelectorAll(LINKS)) {
    if (link.closest(".md-path") || !done.includes(exerciseOf(link))) continue
    if (link.matches(".md-nav__link")) link.querySelector(".exercise-done") ?? link.insertAdjacentHTML("beforeend", TICK)
    else if (!link.nextElementSibling?.matches(".exercise-done")) link.insertAdjacentHTML("afterend", TICK)
  }
  const title = document.querySelector(".md-content h1"), here = document.querySelector("[data-exercise]")?.dataset.exercise
  if (title && done.includes(here) && !title.querySelector(".exercise-done")) title.insertAdjacentHTML("beforeend", TICK)
}

// On the page of all exercises: how many of each stage are solved, and which comes next.
function overview() {
  const spot = document.querySelector("[data-exercises]"), done = known()
  if (!spot) return
  const links = [...document.querySelectorAll(".md-content ol.path > li > a[href]")].filter(exerciseOf)
  const solved = link => done.includes(exerciseOf(link))
  for (const count of document.querySelectorAll(".exercise-count")) {
    const own = [...count.nextElementSibling.querySelectorAll(":scope > li > a[href]")].filter(solved).length
    count.querySelector("span")?.remove()
    if (own) count.insertAdjacentHTML("beforeend", `<span> ${own} solved.</span>`)
  }
  const all = links.filter(solved).length, next = links.find(link => !solved(link))
  const more = next ? [all ? "Next: " : "Begin with ", Object.assign(document.createElement("a"), { href: next.href, textContent: next.textContent }), "."] : []
  spot.replaceChildren(`${all} of ${links.length} solved. `, ...more)
  spot.hidden = false
}

// The editor says how a check ended in the `data-state` of its outcome element.
function watch(editor) {
  const look = () => {
    if (!editor.querySelector('[data-academy="outcome"][data-state="passed"]')) return
    const { exercise } = editor.dataset
    keep(SOLVED, [...new Set(known()).add(exercise)].sort())
    keep(ANSWERS, { ...answers(), [exercise]: editor.academyText })
    mark()
  }
  new MutationObserver(look).observe(editor, { subtree: true, childList: true, attributes: true, attributeFilter: ["data-state"] })
}

mark()
overview()
for (const editor of document.querySelectorAll("[data-exercise]")) {
  const answer = answers()[editor.dataset.exercise]
  if (answer) {
    // Opens the editor, whose Reset goes back to the starter. What was typed since has been opened already.
    if (window.academyDrafts?.get(editor.dataset.exercise) == null) editor.academyText = answer
    editor.querySelector(".p-actions")?.insertAdjacentHTML("afterend", '<p class="p-about exercise-answer">You solved this, and this is your answer. Reset shows the starter.</p>')
    editor.addEventListener("click", ({ target }) => { if (target.closest("[data-action=reset]")) editor.querySelector(".exercise-answer")?.remove() })
  }
  watch(editor)
}
addEventListener("pageshow", event => {
  if (!event.persisted) return
  mark()
  overview()
})
