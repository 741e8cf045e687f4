// Which gates lie between two tokens of a chunk, and which half each is in: `within_halves` of annotated_examples/common/halves.py.
explorables.define("halves", ({ Panel, plural, range, short }) => {
  const SIDE = 30, LEFT = 40, TOP = 34, KINDS = ["a", "b", "g", "p"]
  const level = (i, j) => 31 - Math.clz32(i ^ j)
  const number = value => short(value).replace("-", "−")

  function model({ i, j: asked }, { gates }) {
    const j = Math.min(asked, i - 1) // a writer comes before its reader
    const half = 2 ** level(i, j), middle = Math.floor(i / half) * half
    const sum = (from, to) => gates.slice(from, to).reduce((total, gate) => total + gate, 0)
    const row = sum(middle, i + 1), column = sum(j + 1, middle)
    return { j, half, middle, row, column, left: Math.exp(row + column) }
  }

  const gatesOf = (from, to) =>
    from >= to ? "no gate" : from + 1 === to ? `the gate of token ${from}` : `the gates of tokens ${from} to ${to - 1}`

  return {
    model,
    draw: ({ j, half, middle, row, column, left }, { i }, { gates }) => {
      const count = gates.length
      const pairs = new Panel(TOP + SIDE * count + 30, "reader in its row, writer in its column")
      pairs.cells(LEFT, TOP, count, count, SIDE,
        (r, c) => c > r ? "off" : c === r ? "strong" : KINDS[level(r, c)],
        (r, c) => c < r ? 2 ** level(r, c) : "")
      for (const token of range(0, count)) {
        pairs.text(LEFT - 8, TOP + SIDE * token + 20, token, "small", "end")
        pairs.text(LEFT + SIDE * (token + 0.5), TOP + SIDE * count + 18, token, "small", "middle")
      }
      pairs.box(LEFT + SIDE * j, TOP + SIDE * i, SIDE, SIDE, "strong")
      const between = new Panel(190, `between tokens ${j} and ${i}`)
      for (const token of range(0, count)) {
        const kind = token > j && token < middle ? "a" : token >= middle && token <= i ? "b" : ""
        between.box(4 + 44 * token, 44, 42, 40, kind, `g${token}\n${number(gates[token])}`)
      }
      between.line([[4 + 44 * middle - 1, 34], [4 + 44 * middle - 1, 94]])
      between.text(0, 122, `to the column: ${number(column)}`, "small")
      between.text(180, 122, `to the row: ${number(row)}`, "small")
      between.text(0, 148, `together ${number(row + column)}: ${number(left)} is left`)
      between.text(0, 172, `halves of ${plural(half, "token")}, with their border before token ${middle}`, "small")
      return [pairs, between]
    },
    highest: ({ i }) => ({ j: i - 1 }),
    words: ({ j, half, middle, row, column, left }, { i }) =>
      `Token ${i} reads token ${j}. They lie in halves of ${plural(half, "token")}. In the row's factor: ` +
      `${gatesOf(middle, i + 1)}, ${number(row)}. In the column's: ${gatesOf(j + 1, middle)}, ${number(column)}. ` +
      `${number(left)} is left.`,
  }
})
