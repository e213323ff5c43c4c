// A notebook that writes itself: a place where one stays becomes a note, which is kept if one wants it. Windows share it, and it can be
// exported as a page of its own.

import { ask, attempt, say } from './api.js';
import { base, h, where } from './dom.js';
import { open, tab } from './lists.js';
import { goTo, here, on, view } from './state.js';

/** So long one stays. */
const STAYED = 4000;
const MOST_PASSED = 30;

/** @typedef {{stream: number, at: string, thread: number, frame: number, title: string, text: string, when: number, source: [number, string][], stack: string[], values: string[], url: string}} Note */

/** @type {Note[]} */ let notes = [];
/** Not kept yet: of this window alone. @type {Note[]} */ let passed = [];
let version = 0;
let timer = 0;
/** @type {any} */ let recording = null;

/** What is seen here. @returns {Note} */
function snapshot() {
  const frame = here.stack.frames[view.frame];
  /** @type {[number, string][]} */ const source = [];
  for (const row of document.querySelectorAll('#lines .row')) {
    const number = Number(/** @type {HTMLElement} */ (row).dataset.number);
    if (Math.abs(number - (frame?.line ?? 0)) <= 4) source.push([number, row.querySelector('code')?.textContent ?? '']);
  }
  const values = [...document.querySelectorAll('#values .value')].slice(0, 40).map(row =>
    [...row.children].filter(child => !child.matches('.twist, .type, button')).map(child => child.textContent).join('').trim());
  return {
    stream: view.stream, at: view.at, thread: here.thread, frame: view.frame, title: where(frame), text: '', when: Date.now(),
    source, values, stack: here.stack.frames.slice(0, 20).map(where), url: location.hash,
  };
}

/** @param {Note[]} all */
async function write(all) {
  const told = await attempt(() => ask('note', { version, notes: all }));
  if (!told) return false;
  version = told.version;
  notes = told.notes;
  if (told.unkept) say(told.unkept, true);
  refresh();
  return !told.late;
}

/** Changes the notes as they are now: somebody else may have been faster. @param {(notes: Note[]) => Note[]} change */
async function change(change) {
  for (let tries = 0; tries < 3; tries++) if (await write(change([...notes]))) return;
}

export async function keepHere() {
  if (!here) return;
  const note = snapshot();
  await change(all => [...all, note]);
  say(`kept: ${note.title}`);
}

async function read() {
  const told = await ask('notes').catch(() => null);
  if (!told || told.version === version) return;
  ({ version, notes } = told);
  refresh();
}

function refresh() {
  const writing = document.activeElement?.closest('.note');
  if (view.tab === 'notes' && !writing) open('notes');
}

/** @param {Note} a @param {Note} b */
const same = (a, b) => a.when === b.when && a.at === b.at;

/** @param {Note} note @param {boolean} kept */
function card(note, kept) {
  return h('div', { class: kept ? 'note' : 'note passed' },
    h('div', { class: 'tools' },
      h('button', { class: 'link', onclick: () => goTo({ stream: note.stream, at: note.at, thread: note.thread, frame: note.frame }) }, note.at),
      h('b', {}, note.title), h('span', { class: 'faint' }, ` thread ${note.thread}`), h('span', { class: 'spring' }),
      kept ? h('button', { class: 'small', title: 'Remove this note', onclick: () => change(all => all.filter(one => !same(one, note))) }, 'remove')
        : h('button', { class: 'small', onclick: () => { passed = passed.filter(one => one !== note); change(all => [...all, note]); } }, 'keep')),
    kept ? h('textarea', {
      rows: 2, placeholder: 'What was learned here', 'aria-label': `Note at ${note.at}`, value: note.text,
      onchange: (/** @type {Event} */ event) => {
        const text = /** @type {HTMLTextAreaElement} */ (event.target).value;
        change(all => all.map(one => same(one, note) ? { ...one, text } : one));
      },
    }) : null);
}

