// The viewer of recorded runs: which program, which statement, which values, which memory. `academyViewer.mount` shows a
// recording anywhere. On a kernel's page it fills the Run side of the switch; there the data comes as a script,
// data/NAME.js, when the reader first switches to Run.
(() => {
  const here = document.currentScript.src
  const waiting = {}, arrived = {}
  // Called by the data script.
  window.academyRun = (name, data) => {
    arrived[name] = data
    waiting[name]?.(data)
  }

  // ---- small helpers

  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag)
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value)
      else if (value === true) element.setAttribute(name, "")
      else if (value !== false && value != null) element.setAttribute(name, value)
    }
    element.append(...children.filter(child => child != null))
    return element
  }
  const product = sizes => sizes.reduce((a, b) => a * b, 1)
  const indexOf = (i, shape) => shape.map((size, axis) => Math.floor(i / product(shape.slice(axis + 1))) % size)
  const number = (x, type) => typeof x !== "number" ? x : type === "b1" ? (x ? "1" : "0") : String(+x.toPrecision(4))
  const programName = pid => pid[2] ? `(${pid.join(", ")})` : pid[1] ? `(${pid[0]}, ${pid[1]})` : `${pid[0]}`
  const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`
  const sameLoops = (a, b) => b.every(([line, n]) => { const mine = a.find(loop => loop[0] === line); return !mine || mine[1] === n })

  class Viewer {
    // See `mount`.
    constructor(view, file, data, address) {
      Object.assign(this, { view, file, data, address, launchNumber: 0, programNumber: 0, stepNumber: 0, whole: false, after: 0 })
      this.lines = new Map([...file.querySelectorAll(".k-l > .k-n[data-n]")].map(number => [+number.dataset.n, number.parentElement]))
      const ended = this.ended = new AbortController(), { signal } = ended
      view.replaceChildren()
      this.parts = {}
      for (const part of ["head", "programs", "bar", "now", "tabs", "memory"]) {
        this.parts[part] = view.appendChild(make("div", { class: `t-${part}` }))
      }
      this.status = view.appendChild(make("p", { class: "t-status", role: "status" }))
      view.addEventListener("keydown", event => this.key(event), { signal })
      file.addEventListener("click", event => {
        const line = event.target.closest(".k-l.t-hot")
        if (line && this.running() && !event.target.closest("a") && !getSelection().toString()) this.toLine(+line.querySelector(".k-n").dataset.n)
      }, { signal })
      if (address) {
        this.linkClaims()
        document.addEventListener("keydown", event => { if (event.target === document.body) this.key(event) }, { signal })
        addEventListener("hashchange", () => this.fromHash(), { signal })
      }
      if (!address || !this.fromHash()) this.start()
    }

    focus() { this.view.querySelector("input").focus() }

    // Leave the page: nothing listens any more, and the code shows no values.
    remove() {
      this.ended.abort()
      for (const line of this.lines.values()) {
        line.querySelector(".t-val")?.remove()
        line.classList.remove("t-hot", "t-now")
      }
      this.view.replaceChildren()
    }

    running() { return this.file.classList.contains("k-running") }

    // ---- the recording

    get launch() { return this.data.launches[this.launchNumber] }
    get program() { return this.launch.programs[this.programNumber] }
    steps(programNumber = this.programNumber, launch = this.launch) {
      const program = launch.programs[programNumber]
      program[2] ??= program[1].map(([place, values, accesses]) => {
        const [func, line, depth, loops, elsewhere] = this.data.places[place]
        return { func, line, depth, loops, elsewhere, values, accesses }
      })
      return program[2]
    }
    get step() { return this.steps()[this.stepNumber] }
    value(n) { return this.data.pool[n] }

    // Where a reader comes in: the program that the prose follows first, at its first claim.
    start() {
      const claim = this.data.claims.find(claim => claim[1] === 0)
      this.go({ launch: 0, pid: claim ? claim[2] : this.data.launches[0].programs[0][0], step: claim ? claim[3] : 0 }, false)
    }

    // ---- going places

    go({ launch = this.launchNumber, pid, program, step }, told = true) {
      const before = this.launchNumber === launch ? this.step : null
      if (this.launchNumber !== launch) Object.assign(this, { launchNumber: launch, programNumber: 0, stepNumber: 0 })
      if (pid) program = this.launch.programs.findIndex(p => p[0].every((x, i) => x === (pid[i] ?? 0)))
      if (program != null) this.programNumber = Math.max(0, program)
      if (step == null) {  // another program: the same statement in the same iteration
        step = before ? this.steps().findIndex(s => s.line === before.line && s.func === before.func && sameLoops(s.loops, before.loops)) : 0
      }
      this.stepNumber = Math.max(0, Math.min(this.steps().length - 1, step))
      if (program != null || !this.after) this.after = this.programNumber + 1
      this.draw()
      if (told) {
        this.remember()
        this.lines.get(this.step.line)?.scrollIntoView({ block: "nearest" })
      }
    }

    // A line of code was clicked: its execution in the iteration that is in sight.
    toLine(line) {
      const step = this.shownStep(line)
      if (step != null) this.go({ step })
    }

    // The number of the step whose values stand beside a line: the last one executed, in the iteration that is in sight.
    shownStep(line) {
      const steps = this.steps(), now = this.step
      let past = null, future = null
      steps.forEach((step, i) => {
        if (step.line !== line || !sameLoops(step.loops, now.loops)) return
        if (i <= this.stepNumber) past = i
        else future ??= i
      })
      return past ?? future
    }

    // Loops around the current step, and those that the program runs: header line -> number of iterations.
    iterations() {
      const counts = new Map()
      for (const step of this.steps()) for (const [line, n] of step.loops) counts.set(line, Math.max(counts.get(line) ?? 0, n + 1))
      return counts
    }

    toIteration(line, n) {
      const steps = this.steps(), now = this.step
      const inside = now.loops.some(loop => loop[0] === line)
      const fits = (step, wanted) => step.line === wanted && step.loops.some(loop => loop[0] === line && loop[1] === n)
        && step.loops.every(loop => loop[0] === line || now.loops.every(mine => mine[0] !== loop[0] || mine[1] === loop[1] || loop[0] > line))
      let step = inside ? steps.findIndex(s => fits(s, now.line)) : -1
      if (step < 0) step = steps.findIndex(s => fits(s, line))
      if (step >= 0) this.go({ step })
    }

    loopValue(line, n, steps = this.steps()) {
      const name = this.data.loops[line]
      const header = steps.find(step => step.line === line && step.loops.some(loop => loop[0] === line && loop[1] === n))
      const value = header && name in header.values ? this.value(header.values[name]) : null
      return value ? number(value.d[0], value.t) : String(n)
    }

    // ---- the address: #pid=13&line=79&k=1, or pid=(1, 0) as pid=1,0; launch=2 for another launch than the first that fits;
    // whole=9 shows the whole launch after nine programs

    fromHash() {
      const wanted = new URLSearchParams(location.hash.slice(1))
      if (!["pid", "line", "launch"].some(name => wanted.has(name))) return false
      const line = +wanted.get("line")
      const runs = launch => launch.programs.some(p => p[1].some(([place]) => this.data.places[place][1] === line))
      let launch = wanted.has("launch") ? +wanted.get("launch") : line ? this.data.launches.findIndex(runs) : this.launchNumber
      if (!this.data.launches[launch]) launch = 0
      const pid = wanted.has("pid") ? wanted.get("pid").replace(/[()]/g, "").split(",").map(Number) : [0]
      if (wanted.has("whole")) Object.assign(this, { whole: true })
      this.go({ launch, pid, step: 0 }, false)
      if (wanted.has("whole")) {
        this.after = +wanted.get("whole") || this.launch.programs.length
        this.drawMemory()
      }
      if (line) this.go({ step: this.find(line, wanted) }, false)
      this.file.dispatchEvent(new CustomEvent("academy:mode", { detail: "run" }))
      this.lines.get(this.step.line)?.scrollIntoView({ block: "center" })
      return true
    }

    find(line, wanted) {
      const fits = step => step.loops.every(([header, n]) => {
        const value = wanted.get(this.data.loops[header])
        return value === null || value === this.loopValue(header, n)
      })
      const steps = this.steps()
      const exact = steps.findIndex(step => step.line === line && fits(step))
      return exact >= 0 ? exact : Math.max(0, steps.findIndex(step => step.line >= line && fits(step)))
    }

    link(launchNumber = this.launchNumber, programNumber = this.programNumber, stepNumber = this.stepNumber) {
      const launch = this.data.launches[launchNumber], steps = this.steps(programNumber, launch), step = steps[stepNumber]
      const [pid] = launch.programs[programNumber]
      const loops = step.loops.map(([line, n]) => `&${this.data.loops[line] ?? "iteration"}=${this.loopValue(line, n, steps)}`)
      const line = step.line ? `&line=${step.line}` : ""
      return `#pid=${pid.slice(0, pid[2] ? 3 : pid[1] ? 2 : 1).join(",")}${line}${loops.join("")}${launchNumber ? `&launch=${launchNumber}` : ""}`
    }

    remember() {
      if (this.address && this.running()) history.replaceState(null, "", this.link())
    }

    // Numbers quoted in the notes become links to the moment that they quote.
    linkClaims() {
      const left = [...this.data.claims]
      for (const code of this.file.querySelectorAll(".k-note code")) {
        const text = code.textContent.replace(/\s+/g, " ").trim()
        const i = left.findIndex(claim => claim[0] === text)
        if (i < 0) continue
        const [, launch, pid, step] = left.splice(i, 1)[0]
        const program = this.data.launches[launch].programs.findIndex(p => p[0].join() === pid.join())
        const link = make("a", { class: "t-watch", href: this.link(launch, program, step), title: "Watch this in the recorded run" })
        code.replaceWith(link)
        link.append(code)
      }
    }

    // ---- keys

    key(event) {
      if (!this.running() || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, [role=grid], .t-programs")) return
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key]
      if (!by) return
      event.preventDefault()
      const loop = this.step.loops.at(-1)
      if (!event.shiftKey) this.go({ step: this.stepNumber + by })
      else if (loop) this.toIteration(loop[0], loop[1] + by)
    }

    // ---- drawing

    draw() {
      const focused = document.activeElement?.dataset?.tKey
      this.drawHead()
      this.drawPrograms()
      this.drawBar()
      this.drawLines()
      this.drawNow()
      this.drawTabs()
      this.drawMemory()
      if (focused) this.view.querySelector(`[data-t-key="${focused}"]`)?.focus()
    }

    drawHead() {
      const { head } = this.parts, { launches } = this.data
      if (head.dataset.drawn === String(this.launchNumber)) return
      head.dataset.drawn = this.launchNumber
      const title = launch => `${launch.kernel} (${launch.direction})`
      const pick = make("select", { "aria-label": "Launch", onchange: () => this.go({ launch: pick.selectedIndex, program: 0, step: 0 }) })
      launches.forEach((launch, i) => pick.append(make("option", { selected: i === this.launchNumber }, `${i + 1}. ${title(launch)}`)))
      const sizes = this.launch.grid.slice(0, this.launch.grid[2] > 1 ? 3 : this.launch.grid[1] > 1 ? 2 : 1)
      const facts = make("p", { class: "t-facts" }, `${sizes.join(" × ")} ${product(sizes) === 1 ? "program" : "programs"}`)
      head.replaceChildren(launches.length > 1 ? pick : make("strong", {}, title(launches[0])), facts)
      for (const repair of this.launch.repairs) head.append(make("p", { class: "t-repair" }, `Repaired semantics: ${repair}.`))
    }

    drawPrograms() {
      const { programs } = this.parts, { launch } = this
      if (programs.dataset.drawn !== String(this.launchNumber)) {
        programs.dataset.drawn = this.launchNumber
        const [rows, columns, layers] = launch.grid
        const wide = columns === 1 && layers === 1
        programs.setAttribute("role", "group")
        programs.setAttribute("aria-label", wide ? "Program" : "Program: rows are axis 0, columns axis 1")
        programs.style.setProperty("--t-columns", wide ? Math.min(rows, 16) : columns * layers)
        const order = launch.programs.map((p, i) => i)
        if (!wide) order.sort((a, b) => launch.programs[a][0][0] - launch.programs[b][0][0])
        programs.replaceChildren(...order.map(i => {
          const name = programName(launch.programs[i][0])
          return make("button", { type: "button", "data-t-key": `p${i}`, "aria-label": `program ${name}`, onclick: () => this.go({ program: i }) }, name.replace(/[() ]/g, ""))
        }))
        programs.onkeydown = event => this.moveProgram(event, wide ? Math.min(rows, 16) : columns * layers)
      }
      for (const button of programs.children) {
        const on = button.dataset.tKey === `p${this.programNumber}`
        button.setAttribute("aria-pressed", on)
        button.tabIndex = on ? 0 : -1
      }
    }

    moveProgram(event, columns) {
      const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key]
      if (!by) return
      event.preventDefault()
      const buttons = [...this.parts.programs.children]
      const next = buttons[buttons.indexOf(event.target) + by]
      next?.click()
      next?.focus()
    }

    drawBar() {
      const { bar } = this.parts, steps = this.steps()
      const button = (label, text, key, act) => make("button", { type: "button", "aria-label": label, title: label, "data-t-key": key, onclick: act }, text)
      const where = this.step.line ? `line ${this.step.line}` : this.step.elsewhere
      const slider = make("input", {
        type: "range", min: 0, max: steps.length - 1, "aria-label": "Step", "data-t-key": "slider",
        "aria-valuetext": `step ${this.stepNumber + 1} of ${steps.length}, ${where}`,
        oninput: () => this.go({ step: +slider.value }),
      })
      slider.value = this.stepNumber
      const rows = [make("div", { class: "t-stepper" },
        button("Previous step (left arrow)", "◀", "back", () => this.go({ step: this.stepNumber - 1 })), slider,
        button("Next step (right arrow)", "▶", "next", () => this.go({ step: this.stepNumber + 1 })),
        make("span", { class: "t-count" }, `${this.stepNumber + 1} of ${steps.length}`))]
      for (const [line, count] of this.iterations()) {
        const mine = this.step.loops.find(loop => loop[0] === line)
        const name = this.data.loops[line] ?? "iteration"
        const text = mine ? `${name} = ${this.loopValue(line, mine[1])}` : `loop over ${name}`
        const position = mine ? `round ${mine[1] + 1} of ${count}` : `${plural(count, "round")}`
        rows.push(make("div", { class: "t-loop" },
          button(`Previous round of the loop over ${name}`, "◀", `b${line}`, () => this.toIteration(line, (mine ? mine[1] : 1) - 1)),
          make("span", {}, make("code", {}, text), ` ${position}`),
          button(`Next round of the loop over ${name}`, "▶", `n${line}`, () => this.toIteration(line, mine ? mine[1] + 1 : 0))))
      }
      bar.replaceChildren(...rows)
    }

    // Values beside their lines; the current line is marked.
    drawLines() {
      const steps = this.steps(), lines = new Set(steps.map(step => step.line))
      for (const [number, line] of this.lines) {
        line.querySelector(".t-val")?.remove()
        const step = lines.has(number) ? this.shownStep(number) : null
        line.classList.toggle("t-hot", step != null)
        line.classList.toggle("t-now", number === this.step.line)
        if (step == null || steps[step].depth === 0 && step === 0) continue
        const beside = make("span", { class: step > this.stepNumber ? "t-val t-later" : "t-val", "data-search-exclude": true })
        if (steps[step].line === this.firstLine(steps[step].func)) continue
        for (const [name, n] of Object.entries(steps[step].values)) {
          beside.append(make("span", { class: "t-chip" }, make("b", {}, name), ` ${this.brief(n)}`))
        }
        for (const access of steps[step].accesses) {
          const kind = access[0] === "load" ? "t-r" : "t-w"
          beside.append(make("span", { class: `t-chip ${kind}` }, this.touched(access)))
        }
        if (beside.childNodes.length) line.append(beside)
      }
    }

    firstLine(func) { return this.steps().find(step => step.func === func)?.line }

    touched([operation, tensor, elements, , undefined_]) {
      const lanes = this.value(elements).d ?? [], active = lanes.filter(x => x >= 0).length
      const verb = operation === "load" ? "reads" : operation === "store" ? "writes" : operation.replace("_", " ")
      const count = active === lanes.length ? active : `${active} of ${lanes.length}`
      return `${verb} ${count} in ${this.launch.tensors[tensor].name}${undefined_ ? ", the rest undefined" : ""}`
    }

    brief(n, width = 44) {
      const value = this.value(n)
      if (value.t === "tuple") return `(${value.d.map(item => this.brief(item)).join(", ")})`
      if (value.t === "text") return value.d
      if (!value.d) return value.s.join("×")
      if (value.b && !value.s.length) return value.d[0] ? `${value.b} + ${value.d[0]}` : value.b
      const build = (at, axis) => {
        if (axis === value.s.length) return number(value.d[at], value.t)
        const stride = product(value.s.slice(axis + 1))
        return `[${Array.from({ length: value.s[axis] }, (_, i) => build(at + i * stride, axis + 1)).join(", ")}]`
      }
      const text = (value.b ? `${value.b} + ` : "") + build(0, 0)
      return text.length > width ? `${value.s.join("×")} ${text.slice(0, width - 8)}…` : text
    }

    drawNow() {
      const { step } = this
      const rounds = step.loops.map(([line, n]) => `, ${this.data.loops[line] ?? "iteration"} = ${this.loopValue(line, n)}`).join("")
      const first = this.steps().find(other => other.func === step.func)
      const entering = step.line === first.line && step.elsewhere === first.elsewhere
      const place = step.line ? `line ${step.line}` : step.elsewhere
      const title = entering ? `Arguments of ${step.func}` : `After ${place}${rounds}`
      const items = []
      for (const [name, n] of Object.entries(step.values)) items.push(this.variable(name, n, step))
      for (const access of step.accesses) if (access[0] !== "load") items.push(this.written(access))
      const line = this.lines.get(step.line)?.querySelector(".k-c")?.textContent.trim()
      const shown = line && !entering ? [make("code", { class: "t-code" }, line)] : []
      this.parts.now.replaceChildren(make("p", { class: "t-title" }, title), ...shown, make("div", { class: entering ? "t-vars t-args" : "t-vars" }, ...items))
      const told = Object.entries(step.values).slice(0, 4).map(([name, n]) => `${name} ${this.brief(n, 60)}`)
      const touched = step.accesses.map(access => this.touched(access))
      this.status.textContent = `Program ${programName(this.program[0])}, ${title}. ${[...told, ...touched].join(". ")}`
    }

    variable(name, n, step) {
      const value = this.value(n)
      const box = make("div", { class: "t-var" })
      if (value.t === "tuple" || value.t === "text" || !value.s.length || !value.d) {
        box.append(make("code", {}, name), " ", make("span", { class: "t-scalar" }, this.brief(n)))
        return box
      }
      const load = step.accesses.find(a => a[0] === "load" && product(this.value(a[2]).s) === product(value.s))
      const lanes = load ? this.value(load[2]).d : null
      const look = i => {
        if (lanes) return lanes[i] < 0 ? (load[4] ? ["t-off", "undefined", "?"] : ["t-off", "masked off"]) : ["t-r", "read"]
        if (value.t === "b1") return value.d[i] ? [] : ["t-off", "off"]
        return value.b ? ["t-p", "points here"] : []
      }
      const what = value.b ? `${name}: elements of ${value.b}` : name
      box.append(this.grid(`${what}, ${value.s.join("×")}`, value.s, value.d.map(x => number(x, value.t)), look))
      return box
    }

    written([operation, tensor, elements, values]) {
      const lanes = this.value(elements), value = this.value(values)
      const shape = lanes.s.length ? lanes.s : [1]
      const verb = operation === "store" ? "stored in" : `${operation.replace("_", " ")} on`
      const { name, shape: sizes, strides } = this.launch.tensors[tensor]
      const place = element => {
        const index = indexOf(element, sizes)
        return `goes to ${name}[${index.join(", ")}], offset ${index.reduce((sum, i, axis) => sum + i * strides[axis], 0)}`
      }
      return make("div", { class: "t-var" }, this.grid(`${verb} ${name}`, shape,
        lanes.d.map((_, i) => number(value.d[value.d.length > 1 ? i : 0], value.t)), i => lanes.d[i] < 0 ? ["t-off", "masked off"] : ["t-w", place(lanes.d[i])]))
    }

    // A tensor or block as a table. look(i) -> [class, meaning, text]. Arrow keys move from cell to cell and tell about each.
    grid(caption, shape, texts, look, tell, act) {
      const columns = shape.length > 1 ? shape.at(-1) : Math.min(shape[0] ?? 1, 16)
      const name = i => `[${indexOf(i, shape).join(", ")}]`
      const table = make("table", { class: texts.length > 64 ? "t-grid t-small" : "t-grid", role: "grid", tabindex: 0 })
      table.append(make("caption", {}, caption))
      const body = table.appendChild(make("tbody"))
      let row
      const about = (i, text, meaning) => tell ? tell(i, name(i)) : `${name(i)} ${text}${meaning ? `, ${meaning}` : ""}`
      texts.forEach((text, i) => {
        if (i % columns === 0) row = body.appendChild(make("tr"))
        const [style, meaning, instead] = look(i)
        row.append(make("td", { class: style, title: about(i, text, meaning), "data-i": i }, instead ?? text))
      })
      let at = -1
      const cells = body.querySelectorAll("td")
      const show = i => {
        cells[at]?.classList.remove("t-at")
        at = i
        cells[at].classList.add("t-at")
        this.status.textContent = cells[at].title
      }
      table.addEventListener("keydown", event => {
        const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key]
        if (event.key === "Enter" && act && at >= 0) act(at)
        if (!by) return
        event.preventDefault()
        const next = at < 0 ? 0 : at + by
        if (cells[next]) show(next)
      })
      body.addEventListener("click", event => {
        const cell = event.target.closest("td")
        if (cell) { show(+cell.dataset.i); act?.(at) }
      })
      return make("div", { class: "t-scroll" }, table)
    }

    drawTabs() {
      const tab = (whole, text) => make("button", {
        type: "button", "aria-pressed": String(this.whole === whole), "data-t-key": `w${whole}`,
        onclick: () => { this.whole = whole; this.after = whole ? this.launch.programs.length : this.after; this.draw() },
      }, text)
      this.parts.tabs.replaceChildren(make("span", { role: "group", "aria-label": "Memory" }, tab(false, "This program"), tab(true, "Whole launch")))
    }

    drawMemory() {
      this.parts.memory.replaceChildren(...(this.whole ? this.footprint() : this.seen()).filter(Boolean))
    }

    // Numbers of the tensors that some program of the launch reads or writes.
    tensorsTouched() {
      const { launch } = this
      launch.touched ??= new Set(launch.programs.flatMap((_, p) => this.steps(p).flatMap(step => step.accesses.map(access => access[1]))))
      return launch.tensors.map((_, t) => t).filter(t => launch.touched.has(t))
    }

    // Memory as this program has seen it up to the current step.
    seen() {
      const { launch, step } = this, before = this.steps().slice(0, this.stepNumber)
      const legend = make("p", { class: "t-legend" })
      for (const [style, text] of [["t-r", "read now"], ["t-w", "written now"], ["t-p", "pointed at"], ["t-r0", "read before"], ["t-w0", "written before"]]) {
        legend.append(make("span", {}, make("i", { class: style }), text))
      }
      const tensors = this.tensorsTouched().map(t => {
        const tensor = launch.tensors[t], initial = this.value(tensor.before)
        if (!initial.d || !initial.d.length) return this.unseen(tensor)
        const values = [...initial.d], state = values.map(() => null)
        const touch = (accesses, now) => {
          for (const [operation, owner, elements, written] of accesses) {
            if (launch.tensors[owner].storage !== tensor.storage || owner !== t) continue
            const lanes = this.value(elements).d, stored = written < 0 ? null : this.value(written).d
            lanes.forEach((element, lane) => {
              if (element < 0) return
              const wrote = operation !== "load"
              if (wrote) values[element] = this.updated(operation, values[element], stored[stored.length > 1 ? lane : 0])
              if (wrote) state[element] = now ? "w" : "w0"
              else if (now || !state[element]) state[element] = now ? "r" : "r0"
            })
          }
        }
        for (const past of before) touch(past.accesses, false)
        touch(step.accesses, true)
        for (const n of Object.values(step.values)) {
          const value = this.value(n)
          if (value.b === tensor.name && value.s.length && value.d) for (const i of value.d) if (i in state && !/^[rw]$/.test(state[i])) state[i] = "p"
        }
        const meaning = { r: "read now", w: "written now", p: "pointed at", r0: "read before", w0: "written before" }
        const texts = values.map((x, i) => tensor.fresh && x === initial.d[i] && !/^w/.test(state[i]) ? "·" : number(x, initial.t))
        return this.tensor(tensor, texts, i => state[i] ? [`t-${state[i]}`, meaning[state[i]]] : texts[i] === "·" ? ["t-none", "nothing written yet"] : [])
      })
      return [legend, make("div", { class: "t-tensors" }, ...tensors)]
    }

    updated(operation, old, value) {
      if (typeof old !== "number" || typeof value !== "number") return value
      if (operation === "atomic_add") return old + value
      if (operation === "atomic_max") return Math.max(old, value)
      if (operation === "atomic_min") return Math.min(old, value)
      return value
    }

    tensor(tensor, texts, look, tell, act, what = tensor.dtype) {
      const { shape, strides } = tensor
      const strided = shape.some((size, axis) => size > 1 && strides[axis] !== product(shape.slice(axis + 1)))
      return this.grid(`${tensor.name} ${shape.join("×") || "scalar"}, ${what}${strided ? `, strides (${strides.join(", ")})` : ""}`, tensor.shape.length ? tensor.shape : [1], texts, look, tell, act)
    }

    unseen(tensor) {
      return make("p", {}, make("code", {}, tensor.name), ` ${tensor.dtype} ${tensor.shape.join("×")}`, product(tensor.shape) ? ": too large to show" : ": empty")
    }

    // ---- the whole launch: who wrote each element, how often each was read, in which order

    footprint() {
      const { launch } = this, total = launch.programs.length
      this.after = Math.min(this.after || total, total)
      const slider = make("input", {
        type: "range", min: 1, max: total, "aria-label": "Programs so far", "data-t-key": "after",
        "aria-valuetext": `the first ${this.after} of ${total} programs`, oninput: () => { this.after = +slider.value; this.drawMemory(); this.view.querySelector("[data-t-key=after]").focus() },
      })
      slider.value = this.after
      const { readers, writers } = this.touches(launch.programs.map((_, i) => i).slice(0, this.after))
      const most = Math.max(1, ...readers.flat().map(list => list.length))
      const tensors = this.tensorsTouched().map(t => {
        const tensor = launch.tensors[t], content = this.value(tensor.after)
        if (!content.d || !content.d.length) return this.unseen(tensor)
        const wrote = writers[t].some(list => list.length)
        const texts = content.d.map((_, i) => wrote ? writers[t][i].map(p => programName(launch.programs[p][0])).join(" ") || "·" : String(readers[t][i].length))
        const look = i => {
          if (wrote) return writers[t][i].length ? [`t-order t-o${Math.floor(8 * writers[t][i].at(-1) / total)}`, "written"] : ["t-none", "not written yet"]
          return readers[t][i].length ? [`t-reads t-h${Math.ceil(4 * readers[t][i].length / most)}`, "read"] : ["t-none", "not read"]
        }
        const names = list => list.map(p => programName(launch.programs[p][0])).join(", ")
        const tell = (i, name) => {
          const w = writers[t][i], r = readers[t][i]
          const writes = w.length ? `written by program ${names([...new Set(w)])}` : ""
          const reads = r.length ? `read ${plural(r.length, "time")}, by program ${names([...new Set(r)])}` : ""
          return `${tensor.name}${name}: ${[writes, reads].filter(Boolean).join("; ") || "not touched"}`
        }
        const act = i => writers[t][i].length && this.go({ program: writers[t][i].at(-1), step: this.storeStep(writers[t][i].at(-1), t, i) })
        return this.tensor(tensor, texts, look, tell, act, wrote ? "by which program written" : "how often read")
      })
      return [
        make("div", { class: "t-stepper" }, slider, make("span", { class: "t-count" }, `first ${this.after} of ${total} programs`)),
        make("p", { class: "t-facts" }, this.traffic()), this.reuse(), make("div", { class: "t-tensors" }, ...tensors),
      ]
    }

    storeStep(program, tensor, element) {
      return this.steps(program).findLastIndex(step => step.accesses.some(a => a[0] !== "load" && a[1] === tensor && this.value(a[2]).d.includes(element)))
    }

    touches(programs) {
      const sizes = this.launch.tensors.map(tensor => product(tensor.shape))
      const readers = sizes.map(size => Array.from({ length: size }, () => [])), writers = sizes.map(size => Array.from({ length: size }, () => []))
      for (const p of programs) for (const step of this.steps(p)) for (const [operation, tensor, elements] of step.accesses) {
        const into = operation === "load" ? readers : writers
        for (const element of this.value(elements).d ?? []) if (element >= 0) into[tensor][element].push(p)
      }
      return { readers, writers }
    }

    traffic() {
      const { traffic } = this.launch
      const part = (kind, verb) => {
        const distinct = traffic[`bytes_${kind}`], requested = traffic[`requested_${kind}`]
        const reuse = requested > distinct ? ` for ${requested} requested: each byte ${(requested / distinct).toPrecision(3)} times` : ""
        return `${verb} ${distinct} different bytes${reuse}`
      }
      return `The whole launch ${part("read", "reads")}, and ${part("written", "writes")}.`
    }

    // How many different two-dimensional blocks programs load: the same block loaded twice is one, if it stays in the cache.
    blocks(programs) {
      const found = new Set()
      for (const p of programs) for (const step of this.steps(p)) for (const [operation, tensor, elements] of step.accesses) {
        if (operation === "load" && this.value(elements).s.length > 1) found.add(`${tensor} ${elements}`)
      }
      return found.size
    }

    // The programs in the order of the tiles that they write, row by row; null where that is their own order.
    rowOrder() {
      const { launch } = this
      if (launch.byRow !== undefined) return launch.byRow
      const first = launch.programs.map((_, p) => {
        const stores = this.steps(p).flatMap(step => step.accesses.filter(a => a[0] === "store" && launch.tensors[a[1]].shape.length === 2))
        return stores.flatMap(a => this.value(a[2]).d.filter(x => x >= 0)).reduce((a, b) => Math.min(a, b), Infinity)
      })
      const order = first.map((_, p) => p).sort((a, b) => first[a] - first[b])
      const useless = first.includes(Infinity) || new Set(first).size < first.length || order.every((p, i) => p === i)
      return (launch.byRow = useless ? null : order)
    }

    // What the order of the programs saves: blocks that a cache has to hold, against tiles row by row.
    reuse() {
      const byRow = this.rowOrder()
      if (!byRow) return null
      const own = n => this.blocks(byRow.map((_, i) => i).slice(0, n)), other = n => this.blocks(byRow.slice(0, n))
      if (!own(1)) return null
      const gain = n => other(n) / own(n)
      const best = this.launch.best ??= byRow.map((_, i) => i + 1).reduce((a, b) => gain(b) > gain(a) + 1e-9 ? b : a)
      const n = this.after
      const compared = own(n) === other(n) ? ", as many as tiles taken row by row" : `; tiles taken row by row would need ${other(n)}`
      const saves = gain(best) > 1 ? ` The order saves most after ${plural(best, "program")}: ${own(best)} blocks instead of ${other(best)}.` : ""
      return make("p", { class: "t-reuse" }, `The first ${plural(n, "program")} load ${own(n)} different blocks of the inputs${compared}.${saves}`)
    }
  }

  // ---- starting

  // Show a recording in `element`. `data` is what `academy.traces.page.viewer_data` gives. Returns the viewer: `go({ launch,
  // pid, step })` leads it somewhere, `remove()` ends it.
  //
  // source: text of the recorded file; the viewer draws the panel and, beside it, these lines.
  // file: instead of `source`, an element whose lines (`.k-l` with `.k-n[data-n]`) get the values; `element` becomes the panel.
  //     Values show while it has the class `k-running`.
  // address: whether the page's address follows the viewer, and leads it. At most one viewer of a page can have that.
  window.academyViewer = {
    mount(element, data, { source, file, address = false } = {}) {
      if (source != null) [element, file] = drawn(element, source)
      return new Viewer(element, file, data, address)
    },
  }

  function drawn(element, source) {
    const view = make("div", { class: "t-view" })
    const lines = source.replace(/\n$/, "").split("\n").map((text, i) =>
      make("span", { class: "k-l" }, make("span", { class: "k-n", "data-n": i + 1 }), make("span", { class: "k-c" }, `${text}\n`)))
    const code = make("pre", { class: "t-source", tabindex: 0, role: "group", "aria-label": "Code" }, make("code", {}, ...lines))
    const file = make("div", { class: "k-file k-running" }, make("div", { class: "k-panel" }, view), make("div", { class: "k-row k-bare" }, make("div", { class: "k-code highlight" }, code)))
    element.replaceChildren(file)
    return [view, file]
  }

  function boot(view) {
    const file = view.closest(".k-file")
    const name = view.dataset.run
    waiting[name] = data => academyViewer.mount(view, data, { file, address: true })
    if (arrived[name]) return waiting[name](arrived[name])
    let asked = false
    const load = () => {
      if (asked) return
      asked = true
      const script = make("script", { src: new URL(`data/${name}.js`, here).href })
      script.onerror = () => {
        view.prepend(make("p", { role: "alert" }, "The recorded run could not be loaded."))
        asked = false
      }
      document.head.append(script)
    }
    file.addEventListener("academy:mode", event => { if (event.detail === "run") load(); else history.replaceState(null, "", location.pathname + location.search) })
    const wanted = () => /[#&](pid|line|launch)=/.test(location.hash) && load()
    addEventListener("hashchange", wanted)
    wanted()
    // Claims are buttons only when there is something to watch; loading waits until the reader points at one.
    for (const event of ["pointerenter", "focusin"]) file.addEventListener(event, load, { once: true, capture: true, passive: true })
  }

  const begin = () => {
    // Links from prose into a run lead to the line; with this script they lead to the moment.
    for (const link of document.querySelectorAll("a[data-run]")) link.hash = link.dataset.run
    document.querySelectorAll(".t-view[data-run]").forEach(boot)
  }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin)
  else begin()
})()
