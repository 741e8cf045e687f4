// Rotary embedding of one head: pair i is turned by position x base^(-2i / D), as the derivation has it (RoPE-q, RoPE-k).
// Before, each pair of query and key is (1, 0), so what is drawn is the turning alone. `facts`: base, D.
explorables.define("rope", ({ Panel, axes, grouped, range }) => {
  const FAR = 64

  function model({ m, distance, order }, { base, D }) {
    const half = D / 2, n = m - distance
    const frequencies = range(0, half).map(i => base ** (-2 * i / D))
    const pairs = frequencies.map((frequency, i) => ({
      features: order === "interleaved" ? [2 * i, 2 * i + 1] : [i, i + half],
      frequency, query: m * frequency, key: n * frequency,
    }))
    // Query times key, over all features, as a share of what it is at the same position.
    const score = far => frequencies.reduce((sum, each) => sum + Math.cos(far * each), 0) / half
    const turned = angle => { // the head's features in memory
      const features = Array(D).fill(0)
      pairs.forEach(pair => {
        features[pair.features[0]] = Math.cos(pair[angle])
        features[pair.features[1]] = Math.sin(pair[angle])
      })
      return features
    }
    const query = turned("query"), key = turned("key")
    const dot = query.reduce((sum, each, place) => sum + each * key[place], 0) / half
    return { n, pairs, query, key, dot, curve: range(0, FAR + 1).map(score) }
  }

  function dials({ n, pairs }, { m }) {
    const panel = new Panel(262, `Query at ${m}, key at ${n}`)
    pairs.forEach(({ features, frequency, query, key }, place) => {
      const x = 44 + place % 4 * 90, y = 76 + Math.floor(place / 4) * 108, R = 32
      const at = angle => [x + R * Math.cos(angle), y - R * Math.sin(angle)]
      panel.line(range(0, 41).map(step => at(step * Math.PI / 20)), "rule")
      panel.arrow(x, y, ...at(key), "b curve")
      panel.arrow(x, y, ...at(query), "a curve")
      panel.text(x, y - R - 6, `(${features})`, "small", "middle")
      const turn = 2 * Math.PI / frequency
      panel.text(x, y + R + 15, turn >= 1e4 ? `${Math.round(turn / 1000)}k` : turn.toFixed(turn < 100 ? 1 : 0), "tiny dim", "middle")
    })
    panel.text(0, 256, "below each: tokens for a whole turn", "small dim")
    return panel
  }

  function scores({ dot, curve }, { distance }) {
    const panel = new Panel(262, `Query times key: ${dot.toFixed(3)}`)
    const at = axes(panel, [34, 34, 316, 170], [0, 16, 32, 48, 64], [-0.5, 0, 0.5, 1], ["distance in tokens", ""])
    panel.line(curve.map((score, far) => at(far, score)), "curve p")
    panel.dot(...at(distance, dot), "a", 6)
    panel.text(0, 256, "1: as if nothing had been turned", "small dim")
    return panel
  }

  return {
    model,
    draw: (found, values) => [dials(found, values), scores(found, values)],
    words: ({ n, pairs, dot }, { m, distance, order }) =>
      `The query's pairs are turned by position ${m}, the key's by ${n}. The first pair, features ${pairs[0].features.join(" and ")} ` +
      `(${order}), goes around in 6.3 tokens, the last in ${grouped(2 * Math.PI / pairs.at(-1).frequency)}. ` +
      `Their product is ${dot.toFixed(3)}: it depends on the distance of ${distance}, not on where the two stand.`,
  }
})
