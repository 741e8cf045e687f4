// What a run or a check says: of a text, or of a number.
const { make } = academyViewer // its scripts are on every page that has either

//: What stands above the problems. A changed result may be what was meant: it isn't called wrong.
export const SAID = {
  passed: "It ran.",
  same: "It ran, and gives what the original gives.",
  differs: "It ran, and its result differs from the original, which may be what you meant:",
  failed: "It ran, and something is wrong:",
  error: "It did not come to its end:",
}

// Of a run: what it says of both verdicts.
export const saidOf = ({ state, same, without_rounding: exact }) => [SAID[same ? "same" : state], exact].filter(Boolean).join(" ")

// Code between backticks and Markdown's links, in a message that was written for a terminal, too.
export function rich(text, base = "") {
  return text.split(/(`[^`]+`|\[[^\]]+\]\([^()\s]+\))/).map(part => {
    if (/^`[^`]+`$/.test(part)) return make("code", {}, part.slice(1, -1))
    const link = /^\[([^\]]+)\]\(([^()\s]+)\)$/.exec(part)
    return link ? make("a", { href: place(link[2], base) }, ...rich(link[1], base)) : part
  })
}

// A link to a page's source, `../../docs/guides/debugging.md#x`, on the site. Others are left alone.
function place(href, base) {
  const source = /^(?:\.\.\/)*(?:docs\/)?([\w/-]+)\.(?:md|py)(#[\w-]*)?$/.exec(href)
  return source ? new URL(`${source[1].replace(/(^|\/)index$/, "$1")}/${source[2] ?? ""}`.replace(/^\//, ""), base || document.baseURI).href : href
}

// An SVG that a text has drawn. As an image it runs nothing and loads nothing; it doesn't know the page's colours.
function picture(svg) {
  const text = svg.replaceAll("currentColor", "#7d8c92")
  return make("img", { class: "p-picture", alt: /<title>([^<]*)/.exec(svg)?.[1] ?? "", src: `data:image/svg+xml,${encodeURIComponent(text)}` })
}

// Fill the element of an outcome. to(line): leads to a line that a problem names.
export function tell(outcome, { state, said = "", problems = [], printed = "", picture: svg = null, base = "" }, to) {
  outcome.dataset.state = state
  const parts = said ? [make("p", {}, ...rich(said, base))] : []
  if (problems.length) {
    parts.push(make("ul", {}, ...problems.map(({ line, message }) => make("li", {},
      line ? make("button", { type: "button", class: "p-line", onclick: () => to(line) }, `line ${line}`) : null, line ? " " : null, ...rich(message, base)))))
  }
  if (printed) parts.push(make("pre", { class: "p-printed", tabindex: 0, role: "group", "aria-label": "Printed" }, printed))
  if (svg) parts.push(picture(svg))
  outcome.replaceChildren(...parts)
}

// A button to what comes after a solved exercise: the next one, or after a stage's last what the page names. null: nothing.
export function onward() {
  const next = document.querySelector("a.exercise-next")
  const said = next && (next.pathname.includes("/exercises/") ? "Next exercise: " : "Go on: ")
  return next && make("a", { class: "p-button", "data-next": "exercise", href: next.href }, ...rich(said + next.textContent))
}

//: `3-5 0 9` of `data-lines`: for each line of the editor's text, from 1 on, the line of the file.
export function fileLines(text) {
  return text.split(" ").flatMap(range => {
    const [first, last = first] = range.split("-").map(Number)
    return Array.from({ length: last - first + 1 }, (_, i) => first + i)
  })
}

// The same run of a text whose lines stand elsewhere. lines: new number by old one; a line without one is in no text.
export function relined(data, lines) {
  const to = line => lines.get(+line) ?? 0
  return {
    ...data, claims: [],
    launches: data.launches.map(launch => ({ ...launch, line: to(launch.line), programs: launch.programs.map(program => program.slice(0, 2)) })),
    places: data.places.map(([func, line, depth, loops, elsewhere]) => [func, to(line), depth, loops.map(([header, n]) => [to(header), n]), elsewhere]),
    loops: Object.fromEntries(Object.entries(data.loops).map(([header, name]) => [to(header), name])),
  }
}
