// Analyses that are commands of clew: their reports, with links into the recording.

import { ask, attempt } from './api.js';
import { base, h, short } from './dom.js';
import { asked, field, moments, open, tab } from './lists.js';
import { highlight } from './source.js';
import { goTo, look, place, view } from './state.js';

/** A place in the recording as a link. @param {any} site */
function link(site) {
  if (!site?.position) return null;
  return h('button', {
    class: 'link', title: site.source ?? '', onclick: () => goTo({ at: site.position, thread: site.thread ?? null }),
  }, site.position);
}

/** @param {any} site */
function at(site) {
  if (!site) return null;
  return h('span', { class: 'faint' }, ' ', site.function ?? '', ' ', site.file && site.line
    ? h('button', { class: 'link', onclick: () => look(site.file, site.line) }, `${base(site.file)}:${site.line}`) : '');
}

/** @param {string} analysis @param {any} panel @param {string} label @param {any} more @param {(told: any) => void} then */
function analyse(analysis, panel, label, more, then) {
  // What isn't about an expression isn't about the place either.
  const about = more.expression ? place() : { stream: view.stream, at: 'end' };
  asked(panel, 'analyse', { ...about, analysis, ...more }, label, then);
}

/** @param {any} panel */
function why(panel) {
  analyse('why', panel, 'why it failed', {}, told => {
    const list = h('ol', { class: 'why' });
    for (const one of told.statements ?? []) {
      list.append(h('li', { class: one.cause ? 'cause' : '' }, h('div', {}, one.text, one.inferred ? h('i', { class: 'faint' }, ' (inferred)') : null),
        one.site ? h('div', {}, link(one.site), h('span', { class: 'faint' }, ` thread ${one.site.thread}`), at(one.site),
          one.site.source ? h('code', { class: 'quoted' }, one.site.source) : null) : null));
    }
    panel.append(h('div', { class: 'report' }, h('h3', {}, told.kind ?? 'why'), list,
      (told.looked ?? []).map((/** @type {string} */ text) => h('p', { class: 'faint' }, typeof text === 'string' ? text : JSON.stringify(text)))));
    const sites = (told.statements ?? []).map((/** @type {any} */ one) => ({ file: one.site?.file, line: one.site?.line, text: one.text }));
    highlight(sites);
  });
}

/** @param {any} panel */
function alerts(panel) {
  analyse('alerts', panel, 'alerts', {}, told => {
    moments(panel, (told.alerts ?? []).map((/** @type {any} */ one) => ({
      position: one.position, thread: one.thread, text: `${one.kind} ${one.text}`, cells: [h('b', {}, one.kind), one.text, at(one.site)],
    })), ['kind', 'what', 'where'], `${told.alerts?.length ?? 0} alerts`);
    for (const more of told.more ?? []) panel.append(h('p', { class: 'notice' }, typeof more === 'string' ? more : JSON.stringify(more)));
  });
}

