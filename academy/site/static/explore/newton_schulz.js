// What five polynomials make of a singular value, as `orthogonalize` of annotated_examples/optimizers/muon.py does. Fields:
// `sigma` in thousandths, `which` of `facts.schedules`, a name with its triples.
explorables.define("newton_schulz", ({ Panel, axes, range, short }) => {
  const signed = x => Math.abs(x) < 1e4 ? short(x).replace("-", "−") : x.toExponential(1).replace("e+", " · 10^").replace("-", "−")
  const polynomial = ([a, b, c], x) => a * x + b * x ** 3 + c * x ** 5

  /** The value before the first round and after each. */
  function path(sigma, triples) {
    return triples.reduce((found, triple) => [...found, polynomial(triple, found.at(-1))], [sigma])
  }

  const model = ({ sigma, which }, { schedules }) => ({ path: path(sigma / 1000, schedules[which]) })
  const inside = x => Math.min(1.5, Math.max(-0.3, x))

  function steps({ path: found }, { sigma }) {
    const panel = new Panel(262, `σ = ${sigma / 1000} before the first round`)
    const at = axes(panel, [28, 44, 318, 176], range(0, found.length), [0, 0.5, 1, 1.5], ["rounds", ""])
    panel.line([at(0, 1), at(found.length - 1, 1)], "curve g")
    panel.line(found.map((x, round) => at(round, inside(x))), "curve b")
    found.forEach((x, round) => panel.dot(...at(round, inside(x)), x === inside(x) ? "a" : "r", 5))
    return panel
  }

  function all({ path: found }, { sigma, which }, { schedules }) {
    const panel = new Panel(262, "Every σ, after all rounds")
    const at = axes(panel, [28, 44, 318, 176], [0, 0.25, 0.5, 0.75, 1], [0, 0.5, 1, 1.5], ["σ at the start", ""])
    panel.line([at(0, 1), at(1, 1)], "curve g")
    panel.line(range(0, 251).map(step => at(step / 250, inside(path(step / 250, schedules[which]).at(-1)))), "curve b")
    if (sigma <= 1000) panel.dot(...at(sigma / 1000, inside(found.at(-1))), "a", 5)
    return panel
  }

  return {
    model,
    draw: (found, values, facts) => [steps(found, values), all(found, values, facts)],
    names: { sigma: sigma => String(sigma / 1000), which: which => which },
    words({ path: found }, { sigma, which }) {
      const last = found.at(-1), listed = found.slice(1).map(signed).join(", ")
      const end = Math.abs(last) > 2 ? "It runs away: the start was above 1."
        : Math.abs(last - 1) < 0.35 ? `It ends ${short(100 * Math.abs(last - 1))}% from 1.` : "It hasn't come near 1 yet."
      return `${which}, from ${sigma / 1000}: ${listed}. ${end}`
    },
  }
})
