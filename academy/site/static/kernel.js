// The page of a kernel file: its bar, folded parts, Read, Watch and Edit. All of it reads without this script.

// A button beside each piece of a kernel file when it comes into sight, as the theme adds to other code; the theme's script
// does the copying.
function copyButtons(file) {
  const sight = new IntersectionObserver(entries => {
    for (const { isIntersecting, target: pre } of entries) {
      if (!isIntersecting) continue
      sight.unobserve(pre)
      pre.id = `code-${pre.querySelector(".k-l").id}`
      pre.insertAdjacentHTML("afterbegin", `<div class="md-code__nav"><button type="button" class="md-code__button" data-md-type="copy" ` +
        `title="Copy to clipboard" aria-label="Copy to clipboard" data-clipboard-target="#${pre.id} code"></button></div>`)
    }
  })
  for (const pre of file.querySelectorAll(":scope > .k-row > .k-code > pre")) sight.observe(pre)
}

// What the reader looks at keeps its place while `change` moves everything else: the bar if it isn't at the top of the
// window, or else the topmost line of code in sight. If that line is gone, the next one comes into the upper third.
function keepPlace(change) {
  const top = element => element.getBoundingClientRect().top
  const bar = document.querySelector(".k-bar"), stuck = parseFloat(getComputedStyle(bar).top) + 1
  const places = [...top(bar) > stuck ? [bar] : document.querySelectorAll(".k-l")].map(element => [element, top(element)])
  const below = places.findIndex(([, at]) => at > 120)
  const inSight = below < 0 ? [] : places.slice(below)
  change()
  const kept = inSight.find(([element]) => element.getClientRects().length) ?? places.findLast(([element]) => element.getClientRects().length)
  if (!kept) return
  const wanted = kept === inSight[0] ? kept[1] : Math.min(Math.max(kept[1], 120), innerHeight / 3)
  scrollBy({ top: top(kept[0]) - wanted, behavior: "instant" })
}

// Switches of the bar, remembered for the next page: a class of the root element each.
const TOGGLES = {
  notes: { on: "hidden", off: "shown", style: "k-notes-hidden", words: ["Hide notes", "Show notes"] },
  kernels: { on: "on", off: "off", style: "k-kernels", words: ["Kernel only", "Whole file"] },
  wrap: { on: "on", off: "off", style: "k-wrap", words: ["Wrap lines", "Don't wrap"] },
}

function toggles(bar) {
  const root = document.documentElement
  for (const button of bar.querySelectorAll("[data-k-toggle]")) {
    const name = button.dataset.kToggle, { on, off, style, words } = TOGGLES[name]
    const show = () => {
      const set = root.classList.contains(style)
      button.setAttribute("aria-pressed", set)
      button.textContent = words[+set]
    }
    button.addEventListener("click", () => keepPlace(() => {
      const set = root.classList.toggle(style)
      if (name !== "kernels") localStorage.setItem(`academy.${name}`, set ? on : off)
      show()
    }))
    show()
  }
}

// The section that is in sight, a menu of all, and how far down the file the reader is.
function sections(file, bar) {
  const heads = [...file.querySelectorAll(".k-heading h2")]
  if (!heads.length) return
  const name = head => [...head.childNodes].filter(node => !node.classList?.contains("headerlink")).map(node => node.textContent).join("")
  const SOMEWHERE = "Sections"
  const menu = document.createElement("details"), current = document.createElement("summary"), list = document.createElement("nav")
  menu.className = "k-sections"
  current.textContent = SOMEWHERE
  list.setAttribute("aria-label", "Sections")
  list.append(...heads.map(head => Object.assign(document.createElement("a"), { href: `#${head.id}`, textContent: name(head) })))
  menu.append(current, list)
  bar.querySelector(".k-path").replaceWith(menu)
  const follow = () => {
    // A heading just below the bar is already the reader's section, unless it is out of sight along with the bar.
    const low = Math.min(bar.getBoundingClientRect().bottom + 100, innerHeight / 2)
    const atEnd = innerHeight + scrollY > document.documentElement.scrollHeight - 4
    const passed = heads.findLastIndex(head => head.offsetParent && (atEnd || head.getBoundingClientRect().top < low))
    const text = passed < 0 ? SOMEWHERE : name(heads[passed])
    if (current.textContent !== text) current.textContent = text
    for (const [i, link] of [...list.children].entries()) {
      link.toggleAttribute("aria-current", i === passed)
      link.hidden = !heads[i].offsetParent
    }
    const { top, height } = file.getBoundingClientRect()
    bar.style.setProperty("--k-progress", Math.max(0, Math.min(1, (low - top) / Math.max(1, height - innerHeight + low))))
  }
  let waiting = false
  const soon = () => {
    if (waiting) return
    waiting = true
    requestAnimationFrame(() => { waiting = false; follow() })
  }
  addEventListener("scroll", soon, { passive: true })
  addEventListener("resize", soon)
  menu.addEventListener("toggle", follow)
  list.addEventListener("click", () => { menu.open = false })
  addEventListener("pointerdown", event => { if (!menu.contains(event.target)) menu.open = false })
  menu.addEventListener("keydown", event => {
    if (event.key !== "Escape") return
    menu.open = false
    current.focus()
  })
  soon() // with the first layout, not before it
}

