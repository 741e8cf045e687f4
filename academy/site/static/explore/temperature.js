// Log-probability and entropy of a row at a temperature, as `token_logprobs` of annotated_examples/classics computes them.
// Field `tau` is the temperature in tenths, `token` the entry that is asked about; `facts.row` the logits.
explorables.define("temperature", ({ Panel, clamp, short }) => {
  const CELL = 60, HIGH = 150, FOOT = 190
  const signed = x => String(x).replace("-", "−")
  const tau_of = values => values.tau / 10

  function model(values, { row }) {
    const u = row.map(x => x / tau_of(values)), largest = Math.max(...u)
    const e = u.map(x => Math.exp(x - largest)), sum = e.reduce((a, b) => a + b, 0)
    const weighted = u.reduce((total, x, place) => total + (x - largest) * e[place], 0)
    return {
      p: e.map(x => x / sum), sum, weighted, logprob: u[values.token] - largest - Math.log(sum),
      entropy: Math.log(sum) - weighted / sum, most: Math.log(row.length),
    }
  }

  function bars({ p }, values, { row }) {
    const panel = new Panel(236, `Probabilities at τ = ${tau_of(values)}`)
    panel.line([[0, FOOT], [360, FOOT]])
    row.forEach((x, place) => {
      const high = p[place] * HIGH, kind = place === values.token ? "a" : "b"
      panel.box(place * CELL + 8, FOOT - high, 44, high, kind)
      panel.text(place * CELL + 30, FOOT - high - 5, short(p[place].toFixed(3)), "small", "middle")
      panel.text(place * CELL + 30, FOOT + 16, `x = ${signed(x)}`, "small", "middle")
      if (place === values.token) panel.text(place * CELL + 30, FOOT + 36, "token", "small", "middle")
      panel.box(place * CELL, 26, CELL, 206, "bare", "", `token-${place}`)
    })
    return panel
  }

  function numbers({ logprob, entropy, most }) {
    const panel = new Panel(118, "In nats")
    const at = x => 20 + 320 * clamp(x / most, 0, 1)
    panel.text(0, 40, `log-probability ℓ = ${signed(logprob.toFixed(3))}`, "bold")
    panel.text(0, 62, `entropy H = ${entropy.toFixed(3)}`, "bold")
    panel.line([[20, 86], [340, 86]], "rule")
    panel.dot(at(entropy), 86, "b", 6)
    panel.text(20, 110, "0: certain", "small")
    panel.text(340, 110, `log 6 = ${most.toFixed(3)}: undecided`, "small", "end")
    return panel
  }

  return {
    model,
    draw: (found, values, facts) => [bars(found, values, facts), numbers(found)],
    names: { tau: tau => String(tau / 10), token: token => String(token) },
    words: ({ p, logprob, entropy, most }, values) =>
      `At the temperature ${tau_of(values)} token ${values.token} has the probability ${short(p[values.token].toPrecision(3))}, ` +
      `so its log-probability is ${signed(logprob.toFixed(3))}. The entropy is ${entropy.toFixed(3)} of at most ${most.toFixed(3)}.`,
    touch: part => ({ token: Number(part.split("-")[1]) }),
  }
})
