// The drawer: tabs, and lists of moments that one can filter, click and step through.

import { ask, attempt, Cancelled, say } from './api.js';
import { $, base, compare, h, set, short, where } from './dom.js';
import { show as showMarks } from './lanes.js';
import { goTo, here, on, save, view } from './state.js';

/** @typedef {{title: string, hint: string, draw: (panel: any, about: string) => void}} Tab */
/** @type {Map<string, Tab>} */ export const tabs = new Map();

/** @param {string} id @param {Tab} one */
export function tab(id, one) {
  tabs.set(id, one);
}

let turn = 0;
/** Ends what the tab that is shown is waiting for. */
let waiting = new AbortController();

/** @param {string} id @param {string} [about] */
export function open(id, about) {
  const one = tabs.get(id);
  if (!one) return;
  if (about !== undefined || view.tab !== id) view.about = about ?? remembered.get(id) ?? '';
  remembered.set(id, view.about);
  view.tab = id;
  save();
  turn++;
  waiting.abort();
  waiting = new AbortController();
  list = null;
  showMarks(view.stream, []);
  for (const button of $('tabs').children) {
    const mine = button.dataset.tab === id;
    button.setAttribute('aria-selected', String(mine));
    button.tabIndex = mine ? 0 : -1;
  }
  const panel = $('panel');
  panel.replaceChildren();
  panel.scrollTop = 0;
  one.draw(panel, view.about);
}

/** @type {Map<string, string>} */ const remembered = new Map();
/** Answers about whole lives stay true. @type {Map<string, any>} */ const kept = new Map();

/**
 * Asks for something that a tab shows; nothing happens if another tab is there when it comes.
 * @param {any} panel @param {string} what @param {any} about @param {string} label @param {(told: any) => void} then @param {boolean} [keep]
 */
export async function asked(panel, what, about, label, then, keep = true) {
  const mine = turn;
  const key = JSON.stringify([what, about]);
  const notice = h('div', { class: 'notice' }, `${label} …`);
  if (!kept.has(key)) panel.append(notice);
  try {
    const told = kept.get(key) ?? await ask(what, about, { label, signal: waiting.signal });
    if (keep) kept.set(key, told);
    notice.remove();
    if (mine === turn) then(told);
  } catch (error) {
    notice.remove();
    if (mine !== turn) return;
    const said = error instanceof Cancelled ? 'cancelled' : error instanceof Error ? error.message : String(error);
    panel.append(h('div', { class: 'notice bad' }, said, ' ', h('button', { class: 'small', onclick: () => open(view.tab, view.about) }, 'again')));
  }
}

/** @typedef {{position: string, thread?: number, stream?: number, cells: any[], text: string}} Moment */
/** The list that Alt and arrows go through. @type {{moments: Moment[], rows: any[]} | null} */ let list = null;

/**
 * @param {any} panel @param {Moment[]} moments @param {string[]} head @param {string} foot
 */
export function moments(panel, moments, head, foot) {
  const body = h('tbody', {});
  const rows = moments.map(one => h('tr', {
    tabindex: 0, class: 'moment',
    onclick: () => go(one),
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key === 'Enter') go(one);
      else if (event.key === 'ArrowDown') /** @type {any} */ (event.currentTarget).nextElementSibling?.focus();
      else if (event.key === 'ArrowUp') /** @type {any} */ (event.currentTarget).previousElementSibling?.focus();
      else return;
      event.preventDefault();
    },
  }, h('td', { class: 'position' }, one.position), h('td', { class: 'faint' }, one.thread ?? ''), one.cells.map(cell => h('td', {}, cell))));
  const count = h('span', { class: 'faint' }, foot);
  const filter = h('input', {
    placeholder: 'Filter', 'aria-label': 'Filter', class: 'filter',
    oninput: () => {
      const wanted = filter.value.toLowerCase();
      let shown = 0;
      rows.forEach((row, n) => {
        row.hidden = wanted && !moments[n].text.toLowerCase().includes(wanted);
        shown += row.hidden ? 0 : 1;
      });
      count.textContent = wanted ? `${shown} of ${moments.length}` : foot;
      showMarks(view.stream, moments.filter((one, n) => !rows[n].hidden && (one.stream ?? view.stream) === view.stream));
    },
  });
  body.append(...rows);
  panel.append(h('div', { class: 'tools' },
    h('button', { class: 'small', title: 'The one before here (Alt+↑)', onclick: () => walk(-1) }, '◂'),
    h('button', { class: 'small', title: 'The next one behind here (Alt+↓)', onclick: () => walk(1) }, '▸'),
    filter, count),
  h('table', {}, h('thead', {}, h('tr', {}, ['position', 'thread', ...head].map(text => h('th', {}, text)))), body));
  list = { moments, rows };
  showMarks(view.stream, moments.filter(one => (one.stream ?? view.stream) === view.stream));
  mark();
}

