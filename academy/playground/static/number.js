// An exercise that asks for a number: a field in the place of `answer = None`. What is checked is the same text.
import { onward, tell } from "./outcome.js"
import { ask, stop } from "./runtime.js"

const { make } = academyViewer
const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹", SIGNS = { "−": "-", "–": "-", "×": "*", "·": "*", "÷": "/", "^": "**" }

// What was typed, as Python writes it: a task's own signs and powers, `−3 · 10⁻²`, and digits in groups, `16,777,216`.
export function written(typed) {
  return typed.trim()
    .replace(/([⁻⁺]?)([⁰¹²³⁴⁵⁶⁷⁸⁹]+)/g, (_, sign, digits) => `**${sign === "⁻" ? "-" : ""}${[...digits].map(digit => RAISED.indexOf(digit)).join("")}`)
    .replace(/[−–×·÷^]/g, sign => SIGNS[sign])
    .replace(/(?<=\d)[,\s](?=\d{3}\b)/g, "")
}

export function field(root) {
  const { exercise: name } = root.dataset, pre = root.querySelector("pre")
  const given = academyDrafts.get(name) ?? root.academyText ?? pre.textContent
  const value = text => /^answer = (.*)$/m.exec(text)?.[1] ?? "None"
  const base = new URL("../../", import.meta.url).href
  const outcome = make("div", { class: "p-outcome", role: "status", "data-academy": "outcome", "data-state": "idle" })
  const input = make("input", { type: "text", inputmode: "decimal", class: "p-number", autocomplete: "off", spellcheck: "false", "aria-describedby": "p-number-about" })
  const label = make("label", {}, "Your ", make("code", {}, "answer"), " ", input)
  const about = make("p", { class: "p-about", id: "p-number-about" }, "A number, such as 8000 or 8e3, or an expression, such as 2 * 3 * 4000 or 2**10. Enter checks it. " +
    "The first check loads Python and Triton into this page, once.")
  const text = () => `answer = ${written(input.value) || "None"}\n`
  const put = given => { const known = value(given); input.value = known === "None" ? "" : known }
  put(given)
  Object.defineProperty(root, "academyText", { configurable: true, get: text, set: given => { put(given); kept() } })
  const kept = () => academyDrafts.keep(name, input.value.trim() ? text() : null)
  const button = (action, text, act) => make("button", { type: "button", class: "p-button", "data-action": action, disabled: action === "stop", onclick: act }, text)
  const buttons = {
    check: button("check", "Check", () => check()),
    reset: button("reset", "Reset", () => { input.value = ""; academyDrafts.keep(name, null); tell(outcome, { state: "idle" }) }),
    stop: button("stop", "Stop", () => { stop(); enable(false); tell(outcome, { state: "idle", said: "Stopped." }) }),
  }
  let busy = false
  const enable = on => { busy = on; buttons.check.disabled = on; buttons.stop.disabled = !on }

  async function check() {
    if (busy) return
    enable(true)
    tell(outcome, { state: "loading", said: "Loading Python and Triton…" })
    const answer = await ask({ action: "check", name, source: text() }, told => tell(outcome, { state: told ? "loading" : "running", said: told ?? "Checking…" }))
      .catch(error => ({ state: "error", message: `Python could not be loaded: ${error.message}` }))
    enable(false)
    if (answer.state === "stopped") return
    tell(outcome, { state: answer.state, said: answer.message, base })
    const next = answer.state === "passed" && onward()
    if (next) outcome.append(make("p", { class: "p-next" }, next))
  }

  input.addEventListener("input", () => { kept(); if (outcome.dataset.state !== "idle") tell(outcome, { state: "idle" }) })
  input.addEventListener("keydown", event => { if (event.key === "Enter") check() })
  ;(pre.closest(".highlight") ?? pre).remove()
  root.classList.add("p-editor", "p-asks")
  root.prepend(label, make("div", { class: "p-actions", role: "toolbar", "aria-label": "Answer" }, ...Object.values(buttons)), outcome)
  root.append(about)
}
