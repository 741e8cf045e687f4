// A thin product whose tiles of the result are shared by several programs: annotated_examples/gemlite/gemm_splitK.py.
// `facts`: columns and K of the weight, the columns of a tile, SMs.
explorables.define("split_k", ({ Panel, grouped, percent, plural, range }) => {
  const KINDS = ["a", "b", "g", "p"]

  function model({ split }, { columns, K, block, sms }) {
    const tiles = columns / block, programs = tiles * split, rounds = Math.ceil(programs / sms)
    return { tiles, programs, rounds, each: K / split, busy: programs / (rounds * sms), time: rounds / split, adds: split > 1 ? programs : 0 }
  }

  function panel({ tiles, programs, rounds, each, busy, time }, { split }, { K, sms }) {
    const drawn = new Panel(372, `SPLIT_K = ${split}: ${plural(programs, "program")} for ${tiles} tiles`)
    const wide = 330 / sms, left = 30, top = 44, high = 240
    drawn.text(left, 37, `${sms} SMs, side by side`, "tiny")
    drawn.box(left, top, 330, high, "off")
    range(0, programs).forEach(pid => {
      const wave = Math.floor(pid / sms), part = Math.floor(pid / tiles)  // all tiles of one part of K come one after the other
      drawn.box(left + pid % sms * wide, top + wave * high / split, wide, high / split, `${KINDS[part % 4]} bare`)
    })
    for (const wave of range(1, rounds + 1)) drawn.line([[left, top + wave * high / split], [360, top + wave * high / split]], "rule")
    drawn.line([[left, top + high * time], [360, top + high * time]], "strong")
    drawn.text(left - 8, top + 6, "0", "tiny", "end")
    drawn.text(left - 8, top + high, "1", "tiny", "end")
    drawn.text(0, 314, `${grouped(each)} of K = ${grouped(K)} each, ${plural(rounds, "wave")}`, "small")
    drawn.text(0, 338, `time ${time.toFixed(2)}: ${percent(busy)} of the places busy`, "bold")
    drawn.text(0, 362, split > 1 ? `${split} atomic adds to every number of the result` : "one store for every number of the result", "small")
    return drawn
  }

  return {
    model,
    draw: (found, values, facts) => [panel(found, values, facts)],
    words: ({ programs, rounds, each, busy, time }, { split }) =>
      `With SPLIT_K = ${split} there are ${plural(programs, "program")} with ${grouped(each)} of K each. They need ${plural(rounds, "wave")}, ` +
      `${percent(busy)} of the places are busy, and the loop takes ${percent(time)} of the time without a split. ` +
      (split > 1 ? `Every number of the result is added to ${split} times.` : "Every number of the result is stored once."),
  }
})
