// Values, the returns that came, and TD errors: after all other parts, on the pages of policies with critics.

const valueLines = [
  ["value of the action taken", (ep) => ep.values.values],
  ["discounted return that came", (ep) => ep.came.values],
  ["TD error", (ep) => ep.tdErrors.values],
];
const values = {
  still(pen, w, h) {
    const { T } = view.ep, axis = timeAxis(T, w), lines = valueLines.map(([, of]) => Array.from(of(view.ep)));
    const above = valueAxis(...extent([...lines[0], ...lines[1]]), 16, h - 110);
    const below = valueAxis(...extent([0, ...lines[2]]), h - 80, h - 22);
    drawAxis(pen, above, w, 3);
    drawAxis(pen, below, w, 2);
    pen.fillStyle = colours.ink;
    pen.textAlign = "left";
    pen.textBaseline = "bottom";
    pen.fillText("value and return", LEFT + 2, 13);
    pen.fillText("TD error", LEFT + 2, h - 82);
    lines.forEach((found, i) => line(pen, colours.series[i], 1.6, found.map((v, t) => [axis.x(t), (i < 2 ? above : below).y(v)])));
    drawSteps(pen, T, w, h - 20);
    el("values-legend").replaceChildren(...valueLines.map(([name], i) => {
      const item = legendItem(colours.series[i], name);
      item.lastChild.textContent = name;
      return item;
    }));
  },
  now(pen, w, h) {
    cursor(pen, view.ep.T, view.t, w, 0, h - 22);
  },
  say() {
    const [value, came, error] = valueLines.map(([, of]) => of(view.ep)[view.t]), gap = value - came;
    const over = gap === 0 ? "as valued" : `${gap > 0 ? "over" : "under"}estimated by ${show(Math.abs(gap))}`;
    write("values-readout", `Step ${view.t}: value ${show(value)}, return that came ${show(came)}: ${over}; TD error ${show(error)}.`);
  },
};
figures.push(new Figure("values", 300, values));
refit();
