// Threads, stack and values. Values are trees, whose parts are asked for when they are opened.

import { ask, attempt } from './api.js';
import { $, base, h, menu, set, short } from './dom.js';
import { chooseFrame, emit, goTo, here, move, on, place, save, view } from './state.js';

const PAGE = 100;
/** Opened parts, by where they are in the tree: they stay open from step to step. @type {Set<string>} */
const opened = new Set();
/** What the frame's variables are, as text. @type {Map<string, string>} */
let texts = new Map();
/** As they were before the last move. @type {Map<string, string>} */
let before = new Map();

/** @param {string} name */
export const known = name => texts.get(name);

/** What can be asked about a value. @param {number} x @param {number} y @param {string} expression */
export async function aboutValue(x, y, expression) {
  const heading = h('div', {}, expression);
  const told = await ask('evaluate', { ...place(), expressions: [expression] }).catch(() => null);
  const value = told?.[0]?.value;
  heading.append(value ? ` = ${short(value.text, 120)}` : ` — ${told?.[0]?.error?.split('\n')[0] ?? 'no value here'}`);
  menu(x, y, [heading], [
    ['Who wrote this?', () => move('last_change', { ...place(), expression }, `last change of ${expression}`), 'Back to the last change of it'],
    ['History: all its changes', () => emit('open', { tab: 'history', about: expression })],
    ['Origin: where it was computed or came in', () => emit('open', { tab: 'origin', about: expression })],
    ['Slice: all that it depends on', () => emit('open', { tab: 'slice', about: expression })],
    ['Watch: stop where it changes', () => watch(expression, value)],
    ['Keep among the values', () => keep(expression)],
    ['Memory there', () => emit('open', { tab: 'memory', about: expression })],
    ['Who allocated and freed it', () => emit('open', { tab: 'heap', about: expression })],
  ]);
}

/** @param {string} expression @param {any} value */
function watch(expression, value) {
  if (!value?.address) return;
  view.watches.push({ address: value.address, size: Math.min(value.size ?? 8, 4096), name: expression });
  save();
  emit('stops');
  values();
}

/** @param {string} expression */
export function keep(expression) {
  if (!view.expressions.includes(expression)) view.expressions.push(expression);
  save();
  values();
}

function threads() {
  set($('threads'), here.threads.map((/** @type {any} */ one) => h('button', {
    class: one.number === here.thread ? 'entry chosen' : 'entry',
    'aria-current': one.number === here.thread ? 'true' : undefined,
    title: `tid ${one.tid}${one.waits ? `, waits in ${one.waits}` : ''}`,
    onclick: () => goTo({ at: view.at, thread: one.number, hidden: view.hidden }, 'thread', false),
  }, h('span', { class: one.runs ? 'dot runs' : 'dot' }), h('b', {}, `${one.number} ${one.name}`),
  h('span', { class: 'faint ends' }, one.runs ? 'runs' : one.waits ?? 'ready'),
  h('span', { class: 'second' }, one.location.function ?? one.location.address))));
}

function stack() {
  const { frames, cut } = here.stack;
  set($('stack'), frames.map((/** @type {any} */ one) => h('button', {
    class: one.number === view.frame ? 'entry chosen' : 'entry',
    'aria-current': one.number === view.frame ? 'true' : undefined,
    title: one.file ?? one.module ?? '',
    onclick: () => chooseFrame(one.number),
  }, h('span', { class: 'faint index' }, one.number), h('b', {}, one.function ?? one.address),
  one.inlined ? h('i', { class: 'faint' }, ' inlined') : null, one.signal ? h('i', {}, ' signal handler') : null,
  h('span', { class: 'second ends' }, one.line ? `${base(one.file)}:${one.line}` : base(one.module ?? '')))),
  cut ? h('div', { class: 'faint entry' }, cut) : null);
}

let turn = 0;

export async function values() {
  if (!here) return;
  const mine = ++turn;
  const asked = place();
  const [scopes, expressions] = await Promise.all([
    ask('scopes', asked, { label: 'values' }).catch(() => []),
    view.expressions.length ? ask('evaluate', { ...asked, expressions: view.expressions }).catch(() => []) : [],
  ]);
  if (mine !== turn) return;
  before = texts;
  texts = new Map();
  for (const scope of scopes) {
    if (scope.kind === 'registers') continue;
    for (const node of scope.variables) if (!texts.has(node.name)) texts.set(node.name, node.text);
  }
  const element = $('values');
  const top = element.scrollTop;
  const names = { arguments: 'arguments', locals: 'locals', statics: 'statics of the file' };
  set(element,
    view.expressions.length ? h('div', { class: 'scope' }, 'expressions') : null,
    expressions.map((/** @type {any} */ told, /** @type {number} */ n) => {
      const text = view.expressions[n];
      const remove = () => { view.expressions.splice(n, 1); save(); values(); };
      const node = told.value ?? { name: text, type: '', text: told.error.split('\n')[0], children: 0, failed: true };
      return row(node, { expression: text }, [], text, 0, remove);
    }),
    view.watches.length ? h('div', { class: 'scope' }, 'watched') : null,
    view.watches.map((one, n) => h('div', { class: 'value' }, h('span', { class: 'twist' }), h('b', {}, one.name),
      h('span', { class: 'faint' }, ` ${one.size} bytes at ${one.address}`),
      h('button', { class: 'small ends', 'aria-label': `Don't watch ${one.name}`, onclick: () => { view.watches.splice(n, 1); save(); values(); } }, '✕'))),
    scopes.map((/** @type {any} */ scope, /** @type {number} */ s) => scope.kind === 'registers' || !scope.variables.length ? null : [
      h('div', { class: 'scope' }, /** @type {any} */ (names)[scope.kind]),
      scope.variables.map((/** @type {any} */ node, /** @type {number} */ v) => row(node, { variable: [s, v] }, [], `${scope.kind} ${node.name}`, 0)),
    ]));
  element.scrollTop = top;
  emit('registers', scopes.find((/** @type {any} */ scope) => scope.kind === 'registers')?.variables ?? []);
  emit('known');
}

