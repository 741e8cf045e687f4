// The viewer of a recorded run: which program, which statement, which values. It leads through the code: the current line
// stays in the middle of what the reader sees.
;(viewer => {
  const { programName, product, plural } = viewer.text, { make } = viewer
  const PAUSE = 900 // milliseconds between two steps that play by themselves
  const NAMES = { load: "load", dot: "product", reduce: "reduction", store: "store" }

  viewer.Viewer = class extends viewer.Memory {
    // See `mount` in start.js.
    constructor(view, file, data, address) {
      super(data)
      Object.assign(this, { view, file, address, whole: false, heat: false, after: 0, launchNumber: data.main ?? 0 })
      this.lines = new Map([...file.querySelectorAll(".k-l > .k-n[data-n]")].map(number => [+number.dataset.n, number.parentElement]))
      view.tabIndex = -1
      view.setAttribute("role", "group")
      view.setAttribute("aria-label", "Recorded run")
      view.replaceChildren()
      this.parts = {}
      for (const part of ["head", "programs", "bar", "now", "tabs", "memory"]) {
        this.parts[part] = view.appendChild(make("div", { class: `t-${part}` }))
      }
      this.status = view.appendChild(make("p", { class: "t-status", role: "status" }))
      this.listen()
      if (address) this.linkClaims()
      this.start()
      if (address) this.follow()
    }

    listen() {
      const ended = this.ended = new AbortController(), { signal } = ended
      this.view.addEventListener("keydown", event => this.key(event), { signal })
      if (this.address) {
        document.addEventListener("keydown", event => { if (event.target === document.body) this.key(event) }, { signal })
        addEventListener("hashchange", () => this.follow(), { signal })
      }
      this.file.addEventListener("click", event => {
        const line = event.target.closest(".k-l.t-hot")
        if (!line || !this.running() || event.target.closest("a") || getSelection().toString()) return
        this.toLine(+line.querySelector(".k-n").dataset.n)
        this.focus()
      }, { signal })
    }

    running() { return this.file.classList.contains("k-running") }
    focus() { this.view.focus({ preventScroll: true }) }

    // Leave the page: nothing listens or plays any more, and the code shows no values.
    remove() {
      this.pause()
      this.ended.abort()
      for (const line of this.lines.values()) {
        line.querySelector(".t-val")?.remove()
        line.classList.remove("t-hot", "t-now", "t-calls")
      }
      this.view.replaceChildren()
    }

    // ---- going places

    // Where a reader comes in: the beginning of the program that the prose follows first.
    start() {
      const claim = this.data.claims.find(claim => claim[1] === this.launchNumber)
      this.go({ pid: claim ? claim[2] : this.launch.programs[0][0], step: 0 }, false)
    }

    go({ launch = this.launchNumber, pid, program, step }, told = true) {
      const before = this.launchNumber === launch ? this.step : null
      if (this.launchNumber !== launch) Object.assign(this, { launchNumber: launch, programNumber: 0, stepNumber: 0 })
      if (pid) program = this.launch.programs.findIndex(p => p[0].every((x, i) => x === (pid[i] ?? 0)))
      if (program != null) this.programNumber = Math.max(0, program)
      if (step == null) step = this.same(before)
      this.stepNumber = Math.max(0, Math.min(this.steps().length - 1, step))
      if (program != null || !this.after) this.after = this.programNumber + 1
      this.draw()
      if (!told) return
      if (this.address && this.running()) history.replaceState(null, "", this.link())
      before ? this.centre() : this.toTop()
    }

    // A line of code was clicked: its execution in the iteration that is in sight.
    toLine(line) {
      const step = this.shownStep(line)
      if (step != null) this.go({ step })
    }

    toRound(line, n) {
      const step = this.round(line, n)
      if (step >= 0) this.go({ step })
    }

    toLandmark(kind) {
      const found = this.marks().filter(mark => mark[1] === kind).map(mark => mark[0])
      this.go({ step: found.find(step => step > this.stepNumber) ?? found[0] })
    }

    marks() {
      const program = this.program
      return program[3] ??= this.landmarks(line => this.code(line))
    }

    code(line) { return this.lines.get(line)?.querySelector(".k-c")?.textContent ?? "" }

    // ---- what is in sight

    // Top and height of the part of the window that shows code: below what sticks to its top, above the sheet on a phone.
    sight() {
      const bar = document.querySelector(".k-bar") ?? document.querySelector(".md-header")
      const top = bar ? bar.offsetHeight + (parseFloat(getComputedStyle(bar).top) || 0) : 0
      const sheet = matchMedia("(max-width: 59.984375em)").matches ? this.view.parentElement.offsetHeight : 0
      return [top, Math.max(80, innerHeight - top - sheet)]
    }

    // Scroll so that a line stands at this part of the sight.
    lead(line, part, behavior) {
      const element = this.lines.get(line)
      if (!element) return
      const [top, height] = this.sight(), box = element.getBoundingClientRect()
      scrollBy({ top: (box.top + box.bottom) / 2 - top - part * height, behavior })
    }

    // The current line belongs near the middle: what comes before and after it is in sight too.
    centre(behavior = matchMedia("(prefers-reduced-motion: reduce)").matches ? "instant" : "smooth") {
      const number = this.calling() ?? this.step.line, line = this.lines.get(number)
      if (!line) return
      const [top, height] = this.sight(), box = line.getBoundingClientRect(), place = ((box.top + box.bottom) / 2 - top) / height
      if (place < 0.4 || place > 0.6) this.lead(number, 0.5, behavior)
    }

    // Show the kernel from its first line on.
    toTop() { this.lead(this.launch.line || this.step.line, 0.12, "instant") }

    // ---- keys, and playing

    key(event) {
      const { target } = event
      if (!this.running() || event.ctrlKey || event.metaKey || event.altKey || target.closest("select, [role=grid], .t-programs")) return
      if (event.key === " " && !target.closest("button") && target !== document.body) {
        event.preventDefault()
        return this.playing ? this.pause() : this.play()
      }
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key]
      if (!by) return
      event.preventDefault()
      this.pause()
      const loop = this.step.loops.at(-1)
      if (!event.shiftKey) this.go({ step: this.stepNumber + by })
      else if (loop) this.toRound(loop[0], loop[1] + by)
    }

    play() {
      if (this.stepNumber === this.steps().length - 1) this.go({ step: 0 })
      this.playing = setInterval(() => {
        if (!this.running() || this.stepNumber === this.steps().length - 1) return this.pause()
        this.go({ step: this.stepNumber + 1 })
      }, PAUSE)
      this.status.setAttribute("aria-live", "off") // it would read every step
      this.drawBar()
    }

    pause() {
      if (!this.playing) return
      clearInterval(this.playing)
      this.playing = null
      this.status.removeAttribute("aria-live")
      this.drawBar()
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
      if (focused && document.activeElement.dataset?.tKey !== focused) this.view.querySelector(`[data-t-key="${focused}"]`)?.focus()
    }

    drawHead() {
      const { head } = this.parts, { launches } = this.data
      if (head.dataset.drawn === String(this.launchNumber)) return
      head.dataset.drawn = this.launchNumber
      const title = launch => `${launch.kernel} (${launch.direction})`
      const pick = make("select", { "aria-label": "Launch", onchange: () => this.go({ launch: pick.selectedIndex, program: 0, step: 0 }) })
      launches.forEach((launch, i) => pick.append(make("option", { selected: i === this.launchNumber }, `${i + 1}. ${title(launch)}`)))
      head.replaceChildren(launches.length > 1 ? pick : make("strong", {}, title(launches[0])))
      for (const repair of this.launch.repairs) head.append(make("p", { class: "t-repair" }, `Repaired semantics: ${repair}.`))
    }

    // The grid as a picture: a square for each program, the chosen one filled.
    drawPrograms() {
      const { programs } = this.parts, { launch } = this
      if (programs.dataset.drawn !== String(this.launchNumber)) {
        programs.dataset.drawn = this.launchNumber
        const [rows, columns, layers] = launch.grid
        const wide = columns === 1 && layers === 1
        const across = wide ? Math.min(rows, 16) : columns * layers
        const order = launch.programs.map((p, i) => i)
        if (!wide) order.sort((a, b) => launch.programs[a][0][0] - launch.programs[b][0][0])
        const squares = make("div", { class: "t-squares", role: "group", "aria-label": wide ? "Program" : "Program: rows are axis 0, columns axis 1" })
        squares.style.setProperty("--t-columns", across)
        squares.append(...order.map(i => {
          const name = programName(launch.programs[i][0])
          return make("button", { type: "button", "data-t-key": `p${i}`, "aria-label": `program ${name}`, onclick: () => this.go({ program: i }) }, name.replace(/[() ]/g, ""))
        }))
        squares.onkeydown = event => this.moveProgram(event, across)
        const sizes = launch.grid.slice(0, layers > 1 ? 3 : columns > 1 ? 2 : 1)
        const size = `${sizes.join(" × ")} ${product(sizes) === 1 ? "program" : "programs"}`
        programs.replaceChildren(make("p", { class: "t-facts" }, `Grid: ${size}${wide ? "" : ", axis 0 down, axis 1 across"}`), squares)
      }
      for (const button of programs.querySelectorAll("button")) {
        const on = button.dataset.tKey === `p${this.programNumber}`
        button.setAttribute("aria-pressed", on)
        button.tabIndex = on ? 0 : -1
      }
    }

    moveProgram(event, across) {
      const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across }[event.key]
      if (!by) return
      event.preventDefault()
      const buttons = [...event.currentTarget.children]
      const next = buttons[buttons.indexOf(event.target) + by]
      next?.click()
      next?.focus()
    }

    button(label, text, key, act) {
      return make("button", { type: "button", "aria-label": label, title: label, "data-t-key": key, onclick: () => { this.pause(); act() } }, text)
    }

    // The slider stays the same element while the reader drags it; a program of its own number of steps gets another one.
    drawBar() {
      const { bar } = this.parts, steps = this.steps(), last = steps.length - 1
      const drawn = `${this.launchNumber} ${this.programNumber}`
      if (bar.dataset.drawn !== drawn) {
        bar.dataset.drawn = drawn
        const slider = make("input", { type: "range", min: 0, max: last, "aria-label": "Step", "data-t-key": "slider", oninput: () => { this.pause(); this.go({ step: +slider.value }) } })
        const play = make("button", { type: "button", class: "t-play", "data-t-key": "play", onclick: () => this.playing ? this.pause() : this.play() })
        const ticks = this.marks().map(([step, kind]) => make("i", { class: `t-tick t-m-${kind}`, style: `--at: ${last ? step / last : 0}` }))
        const kinds = Object.keys(NAMES).filter(kind => this.marks().some(mark => mark[1] === kind))
        bar.replaceChildren(
          make("div", { class: "t-stepper" }, play,
            this.button("Previous step (left arrow)", "←", "back", () => this.go({ step: this.stepNumber - 1 })),
            make("div", { class: "t-track" }, slider, make("div", { class: "t-ticks", "aria-hidden": "true" }, ...ticks)),
            this.button("Next step (right arrow)", "→", "next", () => this.go({ step: this.stepNumber + 1 })),
            make("span", { class: "t-count" })),
          make("div", { class: "t-marks", role: "group", "aria-label": "Go to the next" }, ...kinds.map(kind =>
            make("button", { type: "button", "data-t-key": `m-${kind}`, title: `Next ${NAMES[kind]}`, onclick: () => { this.pause(); this.toLandmark(kind) } }, make("i", { class: `t-tick t-m-${kind}` }), NAMES[kind]))),
          make("div", { class: "t-loops" }),
          make("p", { class: "t-keys" }, make("kbd", {}, "←"), make("kbd", {}, "→"), " step ", make("kbd", {}, "Shift"), make("kbd", {}, "←"), make("kbd", {}, "→"), " round ", make("kbd", {}, "Space"), " play"))
      }
      const slider = bar.querySelector("input"), play = bar.querySelector(".t-play")
      const where = this.step.line ? `line ${this.step.line}` : this.step.elsewhere
      slider.value = this.stepNumber
      slider.setAttribute("aria-valuetext", `step ${this.stepNumber + 1} of ${last + 1}, ${where}`)
      play.textContent = this.playing ? "Pause" : "Play"
      bar.querySelector(".t-count").textContent = `${this.stepNumber + 1} of ${last + 1}`
      bar.querySelector(".t-loops").replaceChildren(...[...this.iterations()].map(([line, count]) => this.loop(line, count)))
    }

    loop(line, count) {
      const mine = this.step.loops.find(loop => loop[0] === line)
      const name = this.data.loops[line] ?? "iteration"
      const text = mine ? `${name} = ${this.loopValue(line, mine[1])}` : `loop over ${name}`
      const position = mine ? `round ${mine[1] + 1} of ${count}` : plural(count, "round")
      return make("div", { class: mine ? "t-loop t-inside" : "t-loop" },
        this.button(`Previous round of the loop in line ${line}`, "←", `b${line}`, () => this.toRound(line, (mine ? mine[1] : 1) - 1)),
        this.button(`Next round of the loop in line ${line}`, "→", `n${line}`, () => this.toRound(line, mine ? mine[1] + 1 : 0)),
        make("span", {}, `line ${line}: `, make("code", {}, text), `, ${position}`))
    }

    // While a function of another file runs: the line of this one that called it. It is the step before the call.
    calling() { return this.step.line ? null : this.steps().findLast((step, n) => n < this.stepNumber && step.line)?.line }

    // Values beside their lines; the current line is marked.
    drawLines() {
      const steps = this.steps(), lines = new Set(steps.map(step => step.line)), calling = this.calling()
      for (const [number, line] of this.lines) {
        line.querySelector(".t-val")?.remove()
        const step = lines.has(number) ? this.shownStep(number) : null
        line.classList.toggle("t-hot", step != null)
        line.classList.toggle("t-now", number === this.step.line)
        line.classList.toggle("t-calls", number === calling)
        if (step == null || this.enters(steps[step])) continue
        const beside = make("span", { class: step > this.stepNumber ? "t-val t-later" : "t-val", "data-search-exclude": true })
        for (const [name, n] of this.news(steps[step])) {
          beside.append(make("span", { class: "t-chip" }, make("b", {}, name), ` ${this.brief(n)}`))
        }
        for (const access of steps[step].accesses) {
          beside.append(make("span", { class: `t-chip ${access[0] === "load" ? "t-r" : "t-w"}` }, this.touched(access)))
        }
        if (beside.childNodes.length) line.append(beside)
      }
    }

    drawNow() {
      const { step } = this, entering = this.enters(step)
      const rounds = step.loops.map(([line, n]) => `, ${this.data.loops[line] ?? "iteration"} = ${this.loopValue(line, n)}`).join("")
      const place = step.line ? `line ${step.line}` : step.elsewhere
      const title = entering ? `Call of ${step.func}` : `After ${place}${rounds}`
      const news = this.news(step)
      const items = news.map(([name, n]) => this.variable(name, n, step))
      for (const access of step.accesses) if (access[0] !== "load") items.push(this.written(access))
      const line = this.code(step.line).trim()
      const shown = line && !entering ? [make("code", { class: "t-code" }, line)] : []
      const later = this.stepNumber < this.steps().length - 1
      const legend = make("p", { class: "t-legend" }, "Beside the code: ", make("span", { class: "t-chip" }, "known now"),
        later ? make("span", { class: "t-later" }, make("span", { class: "t-chip" }, "still to come")) : null)
      this.parts.now.replaceChildren(make("p", { class: "t-title" }, title), ...shown, make("div", { class: entering ? "t-vars t-args" : "t-vars" }, ...items), legend)
      const told = news.slice(0, 4).map(([name, n]) => `${name} ${this.brief(n, 60)}`)
      const touched = step.accesses.map(access => this.touched(access))
      this.status.textContent = `Program ${programName(this.program[0])}, ${title}. ${[...told, ...touched].join(". ")}`
    }

    // ---- the address: #pid=13&line=79&k=1, or pid=(1, 0) as pid=1,0; launch=2 for another launch than the first that fits;
    // whole=9 shows the whole launch after nine programs

    // Go where the address says, if it leads into the run.
    follow() {
      const wanted = new URLSearchParams(location.hash.slice(1))
      if (!["pid", "line", "launch"].some(name => wanted.has(name))) return
      const line = +wanted.get("line")
      const runs = launch => launch.programs.some(p => p[1].some(([place]) => this.data.places[place][1] === line))
      let launch = wanted.has("launch") ? +wanted.get("launch") : line ? this.data.launches.findIndex(runs) : this.launchNumber
      if (!this.data.launches[launch]) launch = 0
      const pid = wanted.has("pid") ? wanted.get("pid").replace(/[()]/g, "").split(",").map(Number) : [0]
      if (wanted.has("whole")) this.whole = true
      this.go({ launch, pid, step: 0 }, false)
      if (wanted.has("whole")) {
        this.after = +wanted.get("whole") || this.launch.programs.length
        this.drawMemory()
      }
      if (line) this.go({ step: this.find(line, wanted) }, false)
      this.view.dispatchEvent(new CustomEvent("academy:mode", { detail: "run", bubbles: true }))
      this.lead(this.step.line, 0.5, "instant")
      this.focus()
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
  }
})(window.academyViewer)
