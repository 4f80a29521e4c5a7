// Drift, the use of codes, and the routing error: the figures about the whole episode or all episodes.

function ofHead(array, t) {
  return at(array, t, view.layer, view.head);
}
function largestAt(t) {
  const { drift } = view.ep, size = drift.shape[1] * drift.shape[2];
  return Math.max(...drift.values.subarray(t * size, (t + 1) * size));
}
const driftLines = [
  ["drift of this layer and head", (ep, t) => ofHead(ep.drift, t), 0, []],
  ["largest drift of all layers and heads", (ep, t) => largestAt(t), 2, []],
  ["sharp bound of this layer and head", (ep, t) => ofHead(ep.sharp, t), 1, []],
  ["the paper's bound", (ep, t) => ofHead(ep.paper, t), 3, [5, 4]],
];
const drift = {
  still(pen, w, h) {
    const { T } = view.ep, axis = timeAxis(T, w);
    const lines = driftLines.map(([, value]) => Array.from({ length: T }, (_, t) => value(view.ep, t)));
    const scale = valueAxis(0, extent(lines.flat())[1], 8, h - 22);
    drawAxis(pen, scale, w, 4);
    lines.forEach((values, i) => line(pen, colours.series[driftLines[i][2]], i ? 1.4 : 2, values.map((v, t) => [axis.x(t), scale.y(v)]), driftLines[i][3]));
    drawSteps(pen, T, w, h - 20);
    el("drift-legend").replaceChildren(...driftLines.map(([name, , colour]) => {
      const item = legendItem(colours.series[colour], name);
      item.lastChild.textContent = name;
      return item;
    }));
  },
  now(pen, w, h) {
    cursor(pen, view.ep.T, view.t, w, 0, h - 22);
  },
  say() {
    const [own, all, sharp, paper] = driftLines.map(([, value]) => show(value(view.ep, view.t)));
    const clipped = view.ep.clipped.values[view.t] ? " The bias is at its clip." : "";
    write("drift-readout", `Step ${view.t}: drift ${own}, sharp bound ${sharp}, the paper's ${paper}; largest of all layers and heads ${all}.${clipped}`);
  },
};

function counts(values, high) {
  const found = new Array(BINS).fill(0);
  for (const value of values) found[Math.min(BINS - 1, Math.floor((value / high) * BINS))]++;
  return found.map((n) => n / values.length);
}
const histogram = {
  still(pen, w, h) {
    const { drift, T } = view.ep, high = extent(drift.values)[1] || 1;
    const own = Array.from({ length: T }, (_, t) => ofHead(drift, t));
    const all = counts(drift.values, high), one = counts(own, high);
    const scale = valueAxis(0, Math.max(...all, ...one), 8, h - 22), wide = (w - LEFT - RIGHT) / BINS;
    drawAxis(pen, scale, w, 3);
    pen.fillStyle = colours.quiet;
    all.forEach((n, i) => pen.fillRect(LEFT + i * wide, scale.y(n), wide * 0.9, h - 22 - scale.y(n)));
    line(pen, colours.series[0], 2, one.flatMap((n, i) => [[LEFT + i * wide, scale.y(n)], [LEFT + (i + 1) * wide, scale.y(n)]]));
    pen.fillStyle = colours.ink;
    pen.textBaseline = "top";
    for (const [share, align] of [[0, "left"], [0.5, "center"], [1, "right"]]) {
      pen.textAlign = align;
      pen.fillText(`${share ? "" : "drift "}${Number((share * high).toPrecision(2))}`, LEFT + share * (w - LEFT - RIGHT), h - 17);
    }
  },
  now(pen, w, h) {
    const x = LEFT + (ofHead(view.ep.drift, view.t) / (extent(view.ep.drift.values)[1] || 1)) * (w - LEFT - RIGHT);
    line(pen, colours.ink, 1.5, [[x, 0], [x, h - 22]]);
  },
  say() {
    const { drift, T } = view.ep, now = ofHead(drift, view.t);
    let below = 0;
    for (let t = 0; t < T; t++) below += ofHead(drift, t) < now;
    write("histogram-readout", `Step ${view.t}: drift ${show(now)}, larger than at ${below} of the ${T} steps in this layer and head.`);
  },
};
function fillDriftTable() {
  const { drift, T } = view.ep, [, layers, heads] = drift.shape, titles = document.createElement("tr");
  for (const text of ["mean, largest", ...Array.from({ length: heads }, (_, i) => `head ${i + 1}`)]) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = text;
    titles.append(cell);
  }
  el("drift-table").tHead.replaceChildren(titles);
  fillTable("drift-table", Array.from({ length: layers }, (_, l) => [`layer ${l + 1}`, ...Array.from({ length: heads }, (_, k) => {
    let sum = 0, high = 0;
    for (let t = 0; t < T; t++) {
      sum += at(drift, t, l, k);
      high = Math.max(high, at(drift, t, l, k));
    }
    return `${show(sum / T)}, ${show(high)}`;
  })]));
}

