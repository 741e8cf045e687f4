// What leads through a recording: play with its speed and its end, the slider, and, folded, the launch, the grid of programs,
// landmarks and loops.
;(viewer => {
  const { programName, product, plural } = viewer.text, { make } = viewer
  const PAUSE = 900 // milliseconds between two steps that play by themselves, at speed 1
  const SPEEDS = [0.5, 1, 2, 4, 8], KEPT = "academy.speed"
  const NAMES = { load: "load", dot: "product", reduce: "reduction", store: "store" }

  viewer.Controls = class extends viewer.Memory {
    speed = SPEEDS.find(speed => String(speed) === viewer.kept(KEPT)) ?? 1
    until = "" // where playing ends: "" at the end of the program, or the kind of a landmark

    // ---- playing

    play() {
      if (this.stepNumber === this.steps().length - 1) this.go({ step: 0 })
      const tick = () => {
        const last = this.steps().length - 1
        if (!this.listing.running() || this.stepNumber >= last) return this.pause()
        this.go({ step: this.stepNumber + 1 })
        if (this.stepNumber === last || (this.until && this.marks().some(([step, kind]) => step === this.stepNumber && kind === this.until))) return this.pause()
        this.playing = setTimeout(tick, PAUSE / this.speed)
      }
      this.playing = setTimeout(tick, PAUSE / this.speed)
      this.status.setAttribute("aria-live", "off") // it would read every step
      this.drawBar()
    }

    pause() {
      if (!this.playing) return
      clearTimeout(this.playing)
      this.playing = null
      this.status.removeAttribute("aria-live")
      this.drawBar()
    }

    // ---- the bar, always in sight

    button(label, text, key, act) {
      return make("button", { type: "button", "aria-label": label, title: label, "data-t-key": key, onclick: () => { this.pause(); act() } }, text)
    }

    pick(label, key, options, chosen, act) {
      const select = make("select", { "aria-label": label, title: label, "data-t-key": key, onchange: () => act(options[select.selectedIndex][0]) })
      for (const [value, text] of options) select.append(make("option", { selected: value === chosen }, text))
      return select
    }

    // The slider stays the same element while the reader drags it; a program of its own number of steps gets another one.
    drawBar() {
      const { bar } = this.parts, last = this.steps().length - 1
      const drawn = `${this.launchNumber} ${this.programNumber}`
      if (bar.dataset.drawn !== drawn) {
        bar.dataset.drawn = drawn
        const slider = make("input", { type: "range", min: 0, max: last, "aria-label": "Step", "data-t-key": "slider", oninput: () => { this.pause(); this.go({ step: +slider.value }) } })
        const play = make("button", { type: "button", class: "t-play", "data-t-key": "play", onclick: () => this.playing ? this.pause() : this.play() })
        const ticks = this.marks().map(([step, kind]) => make("i", { class: `t-tick t-m-${kind}`, style: `--at: ${last ? step / last : 0}` }))
        const ends = [["", "to the end"], ...this.kinds().map(kind => [kind, `to the next ${NAMES[kind]}`])]
        if (!ends.some(([kind]) => kind === this.until)) this.until = ""
        bar.replaceChildren(
          make("div", { class: "t-stepper" }, play,
            this.pick("Play until", "until", ends, this.until, kind => { this.until = kind }),
            this.pick("Speed", "speed", SPEEDS.map(speed => [speed, `${speed}×`]), this.speed, speed => { viewer.keep(KEPT, this.speed = speed) }),
            make("span", { class: "t-count" }),
            this.button("Previous step (left arrow)", "←", "back", () => this.go({ step: this.stepNumber - 1 })),
            this.button("Next step (right arrow)", "→", "next", () => this.go({ step: this.stepNumber + 1 }))),
          make("div", { class: "t-track" }, slider, make("div", { class: "t-ticks", "aria-hidden": "true" }, ...ticks)))
      }
      const slider = bar.querySelector("input"), play = bar.querySelector(".t-play")
      const where = this.step.line ? `line ${this.step.line}` : this.step.elsewhere
      slider.value = this.stepNumber
      slider.setAttribute("aria-valuetext", `step ${this.stepNumber + 1} of ${last + 1}, ${where}`)
      play.textContent = this.playing ? "Pause" : "Play"
      bar.querySelector(".t-count").textContent = `${this.stepNumber + 1} of ${last + 1}`
    }

    kinds() { return Object.keys(NAMES).filter(kind => this.marks().some(mark => mark[1] === kind)) }

    // ---- folded: where else to go

    // Makes the parts once: `parts` holds their elements.
    makeFold() {
      const { parts } = this
      const roomy = matchMedia("(min-width: 60em) and (min-height: 60em)").matches
      parts.where = make("summary", { class: "t-where" })
      for (const part of ["head", "programs", "landmarks", "loops"]) parts[part] = make("div", { class: `t-${part}` })
      const keys = make("p", { class: "t-keys" }, make("kbd", {}, "←"), make("kbd", {}, "→"), " step ", make("kbd", {}, "Shift"), make("kbd", {}, "←"), make("kbd", {}, "→"), " round ", make("kbd", {}, "Space"), " play")
      return make("details", { class: "t-more", open: roomy }, parts.where, parts.head, parts.programs, parts.landmarks, parts.loops, keys)
    }

    drawFold() {
      const { parts, launch } = this
      const of = launch.programs.length > 1 ? `program ${programName(this.program[0])} of ${launch.programs.length}` : "one program"
      parts.where.textContent = `${launch.kernel} (${launch.direction}), ${of}`
      this.drawHead()
      this.drawPrograms()
      parts.landmarks.replaceChildren(make("div", { class: "t-marks", role: "group", "aria-label": "Go to the next" }, ...this.kinds().map(kind =>
        make("button", { type: "button", "data-t-key": `m-${kind}`, title: `Next ${NAMES[kind]}`, onclick: () => { this.pause(); this.toLandmark(kind) } }, make("i", { class: `t-tick t-m-${kind}` }), NAMES[kind]))))
      parts.loops.replaceChildren(...[...this.iterations()].map(([line, count]) => this.loop(line, count)))
    }

    drawHead() {
      const { head } = this.parts, { launches } = this.data
      if (head.dataset.drawn === String(this.launchNumber)) return
      head.dataset.drawn = this.launchNumber
      const options = launches.map((launch, i) => [i, `${i + 1}. ${launch.kernel} (${launch.direction})`])
      const pick = launches.length > 1 ? this.pick("Launch", "launch", options, this.launchNumber, launch => this.go({ launch, program: 0, step: 0 })) : null
      head.replaceChildren(...[pick].filter(Boolean), ...this.launch.repairs.map(repair => make("p", { class: "t-repair" }, `Repaired semantics: ${repair}.`)))
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
  }
})(window.academyViewer)