// What a link leads to is opened, and so is everything before it is printed.
function unfold(file) {
  const open = () => {
    const wanted = /^#[\w-]+$/.test(location.hash) && document.getElementById(location.hash.slice(1))
    const folded = wanted && (wanted.closest("details.k-fold") ?? wanted.querySelector?.(":scope > details.k-fold"))
    if (!folded || folded.open) return
    folded.open = true
    wanted.scrollIntoView()
  }
  addEventListener("hashchange", open)
  addEventListener("beforeprint", () => { for (const folded of file.querySelectorAll("details.k-fold")) folded.open = true })
  open()
}

function kernelPage(file, bar) {
  const more = bar.querySelector(".k-more") // on a phone
  more.addEventListener("click", () => more.setAttribute("aria-expanded", bar.classList.toggle("k-open")))
  toggles(bar)
  sections(file, bar)
  unfold(file)

  // Read, Watch and Edit. The viewer listens to "academy:mode" on .k-file; it can also ask for a mode by that event.
  const modes = [...bar.querySelectorAll("[data-k-mode]")]
  const panel = file.querySelector(":scope > .k-panel"), introduction = document.querySelector(".k-top")
  let now = "read"
  const setMode = mode => keepPlace(() => {
    now = mode
    introduction.hidden = mode !== "read" // what is watched or edited comes right under the bar
    file.classList.toggle("k-running", mode === "run")
    file.classList.toggle("k-editing", mode === "edit")
    panel.hidden = mode !== "run"
    for (const button of bar.querySelectorAll("[data-k-toggle]")) { // they are about the listing
      button.hidden = mode === "edit" || (mode === "run" && button.dataset.kToggle === "notes")
    }
    for (const button of modes) button.setAttribute("aria-pressed", button.dataset.kMode === mode)
  })
  const go = mode => file.dispatchEvent(new CustomEvent("academy:mode", { detail: mode }))
  for (const button of modes) {
    button.addEventListener("click", () => {
      const mode = button.dataset.kMode
      if (now === "read" && mode !== "read" && !history.state?.academyEntered) history.pushState({ academyEntered: true }, "")
      go(mode)
    })
  }
  // Back leads from Watch and Edit to Read. Each entry of the history knows its mode; a link within the page keeps it.
  const stamp = () => history.replaceState({ ...history.state, academy: now }, "")
  if (panel) {
    file.addEventListener("academy:mode", event => { setMode(event.detail); stamp() })
    addEventListener("popstate", () => {
      const mode = history.state?.academy
      if (!mode) stamp()
      else if (mode !== now) go(mode)
    })
    const { academy = "read" } = history.state ?? {}
    if (academy === "read" || /[#&](edit|pid|line|launch)=/.test(location.hash)) stamp()
    else document.addEventListener("DOMContentLoaded", () => go(academy)) // the viewer and the editor are listening by then
  }

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

const idle = window.requestIdleCallback ?? (task => setTimeout(task, 50))

// On a phone the first screen comes first, then the facts, then their symbols: a few at a time, each a formula.
function settle(parts) {
  for (const part of parts.splice(0, 5)) part.classList.add("k-settled")
  if (parts.length) idle(() => settle(parts), { timeout: 1000 })
}

{
  const file = document.querySelector(".k-file"), bar = document.querySelector(".k-bar")
  if (file && bar) {
    kernelPage(file, bar)
    idle(() => copyButtons(file), { timeout: 1000 })
    idle(() => settle([...document.querySelectorAll(".k-side > *, .k-side .v-legend > li")]), { timeout: 1000 })
  }
}
