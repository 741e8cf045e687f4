// An editor with what stands around it: buttons, outcome, and the recorded run beside it. places.js says where they are.
import {
  bracketMatching, defaultKeymap, drawSelection, EditorState, EditorView, highlightActiveLine, highlightSelectionMatches,
  HighlightStyle, history, historyKeymap, indentOnInput, indentUnit, indentWithTab, keymap, lineNumbers, lintGutter, python,
  search, searchKeymap, setDiagnostics, syntaxHighlighting, tags,
} from "./codemirror.js"
import { Beside } from "./beside.js"
import { packed } from "./link.js"
import { fileLines, onward, relined, saidOf, tell } from "./outcome.js"
import { ask, stop } from "./runtime.js"

const { make, mount, recorded } = academyViewer // its scripts are on every page that has an editor
const LAST = 1e6 // whatever the last step is
const LABELS = { run: "Run", check: "Check", watch: "Watch", reset: "Reset", stop: "Stop", download: "Download", share: "Copy link" }
const COLOURS = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--md-code-hl-keyword-color)" },
  { tag: [tags.comment, tags.meta], color: "var(--md-default-fg-color--light)" },
  { tag: tags.string, color: "var(--md-code-hl-string-color)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--md-code-hl-number-color)" },
  { tag: [tags.definition(tags.variableName), tags.function(tags.variableName)], color: "var(--md-code-hl-function-color)" },
  { tag: tags.operator, color: "var(--md-code-hl-operator-color)" },
])

// ---- an editor

export class Editor {
  // root: has data-academy="editor". path: the file that is run. name: of an exercise. draft: what the text is kept under while
  // it is being changed. foreign: the text came with a link, from somebody else. base: what links in messages start from.
  constructor(root, { text, original = text, path, name, draft = name ?? path, foreign = false, label, actions, about }) {
    const base = new URL("../../", import.meta.url).href
    Object.assign(this, { root, path, name, original, draft, foreign, base, asked: false, busy: false, viewer: null })
    this.outcome = root.querySelector("[data-academy=outcome]") ?? make("div", { "data-academy": "outcome" })
    this.outcome.setAttribute("role", "status")
    this.outcome.classList.add("p-outcome")
    this.buttons = {}
    const bar = root.querySelector(".p-actions") ?? root.appendChild(make("div", { class: "p-actions" }))
    bar.setAttribute("role", "toolbar")
    bar.setAttribute("aria-label", "Editor")
    for (const action of actions) {
      const there = root.querySelector(`[data-action=${action}]`)
      const button = there ?? make("button", { type: "button", "data-action": action, class: "p-button" }, LABELS[action])
      button.addEventListener("click", () => this.act(action))
      this.buttons[action] = button
      if (!there) bar.append(button)
    }
    const help = make("p", { class: "p-about", id: `p-about-${path ?? name}`.replace(/\W/g, "-") }, about)
    this.code = make("div", { class: "p-code" })
    this.run = make("div", { class: "p-run", tabindex: -1, role: "group", "aria-label": "The recorded run" })
    this.work = make("div", { class: "p-work" }, this.code, this.run)
    const pre = root.querySelector("pre")
    ;(pre?.closest(".highlight") ?? pre)?.remove()
    bar.after(this.outcome)
    root.append(this.work, help)
    this.view = new EditorView({ parent: this.code, state: this.state(text, label, help.id) })
    this.listing = new Beside(this.view, this.run)
    Object.defineProperty(root, "academyText", { configurable: true, get: () => this.text, set: value => { this.text = value } })
    this.show("idle", "")
    this.enable()
  }

  state(text, label, help) {
    return EditorState.create({
      doc: text,
      extensions: [
        lineNumbers(), lintGutter(), history(), drawSelection(), indentOnInput(), bracketMatching(), highlightActiveLine(),
        highlightSelectionMatches(), search({ top: true }), python(), indentUnit.of("    "), syntaxHighlighting(COLOURS),
        EditorState.tabSize.of(4), Beside.extension,
        keymap.of([
          { key: "Mod-Enter", run: () => { this.act(this.buttons.check ? "check" : "run"); return true } },
          indentWithTab, ...defaultKeymap, ...historyKeymap, ...searchKeymap,
        ]),
        EditorView.contentAttributes.of({ "aria-label": label, "aria-describedby": help, tabindex: "0" }),
        EditorView.updateListener.of(update => update.docChanged && this.changed()),
      ],
    })
  }

