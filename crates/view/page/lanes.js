// Threads over time: lanes on a canvas. Any zoom is drawn at once from what is there; detail for it comes from the server.

import { ask, attempt } from './api.js';
import { $, h, tip, untip } from './dom.js';
import { emit, goTo, here, on, save, view } from './state.js';

const LABELS = 150;
const RULER = 22;
const ROW = 22;
/** Numbers as the server has them (overview.rs). */
const KINDS = ['system call', 'failed system call', 'output', 'signal', 'thread begins or ends', 'process', 'death', 'note', 'instruction'];
/** What hides what where there isn't room for all. */
const RANK = [6, 3, 2, 7, 4, 5, 1, 0, 8];
const COLOURS = ['call', 'failed', 'output', 'signal', 'thread', 'process', 'death', 'note', 'quiet'];

const canvas = /** @type {HTMLCanvasElement} */ ($('lanes'));
const scroller = $('scroller');
const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));

/** @type {any} */ let overview = null;
/** @type {any} */ let recording = null;
/** @type {any} */ let part = null;
/** @type {{x: number, text: string, at: string}[]} */ let marks = [];
/** @type {Record<string, string>} */ let colours = {};
/** Instructions of the part that is shown, where it is short enough. @type {{key: string, all: any[]}} */
let executed = { key: '', all: [] };
let [from, to] = [0, 1];
let width = 0;
let height = 0;
let drawing = 0;
let fetching = false;
let wanted = false;
/** Times of frames, for tests and for those who want to know. @type {number[]} */
export const frames = [];

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ['ground', 'panel', 'text', 'faint', 'line', 'accent', 'here', 'run', 'wait', ...COLOURS]) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  }
}

/** @param {number} x a time @returns {number} a pixel */
const pixel = x => LABELS + (x - from) / (to - from) * (width - LABELS);
/** @param {number} at */
const time = at => from + (at - LABELS) / (width - LABELS) * (to - from);

export function redraw() {
  if (!drawing) drawing = requestAnimationFrame(draw);
}

/** @param {number} a @param {number} b */
export function zoom(a, b) {
  const whole = overview.to - overview.from;
  // Some ticks: a few instructions fill the screen.
  const least = Math.max(1e-3, whole / Math.max(1, overview.work) * 2);
  // All of it has a margin: what is at the very end is seen.
  const span = Math.min(Math.max(b - a, least), whole * 1.03);
  const first = overview.from - whole * 0.01;
  const start = Math.max(first, Math.min(a, first + whole * 1.03 - span));
  [from, to] = [start, start + span];
  const all = span >= whole;
  view.zoom = all ? null : [from, to];
  redraw();
  refresh();
}

const whole = () => zoom(-Infinity, Infinity);

let saving = 0;

/** Which instructions are shown, at the highest zoom: those from the left edge on. */
async function instructions() {
  const [a, b] = [from, to];
  const lane = overview.lanes.findIndex((/** @type {any} */ one) => here && one.process === processOf(here.stream));
  if (lane < 0) return;
  const [first, last] = await Promise.all([a, b].map(x => ask('locate', { lane, x })));
  const key = `${first.stream} ${first.at} ${last.at}`;
  if (key === executed.key || from !== a || to !== b) return;
  const parts = (/** @type {string} */ at) => at.split('+').map(Number);
  const [[event, ticks = 0], [event2, ticks2 = 0]] = [parts(first.at), parts(last.at)];
  const few = first.stream === last.stream && event2 - event <= 3 && (event === event2 ? ticks2 - ticks : ticks2) <= 12;
  executed = { key, all: [] };
  if (few) {
    const all = await ask('executed', { stream: first.stream, from: first.at, most: 200 }, { label: 'instructions' });
    const ticks = [...new Set(all.map((/** @type {any} */ one) => tick(one.position)))];
    // Where the last one ends is where the next tick is.
    const xs = await ask('places', { stream: first.stream, positions: ticks });
    if (executed.key !== key) return;
    executed.all = all.map((/** @type {any} */ one) => {
      const n = ticks.indexOf(tick(one.position));
      const same = all.filter((/** @type {any} */ other) => tick(other.position) === ticks[n]);
      const step = ((xs[n + 1] ?? xs[n] + (xs[n] - (xs[n - 1] ?? a))) - xs[n]) / same.length;
      const x = xs[n] + step * same.indexOf(one);
      return { ...one, stream: first.stream, x, end: x + step };
    });
  }
  redraw();
}

