// The average of gradients that an optimizer keeps, and what the division makes of it, as `adamw_kernel` of
// annotated_examples/optimizers/adamw.py does. Fields: `beta`, and `step`, of as many as `facts.gradients`.
explorables.define("average", ({ Panel, axes, short }) => {
  const signed = x => short(x).replace("-", "−")

  /** After each step. */
  function model({ beta }, { gradients }) {
    let average = 0, left = 1
    const averages = gradients.map(gradient => average += (1 - beta) * (gradient - average))
    return { averages, corrected: averages.map(value => value / (1 - (left *= beta))) }
  }

  function draw({ averages, corrected }, { beta, step }, { gradients }) {
    const panel = new Panel(300, `β = ${beta}`), count = gradients.length
    const at = axes(panel, [36, 34, 316, 216], [0, count / 4, count / 2, 3 * count / 4, count], [0, 0.5, 1, 1.5, 2], ["steps", ""])
    gradients.forEach((gradient, place) => panel.dot(...at(place + 1, gradient), "off", 3))
    panel.line([[0, 0], ...averages.map((value, place) => [place + 1, value])].map(point => at(...point)), "curve a")
    panel.line(corrected.map((value, place) => at(place + 1, value)), "curve g")
    panel.dot(...at(step, averages[step - 1]), "a", 5)
    panel.dot(...at(step, corrected[step - 1]), "g", 5)
    return [panel]
  }

  return {
    model,
    draw,
    names: { beta: String, step: String },
    words({ averages, corrected }, { beta, step }) {
      const [average, right] = [averages, corrected].map(each => each[step - 1])
      return `After ${step} step${step > 1 ? "s" : ""} with β = ${beta} the average is ${signed(average)}. `
        + `Divided by 1 − β to the power of ${step}, which is ${signed(1 - beta ** step)}, it is ${signed(right)}.`
    },
  }
})