  get text() { return this.view.state.doc.toString() }
  set text(value) { this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: value } }) }

  changed() {
    this.root.dispatchEvent(new Event("academy:text"))
    academyDrafts.keep(this.draft, this.text === this.original ? null : this.text)
    this.viewer?.pause()
    this.root.classList.add("p-stale") // the run beside it is of the text before
    if (!this.busy && this.outcome.dataset.state !== "idle") this.show("idle", "")
  }

  // ---- what the buttons do

  act(action) {
    if (this.buttons[action]?.disabled) return
    if (["run", "check", "watch"].includes(action)) return this.foreign && !this.asked ? this.warn(action) : this.ask(action)
    if (action === "reset") return this.reset()
    if (action === "stop") return this.stop()
    if (action === "download") return this.download()
    if (action === "share") return this.share()
  }

  // Before somebody else's text runs for the first time.
  warn(action) {
    this.asked = true
    this.show("idle", "Somebody else wrote this text: it came with the link. It runs cut off from the network, from what this site keeps in " +
      "your browser and from the rest of the page, and what it leaves behind in Python is thrown away. Have a look at it first.")
    const button = make("button", { type: "button", class: "p-line", onclick: () => this.act(action) }, "Run it")
    this.outcome.append(button)
    button.focus({ preventScroll: true })
  }

  async ask(action) {
    const source = this.text
    this.busy = true
    this.enable()
    this.mark([])
    this.show("loading", "Loading Python and Triton…")
    const { name, path } = this, seed = this.seed ?? undefined
    const original = "sliders" in this.root.dataset ? null : this.original // there a change is asked for
    const question = action === "check" ? { action, name, source, seed: this.failed } : action === "watch" ? { action, name, source, seed } : { action, path, source, original }
    let answer
    try {
      const begun = performance.now()
      answer = await ask(question, told => this.show(told ? "loading" : "running", told ?? (action === "check" ? "Checking…" : "Running…")), this.foreign)
      performance.measure(`academy: ${action}`, { start: begun, detail: { milliseconds: answer.milliseconds, heap: answer.heap } })
    } catch (error) {
      answer = { state: "error", problems: [{ line: null, message: `Python could not be loaded: ${error.message}` }] }
    }
    this.busy = false
    this.enable()
    if (answer.state === "stopped") return
    if (action === "check") this.checked(answer)
    else this.ran(answer, action)
  }

  // What comes next stands in the outcome: the run of the case that failed, the exercise after this one.
  checked(answer) {
    const passed = answer.state === "passed"
    const problems = passed ? [] : [{ line: answer.line, message: answer.message }] // it begins with its case
    this.show(answer.state, passed ? answer.message : "", problems)
    this.mark(problems)
    this.seed = answer.seed // the values that this check has drawn
    this.failed = passed ? undefined : answer.seed // the next try is asked for the same ones, so that the two can be compared
    this.goOn(passed)
  }

  goOn(passed, watched = false) {
    const show = this.buttons.watch && !watched ? make("button", { type: "button", class: "p-button", "data-next": "watch", onclick: () => this.act("watch") }, "Show the run") : null
    const on = passed ? onward() : null
    if (show || on) this.outcome.append(make("p", { class: "p-next" }, ...[show, on].filter(Boolean)))
  }

  ran(answer, action = "run") {
    const { state, problems, printed } = answer
    this.root.classList.add("p-warm")
    if (action === "watch") {
      this.seed = null
      this.show(state === "passed" ? "idle" : state, answer.message, problems)
      this.goOn(state === "passed", true)
    } else {
      this.show(state === "passed" && this.name ? "idle" : state, saidOf(answer), problems, printed, answer.picture) // only a check passes an exercise
    }
    this.mark(problems, state === "differs" ? "info" : "error")
    if (!this.record(answer.data, action === "watch")) return
    const still = this.view.hasFocus // who types goes on typing
    if (!still && !("sliders" in this.root.dataset)) this.watch()
    if (answer.at?.whole) this.viewer.showWhole(answer.at.launch)
    else if (answer.at) this.viewer.go(answer.at)
    else if (answer.stopped) this.viewer.go({ launch: answer.stopped[0], pid: answer.stopped[1], step: LAST })
  }

  // A run of the text as it is now: its values beside the lines, its memory beside the editor. lead: to its first line.
  record(data, lead = true) {
    this.viewer?.remove()
    this.viewer = null
    this.root.classList.remove("p-stale")
    this.root.classList.toggle("p-ran", Boolean(data?.launches.length))
    if (!data?.launches.length) return this.run.replaceChildren()
    this.listing.ran()
    const view = make("div", { class: "t-view" })
    this.run.replaceChildren(make("p", { class: "p-old" }, `The run before your change. Press ${this.buttons.run ? "Run" : "Watch"} again.`), make("div", { class: "p-panel" }, view))
    this.viewer = mount(view, data, { listing: this.listing })
    if (lead) this.viewer.toTop()
    return this.viewer
  }

  // Bring the outcome and the code into sight, so that what the run leads to is; on a phone the run covers the lower half.
  watch() {
    const { top } = this.work.getBoundingClientRect(), stacked = this.run.offsetLeft <= this.code.offsetLeft
    if (top < 0 || top > innerHeight * (stacked ? 0.25 : 0.6)) this.outcome.scrollIntoView({ behavior: "instant", block: "start" })
    this.viewer?.focus()
  }

  reset() {
    this.text = this.original
    this.foreign = false
    academyDrafts.keep(this.draft, null)
    if (location.hash.startsWith("#edit=")) window.history.replaceState(window.history.state, "", location.pathname + location.search)
    this.record(this.first)
    this.mark([])
    this.show("idle", "As it was.")
  }

  stop() {
    stop()
    this.busy = false
    this.enable()
    this.show("idle", "Stopped. The next run starts Python anew, which takes a few seconds.")
  }

  download() {
    const link = make("a", { href: URL.createObjectURL(new Blob([this.text], { type: "text/x-python" })), download: (this.path ?? `${this.name}.py`).split("/").pop() })
    link.click()
    setTimeout(() => URL.revokeObjectURL(link.href), 1000)
  }

  async share() {
    const link = new URL(`#edit=${await packed(this.text)}`, location.href)
    window.history.replaceState(window.history.state, "", link)
    try {
      await navigator.clipboard.writeText(link.href)
      this.show("idle", "The link is copied. It holds your text, and opens it without running it.")
    } catch {
      this.show("idle", "The address of this page now holds your text. It opens it without running it.")
    }
  }

  // ---- what is shown

  enable() {
    const { busy } = this
    for (const [action, button] of Object.entries(this.buttons)) {
      button.disabled = action === "stop" ? !busy : busy && ["run", "check", "watch", "reset"].includes(action)
    }
  }

  show(state, said, problems = [], printed = "", picture = null) {
    tell(this.outcome, { state, said, problems, printed, picture, base: this.base }, line => this.to(line))
  }

  mark(problems, severity = "error") {
    const { doc } = this.view.state
    const diagnostics = problems.filter(({ line }) => line && line <= doc.lines).map(({ line, message }) => {
      const { from, to, text } = doc.line(line)
      return { from: from + text.length - text.trimStart().length, to, severity, message: message.replaceAll("`", "") }
    })
    this.view.dispatch(setDiagnostics(this.view.state, diagnostics))
  }

  // The run that the site has kept of this file, with its lines where the editor has them: nobody has to wait for Python.
  async begin(name, lines) {
    if (!name || !lines) return
    const data = relined(await recorded(name), new Map(fileLines(lines).map((line, i) => [line, i + 1]).filter(([line]) => line)))
    this.first = data
    if (this.text === this.original && !this.viewer && !this.busy) this.record(data, false)
  }

  // What was the page's code a moment ago has the focus: the editor takes it, at the same character.
  enter(from) {
    this.view.dispatch({ selection: { anchor: Math.min(from, this.view.state.doc.length) } })
    this.view.focus()
  }

  // Past the imports, to the first kernel's decorators.
  toKernel() {
    const from = /^@triton\./m.exec(this.text)?.index
    if (from == null) return
    this.view.dispatch({ selection: { anchor: from } })
    this.view.requestMeasure({ read: view => view.lineBlockAt(from).top, write: (top, view) => { view.scrollDOM.scrollTop = top } }) // not the page
  }

  to(line) {
    const { doc } = this.view.state
    const { from } = doc.line(Math.min(line, doc.lines))
    this.view.dispatch({ selection: { anchor: from }, effects: EditorView.scrollIntoView(from, { y: "center" }) })
    this.view.focus()
  }
}
