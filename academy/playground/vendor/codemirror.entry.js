// What the editor uses of CodeMirror 6. `python -m academy.playground.vendor --make` bundles it into codemirror.js.
export { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands"
export { python } from "@codemirror/lang-python"
export { bracketMatching, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language"
export { lintGutter, setDiagnostics } from "@codemirror/lint"
export { highlightSelectionMatches, openSearchPanel, search, searchKeymap } from "@codemirror/search"
export { EditorState, StateEffect, StateField } from "@codemirror/state"
export { Decoration, drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers, WidgetType } from "@codemirror/view"
export { tags } from "@lezer/highlight"
