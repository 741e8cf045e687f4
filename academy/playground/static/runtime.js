// The worker in which Python runs: started by the first question, ended by `stop`. One for all editors of a page.

const here = new URL("./", import.meta.url)
let worker = null, ready = null, next = 0
const waiting = new Map()
//: Called with a sentence while Python loads.
let told = () => {}

async function start() {
  await keeper()
  worker = new Worker(new URL("worker.js", here), { type: "module" })
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

// The service worker keeps the runtime's files. Without one (a private window) they are fetched again.
async function keeper() {
  if (!navigator.serviceWorker) return
  try {
    const { installing, waiting, active } = await navigator.serviceWorker.register(new URL("sw.js", here))
    const worker = active ?? waiting ?? installing
    if (worker.state !== "activated") {
      await Promise.race([new Promise(done => setTimeout(done, 2000)), new Promise(done => worker.addEventListener("statechange", () => worker.state === "activated" && done()))])
    }
  } catch { /* it saves a download, no more */ }
}

// The answer of academy.playground.run.answer. `tell` hears how far loading is. Rejects if Python could not be loaded.
export async function ask(question, tell) {
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
  return new Promise(done => {
    waiting.set(id, done)
    worker.postMessage({ id, question: JSON.stringify(question) })
  }).then(data => {
    if (data.stopped) return { state: "stopped" }
    return { ...JSON.parse(data.answer), heap: data.heap, milliseconds: data.milliseconds }
  })
}

export function stop() {
  worker?.terminate()
  worker = ready = null
  for (const done of waiting.values()) done({ stopped: true })
  waiting.clear()
}
