// Instructions, registers and memory at the place where one stands.

import { h, set } from './dom.js';
import { asked, field, open, tab } from './lists.js';
import { move, on, place, view } from './state.js';

/** @type {any[]} */ let registers = [];
/** @type {Map<string, string>} */ let before = new Map();

/** @param {any} panel */
function code(panel) {
  const left = h('div', { class: 'code' });
  const right = h('div', { class: 'registers' });
  panel.append(h('div', { class: 'tools' },
    h('button', { class: 'small', onclick: () => move('step', { ...place(), stride: 'instruction', way: 'backward' }, 'an instruction back') }, '◂ instruction'),
    h('button', { class: 'small', onclick: () => move('step', { ...place(), stride: 'instruction', way: 'forward' }, 'an instruction on') }, 'instruction ▸')),
  h('div', { class: 'columns' }, left, right));
  drawRegisters(right);
  asked(left, 'code', { ...place(), before: 24, count: 90 }, 'instructions', told => {
    let line = '';
    /** @type {any} */ let now = null;
    const rows = told.code.map((/** @type {any} */ one) => {
      const at = one.line ? `${one.file?.split('/').pop()}:${one.line}` : '';
      const mark = at !== line ? at : '';
      line = at;
      const row = h('tr', { class: one.address === told.address ? 'chosen' : '' }, h('td', { class: 'faint' }, one.address), h('td', { class: 'faint' }, mark), h('td', {}, h('code', {}, one.text)));
      if (one.address === told.address) now = row;
      return row;
    });
    left.append(h('table', {}, h('tbody', {}, rows)));
    now?.scrollIntoView({ block: 'center' });
  }, false);
}

/** @param {any} element */
function drawRegisters(element) {
  set(element, h('table', {}, h('tbody', {}, registers.map(one => h('tr', { class: before.has(one.name) && before.get(one.name) !== one.text ? 'changed' : '' },
    h('td', { class: 'faint' }, one.name), h('td', {}, h('code', {}, one.text)))))));
}

/** @param {any} panel @param {string} about */
function memory(panel, about) {
  field(panel, 'Address or expression', about, text => open('memory', text));
  if (!about) return;
  asked(panel, 'memory', { ...place(), address: about, size: 512 }, 'memory', told => {
    if (!told.bytes.length) {
      panel.append(h('div', { class: 'notice' }, `Nothing is mapped at ${told.address} here.`));
      return;
    }
    const start = BigInt(told.address);
    const rows = [];
    for (let n = 0; n < told.bytes.length; n += 16) {
      const some = told.bytes.slice(n, n + 16);
      const address = '0x' + (start + BigInt(n)).toString(16);
      rows.push(h('tr', {}, h('td', { class: 'faint' }, address),
        h('td', {}, h('code', {}, some.map((/** @type {number} */ byte) => byte.toString(16).padStart(2, '0')).join(' '))),
        h('td', {}, h('code', {}, some.map((/** @type {number} */ byte) => byte >= 32 && byte < 127 ? String.fromCharCode(byte) : '·').join('')))));
    }
    panel.append(h('table', { class: 'memory' }, h('tbody', {}, rows)));
  }, false);
}

export function start() {
  tab('code', { title: 'Code', hint: 'Instructions and registers', draw: code });
  tab('memory', { title: 'Memory', hint: 'Bytes at an address', draw: memory });
  on('registers', told => {
    before = new Map(registers.map(one => [one.name, one.text]));
    registers = told;
    // What is shown is about where one stands.
    if (view.tab === 'code' || view.tab === 'memory') open(view.tab, view.about);
  });
}
