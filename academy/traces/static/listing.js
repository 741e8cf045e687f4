// The code that a recording leads through, as lines of the page. `Viewer` asks nothing else of it, so that an editor can be
// one too: playground/static/beside.js has the same methods.
;(viewer => {
  const phone = () => matchMedia("(max-width: 59.984375em)").matches

  viewer.Listing = class {
    // file: an element whose lines are `.k-l` with `.k-n[data-n]`; panel: the element of the viewer, which may cover some.
    constructor(file, panel) {
      Object.assign(this, { file, panel })
      this.lines = new Map([...file.querySelectorAll(".k-l > .k-n[data-n]")].map(number => [+number.dataset.n, number.parentElement]))
    }

    running() { return this.file.classList.contains("k-running") }

    text(line) { return this.lines.get(line)?.querySelector(".k-c")?.textContent ?? "" }

    // pick(line): a line with values was clicked.
    listen(pick, signal) {
      this.file.addEventListener("click", event => {
        const line = event.target.closest(".k-l.t-hot")
        if (!line || !this.running() || event.target.closest("a, input") || getSelection().toString()) return
        pick(+line.querySelector(".k-n").dataset.n)
      }, { signal })
    }

    // shown: line -> { now, calls, beside }, for lines that the run has been at; `beside` is an element, or null.
    draw(shown) {
      for (const [number, line] of this.lines) {
        const { now = false, calls = false, beside = null, hot = false } = shown.get(number) ?? {}
        line.querySelector(".t-val")?.remove()
        line.classList.toggle("t-hot", hot)
        line.classList.toggle("t-now", now)
        line.classList.toggle("t-calls", calls)
        if (beside) line.append(beside)
      }
    }

    clear() { this.draw(new Map()) }

    // Top and height of the part of the window that shows code: below what sticks to its top, above the sheet on a phone.
    sight() {
      const bar = document.querySelector(".k-bar") ?? document.querySelector(".md-header")
      const top = bar ? bar.offsetHeight + (parseFloat(getComputedStyle(bar).top) || 0) : 0
      const { left, width, height } = this.panel.getBoundingClientRect()
      const below = phone() && left + width / 2 < innerWidth * 0.6 // a sheet, and not beside the code as on a phone that lies
      return [top, Math.max(80, innerHeight - top - (below ? height : 0))]
    }

    // Scroll so that a line stands at this part of the sight.
    lead(line, part, behavior) {
      const element = this.lines.get(line)
      if (!element) return
      const [top, height] = this.sight(), box = element.getBoundingClientRect()
      scrollBy({ top: (box.top + box.bottom) / 2 - top - part * height, behavior })
    }

    // The current line belongs near the middle: what comes before and after it is in sight too.
    centre(line, behavior) {
      const element = this.lines.get(line)
      if (!element) return
      const [top, height] = this.sight(), box = element.getBoundingClientRect(), place = ((box.top + box.bottom) / 2 - top) / height
      if (place < 0.4 || place > 0.6) this.lead(line, 0.5, behavior)
    }
  }
})(window.academyViewer)
