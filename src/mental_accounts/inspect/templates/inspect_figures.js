// The figures. `view` is the reader's current selection: the episode `ep` with its arrays, step t, layer, head, code, pointer.

const SERIES = 6, MOST_STATES = 24, BINS = 30;
const data = JSON.parse(document.getElementById("data").textContent);
const { meta, codes } = data;
const biased = meta.bias; // whether the accounts bias the attention
const view = { t: 0, layer: 0, head: 0, code: 0, dimension: 0, hover: null, ep: null };
const el = (id) => document.getElementById(id);
const at = (array, ...index) => array.values[index.reduce((sum, i, d) => sum * array.shape[d] + i, 0)];
const write = (id, text) => (el(id).textContent = text);

function codeName(place) {
  return place < 0 ? "one that is not shown here" : `${codes.numbers[place]} (${codes.names[place]})`;
}
function posted(t) {
  const G = view.ep.places.shape[1];
  return Array.from(view.ep.places.values.subarray(t * G, (t + 1) * G));
}

// The environment

function stateHeight() {
  return 24 + 20 * Math.min(MOST_STATES, data.meta.states);
}
const states = {
  still(pen, w) {
    const { observations, T } = view.ep, axis = timeAxis(T, w), D = Math.min(MOST_STATES, observations.shape[1]);
    for (let d = 0; d < D; d++) {
      const values = Array.from({ length: T }, (_, t) => at(observations, t, d)), [low, high] = extent(values);
      const scale = valueAxis(low, high, 20 * d + 3, 20 * d + 18);
      line(pen, colours.series[d % SERIES], 1.2, values.map((v, t) => [axis.x(t), scale.y(v)]));
      pen.fillStyle = colours.ink;
      pen.textAlign = "left";
      pen.textBaseline = "middle";
      pen.fillText(`s[${d}]`, 4, 20 * d + 11);
    }
    drawSteps(pen, T, w, 20 * D);
  },
  now(pen, w, h) {
    cursor(pen, view.ep.T, view.t, w, 0, h - 20);
  },
};

function sayNow() {
  const { ep, t } = view, A = ep.actions.shape[1] || 1;
  const action = Array.from(ep.actions.values.subarray(t * A, (t + 1) * A), show).join(", ");
  const rows = [["reward", "now-reward", show(ep.rewards.values[t])],
    ["return so far", "now-return", show(ep.returns[t])],
    ["return-to-go", "now-asked", show(ep.asked.values[t])],
    ["action", "now-action", action]];
  if (codes) rows.push(["without accounts", "now-without", actionOf(ep.others, t)]);
  if (codes) rows.push(["code posted", "now-code", posted(t).map(codeName).join("; ")]);
  const list = el("now");
  if (list.children.length !== 2 * rows.length) {
    list.replaceChildren(...rows.flatMap(([name, id]) => {
      const term = document.createElement("dt"), value = document.createElement("dd");
      term.textContent = name;
      value.id = id;
      return [term, value];
    }));
  }
  for (const [, id, text] of rows) write(id, text);
  if (ep.film.steps.length) {
    let place = 0;
    while (place + 1 < ep.film.steps.length && ep.film.steps[place + 1] <= t) place++;
    const source = `data:image/jpeg;base64,${ep.film.pictures[place]}`;
    if (el("frame").src !== source) el("frame").src = source;
    el("frame").alt = `${meta.env} at step ${ep.film.steps[place]}`;
  }
}

// All accounts

