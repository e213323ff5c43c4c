// Source text with the current line, values, counts and breakpoints. Only what is visible is in the document.

import { ask, attempt } from './api.js';
import { $, base, h, menu, set, short, tip, untip } from './dom.js';
import { emit, here, look, move, on, place, save, view } from './state.js';
import { aboutValue, known } from './values.js';

const LINE = 18;
const text = $('text');
const lines = $('lines');

/** @type {Map<string, Promise<string[] | string>>} */ const texts = new Map();
/** @type {Map<string, Map<number, number>>} */ const counts = new Map();
/** Lines that an analysis is about: file, then line and why. @type {Map<string, Map<number, string>>} */
let highlighted = new Map();
let file = '';
/** @type {string[]} */ let content = [];
let current = 0;
/** Also lines where callers are. */
let caller = false;
/** Addresses of the lines, where there is no source text and instructions are shown. @type {string[]} */
let machine = [];
let shownFrom = -1;
let shownTo = -1;

const KEYWORDS = new Set(('alignas alignof auto bool break case catch char class const constexpr continue default delete do double else enum '
  + 'extern false final float for friend goto if inline int long mutable namespace new noexcept nullptr operator override private protected '
  + 'public register return short signed sizeof static struct switch template this throw true try typedef typename union unsigned using virtual '
  + 'void volatile while fn let mut pub impl trait match loop use mod crate self Self where ref move async await dyn unsafe as in type '
  + 'NULL size_t uint8_t uint16_t uint32_t uint64_t int8_t int16_t int32_t int64_t').split(' '));