/** @param {Moment} one */
function go(one) {
  goTo({ at: one.position, thread: one.thread ?? null, stream: one.stream ?? view.stream });
}

/** To the next moment of the list, or the one before. @param {number} by */
export function walk(by) {
  if (!list || !here) return;
  const shown = list.moments.filter((one, n) => !/** @type {any} */ (list).rows[n].hidden && (one.stream ?? view.stream) === view.stream).sort((a, b) => compare(a.position, b.position));
  const next = by > 0 ? shown.find(one => compare(one.position, view.at) > 0)
    : [...shown].reverse().find(one => compare(one.position, view.at) < 0);
  if (next) go(next);
  else say(by > 0 ? 'none of the list is behind here' : 'none of the list is before here');
}

function mark() {
  if (!list || !here) return;
  let first = true;
  list.moments.forEach((one, n) => {
    const row = /** @type {any} */ (list).rows[n];
    const order = one.stream === undefined || one.stream === view.stream ? compare(one.position, view.at) : -1;
    row.classList.toggle('chosen', order === 0);
    row.classList.toggle('later', order > 0);
    if (order === 0 && first) {
      first = false;
      row.scrollIntoView({ block: 'nearest' });
    }
  });
}

/** @param {boolean} complete @param {number} count @param {string} noun */
const foot = (complete, count, noun) => `${count} ${noun}${count === 1 ? '' : 's'}${complete ? '' : ', and more'}`;

/** A field at the top of a tab. @param {any} panel @param {string} label @param {string} value @param {(text: string) => void} then */
export function field(panel, label, value, then) {
  const input = h('input', { value, 'aria-label': label, spellcheck: 'false', class: 'wide' });
  panel.append(h('form', {
    class: 'tools', autocomplete: 'off', onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); then(input.value.trim()); },
  }, h('label', {}, label, ' ', input), h('button', { class: 'small' }, 'ask')));
  return input;
}

/** A write may be several lines: each of them leads to it. @param {any[]} told @param {number} stream @returns {Moment[]} */
function written(told, stream) {
  /** @type {Moment[]} */ const all = [];
  for (const one of told) {
    const lines = one.text.split('\n');
    if (lines[lines.length - 1] === '') lines.pop();
    for (const line of lines) {
      all.push({
        position: one.position, thread: one.thread, stream, text: line,
        cells: [h('span', { class: one.to === 2 ? 'written error' : 'written' }, line), one.whole ? '' : h('i', { class: 'faint' }, 'in part')],
      });
    }
  }
  return all;
}

/** What the tab of output may show, by what the address says of it. @type {[string, string, string][]} */
const OUTPUTS = [['', 'this process', ''], ['all', 'all programs', 'All programs, by time'], ['files', 'files and services', 'Lines that it wrote into files, and messages to services such as syslog']];

