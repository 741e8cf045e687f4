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

  constructor(view) {
    this.view = view
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

  // Within the editor: the page stays where it is.
  lead(line, part, behavior) {
    const { view } = this, { doc } = view.state
    if (!line || line > doc.lines || !this.running()) return
    const scroller = view.scrollDOM, { top, height } = view.lineBlockAt(doc.line(line).from)
    scroller.scrollTo({ top: top + height / 2 - part * scroller.clientHeight, behavior })
  }

  centre(line, behavior) {
    const { view } = this, { doc } = view.state
    if (!line || line > doc.lines || !this.running()) return
    const scroller = view.scrollDOM, { top, height } = view.lineBlockAt(doc.line(line).from)
    const place = (top + height / 2 - scroller.scrollTop) / scroller.clientHeight
    if (place < 0.2 || place > 0.75) this.lead(line, 0.45, behavior)
  }
}
