// Sinkhorn's rounds on a matrix of three streams, as `sinkhorn` of annotated_examples/model computes them. Fields: `logit`, the
// first entry in tenths; `step`, how many divisions have been made, of columns and of rows by turns; `facts.logits`.
explorables.define("sinkhorn", ({ Panel, axes, grouped, plural, range, short }) => {
  const CELL = [76, 48], LEFT = 4, TOP = 34, MOST = 10
  const sum = list => list.reduce((a, b) => a + b, 0)
  const columns = m => m[0].map((_, j) => sum(m.map(row => row[j])))
  const divided = (m, step) => {
    const sums = step % 2 ? m.map(sum) : columns(m)
    return m.map((row, i) => row.map((x, j) => x / sums[step % 2 ? i : j]))
  }
  const off = sums => Math.max(...sums.map(x => Math.abs(x - 1)))

  function model({ logit, step }, { logits }) {
    const start = logits.map((row, i) => row.map((z, j) => Math.exp(i + j ? z : logit / 10)))
    const found = [start]
    for (const at of range(0, 2 * MOST)) found.push(divided(found.at(-1), at))
    const m = found[step]
    return { matrix: m, rows: m.map(sum), columns: columns(m), left: range(1, MOST + 1).map(round => off(columns(found[2 * round]))) }
  }

  const division = step => step === 0 ? "none yet" : `${step % 2 ? "columns" : "rows"} of round ${Math.ceil(step / 2)}`
  const name = x => x >= 1000 ? grouped(x) : x.toFixed(3)

  const said = x => x >= 1e-3 ? short(x.toPrecision(2))
    : x.toExponential(1).replace(/e-(\d+)/, (_, digits) => ` · 10⁻${[...digits].map(digit => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("")}`)

  function table({ matrix, rows, columns: below }, { step }) {
    const panel = new Panel(236, `After ${plural(step, "division")}: ${division(step)}`)
    panel.cells(LEFT, TOP, 3, 3, CELL, (i, j) => matrix[i][j] >= 0.5 ? "a" : matrix[i][j] >= 0.05 ? "b" : "off", (i, j) => name(matrix[i][j]))
    rows.forEach((x, i) => panel.text(LEFT + 3 * CELL[0] + 12, TOP + CELL[1] * (i + 0.5) + 4, name(x), Math.abs(x - 1) < 5e-4 ? "bold" : "small"))
    below.forEach((x, j) => panel.text(LEFT + CELL[0] * (j + 0.5), TOP + 3 * CELL[1] + 22, name(x), Math.abs(x - 1) < 5e-4 ? "bold" : "small", "middle"))
    panel.text(LEFT + 3 * CELL[0] + 12, TOP - 10, "sums of rows", "small")
    panel.text(LEFT, TOP + 3 * CELL[1] + 44, "sums of columns", "small")
    return panel
  }

  function curve({ left }, { step }) {
    const panel = new Panel(236, "How far the columns are off 1")
    const at = axes(panel, [62, 44, 290, 142], [1, 2, 4, 6, 8, 10], [1e-6, 1e-4, 0.01, 1], ["rounds", ""], [false, true])
    const inside = x => Math.min(1, Math.max(1e-6, x))
    panel.line(left.map((x, place) => at(place + 1, inside(x))), "curve b")
    const round = Math.floor(step / 2)
    left.forEach((x, place) => panel.dot(...at(place + 1, inside(x)), place + 1 === round ? "a" : "b", place + 1 === round ? 6 : 3))
    return panel
  }

  return {
    model,
    draw: (found, values, facts) => [table(found, values, facts), curve(found, values)],
    names: { logit: logit => String(logit / 10).replace("-", "−"), step: division },
    words({ rows, columns: below, left }, { step, logit }) {
      const both = [["rows", rows], ["columns", below]].map(([kind, sums]) => off(sums) < 1e-12 ? `${kind} add up to 1` : `${kind} are off 1 by up to ${said(off(sums))}`)
      return `Logit ${String(logit / 10).replace("-", "−")}, ${plural(step, "division")}: ${both.join(", ")}. After ten rounds the columns will be off by ${said(left.at(-1))}.`
    },
  }
})
