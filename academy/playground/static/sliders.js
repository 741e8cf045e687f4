// Numbers to try, above an editor whose text offers them: `BLOCK = 8  # 1, 2, 4, 8` has a choice, `n = 23  # 1 to 64` a slider,
// `masked = True` a switch. The line of the text is what counts: moving a slider writes it, and typing moves the slider.
const { make } = academyViewer
const LINE = /^([A-Za-z_]\w*) = ([^#\n]+?)(?: +# *(.+))?$/

// Names and what is offered for each. Only lines outside of functions.
function offers(text) {
  return text.split("\n").flatMap(line => {
    const [, name, value, hint = ""] = LINE.exec(line) ?? []
    if (!name) return []
    if (/^(True|False)$/.test(value)) return [{ name, value, kind: "switch" }]
    const [, low, high] = /^(-?\d+) to (-?\d+)$/.exec(hint.trim()) ?? []
    if (low != null) return [{ name, value, kind: "slider", low, high }]
    const choices = hint.split(/, (?![^()]*\))/).map(each => each.trim())
    return choices.length > 1 && choices.includes(value) ? [{ name, value, kind: "choice", choices }] : []
  })
}

// root: the editor's element. run(): runs the text; it is called once the reader has run something before.
export function sliders(root, run) {
  const bar = make("div", { class: "p-sliders", role: "group", "aria-label": "Numbers to try" }), fields = new Map()
  let soon = 0
  const put = (name, value) => {
    root.academyText = root.academyText.replace(new RegExp(`^(${name} = )[^#\\n]+?(?=( +#.*)?$)`, "m"), (_, start) => start + value)
    clearTimeout(soon)
    if (root.classList.contains("p-warm")) soon = setTimeout(run, 350)
  }
  for (const { name, value, kind, low, high, choices } of offers(root.academyText)) {
    const told = make("output", {}, value)
    const input = kind === "choice" ? make("select", {}, ...choices.map(each => make("option", { selected: each === value }, each)))
      : kind === "switch" ? make("input", { type: "checkbox", checked: value === "True" })
        : make("input", { type: "range", min: low, max: high, value })
    input.addEventListener("input", () => {
      const chosen = kind === "switch" ? (input.checked ? "True" : "False") : input.value
      told.textContent = chosen
      put(name, chosen)
    })
    bar.append(make("label", {}, make("code", {}, name), input, kind === "slider" ? told : null))
    fields.set(name, { input, told, kind })
  }
  if (!fields.size) return
  root.prepend(bar)
  root.addEventListener("academy:text", () => {
    for (const { name, value } of offers(root.academyText)) {
      const { input, told, kind } = fields.get(name) ?? {}
      if (!input) continue
      if (kind === "switch") input.checked = value === "True"
      else input.value = value
      told.textContent = value
    }
  })
}