/** @param {any} panel @param {string} about */
function slice(panel, about) {
  field(panel, 'All that this depends on', about, text => open('slice', text));
  analyse('slice', panel, about ? `slice of ${about}` : 'slice of the failure', { expression: about || null, flags: ['--depth=400'] }, told => {
    highlight(told.statements.map((/** @type {any} */ one) => ({ file: one.file, line: one.line, text: one.why.join(', ') })));
    if (!about) panel.append(h('div', { class: 'notice' }, 'What the failure depends on. The statements are marked in the source.'));
    moments(panel, told.statements.map((/** @type {any} */ one, /** @type {number} */ n) => ({
      position: one.position, thread: one.thread, text: `${one.function} ${one.file}:${one.line} ${one.instruction}`,
      cells: [
        h('span', { class: 'faint' }, `#${n}`), h('b', {}, one.function ?? ''), one.line ? `${base(one.file)}:${one.line}` : one.module,
        h('span', { class: 'faint' }, one.why.join(', ')), one.count > 1 ? `${one.count} times` : '',
        h('span', { class: 'faint' }, one.uses.length ? `uses ${one.uses.map((/** @type {number} */ use) => `#${use}`).join(' ')}` : ''),
      ],
    })), ['', 'function', 'line', 'why', '', 'dependences'], `${told.statements.length} of ${told.count} statements, out of ${told.instructions} instructions`);
    const inputs = [...told.inputs, ...told.rest];
    if (inputs.length) {
      panel.append(h('div', { class: 'report' }, h('h3', {}, 'From outside'), h('ul', {}, inputs.map((/** @type {any} */ one) =>
        h('li', {}, link(one), ' ', one.what, one.bytes ? h('span', { class: 'faint' }, ` ${one.bytes} bytes`) : null)))));
    }
  });
}

/** @param {any} panel @param {string} about */
function origin(panel, about) {
  field(panel, 'Where this comes from', about, text => open('origin', text));
  if (!about) return;
  analyse('origin', panel, `origin of ${about}`, { expression: about }, told => {
    panel.append(h('div', { class: 'notice' }, `${told.what} = ${told.value}; `, ending(told.ending)));
    highlight(told.steps.map((/** @type {any} */ one) => ({ file: one.file, line: one.line, text: one.text ?? '' })));
    moments(panel, told.steps.map((/** @type {any} */ one) => ({
      position: one.position, thread: one.thread, text: JSON.stringify(one),
      cells: [h('b', {}, one.function ?? ''), one.line ? `${base(one.file)}:${one.line}` : '', h('code', {}, one.instruction ?? one.text ?? '')],
    })), ['function', 'line', 'instruction'], `${told.steps.length} steps`);
  });
}

/** @param {any} end */
function ending(end) {
  if (!end) return '';
  const rest = Object.entries(end).filter(([name]) => name !== 'kind').map(([name, value]) => `${name} ${typeof value === 'object' ? JSON.stringify(value) : value}`);
  return `it ends: ${String(end.kind).replaceAll('_', ' ')}${rest.length ? ` (${rest.join(', ')})` : ''}`;
}

/** @param {any} panel */
function races(panel) {
  analyse('races', panel, 'races', {}, told => {
    if (!told.races.length) {
      panel.append(h('div', { class: 'notice' }, `No races: ${told.accesses} accesses to shared memory are all ordered${told.complete ? '' : ', as far as was looked'}.`));
      return;
    }
    for (const race of told.races) {
      const sides = [race.first, race.second].filter(Boolean);
      panel.append(h('div', { class: 'report race' }, h('h3', {}, race.variable ?? race.name ?? race.address, ` · ${race.bytes} bytes${race.count ? ` · ${race.count} times` : ''}`),
        h('ul', {}, sides.map((/** @type {any} */ side) => h('li', {}, link(side), h('span', { class: 'faint' }, ` thread ${side.thread} `),
          side.what ?? '', at(side),
          side.locks?.length ? h('span', { class: 'faint' }, ` holds ${side.locks.map((/** @type {any} */ lock) => lock.name ?? lock).join(', ')}`) : null))),
        race.missing ? h('p', { class: 'faint' }, race.missing) : null));
    }
  });
}

/** @param {any} panel @param {string} about */
function heap(panel, about) {
  field(panel, 'Memory at', about, text => open('heap', text));
  analyse('heap', panel, 'the heap', about ? { expression: about } : { flags: ['--leaks'] }, told => {
    const blocks = told.places ? told.places.map((/** @type {any} */ one) => [one.first, one.blocks, one.bytes])
      : (told.blocks && Array.isArray(told.blocks) ? told.blocks : [told.block ?? told]).filter((/** @type {any} */ one) => one?.allocated).map((/** @type {any} */ one) => [one, 1, one.size]);
    panel.append(h('div', { class: 'notice' }, about ? `Blocks at ${about}` : `Never freed: ${told.blocks} blocks, ${told.bytes} bytes`));
    for (const [block, count, bytes] of blocks) {
      panel.append(h('div', { class: 'report' }, h('h3', {}, `${block.address} · ${bytes} bytes${count > 1 ? ` in ${count} blocks` : ''}`),
        h('ul', {}, h('li', {}, 'allocated by ', h('b', {}, block.allocated.function), ' ', link(block.allocated), at(block.allocated.site)),
          block.freed ? h('li', {}, 'freed by ', h('b', {}, block.freed.function), ' ', link(block.freed), at(block.freed.site)) : h('li', { class: 'faint' }, 'not freed'))));
    }
    if (!blocks.length) panel.append(h('pre', { class: 'notice' }, JSON.stringify(told, null, 2)));
  });
}

/** @param {any} panel @param {string} about */
function watch(panel, about) {
  field(panel, 'Where this condition flips', about, text => open('watch', text));
  if (!about) {
    panel.append(h('div', { class: 'notice' }, 'A condition over the program\'s variables, as in head->next->prev == head: the statement that made it true, or false.'));
    return;
  }
  analyse('watch', panel, `where ${about} flips`, { expression: about }, told => {
    if (!told.found) {
      panel.append(h('div', { class: 'notice' }, `It doesn't flip: ${told.from?.value ?? 'it has no value'} all the time.`));
      return;
    }
    moments(panel, told.flips.map((/** @type {any} */ one) => ({
      position: one.position, thread: one.thread?.number, text: one.source ?? '',
      cells: [one.becomes ? 'becomes true' : 'becomes false', h('b', {}, one.function ?? ''), one.line ? `${base(one.file)}:${one.line}` : '', h('code', {}, one.source ?? ''),
        one.values.map((/** @type {any} */ value) => h('div', { class: 'faint' }, short(`${value.expression}: ${value.before} → ${value.after}`)))],
    })), ['', 'function', 'line', 'source', 'values'], `${told.flips.length} flips`);
  });
}

/** @param {any} panel @param {string} about */
async function diagnose(panel, about) {
  if (about) {
    const [fail, pass] = about.split('|').map(part => part.split(',').filter(Boolean));
    asked(panel, 'diagnose', { fail, pass }, 'comparing runs', told => {
      panel.append(h('div', { class: 'report' }, tree(told)));
    });
    return;
  }
  panel.append(h('div', { class: 'notice' }, 'Failing runs against passing ones: which accesses of threads come in another order. Choose at least one of each.'));
  const told = await attempt(() => ask('recordings', {}, { label: 'recordings' }));
  if (!told) return;
  const list = Array.isArray(told) ? told : told.recordings ?? [];
  const choices = new Map();
  panel.append(h('table', {}, h('tbody', {}, list.map((/** @type {any} */ one) => {
    const choose = h('select', { 'aria-label': one.name, onchange: () => choices.set(one.name, choose.value) },
      ['', 'fails', 'passes'].map(text => h('option', {}, text)));
    return h('tr', {}, h('td', {}, choose), h('td', {}, h('b', {}, one.name)), h('td', { class: 'faint' }, one.program ?? ''),
      h('td', {}, typeof one.end === 'object' ? Object.values(one.end ?? {}).join(' ') : one.end ?? ''));
  }))), h('div', { class: 'tools' }, h('button', {
    class: 'small', onclick: () => {
      const of = (/** @type {string} */ what) => [...choices].filter(([, chosen]) => chosen === what).map(([name]) => name).join(',');
      open('diagnose', `${of('fails')}|${of('passes')}`);
    },
  }, 'compare')));
}

/** Any report: names and values, positions as links. @param {any} value @returns {any} */
function tree(value) {
  if (Array.isArray(value)) return h('ul', {}, value.map(one => h('li', {}, tree(one))));
  if (value === null || typeof value !== 'object') return String(value ?? '—');
  return h('dl', {}, Object.entries(value).filter(([, one]) => one !== null).map(([name, one]) => [
    h('dt', {}, name.replaceAll('_', ' ')),
    h('dd', {}, name === 'position' && typeof one === 'string' ? link({ ...value, position: one }) : tree(one))]));
}

export function start() {
  tab('why', { title: 'Why', hint: 'How it came to the failure', draw: why });
  tab('alerts', { title: 'Alerts', hint: 'Everything notable: crashes, failed calls, exceptions', draw: alerts });
  tab('slice', { title: 'Slice', hint: 'All that a value, or the failure, depends on', draw: slice });
  tab('origin', { title: 'Origin', hint: 'Where a value was computed or came in', draw: origin });
  tab('watch', { title: 'Flips', hint: 'Where a condition becomes true or false', draw: watch });
  tab('races', { title: 'Races', hint: 'Accesses of threads that nothing orders', draw: races });
  tab('heap', { title: 'Heap', hint: 'Who allocated and freed memory', draw: heap });
  tab('diagnose', { title: 'Diagnose', hint: 'Failing runs against passing ones', draw: diagnose });
}