/** @param {any} panel @param {string} about */
function output(panel, about) {
  panel.append(h('div', { class: 'tools', role: 'group', 'aria-label': 'Which output' }, OUTPUTS.filter(([id]) => id !== 'all' || streams.length > 1).map(([id, label, hint]) =>
    h('button', { class: 'small', title: hint, 'aria-pressed': String(id === about), onclick: () => open('output', id) }, label))));
  if (about === 'files') {
    asked(panel, 'logged', { stream: view.stream, most: 10000 }, 'what went into files', told => {
      /** @type {Moment[]} */ const all = [];
      for (const one of told) {
        for (const line of written([{ ...one, whole: true }], view.stream)) {
          line.text += ` ${one.file}`;
          line.cells = [h('span', { class: 'faint', title: one.file }, base(one.file)), line.cells[0]];
          all.push(line);
        }
      }
      moments(panel, all, ['file', 'written'], foot(told.length < 10000, all.length, 'line'));
    });
    return;
  }
  if (about !== 'all') {
    asked(panel, 'output', { stream: view.stream, most: 10000 }, 'output', told => {
      const all = written(told, view.stream);
      moments(panel, all, ['written', ''], foot(told.length < 10000, all.length, 'line'));
    });
    return;
  }
  const mine = turn;
  const { signal } = waiting;
  const label = 'output of all programs';
  attempt(async () => {
    /** @type {(Moment & {x: number})[]} */ const all = [];
    for (const one of streams) {
      const told = await ask('output', { stream: one.stream, most: 10000 }, { label, signal });
      const xs = await ask('places', { stream: one.stream, positions: told.map((/** @type {any} */ write) => write.position) });
      told.forEach((/** @type {any} */ write, /** @type {number} */ n) => all.push(...written([write], one.stream).map(line => ({ ...line, x: xs[n] }))));
    }
    if (mine !== turn) return;
    // As it came: by the time of the write.
    all.sort((a, b) => a.x - b.x);
    for (const one of all) one.cells.unshift(h('span', { class: 'faint' }, names.get(one.stream ?? 0) ?? ''));
    moments(panel, all, ['program', 'written', ''], foot(true, all.length, 'line'));
  });
}

/** @param {any} panel @param {string} about */
function line(panel, about) {
  // The place, a condition, and what to print there are one text in the address.
  const [spot, condition = '', ...prints] = about.split('\u001f');
  const place = h('input', { value: spot, 'aria-label': 'Line or function', placeholder: 'FILE:LINE or function', class: 'wide', spellcheck: 'false' });
  const only = h('input', { value: condition, 'aria-label': 'Only if', placeholder: 'only if …', spellcheck: 'false' });
  const print = h('input', { value: prints.join('; '), 'aria-label': 'Print', placeholder: 'print: id; job->refs', class: 'wide', spellcheck: 'false' });
  panel.append(h('form', {
    class: 'tools', autocomplete: 'off', onsubmit: (/** @type {Event} */ event) => {
      event.preventDefault();
      const wanted = print.value.split(';').map((/** @type {string} */ one) => one.trim()).filter(Boolean);
      open('line', [place.value.trim(), only.value.trim(), ...wanted].join('\u001f'));
    },
  }, place, only, print, h('button', { class: 'small' }, 'ask')));
  if (!spot) {
    panel.append(h('div', { class: 'notice' }, 'All times that a line was executed, and what expressions were there each time. Click the count beside a line.'));
    return;
  }
  asked(panel, 'executions', { stream: view.stream, spot, condition: condition || null, expressions: prints, most: 2000 }, `all times at ${base(spot)}`, told => {
    moments(panel, told.executions.map((/** @type {any} */ one) => {
      const values = one.values.map((/** @type {any} */ value) => value.Ok ?? `(${String(value.Err).split('\n')[0]})`);
      return { position: one.position, thread: one.thread, text: values.join(' '), cells: values.map((/** @type {string} */ text) => short(text)) };
    }), prints, foot(told.complete, told.executions.length, 'time'));
  });
}

/** @param {any} panel @param {string} about */
function history(panel, about) {
  field(panel, 'Changes of', about, text => open('history', text));
  if (!about) return;
  const asking = { stream: view.stream, at: view.at, thread: view.thread, frame: view.frame, hidden: view.hidden, expression: about, most: 2000 };
  asked(panel, 'history', asking, `all changes of ${about}`, told => {
    panel.append(h('div', { class: 'notice' }, `${told.expression} (${told.type}), ${told.size} bytes at ${told.address}`,
      told.function ? `, within this call of ${told.function}` : ', over the whole life of the program'));
    moments(panel, told.changes.map((/** @type {any} */ one) => ({
      position: one.position, thread: one.thread, text: `${one.before} ${one.after} ${where(one.location)}`,
      cells: [short(one.before ?? 'no memory'), h('b', {}, short(one.after ?? 'no memory')), h('span', { class: 'faint' }, where(one.location), one.by_event ? ' (system call)' : '')],
    })), ['before', 'after', 'by'], foot(told.complete, told.changes.length, 'change'));
  }, false);
}

/** @param {any} one */
const signature = one => [
  h('b', {}, one.function), '(', one.arguments.map((/** @type {any} */ argument, /** @type {number} */ n) =>
    [n ? ', ' : '', h('span', { class: 'faint' }, `${argument.name}=`), short(argument.text, 80)]), ')'];

