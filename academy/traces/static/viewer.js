// The viewer of a recorded run: which program, which statement, which values. It leads through the code: the current line
// stays in the middle of what the reader sees.
;(viewer => {
  const { programName } = viewer.text, { make } = viewer

  viewer.Viewer = class extends viewer.Controls {
    // See `mount` in start.js. listing: a `viewer.Listing`, or what has its methods.
    constructor(view, listing, data, address) {
      super(data)
      Object.assign(this, { view, listing, address, whole: false, heat: false, after: 0, launchNumber: data.main ?? 0 })
      view.tabIndex = -1
      view.setAttribute("role", "group")
      view.setAttribute("aria-label", "Recorded run")
      view.replaceChildren()
      this.parts = {}
      for (const part of ["bar", "fold", "tabs", "memory", "now", "lanes"]) {
        this.parts[part] = view.appendChild(part === "fold" ? this.makeFold() : make("div", { class: `t-${part}` }))
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
      this.listing.listen(line => this.toLine(line), signal)
    }

    focus() { this.view.focus({ preventScroll: true }) }

    // Leave the page: nothing listens or plays any more, and the code shows no values.
    remove() {
      this.pause()
      this.ended.abort()
      this.listing.clear()
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
      if (this.address && this.listing.running()) history.replaceState(history.state, "", this.link())
      before ? this.centre() : this.toTop()
    }

    // A line of code was clicked: its execution in the iteration that is in sight.
    toLine(line) {
      const step = this.shownStep(line)
      if (step != null) this.go({ step })
      if (this.address) this.focus()
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

    code(line) { return this.listing.text(line) }

    centre(behavior = matchMedia("(prefers-reduced-motion: reduce)").matches ? "instant" : "smooth") {
      this.listing.centre(this.calling() ?? this.step.line, behavior)
    }

    // Show the kernel from its first line on.
    toTop() { this.listing.lead(this.launch.line || this.step.line, 0.12, "instant") }

    // ---- keys

    key(event) {
      const { target } = event
      if (!this.listing.running() || event.ctrlKey || event.metaKey || event.altKey || target.closest("select, summary, [role=grid], .t-programs, .t-lanes")) return
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

    // ---- drawing

    draw() {
      const focused = document.activeElement?.dataset?.tKey
      this.drawBar()
      this.drawFold()
      this.drawLines()
      this.drawTabs()
      this.drawMemory()
      this.drawNow()
      this.drawLanes()
      if (focused && document.activeElement.dataset?.tKey !== focused) this.view.querySelector(`[data-t-key="${focused}"]`)?.focus()
    }

    // While a function of another file runs: the line of this one that called it. It is the step before the call.
    calling() { return this.step.line ? null : this.steps().findLast((step, n) => n < this.stepNumber && step.line)?.line }

    // Values beside their lines; the current line is marked.
    drawLines() {
      const steps = this.steps(), calling = this.calling(), shown = new Map()
      for (const line of new Set(steps.map(step => step.line))) {
        const step = line ? this.shownStep(line) : null
        if (step != null) shown.set(line, { hot: true, now: line === this.step.line, calls: line === calling, beside: this.beside(step) })
      }
      this.listing.draw(shown)
    }

    beside(number) {
      const step = this.steps()[number]
      if (this.enters(step)) return null
      const beside = make("span", { class: number > this.stepNumber ? "t-val t-later" : "t-val", "data-search-exclude": true })
      for (const [name, n] of this.news(step)) beside.append(make("span", { class: "t-chip" }, make("b", {}, name), ` ${this.brief(n)}`))
      for (const access of step.accesses) {
        beside.append(make("span", { class: `t-chip ${access[0] === "load" ? "t-r" : "t-w"}` }, this.touched(access)))
      }
      return beside.childNodes.length ? beside : null
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

    // What overlapped in a Gluon kernel is a script of its own.
    drawLanes() {
      const { lanes } = this.parts, { orders } = this.launch, drawn = String(this.launchNumber)
      if (lanes.dataset.drawn === drawn) return
      lanes.dataset.drawn = drawn
      lanes.replaceChildren()
      if (orders) viewer.forLanes().then(() => { if (this.launch.orders === orders) new viewer.Lanes(lanes, orders, line => this.toLine(line)) }, () => {})
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
      this.listing.lead(this.step.line, 0.5, "instant")
      this.focus()
    }

    // Numbers quoted in the notes become links to the moment that they quote.
    linkClaims() {
      const left = [...this.data.claims]
      for (const code of this.listing.file.querySelectorAll(".k-note code")) {
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
