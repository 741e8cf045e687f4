// Eight weights as integers of a few bits, with one scale and one zero point: `quantize` and `pack` of
// annotated_examples/gemlite/gemm.py for a group of eight float32 numbers. `facts.weights`: the group before it is moved.
explorables.define("integers", ({ Panel, clamp, range, short }) => {
  const LOW = -4, HIGH = 4
  const half = value => value === 0.5  // exactly between two integers: to the even one, as torch rounds
  function even(value) {
    const low = Math.floor(value), rest = value - low
    return half(rest) ? low + (low % 2 === 0 ? 0 : 1) : Math.round(value)
  }
  const group = ({ outlier, shift }, { weights }) => [...weights.map(w => w + shift), outlier]

  function model(values, facts) {
    const bits = Number(values.bits), w = group(values, facts), top = 2 ** bits - 1
    const low = Math.min(0, ...w), high = Math.max(0, ...w)
    const scale = (high - low) / top || 1
    const zero = clamp(even(-low / scale), 0, top)
    const q = w.map(each => clamp(even(each / scale + zero), 0, top))
    const back = q.map(each => (each - zero) * scale)
    const per_word = 32 / bits
    const word = q.slice(0, per_word).reduce((sum, each, place) => sum + each * 2 ** (bits * place), 0)
    return { w, scale, zero, q, back, word, error: Math.max(...w.map((each, i) => Math.abs(each - back[i]))) }
  }

  const at = value => 180 + value * 42

  function levels({ w, scale, zero, back }, { bits }) {
    const panel = new Panel(250, `${2 ** bits} integers for eight weights`)
    panel.text(0, 40, "the integers' places: (q − zero) × scale", "small dim")
    for (const level of range(0, 2 ** bits, bits > 4 ? 2 ** (bits - 4) : 1)) {
      const x = at((level - zero) * scale)
      panel.line([[x, 48], [x, 196]], "rule")
    }
    w.forEach((each, i) => {
      const y = 58 + i * 17
      panel.line([[at(each), y], [at(back[i]), y]], "r curve")
      panel.dot(at(back[i]), y, "b", 3.5)
      panel.dot(at(each), y, "a", i === 7 ? 8 : 4.5)
    })
    panel.box(0, 156, 360, 44, "bare", "", "outlier")
    panel.line([[0, 204], [360, 204]])
    for (const value of range(LOW, HIGH + 1)) panel.text(at(value), 222, value, "small", "middle")
    panel.dot(6, 240, "a")
    panel.text(16, 245, "weight", "small")
    panel.dot(106, 240, "b", 3.5)
    panel.text(116, 245, "what its integer stands for", "small")
    return panel
  }

  function packed({ q, word, scale, zero }, { bits }) {
    const panel = new Panel(250, `A 32-bit word holds ${32 / bits} numbers of ${bits} bits`)
    const shown = q.slice(0, 32 / bits), wide = 360 / 8
    panel.text(0, 44, "q", "small dim")
    q.forEach((each, i) => panel.box(i * wide, 50, wide - 3, 28, i < shown.length ? "abgp"[i % 4] : "off", each))
    panel.text(0, 112, "bits, the highest on the left", "small dim")
    const text = range(0, 32).map(place => Math.floor(word / 2 ** (31 - place)) % 2)
    text.forEach((bit, place) => {
      const i = Math.floor((31 - place) / bits)
      panel.box(place % 16 * 22.5, 120 + Math.floor(place / 16) * 30, 22, 26, i < q.length ? "abgp"[i % 4] : "off", bit)
    })
    const last = Math.min(shown.length, 8) - 1
    panel.text(0, 204, `q[${last}] = word >> ${bits * last} & ${2 ** bits - 1} = ${q[last]}`, "mono small")
    panel.text(0, 234, `w[${last}] ≈ (${q[last]} − ${zero}) × ${short(scale)} = ${short((q[last] - zero) * scale)}`, "mono small")
    return panel
  }

  return {
    model,
    draw: (found, values) => [levels(found, values), packed(found, values)],
    words: ({ scale, zero, error, word }, { bits }) =>
      `${bits} bits: a scale of ${short(scale)} and zero point ${zero}. No weight is off by more than half a scale; here the worst is off by ` +
      `${short(error)}. The word is ${word}.`,
    touch: (part, { x }) => ({ outlier: clamp(Math.round((x - 180) / 42 * 10) / 10, LOW, HIGH) }),
  }
})