function rowHeight() {
  return Math.max(1, Math.min(14, 520 / codes.numbers.length));
}
const heat = {
  still(pen, w, h) {
    const { balances, T } = view.ep, C = balances.shape[1], axis = timeAxis(T, w), row = rowHeight();
    const picture = document.createElement("canvas");
    [picture.width, picture.height] = [T, C];
    const inner = picture.getContext("2d"), image = inner.createImageData(T, C);
    for (let t = 0; t < T; t++) {
      for (let c = 0; c < C; c++) {
        const [r, g, b] = balanceColour(balances.values[t * C + c] / view.ep.largest), i = 4 * (c * T + t);
        image.data[i] = r, image.data[i + 1] = g, image.data[i + 2] = b, image.data[i + 3] = 255;
      }
    }
    inner.putImageData(image, 0, 0);
    pen.imageSmoothingEnabled = T > w - LEFT - RIGHT || row < 1;
    pen.drawImage(picture, LEFT, 0, w - LEFT - RIGHT, C * row);
    pen.strokeStyle = colours.line;
    pen.strokeRect(LEFT, 0, w - LEFT - RIGHT, C * row);
    pen.fillStyle = colours.ink;
    for (let t = 0; t < T; t++)
      for (const c of posted(t))
        if (c >= 0) pen.fillRect(axis.x(t) - axis.wide / 2, (c + 0.38) * row, Math.max(1, axis.wide * 0.9), Math.max(1, row * 0.24));
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    const every = Math.ceil(11 / row);
    for (let c = 0; c < C; c += every) pen.fillText(`${codes.numbers[c]}`, LEFT - 6, (c + 0.5) * row + 0.5);
    drawSteps(pen, T, w, h - 20);
  },
  now(pen, w) {
    const { T } = view.ep, C = codes.numbers.length, row = rowHeight(), x = timeAxis(T, w).x(view.t);
    cursor(pen, T, view.t, w, 0, C * row);
    pen.lineWidth = 2;
    pen.strokeStyle = colours.mark;
    for (const c of posted(view.t)) if (c >= 0) pen.strokeRect(x - 5, c * row - 1, 10, Math.max(4, row + 2));
    pen.fillStyle = colours.mark;
    pen.fillRect(LEFT - 4, view.code * row, 4, Math.max(2, row));
  },
  say() {
    const { code, step } = view.hover || { code: view.code, step: view.t };
    write("heat-readout", `Code ${codeName(code)}: balance ${show(at(view.ep.balances, step, code))} after step ${step}.`);
  },
};

function cubeLayout(w) {
  const B = codes.cube.length, gap = 28;
  const across = Math.max(1, Math.min(B, Math.floor((w - LEFT) / (B * 30 + gap))));
  const cell = Math.max(12, Math.min(64, ((w - LEFT) / across - gap) / B));
  return { B, gap, across, cell, down: Math.ceil(B / across), high: B * cell + 44 };
}
const cube = {
  now(pen, w) {
    const { B, gap, across, cell, high } = cubeLayout(w), now = posted(view.t), [xs, ys, zs] = codes.ticks;
    pen.textBaseline = "middle";
    for (let z = 0; z < B; z++) {
      const left = LEFT + (z % across) * (B * cell + gap), top = Math.floor(z / across) * high + 20;
      pen.textAlign = "left";
      pen.fillStyle = colours.ink;
      pen.fillText(`${codes.axes[2]} = ${show(zs[z])}`, left, top - 9);
      for (let y = 0; y < B; y++) {
        for (let x = 0; x < B; x++) {
          const place = codes.cube[z][y][x], px = left + x * cell, py = top + (B - 1 - y) * cell;
          pen.strokeStyle = colours.line;
          pen.lineWidth = 1;
          if (place >= 0) {
            const value = at(view.ep.balances, view.t, place), rgb = balanceColour(value / view.ep.largest);
            pen.fillStyle = `rgb(${rgb})`;
            pen.fillRect(px, py, cell, cell);
            pen.fillStyle = inkOn(rgb);
            pen.textAlign = "center";
            if (cell >= 30) pen.fillText(value === 0 ? "0" : value.toFixed(2).replace(/^-(?=0\.00$)/, "").replace("-", "−"), px + cell / 2, py + cell / 2);
          }
          pen.strokeRect(px + 0.5, py + 0.5, cell - 1, cell - 1);
          if (now.includes(place)) {
            pen.strokeStyle = colours.ink;
            pen.lineWidth = 3;
            pen.strokeRect(px + 2, py + 2, cell - 4, cell - 4);
          }
        }
        pen.fillStyle = colours.ink;
        pen.textAlign = "right";
        if (z % across === 0) pen.fillText(show(ys[y]), left - 6, top + (B - 0.5 - y) * cell);
      }
      pen.textAlign = "center";
      for (let x = 0; x < B; x++) pen.fillText(show(xs[x]), left + (x + 0.5) * cell, top + B * cell + 10);
    }
  },
  say() {
    const texts = posted(view.t).map((c) => `${codeName(c)}, balance ${c < 0 ? "–" : show(at(view.ep.balances, view.t, c))}`);
    write("cube-readout", `Step ${view.t} posted code ${texts.join("; ")}.`);
  },
};

