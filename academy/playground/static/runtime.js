// The worker in which Python runs: started by the first question, ended by `stop`. One for all editors of a page.

const here = new URL("./", import.meta.url)
let worker = null, ready = null, next = 0
const waiting = new Map()
//: Called with a sentence while Python loads.
let told = () => {}

async function start() {
  worker = await made()
  const begun = performance.now()
  await new Promise((done, fail) => {
    worker.onerror = event => fail(new Error(event.message || "the worker could not be started"))
    worker.onmessage = ({ data }) => {
      if (data.type === "progress") told(`Loading Python and Triton: ${(data.loaded / 1e6).toFixed(1)} of ${(data.total / 1e6).toFixed(1)} MB`)
      else if (data.type === "starting") told("Starting Python…")
      else if (data.type === "failed") fail(new Error(data.message))
      else if (data.type === "ready") {
        performance.measure("academy: start", { start: begun, detail: data.marks })
        done()
      } else {
        waiting.get(data.id)?.(data)
        waiting.delete(data.id)
      }
    }
  })
}

// From a blob: then the page's Content-Security-Policy holds for the worker as well. Its name tells it where the site is.
async function made() {
  const place = new URL("worker.js", here)
  const text = await (await fetch(place).catch(() => fetch(place, { cache: "force-cache" }))).text()
  const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }))
  return new Worker(address, { type: "module", name: here.href })
}

//: Seconds after which a question is taken for one that has no end.
const PATIENCE = 120

// Load Python while the reader still types; whoever saves data waits for Run. If it can't be loaded, `ask` says so.
export function prepare() {
  if (navigator.connection?.saveData) return
  ready ??= start()
  ready.catch(() => {})
}

// The answer of academy.playground.run.answer. `tell` hears how far loading is. Rejects if Python could not be loaded.
// foreign: the text is somebody else's. What it leaves behind in Python is thrown away with the worker.
export async function ask(question, tell, foreign = false) {
  told = tell
  ready ??= start()
  try {
    await ready
  } catch (error) {
    stop()
    throw error
  }
  tell(null)
  const id = next++
  let late
  return new Promise(done => {
    waiting.set(id, done)
    worker.postMessage({ id, question: JSON.stringify(question) })
    late = setTimeout(() => {
      waiting.delete(id)
      stop()
      const message = `Stopped after ${PATIENCE} seconds. Is there a loop that doesn't end?`
      done({ answer: JSON.stringify({ state: "error", message, problems: [{ line: null, message }], printed: "", data: null }) })
    }, 1000 * PATIENCE)
  }).then(data => {
    clearTimeout(late)
    if (data.stopped) return { state: "stopped" }
    const answer = read(data.answer)
    if (foreign || answer.spent) stop()
    return { ...answer, heap: data.heap, milliseconds: data.milliseconds }
  })
}

// A text shares Python with what judges it, and may have broken that.
function read(text) {
  try {
    const answer = JSON.parse(text)
    if (["passed", "differs", "failed", "error"].includes(answer.state)) return { problems: [], printed: "", ...answer }
  } catch { /* no JSON */ }
  const message = "The text broke the Python that runs it, so there is no answer."
  return { state: "error", message, problems: [{ line: null, message }], printed: "", data: null, spent: true }
}

export function stop() {
  worker?.terminate()
  worker = ready = null
  for (const done of waiting.values()) done({ stopped: true })
  waiting.clear()
}
