// Python with Triton's interpreter, off the page's thread. `runtime.json` names the files; each is served compressed and
// inflated here.
//
// The text that runs here is the reader's, or somebody else's, come with a link. So nothing here leads outside: the page makes
// this worker from a blob, so that the page's Content-Security-Policy holds here too (no other host is asked), and `seal`
// takes away every name through which a worker reaches the network, storage or another thread.
const begun = performance.now(), marks = {}
const mark = name => { marks[name] = Math.round(performance.now() - begun) }
const tell = postMessage.bind(self) // the way back to the page: nobody else's
const here = new URL("./", self.name || self.location).href // a blob's own address says nothing
const SITE = "/lib/python3.14/site-packages"

let loaded = 0, total = 0
function progress(bytes) {
  loaded += bytes
  tell({ type: "progress", loaded: Math.min(loaded, total), total })
}

// Names hold a file's digest, so a kept file is never an old one. What is kept is checked like what comes from the network:
// other scripts of the same host could have written it.
const CACHE = "academy-playground"

async function get(name, { place, sha256, bytes }) {
  const cache = await self.caches?.open(CACHE).catch(() => null) // none in a private window, or without https
  const kept = await cache?.match(here + place)
  const found = kept && await checked(name, await kept.blob(), sha256).catch(() => null)
  if (found) {
    progress(bytes)
    return found
  }
  const blob = await download(place)
  const file = await checked(name, blob, sha256)
  if (cache) keep(cache, place, blob)
  return file
}

async function download(place) {
  const response = await fetch(here + place)
  if (!response.ok) throw new Error(`${place}: ${response.status} ${response.statusText}`)
  const parts = []
  for (const reader = response.body.getReader(); ;) {
    const { done, value } = await reader.read()
    if (done) break
    parts.push(value)
    progress(value.length)
  }
  return new Blob(parts)
}

async function keep(cache, place, blob) {
  const stem = text => text.replace(/\.[0-9a-f]{12,}\./, ".")
  try {
    for (const old of await cache.keys()) {
      if (stem(old.url) === stem(here + place)) await cache.delete(old) // the file's earlier versions
    }
    await cache.put(here + place, new Response(blob))
  } catch { /* no room */ }
}

// A host may have sent a .gz file as what it holds.
async function inflated(blob, type) {
  const [first, second] = new Uint8Array(await blob.slice(0, 2).arrayBuffer())
  const packed = first === 0x1f && second === 0x8b
  return new Response(packed ? blob.stream().pipeThrough(new DecompressionStream("gzip")) : blob, { headers: { "Content-Type": type } })
}

// Bytes that are not the ones that the site's list names are not run: a cache, or a host, may have changed them.
async function checked(name, blob, sha256) {
  const other = new Error(`${name} is not the file that this site was built with`)
  const bytes = await inflated(blob, "").then(file => file.arrayBuffer()).catch(() => { throw other })
  if (!crypto.subtle) return new Blob([bytes]) // a page without https: nothing is kept there, either
  const digest = Array.from(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)), byte => byte.toString(16).padStart(2, "0")).join("")
  if (digest !== sha256) throw other
  return new Blob([bytes])
}

