// Tensors and blocks as tables or heat maps, and the memory of a launch: as one program has seen it, and as all have.
;(viewer => {
  const { product, indexOf, number, programName, plural } = viewer.text

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
  viewer.make = make

  viewer.Memory = class extends viewer.Run {
    drawTabs() {
      const tab = (whole, text) => make("button", {
        type: "button", "aria-pressed": String(this.whole === whole), "data-t-key": `w${whole}`,
        onclick: () => { this.whole = whole; this.after = whole ? this.launch.programs.length : this.after; this.draw() },
      }, text)
      const heat = make("button", {
        type: "button", "aria-pressed": String(this.heat), "data-t-key": "heat", onclick: () => { this.heat = !this.heat; this.draw() },
      }, "Heat map")
      this.view.classList.toggle("t-heat", this.heat)
      this.parts.tabs.replaceChildren(make("span", { role: "group", "aria-label": "Memory" }, tab(false, "This program"), tab(true, "Whole launch")), heat)
    }

    // A large tensor stays scrolled to where the reader is, and then to what is read or written now.
    drawMemory() {
      const { memory } = this.parts, boxes = () => [...memory.querySelectorAll(".t-scroll")]
      const places = boxes().map(box => [box.scrollLeft, box.scrollTop])
      memory.replaceChildren(...(this.whole ? this.footprint() : this.seen()).filter(Boolean))
      boxes().forEach((box, i) => {
        if (box.scrollHeight <= box.clientHeight && box.scrollWidth <= box.clientWidth) return
        ;[box.scrollLeft, box.scrollTop] = places[i] ?? [0, 0]
        const outer = box.getBoundingClientRect(), cell = box.querySelector("td.t-r, td.t-w")?.getBoundingClientRect()
        if (!cell) return
        if (cell.top < outer.top || cell.bottom > outer.bottom) box.scrollTop += cell.top - outer.top - outer.height / 4
        if (cell.left < outer.left || cell.right > outer.right) box.scrollLeft += cell.left - outer.left - outer.width / 8
      })
    }

    // The memory of a launch after all of its programs.
    showWhole(launch) {
      this.go({ launch })
      this.whole = true
      this.after = this.launch.programs.length
      this.draw()
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

    // ---- values

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
      const most = Math.max(...texts.map(text => Math.abs(+text)).filter(Number.isFinite), 0) || 1
      const about = (i, text, meaning) => tell ? tell(i, name(i)) : `${name(i)} ${text}${meaning ? `, ${meaning}` : ""}`
      texts.forEach((text, i) => {
        if (i % columns === 0) row = body.appendChild(make("tr"))
        const [style, meaning, instead] = look(i)
        const cell = make("td", { class: style, title: about(i, text, meaning), "data-i": i }, instead ?? text)
        if (this.heat && Number.isFinite(+text)) {
          cell.classList.add(+text < 0 ? "t-cold" : "t-warm")
          cell.style.setProperty("--t-share", `${Math.round(85 * Math.abs(+text) / most)}%`)
        }
        row.append(cell)
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
  }
})(window.academyViewer)
