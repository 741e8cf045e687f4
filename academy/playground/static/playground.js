// The playground's first piece, and all of it that a page loads by itself: what opens an editor, and what is asked of an
// editor before it is open. The editor comes with the first click or focus, Python with the first Run or Check.
(() => {
  const here = document.currentScript.src
  const able = location.protocol.startsWith("http") && typeof WebAssembly === "object" && "DecompressionStream" in window
  const editor = () => import(new URL("places.js", here).href)

  // What a reader has typed and not finished, by file or exercise: kept in this browser at every key, until Reset.
  const DRAFTS = "academy.drafts", MOST = 50
  window.academyDrafts = {
    all() {
      try {
        return JSON.parse(localStorage.getItem(DRAFTS)) ?? {}
      } catch {
        return {} // storage is switched off, or holds something else
      }
    },
    get(name) { return this.all()[name] ?? null },
    // text: null forgets it. The oldest go when there are too many.
    keep(name, text) {
      const { [name]: _, ...others } = this.all()
      const entries = Object.entries(others).slice(-MOST + 1)
      if (text != null) entries.push([name, text])
      try {
        localStorage.setItem(DRAFTS, JSON.stringify(Object.fromEntries(entries)))
      } catch { /* storage is switched off, or full: nothing is remembered */ }
    },
  }

  // A kernel's page: the third mode beside Read and Run.
  function lesson() {
    const file = document.querySelector(".k-file")
    let opened = null
    const open = text => opened ??= editor().then(module => module.lesson(file, text))
    // While the editor loads the page is short, so the browser scrolls up; on a phone the editor would open below the screen.
    const edit = () => open().then(() => file.querySelector(".p-editor").scrollIntoView())
    file.addEventListener("academy:mode", event => { if (event.detail === "edit") edit() })
    if (file.classList.contains("k-editing")) edit() // the page was left, or loaded again, while it was being edited
    const shared = () => {
      const text = /^#edit=([\w-]+)$/.exec(location.hash)?.[1]
      if (!text) return
      open(text)
      file.dispatchEvent(new CustomEvent("academy:mode", { detail: "edit" }))
    }
    addEventListener("hashchange", shared)
    shared()
  }

  // How many characters of the code stand before the place of a click.
  function placeIn(pre, { clientX, clientY }) {
    const at = document.caretPositionFromPoint?.(clientX, clientY), older = at ? null : document.caretRangeFromPoint?.(clientX, clientY)
    const node = at?.offsetNode ?? older?.startContainer, before = document.createRange()
    if (!node || !pre.contains(node)) return 0
    before.selectNodeContents(pre.querySelector("code") ?? pre)
    before.setEnd(node, at?.offset ?? older.startOffset)
    return before.toString().length
  }

  // An element that is an editor from the start: its text is in a <pre>, and can be read and set before CodeMirror is here.
  // With `data-exercise` it is checked (`data-watch`: and watched; `data-number`: it asks for a number), with `data-example` or `data-path` it can be run and watched.
  function placed(element) {
    const { exercise, example, path } = element.dataset
    if ("number" in element.dataset) return import(new URL("number.js", here).href).then(module => module.field(element))
    const actions = [exercise && "check", "watch" in element.dataset && "watch", (path ?? example) != null && "run", "reset", "stop"].filter(Boolean)
    const bar = document.createElement("div")
    bar.className = "p-actions"
    for (const action of actions) {
      const button = document.createElement("button")
      Object.assign(button, { type: "button", className: "p-button", textContent: action[0].toUpperCase() + action.slice(1), disabled: action === "stop" })
      button.dataset.action = action
      bar.append(button)
    }
    const outcome = document.createElement("div")
    Object.assign(outcome.dataset, { academy: "outcome", state: "idle" })
    const hint = document.createElement("p")
    Object.assign(hint, { className: "p-about", textContent: `Click into the code to change it, then press ${exercise ? "Check" : "Run"}.` })
    element.prepend(bar, outcome, hint)
    const pre = element.querySelector("pre")
    pre.tabIndex = 0
    pre.setAttribute("role", "group")
    pre.setAttribute("aria-label", "Code")
    const original = (pre.querySelector("code") ?? pre).textContent
    let text = original, opened = null, ready = false
    // Who has clicked into the code, or come to it with the keyboard, goes on in the editor: at the same place of the text.
    let from = 0
    const open = () => opened ??= editor().then(module => {
      const inside = pre.contains(document.activeElement), made = module.placed(element, original, () => text)
      hint.remove()
      ready = true
      if (inside) made.enter(from)
      return made
    })
    Object.defineProperty(element, "academyText", { configurable: true, get: () => text, set: value => { text = value; open() } })
    element.addEventListener("click", event => {
      const action = event.target.closest("[data-action]")?.dataset.action
      if (!ready && action) open().then(made => made.act(action))
    })
    pre.addEventListener("pointerdown", event => { from = placeIn(pre, event) })
    pre.addEventListener("keydown", event => { if (event.key.length === 1) event.stopPropagation() }) // a letter is none of the page's shortcuts
    pre.addEventListener("focusin", open, { once: true }) // a <code> that can be scrolled takes the focus itself
    if ("sliders" in element.dataset) import(new URL("sliders.js", here).href).then(module => module.sliders(element, () => open().then(made => made.act("run"))))
    const draft = academyDrafts.get(exercise ?? path ?? example)
    if (draft != null) element.academyText = draft
  }

  // The page's own scripts, which this one talks to, have begun before.
  {
    const buttons = document.querySelectorAll(".k-bar [data-action=edit]"), editors = document.querySelectorAll("[data-academy=editor]")
    if (able) {
      buttons.forEach(lesson)
      editors.forEach(placed)
      for (const element of document.querySelectorAll("[data-academy=live]")) import(new URL("live.js", here).href).then(module => module.live(element))
    } else for (const element of buttons) element.hidden = true
  }
})()
