// What explorables draw with: SVG text, in panels 360 units wide, as docs/figures/draw.py has it for pictures that stand
// still. Colours are classes (figures.css): a amber, b blue, g green, p purple, r red, off for what is left out.
// No page is needed here: the same code draws the still that the site is built with (docs/figures/moving.py).

const explorables = (() => {
  const WIDTH = 360
  const modules = {}

  /** Makes an explorable known. `make` is given the tools below, and gives its parts; docs/figures/moving.py describes them. */
  const define = (name, make) => { modules[name] = make(tools) }

  /** What is shown for `values`: the counts, the panels as SVG, the words. */
  function shown(name, values, facts) {
    const { model, draw, words } = modules[name], found = model(values, facts)
    return { model: found, panels: draw(found, values, facts).map(panel => panel.svg()), words: words(found, values, facts) }
  }

  const escaped = words => String(words).replace(/[&<>"]/g, sign => `&#${sign.charCodeAt()};`)
  const attributes = places => Object.entries(places).filter(([, value]) => value !== undefined && value !== "")
    .map(([name, value]) => ` ${name}="${escaped(typeof value === "number" ? Math.round(value * 10) / 10 : value)}"`).join("")
  const clamp = (value, low, high) => Math.min(high, Math.max(low, value))
  const range = (start, stop, step = 1) => Array.from({ length: Math.max(0, Math.ceil((stop - start) / step)) }, (_, i) => start + i * step)

  /** Three digits, no zeros behind: 0.123, 4.57, 1230. */
  const short = value => String(Number(Number(value).toPrecision(3)))
  /** 12,345 */
  const grouped = value => String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ",")
  const percent = share => `${Math.round(100 * share)}%`
  const plural = (count, word, more = `${word}s`) => `${grouped(count)} ${count === 1 ? word : more}`
  /** 800 bytes, 12.3 KB, 1.05 MB, in powers of 1024 or, with 1000, of that. */
  function bytes(value, unit = 1024) {
    const names = unit === 1024 ? ["bytes", "KiB", "MiB", "GiB", "TiB"] : ["bytes", "KB", "MB", "GB", "TB"]
    const power = value < unit ? 0 : Math.min(4, Math.floor(Math.log(value) / Math.log(unit) + 1e-9))
    return `${power ? short(value / unit ** power) : value} ${names[power]}`
  }

  class Panel {
    /** One SVG. `part` names what a reader can touch, or a test looks for. */
    constructor(height, title = "") {
      this.height = height
      this.drawn = []
      if (title) this.text(0, 15, title, "bold")
    }

    add(tag, kind, places, content = "", part = "") {
      this.drawn.push(`<${tag}${attributes({ ...places, class: kind.trim(), "data-part": part })}${content === "" ? "/>" : `>${content}</${tag}>`}`)
    }

    /** `anchor`: "middle" or "end" for what isn't written to the right of x. */
    text(x, y, words, kind = "", anchor = "", part = "") {
      this.add("text", `${kind} ${anchor}`, { x, y }, escaped(words) || " ", part)
    }

    /** A rectangle, with lines of text in its middle. `more`: further attributes, such as {"fill-opacity": 0.4}. */
    box(x, y, width, height, kind = "", words = "", part = "", more = {}) {
      this.add("rect", kind, { x, y, width: Math.max(0, width), height: Math.max(0, height), ...more }, "", part)
      const lines = words === "" ? [] : String(words).split("\n")
      lines.forEach((line, row) =>
        this.text(x + width / 2, y + height / 2 + 4.5 + (row - (lines.length - 1) / 2) * 16, line, "small", "middle"))
    }

    /** A grid; `size` is the side of a cell, or [width, height]. `part` names each cell part-row-column. */
    cells(x, y, rows, columns, size, kind = () => "", words = () => "", part = "") {
      const [width, height] = Array.isArray(size) ? size : [size, size]
      for (let row = 0; row < rows; row++)
        for (let column = 0; column < columns; column++)
          this.box(x + column * width, y + row * height, width, height, kind(row, column), words(row, column), part && `${part}-${row}-${column}`)
    }

    line(points, kind = "", part = "") {
      this.add("polyline", kind, { points: points.map(([x, y]) => `${Math.round(x * 10) / 10},${Math.round(y * 10) / 10}`).join(" ") }, "", part)
    }

    arrow(x1, y1, x2, y2, kind = "") {
      const angle = Math.atan2(y2 - y1, x2 - x1)
      const back = (far, turn) => [x2 - far * Math.cos(angle + turn), y2 - far * Math.sin(angle + turn)]
      this.line([[x1, y1], back(6, 0)], kind)
      this.add("polygon", kind, { points: [[x2, y2], back(8, -0.45), back(8, 0.45)].map(point => point.map(x => Math.round(x * 10) / 10).join(",")).join(" ") })
    }

    dot(x, y, kind = "", radius = 4.5, part = "") {
      this.add("circle", kind, { cx: x, cy: y, r: radius }, "", part)
    }

    svg() {
      const height = Math.round(this.height * 10) / 10
      return `<svg viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" aria-hidden="true">${this.drawn.join("")}</svg>`
    }
  }

  /** A number beside an axis: 0.01, 1000, 10k, 1M. */
  const tick = value => value >= 1e6 ? `${value / 1e6}M` : value >= 1e4 ? `${value / 1e3}k` : String(value)

  /** Two axes in a panel, logarithmic where asked. Gives a function of a point that gives its place.
      `place`: left, top, width, height. `xs`, `ys`: the ticks; the first and the last are the ends. */
  function axes(panel, [left, top, width, height], xs, ys, names = ["", ""], log = [false, false]) {
    const share = (value, ticks, isLog) => {
      const scale = isLog ? Math.log : Number
      return (scale(value) - scale(ticks[0])) / (scale(ticks.at(-1)) - scale(ticks[0]))
    }
    const at = (x, y) => [left + share(x, xs, log[0]) * width, top + (1 - share(y, ys, log[1])) * height]
    for (const x of xs) {
      const place = at(x, ys[0])[0], isLong = tick(x).length > 2
      panel.line([[place, top], [place, top + height]], "rule")
      panel.text(place, top + height + 16, tick(x), "small", !isLong ? "middle" : x === xs.at(-1) ? "end" : x === xs[0] ? "" : "middle")
    }
    for (const y of ys) {
      const place = at(xs[0], y)[1]
      panel.line([[left, place], [left + width, place]], "rule")
      panel.text(left - 6, place + 4, tick(y), "small", "end")
    }
    panel.text(left + width, top + height + 33, names[0], "small", "end")
    panel.text(0, top - 10, names[1], "small")
    return at
  }

  const tools = { WIDTH, Panel, axes, bytes, clamp, grouped, percent, plural, range, short }
  return { define, modules, shown, tools }
})()
