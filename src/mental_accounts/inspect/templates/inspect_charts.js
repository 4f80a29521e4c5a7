"use strict";
// Arrays, numbers, colours, and canvases whose unchanging part is drawn once.

const LEFT = 52, RIGHT = 12; // margins of every time axis, so that steps line up across figures

function halfToNumber(h) {
  const exponent = (h >> 10) & 31, fraction = h & 1023, sign = h & 32768 ? -1 : 1;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return exponent === 31 ? NaN : sign * (1024 + fraction) * 2 ** (exponent - 25);
}

function unpack(packed) {
  if (!packed) return null;
  const text = atob(packed.data), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const { shape } = packed;
  if (packed.type === "f4") return { shape, values: new Float32Array(bytes.buffer) };
  if (packed.type === "i4") return { shape, values: new Int32Array(bytes.buffer) };
  const halves = new Uint16Array(bytes.buffer), values = new Float32Array(halves.length);
  const table = new Float32Array(65536);
  for (let h = 0; h < 65536; h++) table[h] = halfToNumber(h);
  for (let i = 0; i < halves.length; i++) values[i] = table[halves[i]];
  return { shape, values };
}

// Four significant digits.
function show(x) {
  return Number.isFinite(x) ? String(Number(x.toPrecision(4))).replace("-", "−") : "–";
}
function signed(x) {
  return x > 0 ? `+${show(x)}` : show(x);
}

let colours = {};
function readColours() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(`--${name}`).trim();
  colours = {};
  for (const name of ["ink", "paper", "soft", "line", "quiet", "mark", "up", "down"]) colours[name] = get(name);
  colours.series = ["one", "two", "three", "four", "five", "six"].map(get);
  for (const name of ["paper", "up", "down"]) colours[`${name}RGB`] = parts(colours[name]);
}
function parts(hex) {
  const full = hex.length === 4 ? hex.replace(/[0-9a-f]/gi, "$&$&") : hex;
  return [1, 3, 5].map((i) => parseInt(full.slice(i, i + 2), 16));
}
// From -1 (down) through 0 (the paper) to 1 (up); the square root keeps small balances visible.
function balanceColour(x) {
  const to = x < 0 ? colours.downRGB : colours.upRGB, share = Math.sqrt(Math.min(1, Math.abs(x)));
  return colours.paperRGB.map((c, i) => Math.round(c + (to[i] - c) * share));
}
function inkOn([r, g, b]) {
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#111" : "#fff";
}

class Figure {
  // `still` paints what is fixed within an episode, `now` what moves with the step, `say` writes the numbers as text.
  constructor(id, height, { still, now, say }) {
    this.canvas = document.getElementById(id);
    this.height = height;
    Object.assign(this, { still: still || (() => {}), now: now || (() => {}), say: say || (() => {}) });
    this.layer = document.createElement("canvas");
    this.stale = true;
  }
  measure() {
    this.width = Math.max(200, this.canvas.clientWidth || this.canvas.parentElement.clientWidth);
    this.tall = typeof this.height === "function" ? this.height(this.width) : this.height;
    this.ratio = window.devicePixelRatio || 1;
    for (const canvas of [this.canvas, this.layer]) {
      canvas.width = Math.round(this.width * this.ratio);
      canvas.height = Math.round(this.tall * this.ratio);
    }
    this.canvas.style.height = `${this.tall}px`;
    this.stale = true;
  }
  pen(canvas) {
    const pen = canvas.getContext("2d");
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.tall);
    pen.font = "11px system-ui, sans-serif";
    pen.lineJoin = "round";
    return pen;
  }
  draw() {
    if (this.canvas.hidden) return;
    if (this.stale) this.still(this.pen(this.layer), this.width, this.tall);
    this.stale = false;
    const pen = this.pen(this.canvas);
    pen.drawImage(this.layer, 0, 0, this.width, this.tall);
    this.now(pen, this.width, this.tall);
    this.say();
  }
}

// A time axis of T steps over the width w.
function timeAxis(T, w) {
  const wide = (w - LEFT - RIGHT) / T;
  return {
    wide,
    x: (t) => LEFT + (t + 0.5) * wide,
    step: (x) => Math.max(0, Math.min(T - 1, Math.floor((x - LEFT) / wide))),
  };
}

function valueAxis(low, high, top, bottom) {
  if (!(high > low)) [low, high] = [low - 0.5, low + 0.5];
  return { low, high, top, bottom, y: (v) => bottom - ((v - low) / (high - low)) * (bottom - top) };
}

// Round numbers between low and high, about `count` of them.
function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count - 1), power = 10 ** Math.floor(Math.log10(rough));
  const gap = power * [10, 5, 2, 1].find((n) => n * power <= rough * 1.0001), found = [];
  for (let i = Math.ceil(low / gap - 1e-9); i * gap <= high + 1e-9 * gap; i++) found.push(i * gap);
  return found;
}

function drawAxis(pen, axis, w, count = 3) {
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const value of ticks(axis.low, axis.high, count)) {
    const y = axis.y(value);
    line(pen, value === 0 ? colours.quiet : colours.line, 1, [[LEFT, y], [w - RIGHT, y]]);
    pen.fillStyle = colours.ink;
    pen.fillText(String(Number(value.toPrecision(3))).replace("-", "−"), LEFT - 6, y);
  }
}

function drawSteps(pen, T, w, y) {
  pen.fillStyle = colours.ink;
  pen.textBaseline = "top";
  const axis = timeAxis(T, w), count = Math.min(T, w < 500 ? 4 : 8);
  for (let i = 0; i < count; i++) {
    const t = Math.round(((T - 1) * i) / Math.max(1, count - 1));
    pen.textAlign = i === 0 ? "left" : i === count - 1 ? "right" : "center";
    pen.fillText(i === 0 ? `step ${t}` : String(t), axis.x(t), y + 3);
  }
}

function line(pen, colour, width, points, dash = []) {
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.setLineDash(dash);
  pen.beginPath();
  for (const [x, y] of points) pen.lineTo(x, y);
  pen.stroke();
  pen.setLineDash([]);
}

function cursor(pen, T, t, w, top, bottom) {
  const x = timeAxis(T, w).x(t);
  line(pen, colours.ink, 1.5, [[x, top], [x, bottom]]);
}

function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}
