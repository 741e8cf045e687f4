// A kernel that plays its recorded run as soon as the page is there, on the memory that it reads and writes, with one line that
// can be changed and run. Python is loaded when something is typed there, or at Run. The page's part is made by `academy.site.playground_page.live`.
// What it is doing stands in data-state: "playing" after the recording has come, then what the outcome says ("loading",
// "running", "passed", "differs", "error").
import { fileLines, relined, saidOf, tell } from "./outcome.js"
import { ask, prepare } from "./runtime.js"

const { make, recorded, Run } = academyViewer
const { number } = academyViewer.text
const PAUSE = 520, FIRST = 1100 // milliseconds: between two steps, and before the first one

export async function live(root) {
  const { path, recorded: name, change } = root.dataset
  const part = selector => root.querySelector(selector)
  const outcome = part("[data-academy=outcome]"), now = part(".p-live-now"), body = part(".p-strips tbody")
  const lines = new Map([...root.querySelectorAll(".p-l")].map(line => [+line.dataset.n, line]))
  const button = name => part(`[data-action=${name}]`)

  // ---- the line that can be changed

  const place = lines.get(+change).querySelector(".p-c"), original = place.textContent, indent = /^ */.exec(original)[0]
  const field = make("input", { type: "text", class: "p-change", "aria-label": "The line to change", spellcheck: "false", autocapitalize: "off", autocomplete: "off" })
  const draft = `${path}:${change}`
  place.replaceChildren(indent, field)
  field.value = academyDrafts.get(draft) ?? original.trim()
  const wide = () => { field.style.width = `${Math.max(14, field.value.length + 2)}ch` }
  wide()

  // ---- the run that is shown: all steps up to one of a program

  let run = null, timer = null
  const last = () => run.launch.programs.length - 1

  // What is in memory after the programs before `program` and its steps up to `step`, and what that step touches.
  function memory(program, step) {
    const tensors = run.tensorsTouched().map(t => ({ t, ...run.launch.tensors[t], state: [] }))
    for (const tensor of tensors) {
      const first = run.value(tensor.before)
      tensor.texts = first.d.map(x => tensor.fresh ? "" : number(x, first.t))
    }
    for (let p = 0; p <= program; p++) run.steps(p).forEach((each, s) => {
      if (p === program && s > step) return
      for (const [operation, owner, elements, written] of each.accesses) {
        const tensor = tensors.find(tensor => tensor.t === owner), stored = written < 0 ? null : run.value(written)
        run.value(elements).d.forEach((element, lane) => {
          if (element < 0) return
          if (stored) tensor.texts[element] = number(stored.d[stored.d.length > 1 ? lane : 0], stored.t)
          const kind = operation === "load" ? "t-r" : "t-w"
          tensor.state[element] = p === program && s === step ? kind : `${kind}0`
        })
      }
    })
    return tensors
  }

  function show(program, step) {
    Object.assign(run, { programNumber: program, stepNumber: step })
    body.replaceChildren(...memory(program, step).map(tensor => make("tr", {}, make("th", { scope: "row" }, tensor.name.replace(/_ptr$/, "")),
      ...tensor.texts.map((text, i) => make("td", { class: tensor.state[i] }, text)))))
    const steps = run.steps(), seen = new Map()
    steps.slice(0, step + 1).forEach(each => { if (each.line && !run.enters(each)) seen.set(each.line, run.news(each)) })
    for (const [line, element] of lines) {
      const news = seen.get(line) ?? []
      element.querySelector(".p-v")?.remove()
      element.classList.toggle("p-now", line === steps[step].line && timer !== null)
      if (news.length) element.append(make("span", { class: "p-v", "aria-hidden": "true" }, ...news.map(([name, n]) => make("span", {}, make("b", {}, name), ` ${run.brief(n)}`))))
    }
    const told = run.news(steps[step]).map(([name, n]) => `${name} = ${run.brief(n)}`)
    const done = program === last() && step === steps.length - 1
    const where = last() ? `Program ${program} of 0 to ${last()}` : "Program 0"
    const what = run.enters(steps[step]) ? "begins" : [...told, ...steps[step].accesses.map(access => run.touched(access))].join(", ")
    const ended = run.failed ? `${where} has stopped here; what you see is what it had done until then.`
      : last() ? `All ${last() + 1} programs have run; the values are the last one's.` : "The program has run."
    now.textContent = done ? ended : `${where}: ${what}`
  }

  const end = () => show(last(), run.steps(last()).length - 1)

  function pause() {
    clearTimeout(timer)
    timer = null
    button("play").textContent = "Play"
  }

  // From the first program's end on: what it has written is in sight at once.
  function play(program = 0, step = run.steps(0).length - 1, wait = FIRST) {
    clearTimeout(timer)
    timer = setTimeout(() => {
      const more = step + 1 < run.steps(program).length
      if (more || program < last()) return more ? play(program, step + 1, PAUSE) : play(program + 1, 1, PAUSE)
      pause()
      end()
    }, wait)
    button("play").textContent = "Pause"
    show(program, step)
  }

  function record(data) {
    pause()
    run = new Run(data)
    run.launchNumber = data.main ?? 0
  }

  // ---- what the reader does

  const busy = on => { for (const each of root.querySelectorAll("button")) each.disabled = on }

  async function go() {
    if (button("run").disabled) return
    busy(true)
    pause()
    const state = (state, more = {}) => {
      root.dataset.state = state
      tell(outcome, { state, ...more }, () => field.focus())
    }
    const starter = await (await fetch(new URL(`starters/${path}`, import.meta.url))).text()
    const text = starter.split("\n"), numbers = fileLines(root.dataset.lines)
    text[numbers.indexOf(+change)] = indent + field.value.trim()
    let answer
    try {
      answer = await ask({ action: "run", path, source: text.join("\n"), original: starter }, told => state(told ? "loading" : "running", { said: told ?? "Running…" }))
    } catch (error) {
      answer = { state: "error", problems: [{ line: null, message: `Python could not be loaded: ${error.message}` }] }
    }
    busy(false)
    for (const line of lines.values()) line.classList.remove("p-wrong")
    if (answer.data?.launches.length) {
      record(relined(answer.data, new Map(numbers.map((line, i) => [i + 1, line]))))
      run.failed = answer.state === "error"
      end()
    } else {
      now.textContent = "Nothing has run."
      for (const value of root.querySelectorAll(".p-v")) value.remove()
    }
    if (answer.state === "error" || answer.state === "failed") lines.get(numbers[answer.problems[0]?.line - 1])?.classList.add("p-wrong")
    state(answer.state, { said: saidOf(answer), problems: answer.problems.slice(0, 1).map(({ message }) => ({ line: null, message: message.replace(/ \(The original code was run .*\)$/, "") })) })
  }

  const typed = value => {
    if (value != null) field.value = value
    wide()
    academyDrafts.keep(draft, field.value.trim() === original.trim() ? null : field.value)
  }
  const begin = async () => {
    record(await recorded(name))
    matchMedia("(prefers-reduced-motion: reduce)").matches ? end() : play()
    root.dataset.state = "playing"
  }

  root.addEventListener("click", event => {
    const { action, line } = event.target.closest("button")?.dataset ?? {}
    if (line) typed(line)
    if (action === "run" || line) go()
    if (action === "play") timer === null ? play() : (pause(), show(run.programNumber, run.stepNumber))
    if (action === "reset") {
      typed(original.trim())
      tell(outcome, { state: "idle" })
      begin()
    }
  })
  field.addEventListener("input", () => {
    typed()
    prepare()
  })
  field.addEventListener("keydown", event => { if (event.key === "Enter") go() })
  await begin()
  busy(false)
}