// Traces and rewards

function drawRewards(pen, w, top, bottom) {
  const { rewards, T } = view.ep, axis = timeAxis(T, w), [low, high] = extent(rewards.values);
  const scale = valueAxis(Math.min(0, low), Math.max(0, high), top, bottom);
  drawAxis(pen, scale, w, 2);
  pen.fillStyle = colours.quiet;
  for (let t = 0; t < T; t++) {
    const y = scale.y(rewards.values[t]);
    pen.fillRect(axis.x(t) - axis.wide / 2, Math.min(y, scale.y(0)), Math.max(0.7, axis.wide * 0.85), Math.abs(y - scale.y(0)));
  }
  pen.fillStyle = colours.ink;
  pen.textAlign = "left";
  pen.textBaseline = "bottom";
  pen.fillText("reward", LEFT + 2, top - 2);
}
const traces = {
  still(pen, w, h) {
    const { balances, T, top } = view.ep, axis = timeAxis(T, w);
    const lines = top.map((c) => Array.from({ length: T }, (_, t) => at(balances, t, c)));
    const [low, high] = extent([0, ...lines.flat()]), scale = valueAxis(low, high, 16, h - 110);
    drawAxis(pen, scale, w, 3);
    pen.fillStyle = colours.ink;
    pen.textAlign = "left";
    pen.textBaseline = "bottom";
    pen.fillText("attraction", LEFT + 2, 13);
    lines.forEach((values, i) => line(pen, colours.series[i], 1.6, values.map((v, t) => [axis.x(t), scale.y(v)])));
    drawRewards(pen, w, h - 80, h - 22);
    drawSteps(pen, T, w, h - 20);
  },
  now(pen, w, h) {
    cursor(pen, view.ep.T, view.t, w, 0, h - 22);
  },
  say() {
    const list = el("trace-legend"), { top, balances } = view.ep;
    if (list.dataset.codes !== top.join()) {
      list.dataset.codes = top.join();
      list.replaceChildren(...[...top.keys(), -1].map((i) => legendItem(i < 0 ? colours.quiet : colours.series[i], top[i] ?? "reward")));
    }
    top.forEach((c, i) => (list.children[i].lastChild.textContent = `code ${codeName(c)}: ${show(at(balances, view.t, c))}`));
    list.lastChild.lastChild.textContent = `reward: ${show(view.ep.rewards.values[view.t])}`;
  },
};
function legendItem(colour, name) {
  const item = document.createElement("li"), swatch = document.createElement("i");
  swatch.style.background = colour;
  item.dataset.name = name;
  item.append(swatch, document.createElement("span"));
  return item;
}
const rewards = {
  still(pen, w, h) {
    drawRewards(pen, w, 18, h - 22);
    drawSteps(pen, view.ep.T, w, h - 20);
  },
  now(pen, w, h) {
    cursor(pen, view.ep.T, view.t, w, 0, h - 22);
  },
  say() {
    write("rewards-readout", `Step ${view.t}: reward ${show(view.ep.rewards.values[view.t])}.`);
  },
};

// Attention