/** @param {any} left */
function result(left) {
  if (left.how === 'returned') return left.value ? short(left.value.text, 120) : '';
  return h('i', { class: 'faint' }, left.how === 'unwound' ? 'left by a jump or exception' : 'never returned');
}

/** @param {any} one */
const callText = one => `${one.function} ${one.arguments.map((/** @type {any} */ argument) => `${argument.name}=${argument.text}`).join(' ')} ${one.left.value?.text ?? ''}`;

/** @param {any} panel @param {string} about */
function calls(panel, about) {
  field(panel, 'Calls of', about, text => open('calls', text));
  if (!about) return;
  asked(panel, 'calls', { stream: view.stream, function: about, most: 5000 }, `all calls of ${about}`, told => {
    if (told.inlined.length) panel.append(h('div', { class: 'notice' }, `The compiler put copies of it into ${told.inlined.length} other places: those calls aren't among these.`));
    moments(panel, told.calls.map((/** @type {any} */ one) => ({
      position: one.position, thread: one.thread, text: callText(one),
      cells: [signature(one), result(one.left), h('span', { class: 'faint' }, where(one.caller))],
    })), ['call', 'result', 'caller'], foot(told.complete, told.calls.length, 'call'));
  });
}

/** @param {any} panel */
function tree(panel) {
  const asking = { stream: view.stream, at: view.at, thread: view.thread, frame: view.frame, hidden: view.hidden, most: 5000 };
  const frame = here?.stack.frames[view.frame];
  panel.append(h('div', { class: 'tools' }, h('span', {}, 'Calls within ', h('b', {}, frame?.function ?? 'this frame')),
    h('button', { class: 'small', onclick: () => open('tree') }, 'of the frame that is chosen now')));
  asked(panel, 'tree', asking, 'calls within this call', told => {
    moments(panel, told.calls.map((/** @type {any} */ one) => ({
      position: one.position, thread: one.thread, text: callText(one),
      cells: [h('span', { style: { paddingLeft: `${one.depth * 16}px` } }, signature(one)), result(one.left)],
    })), ['call', 'result'], foot(told.complete, told.calls.length, 'call'));
  }, false);
}

/** @param {any} panel @param {string} about */
function search(panel, about) {
  field(panel, 'Events with', about, text => open('search', text));
  if (!about) {
    panel.append(h('div', { class: 'notice' }, 'System calls with their arguments, signals, forks, output: every event whose text has this in it.'));
    return;
  }
  asked(panel, 'search', { stream: view.stream, text: about, most: 2000 }, `events with ${about}`, told => {
    moments(panel, told.events.map((/** @type {any} */ one) => ({
      position: one.position, thread: one.thread, text: one.text, cells: [h('span', { class: 'faint' }, one.kind), h('code', {}, short(one.text, 400))],
    })), ['kind', 'event'], foot(told.complete, told.events.length, 'event'));
  });
}

/** Programs of the recording. @type {any[]} */ let streams = [];
/** @type {Map<number, string>} */ let names = new Map();

/** @param {any} recording */
export function start(recording) {
  streams = recording.streams;
  names = new Map(streams.map(one => [one.stream, `${base(one.argv[0] ?? one.exe)} ${one.pid}`]));
  tab('output', { title: 'Output', hint: 'What it wrote: click a line to go to the write that made it', draw: output });
  tab('line', { title: 'Line', hint: 'All times that a line was executed, and values there', draw: line });
  tab('history', { title: 'History', hint: 'All changes of a value', draw: history });
  tab('calls', { title: 'Calls', hint: 'All calls of a function', draw: calls });
  tab('tree', { title: 'Within', hint: 'All calls that a call made', draw: tree });
  tab('search', { title: 'Events', hint: 'System calls, signals, forks', draw: search });
  on('here', mark);
}

export function drawTabs() {
  const all = [...tabs];
  set($('tabs'), all.map(([id, one]) => h('button', {
    role: 'tab', 'data-tab': id, title: one.hint, 'aria-selected': 'false', tabindex: -1,
    onclick: () => open(id),
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      const by = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
      if (!by) return;
      const next = all[(all.findIndex(([other]) => other === id) + by + all.length) % all.length][0];
      open(next);
      $('tabs').querySelector(`[data-tab=${next}]`).focus();
    },
  }, one.title)));
}
