// What the policy would have done without its accounts, and where that would have led.

function actionOf(array, t) {
  const A = array.shape[1];
  return Array.from(array.values.subarray(t * A, (t + 1) * A), show).join(", ");
}
function namedLegend(id, entries) {
  el(id).replaceChildren(...entries.map(([colour, name]) => {
    const item = legendItem(colour, name);
    item.lastChild.textContent = name;
    return item;
  }));
}
const without = {
  still(pen, w, h) {
    const { T, effect, chosen, others, peak } = view.ep, axis = timeAxis(T, w), d = Math.min(view.dimension, chosen.shape[1] - 1);
    const above = valueAxis(0, Math.max(...effect.values) || 1, 16, 110);
    drawAxis(pen, above, w, 3);
    line(pen, colours.series[2], 1.6, Array.from(effect.values, (v, t) => [axis.x(t), above.y(v)]));
    pen.beginPath();
    pen.arc(axis.x(peak), above.y(effect.values[peak]), 4, 0, 7);
    pen.fillStyle = colours.series[2];
    pen.fill();
    const lines = [chosen, others].map((array) => Array.from({ length: T }, (_, t) => at(array, t, d)));
    const below = valueAxis(...extent(lines.flat()), 146, h - 26);
    drawAxis(pen, below, w, 3);
    // What was done is drawn last and thin, so that where both agree both are seen.
    lines.reverse().forEach((values, i) => line(pen, colours.series[1 - i], i ? 1.2 : 3, values.map((v, t) => [axis.x(t), below.y(v)])));
    pen.fillStyle = colours.ink;
    pen.textAlign = "left";
    pen.textBaseline = "bottom";
    pen.fillText("effect of the accounts", LEFT + 2, 13);
    pen.fillText(meta.dimensions > 1 ? `action a[${d}]` : "action", LEFT + 2, 142);
    drawSteps(pen, T, w, h - 20);
    namedLegend("without-legend", [[colours.series[2], "effect"], [colours.series[0], "action with accounts"], [colours.series[1], "action without"]]);
  },
  now(pen, w, h) {
    cursor(pen, view.ep.T, view.t, w, 0, h - 22);
  },
  say() {
    const { ep, t } = view;
    write("without-readout", `Step ${t}: action ${actionOf(ep.chosen, t)} with accounts, ${actionOf(ep.others, t)} without; effect ${show(ep.effect.values[t])}.`);
  },
};
function running(rewards) {
  let sum = 0;
  return Array.from(rewards.values, (reward) => (sum += reward));
}
const path = {
  still(pen, w, h) {
    const lines = [view.ep.returns, running(view.ep.otherRewards)], T = Math.max(...lines.map((values) => values.length));
    const axis = timeAxis(T, w), scale = valueAxis(...extent([0, ...lines.flat()]), 16, h - 26);
    drawAxis(pen, scale, w, 3);
    lines.forEach((values, i) => line(pen, colours.series[i], 1.8, values.map((v, t) => [axis.x(t), scale.y(v)])));
    pen.fillStyle = colours.ink;
    pen.textAlign = "left";
    pen.textBaseline = "bottom";
    pen.fillText("return so far", LEFT + 2, 13);
    drawSteps(pen, T, w, h - 20);
    const totals = lines.map((values) => show(values[values.length - 1]));
    namedLegend("path-legend", [[colours.series[0], `with accounts: return ${totals[0]}`], [colours.series[1], `without: return ${totals[1]}`]]);
  },
  now(pen, w, h) {
    const T = Math.max(view.ep.T, view.ep.otherRewards.values.length);
    cursor(pen, T, view.t, w, 0, h - 22);
  },
  say() {
    const { ep, t } = view, other = running(ep.otherRewards), over = t >= other.length;
    const there = over ? `had ended with return ${show(other[other.length - 1])}` : `took action ${actionOf(ep.otherActions, t)} and had return ${show(other[t])}`;
    write("path-readout", `Step ${t}: return so far ${show(ep.returns[t])}; the episode without accounts ${there}.`);
  },
};
function fillWithoutTable() {
  const { ep } = view, second = ep.otherRewards, T = Math.max(ep.T, second ? second.values.length : 0);
  fillTable("without-table", Array.from({ length: T }, (_, t) => {
    const here = t < ep.T, there = second && t < second.values.length;
    const ours = here ? [actionOf(ep.chosen, t), actionOf(ep.others, t), show(ep.effect.values[t]), show(ep.rewards.values[t])] : ["–", "–", "–", "–"];
    const theirs = there ? [actionOf(ep.otherActions, t), show(second.values[t])] : ["–", "–"];
    return [t, ...ours, ...(second ? theirs : [])];
  }));
}