function usageScales(w, h) {
  const used = [...codes.posts.keys()].filter((c) => codes.posts[c] > 0);
  const across = valueAxis(0, Math.max(...used.map((c) => codes.posts[c] / meta.steps)) * 1.06, 0, 1);
  const [low, high] = extent(used.map((c) => codes.meanReward[c])), room = (high - low) * 0.08 || 0.5;
  const up = valueAxis(low - room, high + room, 12, h - 34);
  return { used, up, across, x: (c) => LEFT + (codes.posts[c] / meta.steps / across.high) * (w - LEFT - RIGHT), y: (c) => up.y(codes.meanReward[c]) };
}
const usage = {
  still(pen, w, h) {
    const { used, up, across, x, y } = usageScales(w, h);
    drawAxis(pen, up, w, 4);
    line(pen, colours.ink, 1, [[LEFT, up.y(meta.meanReward)], [w - RIGHT, up.y(meta.meanReward)]], [5, 4]);
    pen.textBaseline = "top";
    pen.fillStyle = colours.ink;
    for (const [share, align] of [[0, "left"], [0.5, "center"], [1, "right"]]) {
      pen.textAlign = align;
      pen.fillText(`${Math.round(share * across.high * 1000) / 10} %`, LEFT + share * (w - LEFT - RIGHT), h - 30);
    }
    pen.textAlign = "center";
    pen.fillText("share of steps; upwards: mean reward", LEFT + (w - LEFT - RIGHT) / 2, h - 15);
    const often = [...used].sort((a, b) => codes.posts[b] - codes.posts[a]).slice(0, 12);
    for (const c of used) {
      pen.fillStyle = colours.mark;
      pen.beginPath();
      pen.arc(x(c), y(c), 4, 0, 7);
      pen.fill();
      pen.fillStyle = colours.ink;
      pen.textAlign = x(c) > w - 40 ? "right" : "left";
      pen.textBaseline = "middle";
      if (often.includes(c)) pen.fillText(codes.numbers[c], x(c) + (x(c) > w - 40 ? -7 : 7), y(c));
    }
  },
  now(pen, w, h) {
    const { x, y } = usageScales(w, h);
    for (const c of posted(view.t)) {
      if (c < 0) continue;
      pen.strokeStyle = colours.ink;
      pen.lineWidth = 2;
      pen.beginPath();
      pen.arc(x(c), y(c), 8, 0, 7);
      pen.stroke();
    }
  },
  say() {
    const texts = posted(view.t).filter((c) => c >= 0).map((c) =>
      `code ${codeName(c)}: ${codes.posts[c]} posts in ${meta.steps} steps, mean reward ${show(codes.meanReward[c])}`);
    write("usage-readout", `Posted at step ${view.t}: ${texts.join("; ") || "a code that is not shown here"}. All steps: ${show(meta.meanReward)}.`);
  },
};
function fillUsageTable() {
  const used = [...codes.posts.keys()].filter((c) => codes.posts[c] > 0).sort((a, b) => codes.posts[b] - codes.posts[a]);
  fillTable("usage-table", used.map((c) => [String(codes.numbers[c]), codes.names[c], String(codes.posts[c]),
    `${show((100 * codes.posts[c]) / meta.steps)} %`, show(codes.meanReward[c])]));
}

const error = {
  still(pen, w, h) {
    const { error, T } = view.ep, axis = timeAxis(T, w), scale = valueAxis(0, extent(error.values)[1] || 1, 8, h - 22);
    drawAxis(pen, scale, w, 3);
    line(pen, colours.series[0], 1.4, Array.from(error.values, (v, t) => [axis.x(t), scale.y(v)]));
    drawSteps(pen, T, w, h - 20);
  },
  now(pen, w, h) {
    cursor(pen, view.ep.T, view.t, w, 0, h - 22);
  },
  say() {
    const { values } = view.ep.error, mean = values.reduce((a, b) => a + b, 0) / values.length;
    write("error-readout", `Step ${view.t}: ${show(values[view.t])}; mean of the episode ${show(mean)}.`);
  },
};
