// How many programs fit on a multiprocessor: `limits` of docs/guides/snippets/busy.py.
explorables.define("occupancy", ({ Panel }) => ({
  model({ warps, registers, shared }) {
    const perWarp = Math.ceil(registers / 8) * 8 * 32
    const limits = {
      warps: Math.floor(64 / warps),
      programs: 32,
      registers: Math.floor((Math.floor(65536 / perWarp / 4) * 4) / warps),
      "shared memory": Math.floor(228 / (shared + 1)),
    }
    const fit = Math.min(...Object.values(limits))
    return { limits, fit, tightest: Object.keys(limits).find(name => limits[name] === fit), warps: fit * warps }
  },

  draw({ limits, fit, tightest, warps }) {
    const panel = new Panel(222, "Programs that each resource has room for")
    Object.entries(limits).forEach(([name, room], row) => {
      const y = 32 + row * 34
      panel.text(0, y + 16, name, "small")
      panel.box(110, y, 200, 22, "off")
      panel.box(110, y, 200 * Math.min(room, 32) / 32, 22, name === tightest ? "a" : "b")
      panel.text(318, y + 16, room)
    })
    panel.text(0, 190, `${fit} ${fit === 1 ? "program fits" : "programs fit"}, limit: ${tightest}`, "bold")
    panel.text(0, 213, `${warps} of 64 warps: occupancy ${100 * warps / 64}%`)
    return [panel]
  },

  words: ({ limits, fit, tightest, warps }) =>
    `Room for programs: ${Object.entries(limits).map(([name, room]) => `${room} by ${name}`).join(", ")}. ` +
    `${tightest[0].toUpperCase()}${tightest.slice(1)} decides: ${fit} on an SM, ${warps} of 64 warps.`,
}))