async function start() {
  const list = here + "runtime.json" // without a network: the one that the browser has kept, whose files it has kept too
  const { files } = await (await fetch(list, { cache: "no-cache" }).catch(() => fetch(list, { cache: "force-cache" }))).json()
  total = Object.values(files).reduce((sum, file) => sum + file.bytes, 0)
  // What Python itself needs comes first: it starts while the rest comes. (Not one by one: while Python runs, this thread
  // asks for nothing.)
  const came = {}, bring = (...names) => Promise.all(names.map(name => came[name] = get(name, files[name])))
  await bring("pyodide.js", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")
  mark("downloaded Python")
  const rest = bring("numpy.zip", "triton.zip", "academy.zip").then(() => {
    mark("downloaded")
    tell({ type: "starting" })
  })
  rest.catch(() => {}) // of which `start` speaks when it comes to it
  // Pyodide asks for these two by name.
  const own = {
    "pyodide.asm.wasm": async () => new Response(await came["pyodide.asm.wasm"], { headers: { "Content-Type": "application/wasm" } }),
    "python_stdlib.zip": async () => new Response(await came["python_stdlib.zip"]),
  }
  const fetched = self.fetch
  self.fetch = (url, ...more) => own[String(url).split("/").pop()]?.() ?? fetched(url, ...more)
  const script = async name => {
    return import(URL.createObjectURL(new Blob([await came[name]], { type: "text/javascript" })))
  }
  const [{ loadPyodide }, { default: createPyodideModule }] = await Promise.all([script("pyodide.js"), script("pyodide.asm.mjs")])
  const python = await loadPyodide({
    createPyodideModule, indexURL: here,
    lockFileContents: JSON.stringify({ info: { arch: "wasm32", platform: "emscripten_5_0_3", version: "314.0.3", abi_version: "2026_0", python: "3.14.0" }, packages: {} }),
    env: { TRITON_INTERPRET: "1", TRITON_BACKENDS_IN_TREE: "1", HOME: "/home/pyodide", PYTHONDONTWRITEBYTECODE: "1" },
  })
  mark("python")
  await rest
  for (const name of ["numpy.zip", "triton.zip", "academy.zip"]) {
    python.unpackArchive(await (await came[name]).arrayBuffer(), "zip", { extractDir: SITE })
  }
  const [answer, prepare, without_javascript] = python.runPython("from academy.playground.run import answer, prepare, without_javascript; answer, prepare, without_javascript")
  without_javascript()
  seal()
  mark("imported")
  return { python, answer, prepare }
}

// What is left of the worker's own names: the language, clocks, text and bytes. Everything else goes, the way back to the page too, so that a name which browsers will have tomorrow is gone as well.
const KEPT = new Set(("Object Function Array Number Boolean String Symbol Math JSON Reflect Proxy Promise Map Set WeakMap WeakSet WeakRef " +
  "FinalizationRegistry Date RegExp BigInt Intl Iterator Atomics DataView ArrayBuffer SharedArrayBuffer Infinity NaN undefined globalThis " +
  "Int8Array Uint8Array Uint8ClampedArray Int16Array Uint16Array Int32Array Uint32Array Float16Array Float32Array Float64Array BigInt64Array " +
  "BigUint64Array Error AggregateError EvalError RangeError ReferenceError SyntaxError TypeError URIError SuppressedError WebAssembly " +
  "isFinite isNaN parseFloat parseInt decodeURI decodeURIComponent encodeURI encodeURIComponent escape unescape eval " +
  "self console performance crypto setTimeout clearTimeout setInterval clearInterval queueMicrotask structuredClone TextEncoder TextDecoder " +
  "AbortController AbortSignal Event EventTarget MessageEvent DOMException atob btoa constructor").split(" "))

function seal() {
  for (let each = self; each && each !== Object.prototype; each = Object.getPrototypeOf(each)) {
    for (const name of Reflect.ownKeys(each)) {
      if (typeof name !== "string" || KEPT.has(name)) continue
      if (!Reflect.deleteProperty(each, name)) try { self[name] = undefined } catch { /* `location`, which leads nowhere */ }
    }
  }
  for (const each of [crypto, performance]) { // of these, too, only what computes
    for (const name of Reflect.ownKeys(Object.getPrototypeOf(each))) {
      if (!["getRandomValues", "randomUUID", "now", "timeOrigin", "constructor"].includes(name)) Reflect.deleteProperty(Object.getPrototypeOf(each), name)
    }
  }
}

const ready = start()
ready.then(() => tell({ type: "ready", marks }), error => tell({ type: "failed", message: String(error.message ?? error) }))

addEventListener("message", async ({ data }) => {
  const { python, answer, prepare } = await ready
  const asked = performance.now()
  let text
  try {
    text = answer(data.question)
  } catch (error) { // Python itself has given up: no memory for the answer, a stack that is too deep
    const message = String(error.message).trim().split("\n").at(-1) || "Python ended without saying why"
    text = JSON.stringify({ state: "error", message, problems: [{ line: null, message }], printed: "", data: null, spent: true })
  }
  tell({ id: data.id, answer: text, milliseconds: Math.round(performance.now() - asked), heap: python._module.HEAP8.length })
  try {
    prepare(data.question)
  } catch { /* the first edit tells what is wrong */ }
})
