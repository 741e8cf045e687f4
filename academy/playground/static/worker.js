// Python with Triton's interpreter, off the page's thread. `runtime.json` names the files; each is served compressed and
// inflated here.
const begun = performance.now(), marks = {}
const mark = name => { marks[name] = Math.round(performance.now() - begun) }
const here = new URL("./", self.location).href
const SITE = "/lib/python3.14/site-packages"

let loaded = 0, total = 0
async function get(place) {
  const response = await fetch(here + place)
  if (!response.ok) throw new Error(`${place}: ${response.status} ${response.statusText}`)
  const parts = []
  for (const reader = response.body.getReader(); ;) {
    const { done, value } = await reader.read()
    if (done) break
    parts.push(value)
    loaded += value.length
    postMessage({ type: "progress", loaded: Math.min(loaded, total), total })
  }
  return new Blob(parts)
}

// A host may have sent a .gz file as what it holds.
async function inflated(blob, type) {
  const [first, second] = new Uint8Array(await blob.slice(0, 2).arrayBuffer())
  const packed = first === 0x1f && second === 0x8b
  return new Response(packed ? blob.stream().pipeThrough(new DecompressionStream("gzip")) : blob, { headers: { "Content-Type": type } })
}

async function start() {
  const list = here + "runtime.json" // without a network: the one that the browser has kept, whose files it has kept too
  const { files } = await (await fetch(list, { cache: "no-cache" }).catch(() => fetch(list, { cache: "force-cache" }))).json()
  total = Object.values(files).reduce((sum, file) => sum + file.bytes, 0)
  const came = Object.fromEntries(Object.entries(files).map(([name, { place }]) => [name, get(place)])) // all at once
  // Pyodide asks for these two by name.
  const own = {
    "pyodide.asm.wasm": async () => inflated(await came["pyodide.asm.wasm"], "application/wasm"),
    "python_stdlib.zip": async () => new Response(await came["python_stdlib.zip"]),
  }
  const fetched = self.fetch
  self.fetch = (url, ...more) => own[String(url).split("/").pop()]?.() ?? fetched(url, ...more)
  const script = async name => {
    const text = await (await inflated(await came[name], "text/javascript")).blob()
    return import(URL.createObjectURL(new Blob([text], { type: "text/javascript" })))
  }
  const [{ loadPyodide }, { default: createPyodideModule }] = await Promise.all([script("pyodide.js"), script("pyodide.asm.mjs")])
  await Promise.all(Object.values(came))
  mark("downloaded")
  postMessage({ type: "starting" })
  const python = await loadPyodide({
    createPyodideModule, indexURL: here,
    lockFileContents: JSON.stringify({ info: { arch: "wasm32", platform: "emscripten_5_0_3", version: "314.0.3", abi_version: "2026_0", python: "3.14.0" }, packages: {} }),
    env: { TRITON_INTERPRET: "1", TRITON_BACKENDS_IN_TREE: "1", HOME: "/home/pyodide", PYTHONDONTWRITEBYTECODE: "1" },
  })
  mark("python")
  for (const name of ["numpy.zip", "triton.zip", "academy.zip"]) {
    python.unpackArchive(await (await came[name]).arrayBuffer(), "zip", { extractDir: SITE })
  }
  const [answer, prepare] = python.runPython("from academy.playground.run import answer, prepare; answer, prepare")
  mark("imported")
  return { python, answer, prepare }
}

const ready = start()
ready.then(() => postMessage({ type: "ready", marks }), error => postMessage({ type: "failed", message: String(error.message ?? error) }))

onmessage = async ({ data }) => {
  const { python, answer, prepare } = await ready
  const asked = performance.now()
  let text
  try {
    text = answer(data.question)
  } catch (error) {
    const message = String(error.message).trim().split("\n").at(-1)
    text = JSON.stringify({ state: "error", problems: [{ line: null, message }], printed: "", data: null })
  }
  postMessage({ id: data.id, answer: text, milliseconds: Math.round(performance.now() - asked), heap: python._module.HEAP8.length })
  try {
    prepare(data.question)
  } catch { /* the first edit tells what is wrong */ }
}
