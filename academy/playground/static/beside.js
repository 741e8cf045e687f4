// An editor's text as the listing that a recorded run leads through: the methods of `academyViewer.Listing`. Values stand
// beside the lines until the text is changed.
import { Decoration, EditorView, StateEffect, StateField, WidgetType } from "./codemirror.js"

const put = StateEffect.define()

class Values extends WidgetType {
  constructor(element) { super(); this.element = element }
  eq(other) { return this.element.textContent === other.element.textContent && this.element.className === other.element.className }
  toDOM() { return this.element }
  ignoreEvent() { return false }
}

const shown = StateField.define({
  create: () => Decoration.none,
  update(value, transaction) {
    for (const effect of transaction.effects) if (effect.is(put)) return effect.value
    return transaction.docChanged ? Decoration.none : value
  },
  provide: field => [
    EditorView.decorations.from(field),
    // A line with its values may be longer than the editor is wide: then they take the next one.
    EditorView.contentAttributes.compute([field], state => state.field(field).size ? { class: "cm-lineWrapping" } : {}),
  ],
})

export class Beside {
  static extension = shown

  // panel: the element of the run, which may be a sheet over the end of the code.
  constructor(view, panel) {
    Object.assign(this, { view, panel })
    this.of = null // the text that the run is of
  }

  // The text as it is now has been run.
  ran() { this.of = this.view.state.doc }

  running() { return this.of !== null && this.of.eq(this.view.state.doc) }

  text(line) { return this.of && line > 0 && line <= this.of.lines ? this.of.line(line).text : "" }

  listen(pick, signal) {
    this.view.contentDOM.addEventListener("click", event => {
      const line = event.target.closest(".cm-line.t-hot")
      if (line && this.running() && this.view.state.selection.main.empty) pick(this.view.state.doc.lineAt(this.view.posAtDOM(line)).number)
    }, { signal })
  }

  draw(lines) {
    if (!this.running()) return
    const { doc } = this.view.state, ranges = []
    for (const [number, { now = false, calls = false, hot = false, beside = null }] of lines) {
      if (number > doc.lines) continue
      const { from, to } = doc.line(number)
      const style = [hot && "t-hot", now && "t-now", calls && "t-calls"].filter(Boolean).join(" ")
      if (style) ranges.push(Decoration.line({ class: style }).range(from))
      if (beside) ranges.push(Decoration.widget({ widget: new Values(beside), side: 1 }).range(to))
    }
    this.view.dispatch({ effects: put.of(Decoration.set(ranges, true)) })
  }

  clear() {
    this.of = null
    this.view.dispatch({ effects: put.of(Decoration.none) })
  }

  // Where in the editor its code can be seen: how far below the editor's top that begins, and how high it is.
  sight() {
    const code = this.view.scrollDOM.getBoundingClientRect(), run = this.panel.getBoundingClientRect()
    const covered = run.left < code.right && run.height > 0 // stacked, not side by side
    const top = Math.max(code.top, 0), bottom = Math.min(code.bottom, innerHeight, covered ? run.top : Infinity)
    return bottom - top > 60 ? [top - code.top, bottom - top] : [0, code.height]
  }

  // Where a line stands in that: 0 at its top, 1 at its bottom. Null for a line that is not there.
  place(line) {
    const { view } = this, { doc } = view.state
    if (!line || line > doc.lines || !this.running()) return null
    const [begin, size] = this.sight(), { top, height } = view.lineBlockAt(doc.line(line).from)
    return (top + height / 2 - view.scrollDOM.scrollTop - begin) / size
  }

  // Scroll within the editor, while the page stays where it is, until a line stands between `low` and `high`: heights of
  // lines out of sight are estimates, so that may take some tries.
  seek(line, part, low, high) {
    const aim = this.aim = {}
    const move = tries => {
      const place = this.aim === aim ? this.place(line) : null
      if (place === null) return
      if (place < low || place > high) this.view.scrollDOM.scrollTop += (place - part) * this.sight()[1]
      if (tries) requestAnimationFrame(() => move(tries - 1))
    }
    move(4)
  }

  lead(line, part) { this.seek(line, part, part - 0.05, part + 0.05) }

  centre(line) { this.seek(line, 0.45, 0.2, 0.75) }
}
