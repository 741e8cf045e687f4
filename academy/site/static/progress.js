// What was read, and which page was open last: kept in this browser. See tests/site/test_progress.py.
;(() => {
  const READ = "academy.read", LAST = "academy.last", MOST = 1000
  const base = new URL("../../", document.currentScript.src)
  const STAYED = 5000 // milliseconds: a glance is no reading

  const kept = (key, otherwise) => {
    try {
      return JSON.parse(localStorage.getItem(key)) ?? otherwise
    } catch {
      return otherwise // storage is switched off, or holds something else
    }
  }
  const keep = (key, value) => {
    try {
      localStorage.setItem(key, JSON.stringify(value))
    } catch { /* storage is switched off: nothing is remembered */ }
  }

  // A page's place on the site, without what leads into it: `kernels/classics/layernorm/`.
  const place = url => url.href.startsWith(base.href) ? url.pathname.slice(base.pathname.length) : null
  const read = () => { const pages = kept(READ, []); return Array.isArray(pages) ? pages : [] }
  const TICK = '<span class="exercise-done" role="img" aria-label="read" title="You have read this page"></span>'
  const LINKS = ".md-content ol.path > li > a[href], .md-nav--primary .md-nav__item:not(.md-nav__item--nested, .md-nav__item--section) > a.md-nav__link[href]"

  function mark() {
    const done = new Set(read())
    if (!done.size) return
    for (const link of document.querySelectorAll(LINKS)) {
      if (!done.has(place(link))) continue
      if (link.matches(".md-nav__link")) link.querySelector(".exercise-done") ?? link.insertAdjacentHTML("beforeend", TICK)
      else if (!link.nextElementSibling?.matches(".exercise-done")) link.insertAdjacentHTML("afterend", TICK)
    }
  }

  // A page of the path: where the reader is now, and whether they come to its end.
  function follow(here) {
    const title = [...document.querySelector(".md-content h1").childNodes].filter(node => !node.classList?.contains("headerlink")).map(node => node.textContent).join("").trim()
    keep(LAST, { page: here, title })
    const end = document.querySelector(".md-footer"), begun = performance.now()
    if (!end || read().includes(here)) return
    let inSight = false
    const look = () => {
      if (!inSight || performance.now() - begun < STAYED) return
      keep(READ, [...new Set([...read(), here])].slice(-MOST))
      sight.disconnect()
      mark()
    }
    const sight = new IntersectionObserver(entries => {
      inSight = entries.at(-1).isIntersecting
      look()
    })
    sight.observe(end)
    setTimeout(look, STAYED + 50)
  }

  // On home and on the map of the path: back to the page that was open last.
  function lead() {
    const last = kept(LAST, null), spot = document.querySelector(".hero .begin, [data-continue]")
    if (!spot || typeof last?.page !== "string" || typeof last.title !== "string") return
    const link = Object.assign(document.createElement("a"), { className: "md-button continue", href: new URL(last.page, base), textContent: `Continue: ${last.title}` })
    if (!link.href.startsWith(base.href)) return
    spot.hidden = false
    spot.prepend(link, " ")
  }

  mark()
  lead()
  const here = place(location)
  if (document.querySelector(".page-facts[data-step]:not([data-step=''])") && here !== null) follow(here)
  addEventListener("pageshow", event => { if (event.persisted) mark() })
})()
