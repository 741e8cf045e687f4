// Which queries have which keys in their lists, as `select_keys` of annotated_examples/attention makes them: the larger score
// first, of equal ones the earlier key, and none that comes later than the query. Fields: `k` keys in each list, and `key`, the
// column that is looked at; `facts.scores` has a row for each query, of the keys that it may see.
explorables.define("selected", ({ Panel, plural, range }) => {
  const CELL = 15, ROW = 13, TOP = 34

  function model({ k }, { scores }) {
    const lists = scores.map(row =>
      range(0, row.length).sort((a, b) => row[b] - row[a] || a - b).slice(0, k).sort((a, b) => a - b))
    const keys = scores[scores.length - 1].length
    const queries = range(0, keys).map(key => range(0, lists.length).filter(query => lists[query].includes(key)))
    return { lists, queries, rows: lists.reduce((sum, list) => sum + list.length, 0) }
  }

  function matrix({ lists, queries }, { key }, { scores }) {
    const bottom = TOP + ROW * scores.length, most = Math.max(...queries.map(each => each.length), 1)
    const panel = new Panel(bottom + 84, "A row for each query, a column for each key")
    scores.forEach((row, query) => row.forEach((_, column) => {
      const kind = !lists[query].includes(column) ? "off" : column === key ? "a" : "b"
      panel.box(column * CELL + 1, TOP + query * ROW + 1, CELL - 2, ROW - 2, kind)
    }))
    queries.forEach((each, column) => {
      const height = 40 * each.length / most
      if (each.length) panel.box(column * CELL + 1, bottom + 52 - height, CELL - 2, height, column === key ? "a" : "g")
      const named = column === key || (column % 2 === 0 && Math.abs(column - key) > 1)
      if (named) panel.text(column * CELL + CELL / 2, bottom + 66, column, "tiny", "middle")
      panel.box(column * CELL, TOP, CELL, bottom + 36 - TOP, "bare", "", `key-${column}`)
    })
    panel.text(0, bottom + 80, "queries that have the key", "small")
    return panel
  }

  return {
    model,
    draw: (found, values, facts) => [matrix(found, values, facts)],
    words: ({ queries, rows }, { key }, { scores }) => {
      const counts = queries.map(each => each.length)
      const none = counts.filter(count => count === 0).length
      return `Key ${key} is in the lists of ${counts[key]} of ${scores.length} queries, which all add to its gradient. ` +
        `The busiest key has ${counts.length ? Math.max(...counts) : 0}, and ${plural(none, "key")} ${none === 1 ? "is" : "are"} ` +
        `in no list. All lists together have ${plural(rows, "number")}, and each makes a row.`
    },
    touch: part => ({ key: Number(part.split("-")[1]) }),
  }
})