/** A position without its steps. @param {string} position */
const tick = position => position.split('+').slice(0, 2).join('+');

let looking = 0;

async function refresh() {
  clearTimeout(saving);
  saving = setTimeout(() => save(), 300);
  clearTimeout(looking);
  looking = setTimeout(() => instructions().catch(() => {}), 200);
  if (fetching) {
    wanted = true;
    return;
  }
  const span = to - from;
  const first = Math.max(0, Math.floor(scroller.scrollTop / ROW) - 2);
  const last = Math.min(overview.lanes.length, first + Math.ceil(height / ROW) + 4);
  const enough = part && part.from <= from && part.to >= to && part.first <= first && part.last >= last
    && (part.to - part.from) <= span * 4;
  if (enough) return;
  fetching = true;
  const parts = Math.min(8000, Math.max(64, Math.round((width - LABELS) * 3 / 2)));
  await attempt(async () => {
    const told = await ask('lanes', { from: from - span, to: to + span, parts, first, last }, { label: 'threads over time' });
    told.first = first;
    told.last = last;
    part = told;
    redraw();
  });
  fetching = false;
  if (wanted) {
    wanted = false;
    refresh();
  }
}

/** @param {number} span nanoseconds of a step */
function unit(span) {
  if (span >= 1e9) return { by: 1e9, name: 's' };
  if (span >= 1e6) return { by: 1e6, name: 'ms' };
  if (span >= 1e3) return { by: 1e3, name: 'µs' };
  return { by: 1, name: 'ns' };
}

function ruler() {
  const span = (to - from) / Math.max(2, (width - LABELS) / 110);
  const power = 10 ** Math.floor(Math.log10(span));
  const step = power * ([1, 2, 5, 10].find(n => n * power >= span) ?? 10);
  const { by, name } = unit(step * 10);
  const digits = Math.max(0, -Math.floor(Math.log10(step / by) + 1e-9));
  pen.fillStyle = colours.faint;
  pen.strokeStyle = colours.line;
  pen.textAlign = 'left';
  pen.beginPath();
  const begin = overview.from;
  for (let n = Math.ceil((from - begin) / step); begin + n * step <= to; n++) {
    const at = Math.round(pixel(begin + n * step)) + 0.5;
    if (at < LABELS) continue;
    pen.moveTo(at, 0);
    pen.lineTo(at, height);
    const number = n * step / by;
    pen.fillText(`${number.toFixed(digits)} ${name}`, at + 4, 14);
  }
  pen.stroke();
}

/** @param {any} lane */
function label(lane) {
  const streams = recording.streams.filter((/** @type {any} */ one) => one.process === lane.process);
  const stream = streams[streams.length - 1];
  const program = (stream?.argv[0] ?? '').split('/').pop();
  return lane.thread === 0 ? `${program} ${stream?.pid ?? ''}` : `  thread ${lane.thread}`;
}