const TOKEN = /(\/\/.*$)|(\/\*.*?(?:\*\/|$))|("(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)+')|(\b\d[\w.]*)|([A-Za-z_]\w*)|(#\s*\w+)/g;

/** @param {number} stream @param {string} name */
function textOf(stream, name) {
  const key = `${stream} ${name}`;
  let found = texts.get(key);
  if (!found) {
    found = ask('source', { stream, file: name }, { label: `reading ${base(name)}` })
      .then(told => told.text.split('\n'), error => String(error.message));
    texts.set(key, found);
  }
  return found;
}

/** The expression that ends with a name in a line: `job->client` for `client`. @param {string} line @param {number} end */
function chain(line, end) {
  const found = /(?:[A-Za-z_]\w*(?:\[[^\][]*\])?\s*(?:->|\.|::)\s*)*[A-Za-z_]\w*$/.exec(line.slice(0, end));
  return found ? found[0] : '';
}

/** @param {string} line @param {number} number */
function tokens(line, number) {
  const all = [];
  let done = 0;
  for (const match of line.matchAll(TOKEN)) {
    const at = match.index;
    if (at > done) all.push(line.slice(done, at));
    done = at + match[0].length;
    const [, slashes, stars, string, digits, name, directive] = match;
    if (slashes || stars) all.push(h('span', { class: 'comment' }, match[0]));
    else if (string) all.push(h('span', { class: 'string' }, match[0]));
    else if (digits) all.push(h('span', { class: 'number' }, match[0]));
    else if (directive) all.push(h('span', { class: 'keyword' }, match[0]));
    else if (KEYWORDS.has(name)) all.push(h('span', { class: 'keyword' }, name));
    else all.push(h('span', { class: 'name', 'data-end': done, 'data-line': number }, name));
  }
  if (done < line.length) all.push(line.slice(done));
  return all;
}

/** Breakpoint at a line, if there is one. @param {number} line */
const stopAt = line => view.stops.findIndex(stop => stop.spot === spotOf(line));

/** A line as a place to stop at. @param {number} line */
const spotOf = line => machine.length ? machine[line - 1] : `${file}:${line}`;

function render(force = false) {
  const first = Math.max(0, Math.floor(text.scrollTop / LINE) - 20);
  const last = Math.min(content.length, Math.ceil((text.scrollTop + text.clientHeight) / LINE) + 20);
  if (!force && first === shownFrom && last === shownTo) return;
  [shownFrom, shownTo] = [first, last];
  const count = view.counts && !machine.length ? counts.get(file) : undefined;
  const marks = highlighted.get(file);
  const most = count ? Math.max(1, ...count.values()) : 1;
  const rows = [];
  for (let n = first; n < last; n++) {
    const number = n + 1;
    const times = count?.get(number);
    const why = marks?.get(number);
    const stop = stopAt(number);
    const classes = ['row'];
    if (number === current) classes.push(caller ? 'caller' : 'current');
    if (why !== undefined) classes.push('member');
    if (times === 0) classes.push('never');
    const heat = times ? 0.08 + 0.3 * Math.log(times + 1) / Math.log(most + 1) : 0;
    rows.push(h('div', { class: classes.join(' '), 'data-number': number, style: { top: `${n * LINE}px` }, title: why || undefined },
      h('button', {
        class: stop >= 0 ? (view.stops[stop].condition ? 'stop set condition' : 'stop set') : 'stop', tabindex: -1,
        'aria-label': `Breakpoint at line ${number}`,
        title: stop >= 0 && view.stops[stop].condition ? `if ${view.stops[stop].condition}` : 'Breakpoint; shift: with a condition',
        'data-stop': number,
      }),
      h('button', {
        class: 'count', tabindex: -1, 'data-times': number, title: 'All times that this line was executed, and values there',
        style: heat ? { background: `color-mix(in srgb, var(--counted) ${Math.round(heat * 100)}%, transparent)` } : undefined,
      }, times === undefined ? '' : times > 99999 ? `${Math.round(times / 1000)}k` : String(times)),
      h('span', { class: 'number-of-line' }, machine.length ? '' : number),
      h('code', {}, tokens(content[n], number), number === current ? inline(content[n]) : null)));
  }
  set(lines, rows);
}

/** Values of what the current line names. @param {string} line */
function inline(line) {
  const names = [...new Set([...line.matchAll(/[A-Za-z_]\w*/g)].map(match => match[0]))];
  const told = names.filter(name => known(name) !== undefined).map(name => `${name} = ${short(known(name) ?? '', 48)}`);
  if (!told.length) return null;
  return h('span', { class: 'inline' }, told.join('   '));
}

/** @param {number} number */
function reveal(number) {
  const top = (number - 1) * LINE;
  const [from, to] = [text.scrollTop, text.scrollTop + text.clientHeight];
  if (top < from + 3 * LINE || top > to - 5 * LINE) text.scrollTop = Math.max(0, top - text.clientHeight * 0.4);
}

let turn = 0;

async function show() {
  const frame = here?.stack.frames[view.frame];
  const wanted = view.file || frame?.file || '';
  const number = view.file ? view.line : frame?.line ?? 0;
  const mine = ++turn;
  const told = wanted ? await textOf(view.stream, wanted) : `${frame?.function ?? frame?.address ?? ''}: no source is known`;
  if (mine !== turn) return;
  if (typeof told === 'string') return instructions(told, mine);
  machine = [];
  file = wanted;
  content = told;
  title(wanted);
  const frameHere = !view.file || view.file === frame?.file;
  current = frameHere ? frame?.line ?? 0 : 0;
  caller = view.frame > 0;
  laid();
  if (number) reveal(number);
  render(true);
  if (view.counts) cover();
}

/** Instructions instead of source text. @param {string} why @param {number} mine */
async function instructions(why, mine) {
  const told = await ask('code', { ...place(), before: 60, count: 160 }, { label: 'instructions' }).catch(() => ({ address: '', code: [] }));
  if (mine !== turn) return;
  file = '';
  machine = told.code.map((/** @type {any} */ one) => one.address);
  content = told.code.map((/** @type {any} */ one) => `${one.address}  ${one.text}`);
  current = machine.indexOf(told.address) + 1;
  caller = view.frame > 0;
  set($('file'), h('span', { class: 'faint' }, why));
  $('file').title = why;
  laid();
  if (current) reveal(current);
  render(true);
}

/** @param {string} said */
function title(said) {
  const path = said.split('/');
  const last = path.pop() ?? '';
  set($('file'), path.length ? h('span', { class: 'faint' }, path.join('/') + '/') : null, last);
  $('file').title = said;
}

function laid() {
  lines.style.height = `${content.length * LINE + 40}px`;
  render(true);
}

async function cover() {
  const name = file;
  if (!name || counts.has(name)) return render(true);
  const told = await attempt(() => ask('coverage', { stream: view.stream, file: name }, { label: 'counting all lines' }));
  if (!told) return;
  counts.set(name, new Map(told.map((/** @type {any} */ one) => [one.line, one.count])));
  render(true);
}

/** Lines to highlight. @param {{file: string, line: number, text: string}[]} members */
export function highlight(members) {
  highlighted = new Map();
  for (const { file, line, text } of members) {
    if (!file || !line) continue;
    let of = highlighted.get(file);
    if (!of) highlighted.set(file, of = new Map());
    of.set(line, of.has(line) ? `${of.get(line)}\n${text}` : text);
  }
  render(true);
}

/** @param {number} number @param {boolean} conditional */
function toggle(number, conditional) {
  const at = stopAt(number);
  if (conditional) {
    const dialog = $('dialog');
    const input = h('input', { value: at >= 0 ? view.stops[at].condition ?? '' : '', 'aria-label': 'Condition', placeholder: 'job->refs == 0', spellcheck: 'false' });
    const form = h('form', {
      method: 'dialog',
      onsubmit: () => {
        const condition = input.value.trim();
        view.stops = view.stops.filter((_, n) => n !== at);
        view.stops.push({ spot: spotOf(number), ...(condition ? { condition } : {}) });
        changed();
      },
    }, h('h2', {}, `Stop at ${base(spotOf(number))} only if`), input, h('button', { class: 'small' }, 'stop there'));
    set(dialog, form);
    dialog.showModal();
    return;
  }
  if (at >= 0) view.stops.splice(at, 1);
  else view.stops.push({ spot: spotOf(number) });
  changed();
}

function changed() {
  save();
  render(true);
  emit('stops');
}

/** @param {MouseEvent} event @param {number} number */
function lineMenu(event, number) {
  const spot = spotOf(number);
  menu(event.clientX, event.clientY, [base(spot)], [
    ['Run to here', () => move('run_to', { ...place(), way: 'forward', spot }, `to ${base(spot)}`)],
    ['Run back to here', () => move('run_to', { ...place(), way: 'backward', spot }, `back to ${base(spot)}`)],
    ['All times it was executed', () => emit('open', { tab: 'line', about: spot })],
    ['Breakpoint', () => toggle(number, false)],
    ['Breakpoint with a condition…', () => toggle(number, true)],
  ]);
}

let hovering = 0;

function interact() {
  text.addEventListener('scroll', () => render());
  new ResizeObserver(() => render(true)).observe(text);
  lines.addEventListener('click', (/** @type {MouseEvent} */ event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    const { stop, times, end, line } = target.dataset;
    if (stop) toggle(Number(stop), event.shiftKey);
    else if (times) emit('open', { tab: 'line', about: spotOf(Number(times)) });
    else if (target.className === 'number-of-line') lineMenu(event, Number(target.parentElement?.dataset.number));
    else if (end) {
      const expression = chain(content[Number(line) - 1], Number(end));
      if (/^\s*\(/.test(content[Number(line) - 1].slice(Number(end)))) {
        menu(event.clientX, event.clientY, [expression], [
          ['All calls of it', () => emit('open', { tab: 'calls', about: expression })],
          ['Run to its next call', () => move('run_to', { ...place(), way: 'forward', spot: expression }, `to ${expression}`)],
          ['Run back to its last call', () => move('run_to', { ...place(), way: 'backward', spot: expression }, `back to ${expression}`)],
        ]);
      } else if (expression) aboutValue(event.clientX, event.clientY, expression);
    }
  });
  lines.addEventListener('contextmenu', (/** @type {MouseEvent} */ event) => {
    const row = /** @type {HTMLElement} */ (event.target).closest('.row');
    if (!(row instanceof HTMLElement)) return;
    event.preventDefault();
    lineMenu(event, Number(row.dataset.number));
  });
  lines.addEventListener('mouseover', (/** @type {MouseEvent} */ event) => {
    const { end, line } = /** @type {HTMLElement} */ (event.target).dataset;
    clearTimeout(hovering);
    untip();
    if (!end) return;
    const row = content[Number(line) - 1];
    const expression = chain(row, Number(end));
    if (!expression || /^\s*\(/.test(row.slice(Number(end)))) return;
    hovering = setTimeout(async () => {
      const told = await ask('evaluate', { ...place(), expressions: [expression] }).catch(() => null);
      if (!told) return;
      const [{ value }] = told;
      if (value) tip(event.clientX, event.clientY, h('b', {}, expression), ' = ', value.text, h('div', { class: 'faint' }, value.type));
    }, 120);
  });
  lines.addEventListener('mouseleave', () => { clearTimeout(hovering); untip(); });
  text.addEventListener('keydown', (/** @type {KeyboardEvent} */ event) => {
    if (event.key === 'Enter' && current) emit('open', { tab: 'line', about: spotOf(current) });
    else if (event.key === 'b' && current) toggle(current, event.shiftKey);
  });
  $('coverage').addEventListener('click', () => {
    view.counts = !view.counts;
    $('coverage').setAttribute('aria-pressed', String(view.counts));
    save();
    if (view.counts) cover();
    else render(true);
  });
  $('files').addEventListener('click', files);
}

async function files() {
  const all = await attempt(() => ask('sources', { stream: view.stream }, { label: 'source files' }));
  if (!all) return;
  const dialog = $('dialog');
  const list = h('div', { class: 'list tall' });
  const own = all.filter((/** @type {string} */ name) => !/^(\.\/|\.\.\/|\/usr\/|\/build\/|\/rustc\/)/.test(name));
  const fill = () => {
    const wanted = input.value.toLowerCase();
    const from = wanted ? all : own;
    const some = from.filter((/** @type {string} */ name) => name.toLowerCase().includes(wanted)).slice(0, 300);
    set(list, some.map((/** @type {string} */ name) => h('button', { class: 'entry', onclick: () => { dialog.close(); look(name, 1); } }, name)));
  };
  const input = h('input', { placeholder: 'File', 'aria-label': 'File', oninput: fill });
  set(dialog, input, list);
  fill();
  dialog.showModal();
}

export function start() {
  interact();
  $('coverage').setAttribute('aria-pressed', String(view.counts));
  on('frame', show);
  on('known', () => render(true));
}
