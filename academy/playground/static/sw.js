// Keeps the playground's runtime: files whose names hold their digest, so that a kept one is never an old one. Nothing else
// of the site goes through here.
const CACHE = "academy-playground", FILE = /\/runtime\/([\w.]+)\.[0-9a-f]{12}\.[\w.]+$/

addEventListener("install", () => skipWaiting())
addEventListener("activate", event => event.waitUntil(clients.claim()))
addEventListener("fetch", event => {
  if (event.request.method === "GET" && FILE.test(new URL(event.request.url).pathname)) event.respondWith(kept(event.request))
})

async function kept(request) {
  const cache = await caches.open(CACHE)
  const found = await cache.match(request)
  if (found) return found
  const response = await fetch(request)
  if (response.ok) {
    const copy = response.clone()
    for (const old of await cache.keys()) { // the file's earlier versions
      if (FILE.exec(new URL(old.url).pathname)?.[1] === FILE.exec(new URL(request.url).pathname)[1]) await cache.delete(old)
    }
    cache.put(request, copy).catch(() => {}) // no room
  }
  return response
}
