// The page: puts its parts together; controls, keys, light and dark.

import * as analyses from './analyses.js';
import { ask, attempt, say } from './api.js';
import * as code from './code.js';
import { $, h, set, where } from './dom.js';
import * as lanes from './lanes.js';
import * as lists from './lists.js';
import * as notebook from './notebook.js';
import * as order from './order.js';
import * as source from './source.js';
import { emit, goTo, here, load, move, on, place, save, view } from './state.js';
import * as values from './values.js';

/** @param {string} stride @param {string} way */
const step = (stride, way) => move('step', { ...place(), frame: stride === 'out' || stride === 'over' ? view.frame : 0, stride, way }, `step ${stride} ${way}`);
/** @param {string} way */
const go = way => move('go', {
  ...place(), way, stops: view.stops, watches: view.watches.map(({ address, size }) => ({ address, size })),
}, way === 'forward' ? 'continuing' : 'continuing back');

/** Icons are lines in a square of 16: forwards as drawn, backwards mirrored. */
const ICONS = {
  end: 'M4 3.5v9L10.500 8zM12 3.500v9',
  go: 'M5 3v10l7.500-5z',
  over: 'M2.500 9.500a5.500 5 0 0 1 10.500-1M13.500 4.500v4.500H9M7.700 12h.6',
  into: 'M8 2v7M4.800 6.300L8 9.500l3.200-3.200M7.700 13h.6',
  out: 'M8 9.500V2.500M4.800 5.500L8 2.300l3.200 3.200M7.700 13h.6',
};

/** @param {keyof typeof ICONS} name @param {boolean} back */
function icon(name, back) {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('viewBox', '0 0 16 16');
  svg.setAttribute('class', back ? 'icon back' : 'icon');
  const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  path.setAttribute('d', ICONS[name]);
  svg.append(path);
  return svg;
}

/** @type {[keyof typeof ICONS, boolean, string, string, () => void][]} */
const CONTROLS = [
  ['end', true, 'To the start (Shift+Home)', 'start', () => goTo({ at: 'start' }, 'to the start')],
  ['go', true, 'Back to the last breakpoint (Shift+F5)', 'back', () => go('backward')],
  ['over', true, 'Step back over (Shift+F10)', 'back-over', () => step('over', 'backward')],
  ['into', true, 'Step back into (Shift+F11)', 'back-into', () => step('into', 'backward')],
  ['out', true, 'Back to the caller (Shift+F12)', 'back-out', () => step('out', 'backward')],
  ['out', false, 'Step out (F12)', 'out', () => step('out', 'forward')],
  ['into', false, 'Step into (F11)', 'into', () => step('into', 'forward')],
  ['over', false, 'Step over (F10)', 'over', () => step('over', 'forward')],
  ['go', false, 'Continue to the next breakpoint (F5)', 'continue', () => go('forward')],
  ['end', false, 'To the end (Shift+End)', 'end', () => goTo({ at: 'end' }, 'to the end')],
];

/** @type {[string, string][]} */
const KEYS = [
  ['F5, Shift+F5', 'on to the next breakpoint; back to the last'],
  ['F10, Shift+F10', 'over the line; back over it'],
  ['F11, Shift+F11', 'into calls; back into them'],
  ['F12, Shift+F12', 'out to the caller; back to where it was called'],
  ['Alt+↓, Alt+↑', 'to the next moment of the list below; the one before'],
  ['Shift+Home, Shift+End', 'to the start; to the end'],
  ['Alt+←, Alt+→', 'where you were before; and again'],
  ['Ctrl+G', 'to a position'], ['/', 'find'], ['n', 'keep this place in the notebook'],
  ['b, Enter', 'in the source: breakpoint; all times of the line'],
  ['arrows, + − 0', 'in the overview: pan, zoom, all'],
];

function help() {
  const dialog = $('dialog');
  set(dialog, h('h2', {}, 'Keys'), h('table', {}, h('tbody', {}, KEYS.map(([keys, what]) => h('tr', {}, h('td', {}, h('kbd', {}, keys)), h('td', {}, what))))),
    h('h2', {}, 'In the overview'), lanes.legend(), h('button', { onclick: () => dialog.close() }, 'close'));
  dialog.showModal();
}

