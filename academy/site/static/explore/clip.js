// What a token adds to a clipped policy loss, and its slope, as `grpo_kernel` of annotated_examples/classics/policy_loss.py
// computes them. Fields: `ratio`, `low` and `high` in hundredths, `advantage`.
explorables.define("clip", ({ Panel, range, short }) => {
  const signed = x => String(x).replace("-", "−")
  const [LEFT, WIDE, TOP, TALL] = [24, 320, 40, 176]

  /** Term and slope with respect to the log-probability, at a ratio. */
  function term(ratio, { advantage, low, high }) {
    const bound = advantage > 0 ? 1 + high / 100 : 1 - low / 100
    const beyond = advantage > 0 ? ratio > bound : advantage < 0 && ratio < bound
    return { term: -(beyond ? bound : ratio) * advantage, slope: beyond ? 0 : -ratio * advantage, beyond, bound }
  }

  const model = values => term(values.ratio / 100, values)
  const most = ({ advantage }) => 2 * Math.max(1, Math.abs(advantage))

  function line(found, values) {
    const panel = new Panel(262, `A = ${signed(values.advantage)}`)
    const at = (ratio, value) => [LEFT + (ratio - 0.4) / 1.6 * WIDE, TOP + TALL / 2 - value / most(values) * TALL / 2]
    panel.line([at(0.4, 0), at(2, 0)], "rule")
    for (const [bound, name] of [[1 - values.low / 100, "1 − ε"], [1 + values.high / 100, "1 + η"]]) {
      const [x] = at(bound, 0)
      panel.line([[x, TOP], [x, TOP + TALL]], "dashed")
      panel.text(x, TOP + TALL + 16, name, "small", bound < 1 ? "end" : "")
    }
    panel.line(range(0, 161).map(step => { const r = 0.4 + step / 100; return at(r, term(r, values).term) }), "curve b")
    panel.dot(...at(values.ratio / 100, found.term), "a", 6)
    panel.text(LEFT, TOP + TALL + 38, "ratio 0.4", "small")
    panel.text(LEFT + WIDE, TOP + TALL + 38, "2", "small", "end")
    panel.text(LEFT, 33, `loss of the token, −${most(values)} to ${most(values)}`, "small")
    return panel
  }

  function numbers({ term, slope }, values) {
    const panel = new Panel(76, `At the ratio ${values.ratio / 100}`)
    panel.text(0, 40, `loss ${signed(short(term))}`, "bold")
    panel.text(0, 64, `slope ${signed(short(slope))}`, "bold")
    return panel
  }

  return {
    model,
    draw: (found, values) => [line(found, values), numbers(found, values)],
    names: {
      ratio: each => String(each / 100), advantage: each => signed(each), low: each => String(each / 100), high: each => String(each / 100),
    },
    words({ term, slope, beyond, bound }, values) {
      const token = values.advantage > 0 ? "good" : values.advantage < 0 ? "bad" : ""
      const start = `At the ratio ${values.ratio / 100} the loss of the token is ${signed(short(term))} and its slope ${signed(short(slope))}.`
      if (!token) return `${start} Without an advantage nothing is learned.`
      return beyond
        ? `${start} The ratio is beyond ${short(bound)}, which is where a ${token} token is held.`
        : `${start} A ${token} token is held only ${values.advantage > 0 ? "above" : "below"} ${short(bound)}.`
    },
  }
})