function draw() {
  drawing = 0;
  if (!overview || !width) return;
  const begun = performance.now();
  const ratio = devicePixelRatio || 1;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.fillStyle = colours.panel;
  pen.fillRect(0, 0, width, height);
  pen.font = '11px system-ui, sans-serif';
  ruler();
  pen.save();
  pen.beginPath();
  pen.rect(0, RULER, width, height - RULER);
  pen.clip();
  const scrolled = scroller.scrollTop;
  const first = Math.floor(scrolled / ROW);
  const last = Math.min(overview.lanes.length, first + Math.ceil(height / ROW) + 1);
  const y = (/** @type {number} */ lane) => RULER + lane * ROW - scrolled;
  pen.save();
  pen.beginPath();
  pen.rect(LABELS, RULER, width - LABELS, height - RULER);
  pen.clip();
  for (const told of part?.lanes ?? []) {
    if (told.lane >= first && told.lane < last) lane(told, y(told.lane));
  }
  for (const told of part?.lanes ?? []) {
    if (told.lane >= first && told.lane < last) wakers(told, y);
  }
  pen.restore();
  steps(y);
  for (let n = first; n < last; n++) names(n, y(n));
  pen.restore();
  found();
  current(y);
  frames.push(performance.now() - begun);
  if (frames.length > 1000) frames.splice(0, 500);
}

/** Single instructions. @param {(lane: number) => number} y */
function steps(y) {
  for (const one of executed.all) {
    const [x, end] = [pixel(one.x), pixel(one.end)];
    if (end < LABELS || x > width || end - x < 4) continue;
    const lane = overview.lanes.findIndex((/** @type {any} */ other) => other.process === processOf(one.stream) && other.thread === one.thread);
    if (lane < 0) continue;
    const left = Math.max(x, LABELS) + 0.5;
    pen.fillStyle = here?.here.position === one.position ? colours.here : colours.run;
    pen.fillRect(left, y(lane) + 3, Math.max(1, end - left - 1), 16);
    if (end - left < 30) continue;
    pen.fillStyle = colours.panel;
    pen.save();
    pen.beginPath();
    pen.rect(left, y(lane), end - left - 4, ROW);
    pen.clip();
    pen.fillText(one.text, left + 4, y(lane) + 15);
    pen.restore();
  }
}

/** @param {any} told @param {number} top */
function lane(told, top) {
  const middle = top + 6;
  const scale = (part.to - part.from) / part.parts;
  const piece = Math.max(1, pixel(part.from + scale) - pixel(part.from));
  const wide = piece + 0.5;
  pen.fillStyle = colours.wait;
  if (told.waits.each) {
    for (const [a, b] of told.waits.each) {
      const [x, end] = [pixel(a), pixel(b)];
      if (end >= LABELS && x <= width) pen.fillRect(Math.max(x, LABELS), middle + 4, Math.max(1, Math.min(end, width) - Math.max(x, LABELS)), 2);
    }
  } else {
    dense(told.waits.dense, scale, wide, middle + 4, 2);
  }
  pen.fillStyle = colours.run;
  if (told.runs.each) {
    for (const [a, b] of told.runs.each) {
      const [x, end] = [pixel(a), pixel(b)];
      if (end >= LABELS && x <= width) pen.fillRect(Math.max(x, LABELS), middle, Math.max(1, Math.min(end, width) - Math.max(x, LABELS)), 10);
    }
  } else {
    dense(told.runs.dense, scale, wide, middle, 10);
  }
  if (told.marks.each) {
    for (const [x, kind] of told.marks.each) {
      const at = pixel(x);
      if (at < LABELS - 2 || at > width + 2) continue;
      pen.fillStyle = colours[COLOURS[kind]];
      mark(kind, at, top);
    }
  } else {
    for (const [number, count, kinds] of told.marks.dense) {
      const at = pixel(part.from + number * scale);
      if (at < LABELS - wide || at > width) continue;
      const kind = RANK.find(one => kinds & (1 << one)) ?? 0;
      pen.fillStyle = colours[COLOURS[kind]];
      pen.globalAlpha = Math.min(1, 0.35 + Math.log2(count + 1) / 8);
      pen.fillRect(at, top + (kind === 0 || kind === 8 ? 14 : 3), wide, kind === 0 || kind === 8 ? 4 : 15);
    }
    pen.globalAlpha = 1;
  }
}

