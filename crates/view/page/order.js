// What happened before what: interactions of threads as dots on lines, arrows between those that are ordered.

import { base, compare, h } from './dom.js';
import { asked, field, open, tab } from './lists.js';
import { goTo, here, view } from './state.js';

const SVG = 'http://www.w3.org/2000/svg';
const [STEP, ROW, LEFT, TOP] = [26, 46, 90, 26];
/** More are shown a part at a time. */
const MOST = 400;

/** @param {string} tag @param {Record<string, any>} props @param {...any} children */
function s(tag, props, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, String(value));
  }
  for (const child of children) element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  return element;
}

/** @param {any} panel @param {string} about */
function order(panel, about) {
  const chosen = /^(min|max):(\d+@.*)$/.exec(about);
  field(panel, 'Objects with', chosen ? '' : about, text => open('order', text));
  const question = (/** @type {string[]} */ flags) => ({ stream: view.stream, at: 'end', analysis: 'order', flags });
  asked(panel, 'analyse', question([]), 'the order of events', told => {
    if (!chosen) return draw(panel, told, about, null, '');
    const flag = `--${chosen[1]}ima=${chosen[2]}`;
    const what = chosen[1] === 'min' ? 'the least that must happen before it' : 'all that can happen without it';
    asked(panel, 'analyse', question([flag]), what, only => draw(panel, told, '', new Set(only.order), what));
  });
}

/** @param {any} panel @param {any} told @param {string} about @param {Set<number> | null} marked @param {string} what */
function draw(panel, told, about, marked, what) {
  /** @type {any[]} */ let events = told.events.map((/** @type {any} */ one, /** @type {number} */ n) => ({ ...one, n }));
  if (about) events = events.filter(one => one.name.toLowerCase().includes(about.toLowerCase()) || one.words.includes(about));
  const whole = events.length;
  // Those around here, if there are too many.
  if (events.length > MOST) {
    const near = Math.max(0, events.findIndex(one => compare(one.position, view.at) > 0));
    const first = Math.max(0, Math.min(near - MOST / 2, events.length - MOST));
    events = events.slice(first, first + MOST);
  }
  if (marked) {
    panel.append(h('div', { class: 'notice' }, `${marked.size} marked: ${what}. `, h('button', { class: 'small', onclick: () => open('order', '') }, 'all')));
  }
  panel.append(h('div', { class: 'notice' }, `${events.length} of ${whole} interactions; click one to go there, with shift for what must happen before it, with alt for what can happen without it`),
    diagram(told, events, marked));
}

/** @param {any} told @param {any[]} events @param {Set<number> | null} marked */
function diagram(told, events, marked) {
  const threads = [...new Set(events.map(one => one.thread))].sort((a, b) => a - b);
  const place = new Map(events.map((one, n) => [one.n, { x: LEFT + n * STEP, y: TOP + threads.indexOf(one.thread) * ROW }]));
  const width = LEFT + events.length * STEP + 20;
  const height = TOP + threads.length * ROW + 10;
  const svg = s('svg', { width, height, class: 'order', role: 'img', 'aria-label': 'Order of events' },
    s('defs', {}, s('marker', { id: 'arrow', viewBox: '0 0 6 6', refX: 6, refY: 3, markerWidth: 6, markerHeight: 6, orient: 'auto' }, s('path', { d: 'M0 0L6 3L0 6', class: 'head' }))));
  for (const [n, thread] of threads.entries()) {
    svg.append(s('line', { x1: LEFT - 10, x2: width, y1: TOP + n * ROW, y2: TOP + n * ROW, class: 'life' }), s('text', { x: 8, y: TOP + n * ROW + 4 }, `thread ${thread}`));
  }
  const now = events.findIndex(one => here && compare(one.position, view.at) >= 0);
  const at = LEFT + (now < 0 ? events.length : now) * STEP - STEP / 2;
  svg.append(s('line', { x1: at, x2: at, y1: 4, y2: height, class: 'now' }));
  for (const [a, b] of told.edges) {
    const [from, to] = [place.get(a), place.get(b)];
    if (!from || !to || from.y === to.y) continue;
    const [dx, dy] = [to.x - from.x, to.y - from.y];
    const length = Math.hypot(dx, dy) || 1;
    svg.append(s('line', { x1: from.x + dx / length * 6, y1: from.y + dy / length * 6, x2: to.x - dx / length * 7, y2: to.y - dy / length * 7, class: 'edge', 'marker-end': 'url(#arrow)' }));
  }
  for (const one of events) {
    const { x, y } = /** @type {any} */ (place.get(one.n));
    const dim = marked && !marked.has(one.n);
    const act = (/** @type {MouseEvent | KeyboardEvent} */ event) => {
      if (event.shiftKey) open('order', `min:${one.thread}@${one.position}`);
      else if (event.altKey) open('order', `max:${one.thread}@${one.position}`);
      else goTo({ at: one.position, thread: one.thread });
    };
    svg.append(s('g', { class: dim ? 'event dim' : `event kind-${one.type}`, tabindex: 0, role: 'button', 'aria-label': `${one.words} ${one.name}`, onclick: act,
      onkeydown: (/** @type {KeyboardEvent} */ event) => { if (event.key === 'Enter') act(event); } },
    s('circle', { cx: x, cy: y, r: 6 }), s('text', { x, y: y - 10, 'text-anchor': 'middle', class: 'type' }, one.type),
    s('title', {}, `${one.words} · ${one.name} · t ${one.t}\n${one.function ?? ''} ${one.line ? `${base(one.file)}:${one.line}` : ''}\n${one.position}`)));
  }
  const scroll = h('div', { class: 'sideways' }, svg);
  setTimeout(() => { scroll.scrollLeft = at - scroll.clientWidth / 2; });
  return scroll;
}

export function start() {
  tab('order', { title: 'Order', hint: 'What happened before what', draw: order });
}
