// What a token takes in the cache: `heads` of a key and a value each, or one latent for all of them. `facts`: how many numbers a
// key, a value and a latent with its rotated part have, bytes of a number, and how many heads of queries there are.
explorables.define("latent", ({ Panel, grouped, plural }) => ({
  model: ({ heads }, { key, value, latent, bytes }) => ({ kept: heads * (key + value) * bytes, latent: latent * bytes }),

  draw({ kept, latent }, { heads }, { key, value, bytes, most }) {
    const all = most * (key + value) * bytes
    const name = heads === 1 ? "one for all heads" : heads === most ? "each head its own" : `groups of ${most / heads} share one`
    const rows = [[`each of ${most} heads its own`, all, "b"], [name, kept, "a"], ["a latent", latent, "g"]]
    const panel = new Panel(202, "Bytes of a token in the cache")
    rows.forEach(([title, size, kind], row) => {
      const y = 34 + 56 * row
      panel.text(0, y + 12, title, "small")
      panel.text(356, y + 12, `${grouped(size)} bytes`, "small", "end")
      panel.box(0, y + 18, 356 * size / all, 16, kind)
    })
    return [panel]
  },

  words: ({ kept, latent }, { heads }, { most }) =>
    `${plural(heads, "head")} of keys and values ${heads === 1 ? "takes" : "take"} ${grouped(kept)} bytes a token, ` +
    `${(kept / latent).toFixed(1)} times as many as a latent, which serves all ${most}.`,
}))