/** @param {number} kind @param {number} at @param {number} top */
function mark(kind, at, top) {
  if (kind === 6) {
    pen.beginPath();
    pen.moveTo(at - 5, top + 3);
    pen.lineTo(at + 5, top + 3);
    pen.lineTo(at, top + 12);
    pen.fill();
    pen.fillRect(at - 1, top + 3, 2, 16);
  } else if (kind === 0 || kind === 8) pen.fillRect(at - 0.5, top + 14, kind === 8 ? 1 : 1.5, 5);
  else if (kind === 2) {
    pen.beginPath();
    pen.arc(at, top + 11, 3.2, 0, 7);
    pen.fill();
  } else pen.fillRect(at - 1, top + 3, 2, 16);
}

/** @param {number[]} covered @param {number} scale @param {number} wide @param {number} top @param {number} tall */
function dense(covered, scale, wide, top, tall) {
  const a = Math.max(0, Math.floor((from - part.from) / scale));
  const b = Math.min(covered.length, Math.ceil((to - part.from) / scale) + 1);
  let alpha = -1;
  let start = 0;
  // Neighbours that look the same are one rectangle.
  for (let n = a; n <= b; n++) {
    const now = n < b ? (covered[n] ? 0.25 + Math.round(covered[n] / 32) * 32 / 340 : 0) : -2;
    if (now === alpha) continue;
    if (alpha > 0) {
      pen.globalAlpha = Math.min(1, alpha);
      const x = pixel(part.from + start * scale);
      pen.fillRect(x, top, Math.max(wide, pixel(part.from + n * scale) - x), tall);
    }
    [alpha, start] = [now, n];
  }
  pen.globalAlpha = 1;
}

/** Who woke whom. @param {any} told @param {(lane: number) => number} y */
function wakers(told, y) {
  const own = overview.lanes[told.lane];
  if (!told.waits.each || told.waits.each.length > 200) return;
  pen.strokeStyle = colours.accent;
  pen.globalAlpha = 0.55;
  pen.beginPath();
  for (const [, end, , by] of told.waits.each) {
    const at = pixel(end);
    if (by === null || at < LABELS || at > width) continue;
    const other = overview.lanes.findIndex((/** @type {any} */ one) => one.process === own.process && one.thread === by);
    if (other < 0 || other === told.lane) continue;
    pen.moveTo(at, y(other) + 11);
    pen.lineTo(at, y(told.lane) + 11);
    pen.moveTo(at - 3, y(told.lane) + (other < told.lane ? 7 : 15));
    pen.lineTo(at, y(told.lane) + 11);
    pen.lineTo(at + 3, y(told.lane) + (other < told.lane ? 7 : 15));
  }
  pen.stroke();
  pen.globalAlpha = 1;
}

/** @param {number} n @param {number} top */
function names(n, top) {
  const one = overview.lanes[n];
  const mine = here && processOf(here.stream) === one.process && here.thread === one.thread;
  pen.fillStyle = mine ? colours.here : colours.panel;
  pen.globalAlpha = mine ? 0.18 : 1;
  pen.fillRect(0, top, LABELS, ROW);
  pen.globalAlpha = 1;
  pen.fillStyle = mine ? colours.text : colours.faint;
  pen.textAlign = 'left';
  pen.fillText(label(one), 8, top + 15, LABELS - 14);
  pen.fillStyle = colours.line;
  pen.fillRect(0, top + ROW - 1, width, 0.5);
  pen.fillRect(LABELS - 0.5, top, 0.5, ROW);
}

/** @param {number} stream */
const processOf = stream => recording.streams.find((/** @type {any} */ one) => one.stream === stream)?.process;

