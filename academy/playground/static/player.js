// A function that plays its recorded run as soon as the page is there, with one line that can be changed and run. Nothing of
// Python is loaded before Run. The page's part is made by `academy.site.playground_page.player`:
//
//     <div data-academy="player" data-path="FILE" data-recorded="NAME" data-lines="…" data-change="LINE">
//
// data-still beside these: it waits for Play. The element says what it is doing in data-state: "playing" after the recording
// has come, then what the outcome says ("loading", "running", "passed", "differs", "failed", "error").
import { fileLines, SAID, tell } from "./outcome.js"
import { ask } from "./runtime.js"

const LAST = 1e6 // whatever the last step is
const { make, mount, recorded, relined } = academyViewer

export async function play(root) {
  const { path, lines, change, recorded: name } = root.dataset
  const file = root.querySelector(".k-file"), view = root.querySelector(".t-view")
  const toFile = fileLines(lines) // line of the starter - 1 -> line of the file
  const place = file.querySelector(`.k-n[data-n="${change}"]`).nextElementSibling
  const original = place.textContent.replace(/\n$/, ""), indent = /^ */.exec(original)[0]
  const line = make("input", { type: "text", class: "p-change", value: original.trim(), "aria-label": "The line to change", spellcheck: "false", autocapitalize: "off", autocomplete: "off" })
  place.replaceChildren(indent, line)
  const outcome = make("div", { class: "p-outcome", role: "status", "data-academy": "outcome", "data-state": "idle" })
  const run = make("button", { type: "button", class: "p-button", "data-action": "run", onclick: () => go() }, "Run")
  const reset = make("button", { type: "button", class: "p-button", "data-action": "reset", onclick: () => back() }, "Reset")
  file.querySelector(".k-row").append(make("div", { class: "p-actions", role: "toolbar", "aria-label": "Player" }, run, reset), outcome)
  line.addEventListener("keydown", event => { if (event.key === "Enter") go() })
  line.addEventListener("input", () => academyDrafts.keep(draft, line.value.trim() === original.trim() ? null : line.value))
  const draft = `${path}:${change}`
  line.value = academyDrafts.get(draft) ?? line.value

  let viewer = null, busy = false
  const show = (data, from = 0) => {
    viewer?.remove()
    viewer = mount(view, data, { file, still: true })
    viewer.go({ launch: data.main ?? 0, pid: [0], step: from }, false)
  }
  const state = (state, more = {}, data) => {
    root.dataset.state = state
    tell(outcome, { state, ...more }, number => viewer?.toLine(number))
    if (data) show(data)
  }
  const still = () => "still" in root.dataset || matchMedia("(prefers-reduced-motion: reduce)").matches

  const begin = async () => {
    show(await recorded(name), still() ? LAST : 0)
    root.dataset.state = "playing"
    if (!still()) viewer.play()
  }

  async function go() {
    if (busy) return
    busy = run.disabled = true
    const starter = await (await fetch(new URL(`starters/${path}`, import.meta.url))).text()
    const text = starter.split("\n"), at = toFile.indexOf(+change)
    text[at] = indent + line.value.trim()
    const source = text.join("\n")
    let answer
    try {
      answer = await ask({ action: "run", path, source, original: starter }, told => state(told ? "loading" : "running", { said: told ?? "Running…" }))
    } catch (error) {
      answer = { state: "error", problems: [{ line: null, message: `Python could not be loaded: ${error.message}` }] }
    }
    busy = run.disabled = false
    const problems = answer.problems.map(problem => ({ ...problem, line: toFile[problem.line - 1] || null }))
    const data = answer.data?.launches.length ? relined(answer.data, new Map(toFile.map((number, i) => [i + 1, number]))) : null
    state(answer.state, { said: SAID[answer.same ? "same" : answer.state], problems }, data)
    if (data) viewer.go(answer.stopped ? { launch: answer.stopped[0], pid: answer.stopped[1], step: LAST } : { step: LAST }, false)
  }

  function back() {
    line.value = original.trim()
    academyDrafts.keep(draft, null)
    state("idle")
    begin()
  }

  await begin()
}