/**
 * @param {any} node @param {any} root @param {number[]} path @param {string} key @param {number} depth @param {() => void} [remove]
 * @returns {any}
 */
function row(node, root, path, key, depth, remove) {
  const parts = h('div', { class: 'parts' });
  const twist = h('span', { class: 'twist' }, node.children ? '▸' : '');
  const expression = expressionOf(key);
  const changed = !depth && before.has(node.name) && before.get(node.name) !== node.text;
  const line = h('div', {
    class: 'value', role: 'treeitem', tabindex: 0, style: { paddingLeft: `${6 + depth * 13}px` },
    'aria-expanded': node.children ? String(opened.has(key)) : undefined,
    title: `${node.type}${node.address ? ` at ${node.address}` : ''}`,
    onclick: (/** @type {MouseEvent} */ event) => {
      if (/** @type {HTMLElement} */ (event.target).closest('.asks') && expression) aboutValue(event.clientX, event.clientY, expression);
      else toggle();
    },
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      const box = line.getBoundingClientRect();
      if (event.key === 'ArrowRight' || event.key === 'ArrowLeft') toggle();
      else if (event.key === 'Enter' && expression) aboutValue(box.left + 40, box.bottom, expression);
      else return;
      event.preventDefault();
    },
  }, twist, h('b', { class: expression ? 'asks' : '' }, node.name), h('span', { class: 'faint' }, ' = '),
  h('span', { class: node.failed ? 'bad' : changed ? 'asks changed' : 'asks' }, short(node.text)), h('span', { class: 'type' }, node.type),
  remove ? h('button', { class: 'small ends', 'aria-label': `Remove ${node.name}`, onclick: (/** @type {Event} */ event) => { event.stopPropagation(); remove(); } }, '✕') : null);
  const open = async () => {
    twist.textContent = '▾';
    const told = await attempt(() => ask('children', { ...place(), root, path, from: 0, most: PAGE }, { label: 'values' }));
    fill(told ?? [], 0);
  };
  const fill = (/** @type {any[]} */ told, /** @type {number} */ from) => {
    parts.append(...told.map((one, n) => row(one, root, [...path, from + n], `${key}\u0000${one.name}`, depth + 1)));
    const done = from + told.length;
    if (done < node.children && told.length === PAGE) {
      const more = h('button', {
        class: 'small', style: { marginLeft: `${20 + depth * 13}px` },
        onclick: async () => {
          const next = await attempt(() => ask('children', { ...place(), root, path, from: done, most: PAGE }));
          more.remove();
          if (next) fill(next, done);
        },
      }, `${node.children - done} more`);
      parts.append(more);
    }
  };
  const toggle = () => {
    if (!node.children) return;
    if (opened.delete(key)) {
      twist.textContent = '▸';
      parts.replaceChildren();
    } else {
      opened.add(key);
      open();
    }
    line.setAttribute('aria-expanded', String(opened.has(key)));
  };
  if (node.children && opened.has(key)) open();
  return h('div', {}, line, parts);
}

/** The C expression that means a part of a tree. @param {string} key */
function expressionOf(key) {
  const [root, ...parts] = key.split('\u0000');
  let text = root.replace(/^(arguments|locals|statics) /, '');
  for (const part of parts) {
    if (part.startsWith('[')) text += part;
    else if (part === '*') text = `(*${text})`;
    else if (/^[A-Za-z_]\w*$/.test(part)) text += `.${part}`;
    else return '';
  }
  return text;
}

export function start() {
  on('here', threads);
  on('frame', () => { stack(); values(); });
  $('express').addEventListener('submit', (/** @type {Event} */ event) => {
    event.preventDefault();
    const input = $('expression');
    if (input.value.trim()) keep(input.value.trim());
    input.value = '';
  });
  $('tree').addEventListener('click', () => emit('open', { tab: 'tree', about: '' }));
}