/** @param {KeyboardEvent} event */
function key(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  const writes = target.matches('input, textarea, select');
  const way = event.shiftKey ? 'backward' : 'forward';
  if (event.key === 'F5') go(way);
  else if (event.key === 'F10') step('over', way);
  else if (event.key === 'F11') step('into', way);
  else if (event.key === 'F12') step('out', way);
  else if (event.altKey && event.key === 'ArrowDown') lists.walk(1);
  else if (event.altKey && event.key === 'ArrowUp') lists.walk(-1);
  else if (event.ctrlKey && event.key === 'g') { $('position').focus(); $('position').select(); }
  else if (writes || event.ctrlKey || event.altKey || event.metaKey || $('dialog').open || !$('menu').hidden) return;
  else if (event.shiftKey && event.key === 'Home') goTo({ at: 'start' });
  else if (event.shiftKey && event.key === 'End') goTo({ at: 'end' });
  else if (event.key === '/') $('search').focus();
  else if (event.key === '?') help();
  else if (event.key === 'n') notebook.keepHere();
  else return;
  event.preventDefault();
}

/** @param {string} text */
function find(text) {
  if (!text) return;
  // A name may be a function; anything else, or a name that is none, is looked for among the events.
  if (/^[A-Za-z_][\w:<>~]*$/.test(text)) {
    attempt(async () => {
      try {
        await ask('calls', { stream: view.stream, function: text, most: 5000 }, { label: `calls of ${text}` });
        lists.open('calls', text);
      } catch {
        lists.open('search', text);
      }
    });
  } else lists.open('search', text);
}

/** Parts of the window can be made larger. @param {string} grip @param {(event: PointerEvent) => void} moved */
function grip(grip, moved) {
  const element = $(grip);
  element.addEventListener('pointerdown', (/** @type {PointerEvent} */ event) => {
    element.setPointerCapture(event.pointerId);
    element.onpointermove = moved;
  });
  element.addEventListener('pointerup', () => { element.onpointermove = null; });
}

/** @param {string} name @param {number} value */
const length = (name, value) => document.documentElement.style.setProperty(name, `${value}px`);

function theme() {
  const root = document.documentElement;
  const kept = localStorage.getItem('clew-theme');
  if (kept) root.dataset.theme = kept;
  $('theme').addEventListener('click', () => {
    const dark = getComputedStyle(root).getPropertyValue('color-scheme').trim() === 'dark';
    root.dataset.theme = dark ? 'light' : 'dark';
    localStorage.setItem('clew-theme', root.dataset.theme);
    emit('theme');
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => emit('theme'));
}

function at() {
  $('position').value = view.at;
  const next = here.here.next ? ` · next: ${here.here.next}` : '';
  set($('what'), h('b', {}, `thread ${here.thread}`), ` ${where(here.stack.frames[view.frame])}${next}`);
}

async function start() {
  theme();
  load();
  set($('controls'), CONTROLS.map(([picture, back, hint, name, run]) => h('button', { title: hint, 'aria-label': hint, 'data-do': name, onclick: run }, icon(picture, back))));
  addEventListener('keydown', key);
  $('help').addEventListener('click', help);
  $('goto').addEventListener('submit', (/** @type {Event} */ event) => { event.preventDefault(); goTo({ at: $('position').value.trim() }); $('position').blur(); });
  $('find').addEventListener('submit', (/** @type {Event} */ event) => { event.preventDefault(); find($('search').value.trim()); });
  grip('grip-overview', event => length('--overview', Math.max(60, event.clientY - $('overview').offsetTop)));
  grip('grip-side', event => length('--side', Math.max(220, innerWidth - event.clientX)));
  grip('grip-drawer', event => length('--drawer', Math.max(80, innerHeight - event.clientY - 26)));
  const recording = await ask('recording');
  if (!location.hash) {
    view.stream = recording.main ?? recording.streams[0]?.stream ?? 1;
    view.tab = 'output';
  }
  document.title = `${recording.name} · clew`;
  set($('name'), h('b', {}, recording.name));
  $('name').title = recording.folder;
  lists.start(recording);
  for (const part of [analyses, order, code]) part.start();
  notebook.start(recording);
  values.start();
  source.start();
  lists.drawTabs();
  on('here', at);
  on('frame', at);
  on('open', ({ tab, about }) => lists.open(tab, about));
  addEventListener('popstate', () => {
    load();
    emit('zoom');
    goTo(place(), 'going back', false);
    if (view.tab) lists.open(view.tab, view.about);
  });
  await lanes.start(recording);
  const [file, line] = [view.file, view.line];
  await goTo(place(), 'opening the recording', false);
  if (file) {
    [view.file, view.line] = [file, line];
    save();
    emit('frame');
  }
  if (view.tab) lists.open(view.tab, view.about);
}

start().catch(error => say(error instanceof Error ? error.message : String(error), true));
