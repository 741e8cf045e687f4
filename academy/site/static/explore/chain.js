// One equation, the case that ties it to a kernel, the line that computes it, and a number quoted beside that line. `facts`:
// places: {formula, tag, kernel, number} -> [file, line]; lines: the same -> [as it is, changed]; breaks: what can be
// changed -> {line, fails: which checks, said: what is reported}.
explorables.define("chain", ({ Panel, plural }) => {
  const CHECKS = [["autograd", "autograd of the definitions above it"], ["case", "the kernel is run, and compared with the formula"],
    ["run", "the recorded run has this number"]]

  const model = ({ changed }, { breaks }) => ({ fails: breaks[changed]?.fails ?? [], line: breaks[changed]?.line ?? "" })

  return {
    model,

    draw({ fails, line }, _, { places, lines }) {
      const panel = new Panel(372, "From an equation to its line, and back")
      const check = (y, [name, words]) => {
        const failed = fails.includes(name)
        panel.box(14, y, 20, 20, failed ? "r" : "g", failed ? "✗" : "✓")
        panel.text(44, y + 15, words, failed ? "small bold" : "small")
      }
      const show = (y, name, kind) => {
        const [file, at] = places[name]
        panel.text(0, y, `${file}, line ${at}`, "small dim")
        const text = lines[name][line === name ? 1 : 0]
        panel.box(0, y + 8, 360, 30, line === name ? "r" : kind)
        panel.text(8, y + 27, text, "mono tiny")
      }
      check(28, CHECKS[0])
      show(70, "formula", "a")
      show(132, "tag", "off")
      check(180, CHECKS[1])
      show(222, "kernel", "b")
      show(284, "number", "p")
      check(332, CHECKS[2])
      return [panel]
    },

    words({ fails }, { changed }, { breaks }) {
      if (!fails.length) return `All ${CHECKS.length} checks pass: the four lines say the same.`
      return `${fails.length} of ${plural(CHECKS.length, "check")} ${fails.length === 1 ? "fails" : "fail"}. ` +
        `academy check says: “${breaks[changed].said}”.`
    },
  }
})
