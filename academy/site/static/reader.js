// Definitions over words of the glossary, and the same variable marked wherever it stands. Pages read without it: a word is
// a link to its definition.

function definitions() {
  const tip = word => document.getElementById(word.getAttribute("aria-describedby"))
  let open = null
  const place = () => {
    const at = open.word.getClientRects()[0]
    const size = open.box.getBoundingClientRect()
    const below = at.bottom + size.height + 12 < innerHeight
    open.box.style.top = `${below ? at.bottom + 6 : at.top - size.height - 6}px`
    open.box.style.left = `${Math.max(16, Math.min(at.left, innerWidth - size.width - 16))}px`
  }
  const show = word => {
    hide()
    const box = tip(word)
    if (!box?.showPopover) return
    box.showPopover()
    open = { word, box }
    place()
  }
  const hide = () => {
    open?.box.hidePopover()
    open = null
  }
  let leaving = 0
  for (const word of document.querySelectorAll("a.term")) {
    const box = tip(word)
    if (!box) continue
    for (const part of [word, box]) { // the pointer may rest on the definition as well
      part.addEventListener("pointerenter", event => {
        clearTimeout(leaving)
        if (event.pointerType !== "touch" && part === word) show(word)
      })
      part.addEventListener("pointerleave", event => {
        if (event.pointerType !== "touch") leaving = setTimeout(hide, 150)
      })
    }
    word.addEventListener("focus", () => show(word))
    word.addEventListener("blur", hide)
    // The first tap shows the definition, the second follows the link.
    let firstTap = false
    word.addEventListener("pointerdown", event => { firstTap = event.pointerType === "touch" && open?.word !== word })
    word.addEventListener("click", event => {
      if (!firstTap) return
      event.preventDefault()
      firstTap = false
      show(word)
    })
  }
  addEventListener("pointerdown", event => { if (!event.target.closest?.("a.term, .terms")) hide() })
  addEventListener("keydown", event => { if (event.key === "Escape") hide() })
  addEventListener("scroll", () => open && place(), { passive: true })
}

// [data-v] names a variable: on its symbol in a formula, on its name in code and notes, on its button in the legend.
function variables() {
  const pressed = new Set()
  let pointed = null
  let focused = null
  let marked = new Set()
  const all = name => document.querySelectorAll(`[data-v="${CSS.escape(name)}"]`)
  const update = () => {
    const wanted = new Set([...pressed, pointed, focused].filter(Boolean))
    for (const name of marked) if (!wanted.has(name)) for (const place of all(name)) place.classList.remove("v-on")
    for (const name of wanted) if (!marked.has(name)) for (const place of all(name)) place.classList.add("v-on")
    marked = wanted
  }
  const at = event => event.target.closest?.("[data-v]")?.dataset.v ?? null
  document.addEventListener("pointerover", event => { pointed = at(event); update() })
  document.addEventListener("focusin", event => { focused = at(event); update() })
  document.addEventListener("focusout", () => { focused = null; update() })
  document.addEventListener("click", event => {
    const button = event.target.closest?.("button[data-v]")
    if (!button) return
    const name = button.dataset.v
    const on = !pressed.has(name)
    pressed[on ? "add" : "delete"](name)
    for (const place of all(name)) if (place.matches("button")) place.setAttribute("aria-pressed", on)
    update()
  })
}

// A menu among an operation's tabs closes when the reader goes elsewhere.
function menus() {
  const open = () => document.querySelector(".op-menu[open]")
  addEventListener("pointerdown", event => { if (!event.target.closest?.(".op-menu")) open()?.removeAttribute("open") })
  addEventListener("keydown", event => {
    if (event.key !== "Escape" || !open()) return
    const menu = open()
    menu.removeAttribute("open")
    menu.querySelector("summary").focus()
  })
}

definitions()
menus()
if (document.querySelector("[data-v]")) variables()
