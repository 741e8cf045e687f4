// Pictures that a reader moves. A figure with `data-moves` names its module, which stands beside this file and is loaded
// when the figure comes near. The still is already there; from the first change on it is drawn by the same code.

(() => {
  const { modules, shown, tools: { WIDTH, clamp } } = explorables
  const HERE = new URL(".", document.currentScript.src)
  const NEAR = "600px"
  const STEP_MS = 700

  const load = name => new Promise((done, failed) => {
    if (modules[name]) return done()
    const script = Object.assign(document.createElement("script"), { src: new URL(`${name}.js`, HERE), onload: done, onerror: failed })
    document.head.append(script)
  })

  /** The value of a field: of a slider with named stops its stop, of a tick box 0 or 1. */
  function valueOf(field) {
    if (field.type === "checkbox") return Number(field.checked)
    const value = field.dataset.stops ? JSON.parse(field.dataset.stops)[Number(field.value)] : field.value
    return value === "" || Number.isNaN(Number(value)) ? value : Number(value)
  }

  function setField(field, value) {
    if (field.type === "checkbox") field.checked = Boolean(value)
    else field.value = field.dataset.stops ? JSON.parse(field.dataset.stops).indexOf(value) : value
  }

  class Explorable {
    constructor(figure) {
      this.figure = figure
      this.name = figure.dataset.moves
      this.module = modules[this.name]
      this.form = figure.querySelector("form")
      this.facts = JSON.parse(figure.dataset.facts)
      this.panels = figure.querySelector(".panels")
      this.state = figure.querySelector(".state")
      this.time = this.form.querySelector("[data-plays]")
      this.form.hidden = false
      this.form.addEventListener("submit", event => event.preventDefault())
      this.form.addEventListener("input", event => { if (event.target === this.time) this.pause(); this.draw() })
      this.form.addEventListener("reset", () => { this.pause(); setTimeout(() => this.draw()) })
      this.form.querySelectorAll("[data-do]").forEach(button => button.addEventListener("click", () => this.press(button.dataset.do)))
      if (this.module.touch) this.touchable()
      addEventListener("resize", () => { this.state.style.minHeight = "" })
      this.draw()
    }

    fields() { return [...this.form.elements].filter(field => field.name) }

    values() { return Object.fromEntries(this.fields().map(field => [field.name, valueOf(field)])) }

    set(values) {
      for (const field of this.fields()) if (field.name in values) setField(field, values[field.name])
      this.draw()
    }

    /** What is wrong with a field, in words; nothing if all can be drawn. */
    problem() {
      const field = this.fields().find(each => !each.checkValidity())
      if (!field) return ""
      const name = field.closest("label").querySelector("span").textContent
      const [low, high] = [field.min, field.max].map(end => Math.abs(end) < 1e15 ? Number(end).toLocaleString("en") : end)
      return `${name}: a number from ${low} to ${high}, please.`
    }

    draw() {
      const problem = this.problem()
      for (const each of [this.state, this.panels]) each.classList.toggle("wrong", Boolean(problem))
      if (problem) return this.say(problem)
      let values = this.values()
      const highest = this.module.highest?.(values, this.facts) ?? {}
      for (const field of this.fields()) {
        if (!(field.name in highest)) continue
        const isLast = field === this.time && !this.timer && field.value === field.max
        field.max = highest[field.name]
        if (isLast) field.value = field.max  // who was looking at the end still does
      }
      values = this.values()  // a browser keeps a value below its maximum
      for (const field of this.fields()) {
        const output = field.parentElement.querySelector("output")
        if (!output) continue
        output.textContent = this.module.names?.[field.name]?.(values[field.name], values) ?? values[field.name]
        if (field.type === "range") field.setAttribute("aria-valuetext", output.textContent)
      }
      const now = shown(this.name, values, this.facts)
      this.model = now.model
      this.panels.innerHTML = now.panels.join("")
      this.panels.setAttribute("aria-label", now.words)
      this.say(now.words)
    }

    /** Its room only grows, so that nothing below it jumps. */
    say(words) {
      if (this.state.textContent === words) return
      this.state.textContent = words
      this.state.style.minHeight = `${this.state.offsetHeight}px`
    }

    // ---- time

    press(what) {
      if (what === "play") return this.timer ? this.pause() : this.play()
      this.pause()
      this.move(what === "back" ? -1 : what === "next" ? 1 : -Infinity)
    }

    move(steps) {
      this.time.value = clamp(Number(this.time.value) + steps * Number(this.time.step), Number(this.time.min), Number(this.time.max))
      this.draw()
    }

    play() {
      if (Number(this.time.value) >= Number(this.time.max)) this.move(-Infinity)
      this.state.setAttribute("aria-live", "off")  // nobody wants each step of a film read out
      this.timer = setInterval(() => {
        this.move(1)
        if (Number(this.time.value) >= Number(this.time.max)) this.pause()
      }, Number(this.time.dataset.plays) || STEP_MS)
      this.mark()
    }

    pause() {
      if (!this.timer) return
      clearInterval(this.timer)
      this.timer = 0
      this.state.setAttribute("aria-live", "polite")
      const words = this.state.textContent
      this.state.textContent = ""
      requestAnimationFrame(() => this.say(words))  // now it is read out
      this.mark()
    }

    mark() {
      const button = this.form.querySelector("[data-do=play]")
      button.textContent = this.timer ? "Pause" : "Play"
      this.figure.classList.toggle("plays", Boolean(this.timer))
    }

    // ---- touching the drawing

    /** A press or a drag on a part: the module answers with the fields that change. Each has its own input as well. */
    touchable() {
      let part = null
      const touch = event => {
        const svg = this.panels.children[part.panel], box = svg.getBoundingClientRect(), scale = WIDTH / box.width
        const point = { x: (event.clientX - box.left) * scale, y: (event.clientY - box.top) * scale, start: event.type === "pointerdown" }
        const changed = this.module.touch(part.name, point, this.values(), this.facts, this.model)
        if (changed) this.set(changed)
      }
      this.panels.addEventListener("pointerdown", event => {
        const found = event.target.closest("[data-part]")
        if (!found) return
        part = { name: found.dataset.part, panel: [...this.panels.children].indexOf(found.closest("svg")) }
        this.panels.setPointerCapture(event.pointerId)
        event.preventDefault()
        touch(event)
      })
      this.panels.addEventListener("pointermove", event => { if (part) touch(event) })
      for (const end of ["pointerup", "pointercancel"]) this.panels.addEventListener(end, () => { part = null })
      this.panels.classList.add("touchable")
    }
  }

  const near = new IntersectionObserver(entries => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue
      near.unobserve(target)
      load(target.dataset.moves).then(() => { target.explorable = new Explorable(target) })
    }
  }, { rootMargin: NEAR })
  document.querySelectorAll("figure[data-moves]").forEach(figure => near.observe(figure))
  // Out of sight nothing plays.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) document.querySelectorAll("figure.plays").forEach(figure => figure.explorable.pause())
  })
})()
