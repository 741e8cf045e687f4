// Floating-point formats: sign, exponent, fraction. `facts.formats`: name -> {exponent, fraction, infinities, nan, largest}.
// What lies beyond the largest number becomes infinity, or that number where there is no infinity; `beyond` says who decides
// otherwise. `nan`: is there one?
explorables.define("floats", ({ Panel, clamp, range }) => {
  const special = { infinity: Infinity, "not a number": NaN }
  /** A number that may be none, in words. */
  const told = number => Number.isFinite(number) ? String(Number(number.toPrecision(12)))
    : Number.isNaN(number) ? "not a number" : number < 0 ? "−infinity" : "infinity"
  const value_of = ({ kind, x }) => kind === "a number" ? x : kind === "infinity" && x < 0 ? -Infinity : special[kind]
  const bias = ({ exponent }) => 2 ** (exponent - 1) - 1

  /** Of a pattern, highest bit first: the number, and its parts. */
  function decode(bits, format) {
    const digits = some => some.reduce((sum, bit) => 2 * sum + bit, 0)
    const e = digits(bits.slice(1, 1 + format.exponent)), f = digits(bits.slice(1 + format.exponent))
    const sign = bits[0] ? -1 : 1, top = 2 ** format.exponent - 1
    if (format.infinities && e === top) return f ? NaN : sign * Infinity
    if (format.nan && e === top && f === 2 ** format.fraction - 1) return NaN
    const power = (e || 1) - bias(format)
    return sign * (f / 2 ** format.fraction + (e ? 1 : 0)) * 2 ** power
  }

  /** The spacing of a format's numbers around x. */
  function spacing(x, format) {
    const least = 1 - bias(format)
    let power = x === 0 ? least : Math.floor(Math.log2(Math.abs(x)))
    if (2 ** power > Math.abs(x)) power--
    if (2 ** (power + 1) <= Math.abs(x)) power++
    return 2 ** (Math.max(power, least) - format.fraction)
  }

  /** To the nearest, and of two equally near ones to the one whose last bit is 0. */
  function rounded(x, format) {
    if (!Number.isFinite(x)) return Number.isNaN(x) || format.infinities ? x : Math.sign(x) * format.largest
    const step = spacing(x, format), count = Math.abs(x) / step
    const low = Math.floor(count), rest = count - low
    const near = (rest > 0.5 || rest === 0.5 && low % 2 ? low + 1 : low) * step
    const sign = x < 0 || Object.is(x, -0) ? -1 : 1
    if (near <= format.largest) return sign * near
    return sign * (format.infinities ? Infinity : format.largest)
  }

  function encode(number, format) {
    const top = 2 ** format.exponent - 1
    const bits = (value, count) => range(0, count).map(place => Math.floor(value / 2 ** (count - 1 - place)) % 2)
    const sign = number < 0 || Object.is(number, -0) ? 1 : 0
    const parts = (e, f) => [sign, ...bits(e, format.exponent), ...bits(f, format.fraction)]
    if (Number.isNaN(number)) return parts(top, format.infinities ? 2 ** (format.fraction - 1) : 2 ** format.fraction - 1)
    if (!Number.isFinite(number)) return parts(top, 0)
    const step = spacing(number, format), count = Math.abs(number) / step, ones = 2 ** format.fraction
    if (count < ones) return parts(0, count)
    return parts(Math.round(Math.log2(step)) + format.fraction + bias(format), count - ones)
  }

  function model(values, { formats }) {
    const format = formats[values.format], x = value_of(values), number = rounded(x, format)
    const step = Number.isFinite(number) ? spacing(number, format) : 0
    const has = !Number.isNaN(number) || format.nan
    const bits = has ? encode(number, format) : range(0, 1 + format.exponent + format.fraction).map(() => "–")
    const decoded = has ? decode(bits, format) : NaN
    return { bits, has, decoded: Number.isFinite(decoded) ? decoded : String(decoded), step, shown: told(number),
      number: Number.isFinite(number) ? number : String(number),
      error: Number.isFinite(number) && x ? Math.abs(number - x) / Math.abs(x) : 0 }
  }

  const COLUMNS = 8, WIDE = 45, HIGH = 46

  function bitsPanel({ bits, shown }, values, { formats }) {
    const format = formats[values.format]
    const panel = new Panel(272, `${values.format}: press a bit`)
    bits.forEach((bit, place) => {
      const kind = place === 0 ? "off" : place <= format.exponent ? "a" : "b"
      panel.box(place % COLUMNS * WIDE, 26 + Math.floor(place / COLUMNS) * HIGH, WIDE - 1, HIGH - 2, kind, bit, `bit-${place}`)
    })
    for (const [kind, words, x] of [["off", "sign", 0], ["a", `exponent: ${format.exponent}`, 70], ["b", `fraction: ${format.fraction}`, 196]]) {
      panel.box(x, 220, 12, 12, kind)
      panel.text(x + 17, 231, words, "small")
    }
    panel.text(0, 260, `= ${shown}`, "bold")
    return panel
  }

  /** Powers of two from 2^-150 to 2^128 on a line. */
  function line({ number }, values, { formats }) {
    const LEFT = 62, LOW = -150, HIGH_POWER = 130
    const at = power => LEFT + (360 - LEFT) * (clamp(power, LOW, HIGH_POWER) - LOW) / (HIGH_POWER - LOW)
    const panel = new Panel(272, "What each one reaches")
    for (const power of [-40, -30, -20, -10, 0, 10, 20, 30]) {
      const x = at(power * Math.log2(10))
      panel.line([[x, 30], [x, 222]], "rule")
      if (power % 20 === 0) panel.text(x, 240, power ? `10^${power}` : "1", "small", "middle")
    }
    Object.entries(formats).forEach(([name, format], row) => {
      const y = 34 + row * 32, least = 1 - bias(format), chosen = name === values.format
      panel.text(0, y + 15, name, chosen ? "bold small" : "small")
      const from = at(least - format.fraction), normal = at(least), to = at(Math.log2(format.largest))
      panel.box(from, y, normal - from, 20, "off")
      panel.box(normal, y, to - normal, 20, chosen ? "a" : "b")
    })
    const x = Math.abs(value_of(values))
    if (x > 0 && Number.isFinite(x)) panel.line([[at(Math.log2(x)), 28], [at(Math.log2(x)), 226]], "strong")
    panel.text(360, 258, "pale: smaller steps run out (subnormal)", "small", "end")
    return panel
  }

  return {
    model,
    draw: (found, values, facts) => [bitsPanel(found, values, facts), line(found, values, facts)],
    words({ has, number, shown, step, error }, values, { formats }) {
      const format = formats[values.format], x = value_of(values)
      const what = `${Number.isFinite(x) ? x : told(x)} in ${values.format}`
      if (!has) return `${what}: there is no pattern for it. All ${2 ** (1 + format.exponent + format.fraction)} stand for numbers.`
      if (typeof number === "string") {
        if (Number.isFinite(x)) return `${what} becomes ${shown}: the largest number is ${Number(format.largest.toPrecision(6))}. ${format.beyond}`.trimEnd()
        const fraction = format.infinities ? Number.isNaN(x) ? "a fraction that isn't 0" : "a fraction of 0" : "a fraction of ones"
        return `${what} has a pattern: an exponent of ones, ${format.exponent} of them, and ${fraction}.`
      }
      if (Math.abs(x) > format.largest) return `${what} is ${shown}, the largest number: this format has no infinity. ${format.beyond}`
      if (number === 0) return `${what} is 0: the smallest number above 0 is ${Number((2 ** (1 - bias(format) - format.fraction)).toPrecision(3))}.`
      const off = error ? `, off by ${Number((100 * error).toPrecision(2))}%` : " exactly"
      return `${what} is ${shown}${off}. Around it the numbers are ${Number(step.toPrecision(6))} apart; ` +
        `the largest is ${Number(format.largest.toPrecision(6))}.`
    },
    /** Pressing a bit turns it over; the number that the pattern then stands for is the new x. */
    touch(part, { start }, values, { formats }, { bits, has }) {
      if (!start || !has) return undefined
      const place = Number(part.split("-")[1])
      const number = decode(bits.map((bit, i) => i === place ? 1 - bit : bit), formats[values.format])
      if (Number.isNaN(number)) return { kind: "not a number" }
      if (!Number.isFinite(number)) return { kind: "infinity", x: Math.sign(number) }
      return { kind: "a number", x: number }
    },
  }
})