/** @param {any} panel */
function draw(panel) {
  panel.append(h('div', { class: 'tools' }, h('button', { class: 'small', onclick: keepHere }, 'keep this place (n)'),
    h('button', { class: 'small', onclick: exported, title: 'A page of its own, for a colleague' }, 'export as a page'),
    h('span', { class: 'faint' }, 'Places where you stay are noted by themselves; keep those that matter.')),
  h('div', { class: 'notes' }, notes.map(note => card(note, true)), passed.length ? h('h3', {}, 'Passed') : null, [...passed].reverse().map(note => card(note, false))));
}

/** A document of its own, made of elements: what a recording says stays text. */
async function exported() {
  const report = await ask('analyse', { stream: view.stream, at: 'end', analysis: 'why' }, { label: 'why it failed' }).catch(() => null);
  const page = document.implementation.createHTMLDocument(`${recording.name}: notes`);
  const e = (/** @type {string} */ tag, /** @type {string} */ name, /** @type {any[]} */ ...children) => {
    const element = page.createElement(tag);
    if (name) element.className = name;
    for (const child of children.flat()) element.append(child);
    return element;
  };
  const meta = page.createElement('meta');
  meta.setAttribute('charset', 'utf-8');
  const policy = page.createElement('meta');
  policy.setAttribute('http-equiv', 'Content-Security-Policy');
  policy.setAttribute('content', "default-src 'none'; style-src 'unsafe-inline'");
  page.head.prepend(meta, policy);
  const stream = recording.streams.find((/** @type {any} */ one) => one.stream === view.stream);
  page.body.append(e('h1', '', recording.name), e('p', 'faint', `${stream?.argv.join(' ') ?? ''} · ${stream?.end ?? ''}`));
  if (report?.statements) {
    page.body.append(e('h2', '', `Why: ${report.kind}`), e('ol', '', ...report.statements.map((/** @type {any} */ one) =>
      e('li', '', one.text, one.site ? e('div', 'faint', `${one.site.position} · thread ${one.site.thread} · ${one.site.function} ${base(one.site.file)}:${one.site.line}`) : ''))));
  }
  page.body.append(e('h2', '', 'Notes'));
  for (const note of notes) {
    const line = note.title.split(':').pop();
    page.body.append(e('section', '', e('h3', '', `${note.at} · ${note.title}`), note.text ? e('p', 'text', note.text) : '',
      e('pre', '', ...note.source.map(([number, text]) => e('div', String(number) === line ? 'current' : '', `${String(number).padStart(5)}  ${text}`))),
      e('details', '', e('summary', '', 'stack and values'), e('pre', '', note.stack.map((frame, n) => `#${n} ${frame}`).join('\n')), e('pre', '', note.values.join('\n'))),
      e('p', 'faint', `clew view ${recording.name}, then ${note.url}`)));
  }
  // The style is ours, and would be refused in a document that is made here; `</head>` is never text of the recording's.
  const text = page.documentElement.outerHTML.replace('</head>', () => `<style>${STYLE}</style></head>`);
  const blob = new Blob(['<!doctype html>\n', text], { type: 'text/html' });
  const link = h('a', { href: URL.createObjectURL(blob), download: `${recording.name}-notes.html` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  say(`exported ${notes.length} notes`);
}

const STYLE = `body{font:15px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}
pre{background:#f5f6f8;padding:.6rem;overflow:auto;font-size:13px}.current{background:#fff1b8}.faint{color:#667}.text{white-space:pre-wrap}
section{border-top:1px solid #dde;margin-top:1.5rem}@media(prefers-color-scheme:dark){body{background:#16181c;color:#dde}pre{background:#1f2228}.current{background:#4a4220}}`;

/** @param {any} told */
export function start(told) {
  recording = told;
  tab('notes', { title: 'Notes', hint: 'The notebook', draw });
  read();
  setInterval(read, 3000);
  on('frame', () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (!here || document.hidden || [...notes, ...passed].some(note => note.at === view.at && note.stream === view.stream)) return;
      passed.push(snapshot());
      if (passed.length > MOST_PASSED) passed.shift();
      refresh();
    }, STAYED);
  });
}
