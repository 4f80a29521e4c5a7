// Controls: choose an episode, a step, a layer, a head, a code.

const figures = [new Figure("states", stateHeight, { ...states, say: sayNow })];
if (codes) {
  figures.push(new Figure("without", 300, without));
  if (el("path")) figures.push(new Figure("path", 190, path));
  if (codes.cube) figures.push(new Figure("cube", (w) => { const { down, high } = cubeLayout(w); return down * high; }, cube));
  figures.push(
    new Figure("heat", () => codes.numbers.length * rowHeight() + 22, heat),
    new Figure("traces", 320, traces),
    new Figure("attention", biased ? 340 : 240, attention),
    ...(biased ? [new Figure("drift", 220, drift), new Figure("histogram", 190, histogram)] : []),
    new Figure("usage", 270, usage),
    new Figure("error", 170, error),
  );
} else {
  figures.push(new Figure("rewards", 130, rewards), new Figure("attention", 240, attention));
}

function open(episode) {
  const { T, film, findings, peak, ...packed } = data.episodes[episode];
  const ep = { T, film, peak };
  for (const [name, value] of Object.entries(packed)) ep[name] = unpack(value);
  let sum = 0;
  ep.returns = Array.from(ep.rewards.values, (reward) => (sum += reward));
  if (codes) {
    const [low, high] = extent(ep.balances.values);
    ep.largest = Math.max(Math.abs(low), Math.abs(high)) || 1;
    const posts = new Map();
    for (const c of ep.places.values) if (c >= 0) posts.set(c, (posts.get(c) || 0) + 1);
    ep.top = [...posts.keys()].sort((a, b) => posts.get(b) - posts.get(a) || a - b).slice(0, SERIES);
    view.code = ep.top[0] ?? 0;
    el("code").value = view.code;
    write("heat-scale", show(ep.largest));
    write("peak", `Go to step ${peak}, where the accounts mattered most`);
  }
  view.ep = ep;
  el("findings").replaceChildren(...findings.map((text) => {
    const item = document.createElement("li");
    item.textContent = text;
    return item;
  }));
  const filmed = film.steps.length > 0;
  el("frame").hidden = !filmed;
  el("states").hidden = filmed;
  write("environment-caption", filmed
    ? `The environment before this step's action; ${film.steps.length} frames of ${T} steps.`
    : `${film.problem} The curves are the policy's observations, each on its own scale${meta.states > MOST_STATES ? `, the first ${MOST_STATES} of ${meta.states}` : ""}.`);
  el("step").max = T - 1;
  if (biased) fillDriftTable();
  if (codes && el("without-details").open) fillWithoutTable();
  refit();
  go(Math.min(view.t, T - 1));
}

let waiting = false;
function later() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    for (const figure of figures) {
      figure.draw();
      if (figure.canvas.hidden) figure.say();
    }
  });
}
function refit() {
  for (const figure of figures) if (!figure.canvas.hidden) figure.measure();
  later();
}
function go(t) {
  view.t = Math.max(0, Math.min(view.ep.T - 1, t));
  el("step").value = view.t;
  const text = `step ${view.t} of ${view.ep.T}`;
  write("step-value", text);
  el("step").setAttribute("aria-valuetext", text);
  later();
}

let clock = 0;
function play(on) {
  clearInterval(clock);
  clock = 0;
  if (on) {
    if (view.t === view.ep.T - 1) go(0);
    clock = setInterval(() => (view.t < view.ep.T - 1 ? go(view.t + 1) : play(false)), 33);
  }
  write("play", on ? "Pause" : "Play");
  el("play").setAttribute("aria-pressed", String(on));
}

function options(id, names) {
  el(id).replaceChildren(...names.map((name, i) => new Option(name, i)));
}
options("episode", data.episodes.map((ep, i) => `${i + 1}: return ${show(ep.total)}`));
for (const ep of data.episodes) delete ep.total;
options("layer", Array.from({ length: meta.layers }, (_, i) => i + 1));
options("head", Array.from({ length: meta.heads }, (_, i) => i + 1));
el("episode").addEventListener("change", (event) => { play(false); open(Number(event.target.value)); });
el("step").addEventListener("input", (event) => { play(false); go(Number(event.target.value)); });
el("play").addEventListener("click", () => play(!clock));
for (const name of ["layer", "head"]) {
  el(name).addEventListener("change", (event) => {
    view[name] = Number(event.target.value);
    for (const figure of figures) figure.stale = true;
    later();
  });
}
el("attention-details").addEventListener("toggle", later);

// Keys work wherever the focus is, unless the focused element uses them itself.
document.addEventListener("keydown", (event) => {
  if (event.target !== document.body || event.ctrlKey || event.metaKey || event.altKey) return;
  const to = { ArrowLeft: view.t - 1, ArrowRight: view.t + 1, Home: 0, End: view.ep.T - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  play(false);
  go(to);
});

for (const canvas of document.querySelectorAll("canvas.time")) {
  const jump = (event) => {
    play(false);
    const box = canvas.getBoundingClientRect();
    go(timeAxis(view.ep.T, box.width).step(event.clientX - box.left));
  };
  canvas.addEventListener("pointerdown", (event) => { event.preventDefault(); el("step").focus({ preventScroll: true }); jump(event); });
  canvas.addEventListener("pointermove", (event) => { if (event.buttons & 1) jump(event); });
}
if (codes) {
  el("peak").addEventListener("click", () => { play(false); go(view.ep.peak); });
  options("dimension", Array.from({ length: Math.max(1, meta.dimensions) }, (_, d) => `a[${d}]`));
  el("dimension-choice").hidden = meta.dimensions < 2;
  el("dimension").addEventListener("change", (event) => {
    view.dimension = Number(event.target.value);
    for (const figure of figures) figure.stale = true;
    later();
  });
  el("without-details").addEventListener("toggle", () => { if (el("without-details").open) fillWithoutTable(); });
  options("code", codes.numbers.map((_, c) => codeName(c)));
  fillUsageTable();
  el("code").addEventListener("change", (event) => { view.code = Number(event.target.value); later(); });
  const pointed = (event) => {
    const box = el("heat").getBoundingClientRect(), code = Math.floor((event.clientY - box.top) / rowHeight());
    if (code < 0 || code >= codes.numbers.length || event.clientX - box.left < LEFT) return null;
    return { code, step: timeAxis(view.ep.T, box.width).step(event.clientX - box.left) };
  };
  el("heat").addEventListener("pointermove", (event) => { view.hover = pointed(event); later(); });
  el("heat").addEventListener("pointerleave", () => { view.hover = null; later(); });
  el("heat").addEventListener("pointerdown", (event) => {
    const found = pointed(event);
    if (found) [view.code, el("code").value] = [found.code, found.code];
  });
}

readColours();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  readColours();
  if (codes) el("trace-legend").dataset.codes = "-";
  for (const figure of figures) figure.stale = true;
  later();
});
let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; refit(); } });
el("episode").value = meta.first.episode;
open(meta.first.episode);
go(meta.first.step);
el("step").focus({ preventScroll: true });