function attentionAt(t) {
  const { without, bias } = view.ep, S = without.shape[3], names = [], plain = [], added = [];
  const kinds = meta.tokenKinds, n = kinds.length;
  for (let i = 0; i < S; i++) {
    const step = t - meta.context + 1 + Math.floor(i / n);
    if (step < 0) continue;
    names.push(`${kinds[i % n]}_${step}`);
    plain.push(at(without, t, view.layer, view.head, i));
    const isAction = bias && i % n === n - 1, [, layers, heads] = isAction ? bias.shape : [];
    added.push(isAction ? at(bias, t, Math.min(view.layer, layers - 1), Math.min(view.head, heads - 1), (i - n + 1) / n) : 0);
  }
  const sum = plain.reduce((a, b) => a + b, 0), before = plain.map((p) => p / sum);
  const weights = before.map((p, i) => p * Math.exp(added[i])), total = weights.reduce((a, b) => a + b, 0);
  return { names, before, after: weights.map((p) => p / total), added };
}
const attention = {
  now(pen, w, h) {
    if (!view.ep.without) return;
    const { names, before, after } = attentionAt(view.t), n = names.length, wide = (w - LEFT - RIGHT) / n;
    const bottom = biased ? h - 130 : h - 40, scale = valueAxis(0, Math.max(...before, ...after), 18, bottom), bar = Math.min(16, wide * 0.4);
    drawAxis(pen, scale, w, 3);
    const centre = (i) => LEFT + (i + 0.5) * wide;
    for (let i = 0; i < n; i++) {
      pen.fillStyle = colours.quiet;
      pen.fillRect(centre(i) - (biased ? bar : bar / 2), scale.y(before[i]), bar, bottom - scale.y(before[i]));
      pen.fillStyle = colours.mark;
      if (biased) pen.fillRect(centre(i), scale.y(after[i]), bar, bottom - scale.y(after[i]));
    }
    pen.textBaseline = "bottom";
    pen.textAlign = "left";
    pen.fillStyle = colours.ink;
    pen.fillText(biased ? "attention: grey without bias, blue with" : "attention", LEFT + 2, 14);
    if (biased) {
      const widest = Math.max(...after.map((p, i) => Math.abs(p - before[i]))) || 1;
      const change = valueAxis(-widest, widest, h - 108, h - 44);
      drawAxis(pen, change, w, 3);
      for (let i = 0; i < n; i++) {
        const d = after[i] - before[i];
        pen.fillStyle = d < 0 ? colours.down : colours.up;
        pen.fillRect(centre(i) - bar / 2, Math.min(change.y(d), change.y(0)), bar, Math.abs(change.y(d) - change.y(0)));
      }
      pen.fillStyle = colours.ink;
      pen.textBaseline = "bottom";
      pen.textAlign = "left";
      pen.fillText("difference", LEFT + 2, h - 110);
    }
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    for (let i = n - 1; i >= 0; i -= Math.ceil(12 / wide)) {
      pen.save();
      pen.translate(centre(i), h - 36);
      pen.rotate(-Math.PI / 2);
      pen.fillText(names[i], 0, 0);
      pen.restore();
    }
  },
  say() {
    if (!view.ep.without) {
      write("attention-readout", "The attention of this episode would make the page too large; inspect fewer episodes, or use --json.");
      el("attention-details").hidden = true;
      return;
    }
    el("attention-details").hidden = false;
    const { names, before, after, added } = attentionAt(view.t);
    const most = before.indexOf(Math.max(...before));
    let text = `Step ${view.t}, layer ${view.layer + 1}, head ${view.head + 1}: attends most to ${names[most]}, ${show(before[most])}`;
    if (biased) {
      const moved = after.map((p, i) => Math.abs(p - before[i])), far = moved.indexOf(Math.max(...moved));
      text += ` without the bias and ${show(after[most])} with it; the bias moves ${names[far]} most, by ${signed(after[far] - before[far])}`;
    }
    write("attention-readout", `${text}.`);
    if (!el("attention-details").open) return;
    fillTable("attention-table", names.map((name, i) =>
      biased ? [name, show(before[i]), show(after[i]), signed(after[i] - before[i]), show(added[i])] : [name, show(before[i])]));
  },
};
function fillTable(id, rows) {
  el(id).tBodies[0].replaceChildren(...rows.map((cells) => {
    const row = document.createElement("tr");
    for (const [i, text] of cells.entries()) {
      const cell = document.createElement(i ? "td" : "th");
      if (!i) cell.scope = "row";
      cell.textContent = text;
      row.append(cell);
    }
    return row;
  }));
}
