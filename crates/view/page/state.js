// Where this window looks: all of it is in the address, so that an address is a view, and Back goes back.

import { Cancelled, ask, say } from './api.js';

/**
 * @typedef {{stream: number, at: string, thread: number | null, frame: number, hidden: number}} Place
 * @typedef {{spot: string, condition?: string}} Stop
 * @typedef {{address: string, size: number, name: string}} Watch
 */

/** @type {Record<string, Set<(data: any) => void>>} */
const listeners = {};

/** @param {string} name @param {(data: any) => void} listener */
export function on(name, listener) {
  (listeners[name] ??= new Set()).add(listener);
}

/** @param {string} name @param {any} [data] */
export function emit(name, data) {
  for (const listener of listeners[name] ?? []) listener(data);
}

export const view = {
  stream: 1,
  at: 'end',
  /** @type {number | null} */ thread: null,
  frame: 0,
  hidden: 0,
  tab: '',
  /** What the tab is about: an expression, a function, a line. */
  about: '',
  /** @type {[number, number] | null} */ zoom: null,
  /** @type {Stop[]} */ stops: [],
  /** @type {Watch[]} */ watches: [],
  /** @type {string[]} */ expressions: [],
  counts: false,
  /** A file that is looked at although nobody stands there. */
  file: '',
  line: 0,
};

/** What the server told of this place. @type {any} */
export let here = null;

/** @returns {Place} */
export const place = () => ({ stream: view.stream, at: view.at, thread: view.thread, frame: view.frame, hidden: view.hidden });

function written() {
  const hash = new URLSearchParams();
  hash.set('s', String(view.stream));
  hash.set('at', view.at);
  if (view.thread !== null) hash.set('t', String(view.thread));
  if (view.frame) hash.set('f', String(view.frame));
  if (view.hidden) hash.set('h', String(view.hidden));
  if (view.tab) hash.set('tab', view.tab);
  if (view.about) hash.set('about', view.about);
  if (view.zoom) hash.set('z', view.zoom.map(x => String(Math.round(x * 1000) / 1000)).join('~'));
  for (const stop of view.stops) hash.append('b', stop.condition ? `${stop.spot} if ${stop.condition}` : stop.spot);
  for (const watch of view.watches) hash.append('w', `${watch.address}~${watch.size}~${watch.name}`);
  for (const expression of view.expressions) hash.append('e', expression);
  if (view.counts) hash.set('counts', '1');
  if (view.file) hash.set('file', `${view.file}:${view.line}`);
  return '#' + hash.toString();
}

/** @param {boolean} [step] a step of its own for Back */
export function save(step = false) {
  const now = written();
  if (now === location.hash) return;
  if (step) history.pushState(null, '', now);
  else history.replaceState(null, '', now);
}

export function load() {
  const hash = new URLSearchParams(location.hash.slice(1));
  const number = (/** @type {string} */ name, /** @type {any} */ without) => {
    const text = hash.get(name);
    return text !== null && /^\d+$/.test(text) ? Number(text) : without;
  };
  view.stream = number('s', view.stream);
  view.at = hash.get('at') ?? view.at;
  view.thread = number('t', null);
  view.frame = number('f', 0);
  view.hidden = number('h', 0);
  view.tab = hash.get('tab') ?? '';
  view.about = hash.get('about') ?? '';
  const zoom = (hash.get('z') ?? '').split('~').map(Number);
  view.zoom = zoom.length === 2 && zoom[1] > zoom[0] ? [zoom[0], zoom[1]] : null;
  view.stops = hash.getAll('b').map(text => {
    const at = text.indexOf(' if ');
    return at < 0 ? { spot: text } : { spot: text.slice(0, at), condition: text.slice(at + 4) };
  });
  view.watches = hash.getAll('w').map(text => {
    const [address, size, ...name] = text.split('~');
    return { address, size: Number(size) || 1, name: name.join('~') };
  });
  view.expressions = hash.getAll('e');
  view.counts = hash.has('counts');
  const file = /^(.*):(\d+)$/.exec(hash.get('file') ?? '');
  [view.file, view.line] = file ? [file[1], Number(file[2])] : ['', 0];
}

let going = new AbortController();

/**
 * Goes somewhere; what was on its way before is cancelled.
 * @param {string} what the question @param {any} about @param {string} label @param {boolean} [step]
 */
export async function move(what, about, label, step = true) {
  going.abort();
  going = new AbortController();
  const signal = going.signal;
  document.body.classList.add('going');
  try {
    const told = await ask(what, about, { label, signal });
    if (signal.aborted) return;
    arrived(told, about.frame && what === 'stand' ? about.frame : 0, step);
  } catch (error) {
    if (!(error instanceof Cancelled)) say(error instanceof Error ? error.message : String(error), true);
  } finally {
    if (!signal.aborted) document.body.classList.remove('going');
  }
}

/** @param {any} told @param {number} frame @param {boolean} step */
function arrived(told, frame, step) {
  here = told;
  view.stream = told.stream;
  view.at = told.here.position;
  view.hidden = told.hidden;
  view.thread = told.thread;
  view.frame = told.stack.frames.length > frame ? frame : 0;
  [view.file, view.line] = ['', 0];
  if (!frame) {
    // The innermost function that has source text: the C library's own is seldom what is wanted.
    const frames = told.stack.frames;
    const own = frames.findIndex((/** @type {any} */ one) => one.file && !/^(\.\/|\/usr\/|\/build\/|\/rustc\/)/.test(one.file));
    if (!frames[0]?.file || (own > 0 && /^\.\//.test(frames[0].file))) view.frame = Math.max(own, 0);
  }
  save(step);
  say(reason(told));
  emit('here', told);
  emit('frame');
}

/** @param {any} told */
function reason(told) {
  const { reason, change, returned } = told;
  if (change) return `changed here from ${change.before ?? 'nothing'} to ${change.after ?? 'nothing'}`;
  if (returned) return `returned ${returned.text}`;
  if (reason === 'start') return 'the start of the recording';
  if (reason === 'end') return 'the end of the recording';
  if (reason?.breakpoints) return 'a breakpoint';
  if (reason?.watchpoint !== undefined) return 'a watched value';
  return '';
}

/** @param {Partial<Place>} to @param {string} [label] @param {boolean} [step] */
export function goTo(to, label = 'going there', step = true) {
  const about = { stream: view.stream, at: view.at, thread: null, frame: 0, hidden: 0, ...to };
  return move('stand', about, label, step);
}

/** @param {number} frame */
export function chooseFrame(frame) {
  view.frame = frame;
  [view.file, view.line] = ['', 0];
  save();
  emit('frame');
}

/** @param {string} file @param {number} line */
export function look(file, line) {
  [view.file, view.line] = [file, line];
  save(true);
  emit('frame');
}
