// `academyViewer.mount` shows a recording anywhere. On a kernel's page the viewer is what Watch shows; there the
// data comes as a script, data/NAME.js, when the reader first points at the file, switches to Watch or follows a link into it.
;(viewer => {
  const { make } = viewer, here = document.currentScript.src
  const arrived = {}
  // Called by the data script.
  window.academyRun = (name, data) => { arrived[name] = data }

  // Show a recording in `element`. `data` is what `academy.traces.page.viewer_data` gives. Returns the viewer: `go({ launch,
  // pid, step })` leads it somewhere, `play()` plays it, `focus()` gives it the keys, `remove()` ends it.
  //
  // source: text of the recorded file; the viewer draws the panel and, beside it, these lines.
  // file: instead of `source`, an element whose lines (`.k-l` with `.k-n[data-n]`) get the values; `element` becomes the panel.
  //     Values show while it has the class `k-running`.
  // listing: instead of both, what has the methods of `viewer.Listing`, such as an editor's text.
  // address: whether the page's address follows the viewer, and leads it. At most one viewer of a page can have that.
  viewer.mount = (element, data, { source, file, listing, address = false } = {}) => {
    if (source != null) [element, file] = drawn(element, source)
    return new viewer.Viewer(element, listing ?? new viewer.Listing(file, element.parentElement), data, address)
  }

  function drawn(element, source) {
    const view = make("div", { class: "t-view" })
    const lines = source.replace(/\n$/, "").split("\n").map((text, i) =>
      make("span", { class: "k-l" }, make("span", { class: "k-n", "data-n": i + 1 }), make("span", { class: "k-c" }, `${text}\n`)))
    const code = make("pre", { class: "t-source", tabindex: 0, role: "group", "aria-label": "Code" }, make("code", {}, ...lines))
    const file = make("div", { class: "k-file k-running" }, make("div", { class: "k-panel" }, view), make("div", { class: "k-row k-bare" }, make("div", { class: "k-code highlight" }, code)))
    element.replaceChildren(file)
    return [view, file]
  }

  // The recorded run that the site has kept under this name.
  viewer.recorded = name => new Promise((resolve, reject) => {
    const script = make("script", { src: new URL(`data/${name}.js`, here).href })
    script.onload = () => resolve(arrived[name])
    script.onerror = () => reject(new Error(`${script.src} did not load`))
    arrived[name] ? resolve(arrived[name]) : document.head.append(script)
  })

  // What draws lanes, for a recording that has some: loaded once, unless it is on the page already.
  let lanes = null
  viewer.forLanes = () => viewer.Lanes ? Promise.resolve() : lanes ??= new Promise((resolve, reject) => {
    const script = make("script", { src: new URL("lanes.js", here).href, onload: resolve, onerror: reject })
    document.head.append(make("link", { rel: "stylesheet", href: new URL("lanes.css", here).href }), script)
  })

  function boot(view) {
    const file = view.closest(".k-file"), name = view.dataset.run
    let asked = null
    const load = () => asked ??= viewer.recorded(name).then(data => viewer.mount(view, data, { file, address: true }), error => {
      view.prepend(make("p", { role: "alert" }, "The recorded run could not be loaded."))
      asked = null
      throw error
    })
    // The reader pressed Read or Watch. (The viewer asks for Watch by the same event, from inside, when it follows a link.)
    file.addEventListener("academy:mode", async event => {
      const moment = /[#&](pid|line|launch)=/.test(location.hash) // an edit in the address stays, for a reload
      if (event.detail !== "run" && moment) history.replaceState(history.state, "", location.pathname + location.search)
      if (event.detail !== "run" || event.target !== file) return
      const mounted = await load()
      mounted.toTop()
      mounted.focus()
    })
    const wanted = () => /[#&](pid|line|launch)=/.test(location.hash) && load()
    addEventListener("hashchange", wanted)
    wanted()
    // Quoted numbers are links only when there is something to watch; loading waits until the reader points at the file.
    for (const event of ["pointerenter", "focusin"]) file.addEventListener(event, () => load(), { once: true, capture: true, passive: true })
  }

  const begin = () => {
    // Links from prose into a run lead to the line; with this script they lead to the moment.
    for (const link of document.querySelectorAll("a[data-run]")) link.hash = link.dataset.run
    document.querySelectorAll(".t-view[data-run]").forEach(boot)
  }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin)
  else begin()
})(window.academyViewer)