function found() {
  pen.fillStyle = colours.accent;
  for (const { x } of marks) {
    const at = pixel(x);
    if (at < LABELS || at > width) continue;
    pen.beginPath();
    pen.moveTo(at, RULER);
    pen.lineTo(at - 3.5, RULER - 5);
    pen.lineTo(at + 3.5, RULER - 5);
    pen.fill();
  }
}

/** @param {(lane: number) => number} y */
function current(y) {
  if (!here || here.x === null) return;
  const at = pixel(here.x);
  if (at < LABELS || at > width) return;
  pen.fillStyle = colours.here;
  pen.fillRect(Math.round(at) - 0.75, 0, 1.5, height);
  const lane = overview.lanes.findIndex((/** @type {any} */ one) => one.process === processOf(here.stream) && one.thread === here.thread);
  if (lane < 0 || y(lane) < RULER - 11) return;
  pen.beginPath();
  pen.arc(at, y(lane) + 11, 4.5, 0, 7);
  pen.fill();
}

/** What is near a place. @param {number} px @param {number} py */
function near(px, py) {
  const lane = Math.floor((py - RULER + scroller.scrollTop) / ROW);
  if (py < RULER || lane < 0 || lane >= overview.lanes.length) return { lane: -1, x: time(px), text: '' };
  const told = part?.lanes.find((/** @type {any} */ one) => one.lane === lane);
  let [x, text] = [time(px), ''];
  let nearest = 5;
  for (const [at, kind, detail, event] of told?.marks.each ?? []) {
    const distance = Math.abs(pixel(at) - px) - (kind === 0 || kind === 8 ? 0 : 1.5);
    if (distance < nearest) {
      [nearest, x] = [distance, at];
      const name = kind <= 2 ? overview.calls[detail] : kind === 3 || kind === 6 ? `signal ${detail}` : kind === 4 ? `thread ${detail}` : '';
      text = `${KINDS[kind]}${name ? `: ${name}` : ''} · event ${event}`;
    }
  }
  if (!text) {
    for (const [a, b, nr, by] of told?.waits.each ?? []) {
      if (a <= x && x <= b) text = `waits in ${overview.calls[nr] ?? 'a call'}${by !== null ? `, woken by thread ${by}` : ''}`;
    }
  }
  if (!text && (told?.runs.each ?? []).some((/** @type {number[]} */ [a, b]) => a <= x && x <= b)) text = 'runs';
  return { lane, x, text };
}

function size() {
  const ratio = devicePixelRatio || 1;
  width = scroller.clientWidth;
  height = scroller.clientHeight;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  redraw();
  if (overview) refresh();
}

function interact() {
  /** @type {{x: number, from: number, to: number, moved: boolean} | null} */
  let drag = null;
  canvas.addEventListener('wheel', event => {
    if (event.offsetX < LABELS) return;
    event.preventDefault();
    const span = to - from;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const by = (event.deltaX || event.deltaY) / (width - LABELS) * span;
      zoom(from + by, to + by);
    } else {
      const factor = Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.006);
      const middle = time(event.offsetX);
      zoom(middle - (middle - from) * factor, middle + (to - middle) * factor);
    }
  }, { passive: false });
  canvas.addEventListener('pointerdown', event => {
    if (event.button !== 0) return;
    drag = { x: event.offsetX, from, to, moved: false };
    canvas.setPointerCapture(event.pointerId);
    untip();
  });
  canvas.addEventListener('pointermove', event => {
    if (drag) {
      const by = event.offsetX - drag.x;
      if (Math.abs(by) > 4) drag.moved = true;
      const shift = by / (width - LABELS) * (drag.to - drag.from);
      if (drag.moved) zoom(drag.from - shift, drag.to - shift);
      return;
    }
    if (!overview) return;
    const { text } = near(event.offsetX, event.offsetY);
    if (text && event.offsetX > LABELS) tip(event.clientX, event.clientY, text);
    else untip();
  });
  canvas.addEventListener('pointerleave', untip);
  canvas.addEventListener('pointerup', event => {
    const was = drag;
    drag = null;
    if (was && !was.moved) click(event.offsetX, event.offsetY);
  });
  canvas.addEventListener('dblclick', whole);
  canvas.addEventListener('keydown', event => {
    const span = to - from;
    const middle = here?.x >= from && here?.x <= to ? here.x : (from + to) / 2;
    if (event.key === 'ArrowLeft') zoom(from - span / 8, to - span / 8);
    else if (event.key === 'ArrowRight') zoom(from + span / 8, to + span / 8);
    else if (event.key === '+' || event.key === '=') zoom(middle - (middle - from) / 2, middle + (to - middle) / 2);
    else if (event.key === '-') zoom(middle - (middle - from) * 2, middle + (to - middle) * 2);
    else if (event.key === '0') whole();
    else if (event.key === 'Enter') click(LABELS + (width - LABELS) / 2, RULER + 4);
    else return;
    event.preventDefault();
  });
  scroller.addEventListener('scroll', () => { redraw(); refresh(); });
  new ResizeObserver(size).observe(scroller);
}

