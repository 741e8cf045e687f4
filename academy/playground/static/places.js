// Where editors are: `lesson` makes one on a kernel's page, `placed` fills an element that waits for one (an exercise, the cells
// of a chapter, a whole file).
import { Editor } from "./editor.js"
import { unpacked } from "./link.js"

const { make } = academyViewer
const megabytes = document.querySelector("script[data-megabytes]").dataset.megabytes
const about = (run, runs) => `The first ${run} loads Python and Triton into this page: about ${megabytes} MB, once. Ctrl+Enter ${runs}; ` +
  "Tab indents, Escape and then Tab leaves the editor. Triton's interpreter runs here, one program after the other: it shows what a kernel does, " +
  "not how fast it is, and it does not see what only the GPU's compiler would reject."

export async function lesson(file, shared) {
  const path = file.dataset.path
  const original = await (await fetch(new URL(`starters/${path}`, import.meta.url))).text()
  let text = null
  let said = ""
  if (shared) {
    said = "This text came with the link. It runs when you press Run."
    text = await unpacked(shared).catch(() => {
      said = "The link is damaged, so this is the code as it was."
      return original
    })
  }
  // One's own edit and the edit of a link are drafts of their own: opening a link loses nothing.
  const foreign = text != null && text !== original && text !== academyDrafts.get(path)
  const draft = foreign ? `${path}#${[...text].reduce((sum, character) => (31 * sum + character.codePointAt()) >>> 0, 0)}` : path
  const kept = academyDrafts.get(draft)
  if (kept != null && (foreign || text == null)) [text, said] = [kept, "This is your edit from before. Reset shows the code as it was."]
  text ??= original
  const root = make("section", { class: "p-editor", "data-academy": "editor", "aria-label": `Edit ${path.split("/").pop()}` })
  file.append(root)
  const editor = new Editor(root, {
    text, original, path, draft, foreign, label: `Code of ${path}`, actions: ["run", "reset", "stop", "download", "share"], about: about("run", "runs"),
  })
  editor.toKernel()
  if (said) editor.show("idle", said)
  editor.begin(file.querySelector(".t-view[data-run]")?.dataset.run, file.dataset.lines)
  return editor
}

export function placed(root, original, text) {
  const { exercise: name, path } = root.dataset
  const actions = [...root.querySelectorAll("[data-action]")].map(button => button.dataset.action)
  root.classList.add("p-editor")
  const editor = new Editor(root, {
    text: text(), original, path: path ?? `edited/${name}.py`, name, label: name ? `Your solution of ${name}` : `Code of ${path}`, actions,
    about: name ? about("check", "checks") : about("run", "runs"),
  })
  if (!name) editor.toKernel() // a whole file, as a kernel's page has it
  editor.begin(root.dataset.recorded, root.dataset.lines)
  return editor
}
