// What overlapped in one program of a Gluon kernel: a lane for each partition, for the TMA and for the tensor cores, over
// time; below them the phases of each barrier, and what uses each buffer. `academy.gluon.lanes.timeline` makes the data. Only
// recordings of such kernels load this file.
;(viewer => {
  const { make } = viewer, { plural } = viewer.text
  const UNITS = ["TMA", "tensor cores"]

  // `a_s[1]` for `a_s[1][0:64]`: the buffer that a part lies in.
  const whole = name => name.replace(/\[[^\]]*[:,][^\]]*\]/g, "")

  function kind({ what, writes }) {
    if (what === "waits") return "wait"
    if (what.includes("mma")) return "product"
    if (writes || what === "store") return "write"
    return /load|store|TMA|copy|read/.test(what) ? "read" : "sync"
  }

  function said({ what, buffer, barrier, phase, awaits, memory }) {
    const of = buffer ?? memory ?? awaits ?? (barrier && (phase < 0 ? `${barrier}, the phase before the first` : phase == null ? barrier : `${barrier}, phase ${phase}`))
    return of ? `${what}${what === "waits" ? " for" : ":"} ${of}` : what
  }

  // Spans that overlap in one lane go below one another: the row of each, and how many rows there are.
  function rows(spans) {
    const ends = []
    const placed = spans.map(span => {
      let row = ends.findIndex(end => end < span.from)
      if (row < 0) row = ends.length
      ends[row] = span.to
      return [span, row]
    })
    return [placed, ends.length]
  }

  viewer.Lanes = class {
    // orders: the same program, in several orders that the rules allow. toLine(line): leads to a line of the code.
    constructor(element, orders, toLine) {
      Object.assign(this, { element, orders, toLine, number: 0, at: 0 })
      this.draw()
    }

    get order() { return this.orders[this.number] }

    draw() {
      const { steps, lanes, spans, barriers, phases } = this.order
      this.wide = Math.max(5, Math.min(14, Math.floor(360 / steps)))
      this.names = new Map()
      const drawn = lanes.map(lane => {
        const [placed, count] = rows(spans.filter(span => span.lane === lane))
        return this.row(`lane ${lane}`, lane, count, placed.map(([span, row]) => this.bar(span.from, span.to, kind(span), said(span), row)))
      })
      const buffers = [...new Set(spans.filter(span => span.buffer).map(span => whole(span.buffer)))].sort()
      this.uses = new Map(buffers.map(name => [name, spans.filter(span => span.buffer && whole(span.buffer) === name)]))
      const held = buffers.map(name => {
        const [placed, count] = rows(this.uses.get(name))
        return this.row(`buffer ${name}`, name, count, placed.map(([span, row]) => this.bar(span.from, span.to, kind(span), `${span.lane}, ${said(span)}`, row)))
      })
      const counted = Object.keys(barriers).map(name => {
        let from = barriers[name][0][0]
        const own = [...phases.filter(phase => phase.barrier === name), { phase: null, step: steps - 1 }]
        const bars = own.map(({ phase, step }, i) => {
          const number = phase ?? i, bar = this.bar(from, Math.max(from, step), `parity${number & 1}`, `phase ${number}${phase == null ? ", not complete" : ""}`, 0, step - from > 1 ? number : "")
          from = step + 1
          return bar
        })
        return this.row(`barrier ${name}`, name, 1, bars)
      })
      this.cursor = make("i", { class: "t-l-cursor" })
      const part = (title, found) => found.length ? [make("p", { class: "t-l-part" }, title), ...found] : []
      const tracks = make("div", { class: "t-l-tracks", style: `width: ${steps * this.wide}px`, onclick: event => this.clicked(event) },
        ...part("Who does what", drawn), ...part("Barriers, by phase: even, odd", counted), ...part("Buffers, and what uses them", held), this.cursor)
      this.scroll = make("div", { class: "t-l-scroll", tabindex: 0, role: "group", "aria-label": "Lanes over time" }, tracks)
      this.slider = make("input", { type: "range", min: 0, max: steps - 1, "aria-label": "Step of this order", oninput: () => this.go(+this.slider.value) })
      this.told = make("p", { class: "t-l-told" })
      const pick = make("select", { "aria-label": "Order", onchange: () => { this.number = pick.selectedIndex; this.draw() } },
        ...this.orders.map(({ seed }, i) => make("option", { selected: i === this.number }, `order ${i + 1} of ${this.orders.length}, seed ${seed}`)))
      const button = (label, text, by) => make("button", { type: "button", "aria-label": label, title: label, onclick: () => this.go(this.at + by) }, text)
      this.element.replaceChildren(make("p", { class: "t-title" }, "What overlapped"),
        make("div", { class: "t-stepper" }, pick, this.count = make("span", { class: "t-count" }), button("Previous step of this order", "←", -1), button("Next step of this order", "→", 1)),
        this.slider, this.told, this.scroll, this.legend(),
        make("p", { class: "t-facts" }, `Of one program: ${this.order.about}. Time is counted in steps.`))
      this.go(this.at)
    }

    bar(from, to, kind, title, row, text = "") {
      const style = `left: ${from * this.wide}px; width: ${(to - from + 1) * this.wide - 1}px; top: ${row * 15}px`
      return make("i", { class: `t-l-bar t-l-${kind}`, style, title }, text)
    }

    row(key, name, count, bars) {
      const label = make("span", { class: "t-l-name" }, name)
      this.names.set(key, label)
      return make("div", { class: "t-l-row" }, label, make("div", { class: "t-l-track", style: `height: ${Math.max(1, count) * 15}px` }, ...bars))
    }

    legend() {
      const entry = (kind, text) => make("span", {}, make("i", { class: `t-l-${kind}` }), text)
      return make("p", { class: "t-legend" }, entry("wait", "waits"), entry("write", "writes shared memory"), entry("read", "reads it"), entry("product", "tensor cores"), entry("sync", "barrier, fence"))
    }

    clicked(event) {
      const { left } = event.currentTarget.getBoundingClientRect()
      this.go(Math.floor((event.clientX - left) / this.wide))
    }

    go(step) {
      const { steps, told, barriers } = this.order
      this.at = Math.max(0, Math.min(steps - 1, step))
      const [lane, line, words] = told[this.at], sentence = `${lane}: ${words}`
      const link = line ? make("button", { type: "button", onclick: () => this.toLine(line) }, `line ${line}`) : null
      this.told.replaceChildren(make("b", {}, lane), ` ${words} `, ...(link ? [link] : []))
      this.count.textContent = `${this.at + 1} of ${steps}`
      this.slider.value = this.at
      this.slider.setAttribute("aria-valuetext", sentence)
      for (const [name, states] of Object.entries(barriers)) this.label(`barrier ${name}`, name, counted(states.findLast(state => state[0] <= this.at)))
      for (const [name, spans] of this.uses) {
        const now = spans.filter(span => span.from <= this.at && this.at <= span.to)
        this.label(`buffer ${name}`, name, now.map(({ lane, what, of }) => UNITS.includes(lane) ? `${what} of ${of}` : `${what}, ${lane}`).join("; ") || "nobody")
      }
      const x = (this.at + 0.5) * this.wide, { scroll } = this
      this.cursor.style.left = `${x}px`
      if (x < scroll.scrollLeft || x > scroll.scrollLeft + scroll.clientWidth - 20) scroll.scrollLeft = x - scroll.clientWidth / 2
    }

    label(key, name, text) { this.names.get(key).replaceChildren(name, make("span", { class: "t-l-state" }, ` ${text}`)) }
  }

  function counted(state) {
    if (!state) return "not initialised yet"
    const [, phase, arrived, count, bytes] = state
    return `phase ${phase}, ${arrived} of ${plural(count, "arrival")}${bytes ? `, ${bytes.toLocaleString("en")} bytes to come` : ""}`
  }
})(window.academyViewer)