/** @param {number} px @param {number} py */
async function click(px, py) {
  if (px < LABELS || !overview) return;
  if (py < RULER) {
    const nearest = marks.filter(one => Math.abs(pixel(one.x) - px) < 6)[0];
    if (nearest) goTo({ at: nearest.at });
    return;
  }
  const { lane, x } = near(px, py);
  if (lane < 0) return;
  const step = executed.all.find(one => pixel(one.x) <= px && px < pixel(one.end) && one.thread === overview.lanes[lane].thread);
  if (step) {
    goTo({ stream: step.stream, at: step.position, thread: step.thread });
    return;
  }
  const found = await attempt(() => ask('locate', { lane, x }));
  if (found) goTo({ ...found, thread: overview.lanes[lane].thread });
}

/** Marks of results, in the ruler. @param {number} stream @param {{position: string, text?: string}[]} results */
export async function show(stream, results) {
  const some = results.slice(0, 5000);
  if (!some.length) {
    marks = [];
    redraw();
    return;
  }
  const xs = await attempt(() => ask('places', { stream, positions: some.map(one => one.position) }));
  if (!xs) return;
  marks = some.map((one, n) => ({ x: xs[n], text: one.text ?? '', at: one.position })).filter(one => one.x !== null);
  redraw();
}

/** Makes where one stands visible. */
function follow() {
  if (!overview || !here || here.x === null) return;
  const span = to - from;
  if (here.x < from || here.x > to) zoom(here.x - span / 2, here.x + span / 2);
  const lane = overview.lanes.findIndex((/** @type {any} */ one) => one.process === processOf(here.stream) && one.thread === here.thread);
  const top = lane * ROW;
  if (lane >= 0 && (top < scroller.scrollTop || top + ROW > scroller.scrollTop + height - RULER)) {
    scroller.scrollTop = Math.max(0, top - (height - RULER) / 2);
  }
  redraw();
}

/** @param {any} told */
export async function start(told) {
  recording = told;
  readColours();
  on('theme', () => { readColours(); redraw(); });
  overview = await ask('overview', {}, { label: 'reading the log' });
  $('height').style.height = `${RULER + overview.lanes.length * ROW}px`;
  const tall = Math.min(220, Math.max(80, RULER + overview.lanes.length * ROW + 10));
  document.documentElement.style.setProperty('--overview', `${tall}px`);
  interact();
  size();
  const shown = () => view.zoom ? zoom(...view.zoom) : whole();
  shown();
  on('here', follow);
  on('zoom', shown);
  emit('overview', overview);
}

export const legend = () => h('div', { class: 'legend' }, KINDS.slice(0, 8).map((name, n) =>
  h('span', {}, h('i', { style: { background: `var(--${COLOURS[n]})` } }), name)));
