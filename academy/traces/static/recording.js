// A recording and the place in it where the reader is: launch, program, step. Nothing here draws.
window.academyViewer = {}
;(viewer => {
  const product = sizes => sizes.reduce((a, b) => a * b, 1)
  const indexOf = (i, shape) => shape.map((size, axis) => Math.floor(i / product(shape.slice(axis + 1))) % size)
  const number = (x, type) => typeof x !== "number" ? x : type === "b1" ? (x ? "1" : "0") : String(+x.toPrecision(4))
  const programName = pid => pid[2] ? `(${pid.join(", ")})` : pid[1] ? `(${pid[0]}, ${pid[1]})` : `${pid[0]}`
  const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`
  // Numbers that count evenly along each axis up to a size, and are -1 beyond it: the elements of a box of a tensor.
  const box = (shape, first, strides, sizes) => Array.from({ length: product(shape) }, (_, i) => {
    const index = indexOf(i, shape)
    return index.every((at, axis) => at < sizes[axis]) ? index.reduce((sum, at, axis) => sum + at * strides[axis], first) : -1
  })
  const sameLoops = (a, b) => b.every(([line, n]) => { const mine = a.find(loop => loop[0] === line); return !mine || mine[1] === n })

  // What lines of code do that a reader looks for.
  const REDUCES = /\btl\.(sum|max|min|argmax|argmin|reduce|cumsum|cumprod|associative_scan|sort|topk|histogram)\(/
  const MULTIPLIES = /\b(tl\.dot|multiply_add)\(/ // the second: annotated_examples/common

  viewer.Run = class {
    constructor(data) {
      Object.assign(this, { data, launchNumber: 0, programNumber: 0, stepNumber: 0 })
    }

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

    value(n) {
      const value = this.data.pool[n]
      if (value.x) value.d ??= box(value.s, ...value.x)
      return value
    }

    // ---- steps and loops

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

    // In another program or launch: the same statement in the same iteration.
    same(before) {
      const step = before ? this.steps().findIndex(s => s.line === before.line && s.func === before.func && sameLoops(s.loops, before.loops)) : 0
      return Math.max(0, step)
    }

    // The step of round n of the loop at `line`: at the statement where the reader is, or at the loop's head.
    round(line, n) {
      const steps = this.steps(), now = this.step
      const inside = now.loops.some(loop => loop[0] === line)
      const fits = (step, wanted) => step.line === wanted && step.loops.some(loop => loop[0] === line && loop[1] === n)
        && step.loops.every(loop => loop[0] === line || now.loops.every(mine => mine[0] !== loop[0] || mine[1] === loop[1] || loop[0] > line))
      const here = inside ? steps.findIndex(s => fits(s, now.line)) : -1
      return here >= 0 ? here : steps.findIndex(s => fits(s, line))
    }

    loopValue(line, n, steps = this.steps()) {
      const name = this.data.loops[line]
      const header = steps.find(step => step.line === line && step.loops.some(loop => loop[0] === line && loop[1] === n))
      const value = header && name in header.values ? this.value(header.values[name]) : null
      return value ? number(value.d[0], value.t) : String(n)
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

    firstLine(func) { return this.steps().find(step => step.func === func)?.line }

    // Whether the step is the call of a function, whose values are its arguments.
    enters(step) {
      const first = this.steps().find(other => other.func === step.func)
      return step.line === first.line && step.elsewhere === first.elsewhere
    }

    // What a step tells that the reader has not seen: not a pointer under its own name, not an argument handed on.
    news(step) {
      const before = this.enters(step) ? this.steps().slice(0, this.steps().indexOf(step)) : []
      return Object.entries(step.values).filter(([name, n]) => this.brief(n) !== name && !before.some(past => past.values[name] === n))
    }

    // [step, kind] of what a reader looks for: where this program loads, multiplies, reduces and stores. text(line) is code.
    landmarks(text) {
      const kind = step => {
        const operations = step.accesses.map(access => access[0]), code = text(step.line)
        if (operations.some(operation => operation !== "load")) return "store"
        return operations.length ? "load" : MULTIPLIES.test(code) ? "dot" : REDUCES.test(code) ? "reduce" : null
      }
      return this.steps().map((step, i) => [i, kind(step)]).filter(([, found]) => found)
    }

    // ---- as text

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

    link(launchNumber = this.launchNumber, programNumber = this.programNumber, stepNumber = this.stepNumber) {
      const launch = this.data.launches[launchNumber], steps = this.steps(programNumber, launch), step = steps[stepNumber]
      const [pid] = launch.programs[programNumber]
      const loops = step.loops.map(([line, n]) => `&${this.data.loops[line] ?? "iteration"}=${this.loopValue(line, n, steps)}`)
      const line = step.line ? `&line=${step.line}` : ""
      return `#pid=${pid.slice(0, pid[2] ? 3 : pid[1] ? 2 : 1).join(",")}${line}${loops.join("")}${launchNumber ? `&launch=${launchNumber}` : ""}`
    }

    // ---- memory, counted over programs

    // Numbers of the tensors that some program of the launch reads or writes.
    tensorsTouched() {
      const { launch } = this
      launch.touched ??= new Set(launch.programs.flatMap((_, p) => this.steps(p).flatMap(step => step.accesses.map(access => access[1]))))
      return launch.tensors.map((_, t) => t).filter(t => launch.touched.has(t))
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
  }

  // A choice of the reader's that other pages know, too.
  viewer.kept = key => { try { return localStorage.getItem(key) } catch { return null } }
  viewer.keep = (key, value) => { try { localStorage.setItem(key, value) } catch { /* storage is switched off */ } }

  viewer.text = { product, indexOf, number, programName, plural }
})(window.academyViewer)
