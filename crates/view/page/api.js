// Questions to the server. What takes longer than a moment shows how far it is, and can be cancelled.

import { $, h } from './dom.js';

const KEY = 'clew-token';

/** The token is in the address once; other windows of this browser find it here. */
function token() {
  const given = new URLSearchParams(location.search).get('token');
  if (given) {
    localStorage.setItem(KEY, given);
    history.replaceState(null, '', location.pathname + location.hash);
  }
  return localStorage.getItem(KEY) ?? '';
}

const TOKEN = token();

export class Cancelled extends Error {}

/** @param {string} path @param {RequestInit} init */
async function request(path, init) {
  let response;
  try {
    response = await fetch(path, {
      ...init,
      headers: { 'x-clew-token': TOKEN, 'content-type': 'application/json' },
      cache: 'no-store',
    });
  } catch (error) {
    if (init.signal?.aborted) throw new Cancelled();
    throw new Error('clew view has ended: start it again');
  }
  const told = await response.json();
  if (!response.ok && !('error' in told)) throw new Error(`status ${response.status}`);
  return told;
}

/**
 * @param {string} what
 * @param {Record<string, any>} [about]
 * @param {{label?: string, signal?: AbortSignal}} [how] the label is shown while it takes long
 * @returns {Promise<any>}
 */
export async function ask(what, about = {}, how = {}) {
  const begun = performance.now();
  let told = await request('/api/ask', { method: 'POST', body: JSON.stringify({ ...about, what }), signal: how.signal });
  /** @type {any} */ let row = null;
  const stop = new AbortController();
  if (how.signal?.aborted) stop.abort();
  how.signal?.addEventListener('abort', () => stop.abort());
  try {
    while (told.job !== undefined) {
      if (stop.signal.aborted) {
        request(`/api/job/${told.job}`, { method: 'DELETE' }).catch(() => {});
        throw new Cancelled();
      }
      if (!row && performance.now() - begun > 140) row = shown(how.label ?? what, () => stop.abort());
      row?.show(told.progress ?? 0, (performance.now() - begun) / 1000);
      const next = await request(`/api/job/${told.job}`, { method: 'GET' });
      told = 'job' in next || 'answer' in next || 'error' in next ? next : told;
    }
  } finally {
    row?.gone();
  }
  if (stop.signal.aborted || told.error === 'cancelled') throw new Cancelled();
  if ('error' in told) throw new Error(told.error);
  return told.answer;
}

/** @param {string} label @param {() => void} cancel */
function shown(label, cancel) {
  const bar = h('progress', { max: 1 });
  const text = h('span', {}, label);
  const row = h('span', { class: 'job' }, text, bar, h('button', { title: 'Cancel', 'aria-label': `Cancel ${label}`, onclick: cancel }, '✕'));
  $('jobs').append(row);
  return {
    /** @param {number} progress @param {number} seconds */
    show(progress, seconds) {
      if (progress > 0) bar.value = progress;
      else bar.removeAttribute('value');
      text.textContent = seconds > 2 ? `${label} · ${seconds.toFixed(0)} s` : label;
    },
    gone: () => row.remove(),
  };
}

/** @param {string} text @param {boolean} [bad] */
export function say(text, bad = false) {
  const said = $('said');
  said.textContent = text;
  said.className = bad ? 'bad' : '';
}

/** Runs something whose failure is told below, and whose cancelling isn't one. @param {() => Promise<any>} work */
export async function attempt(work) {
  try {
    const told = await work();
    return told;
  } catch (error) {
    if (!(error instanceof Cancelled)) say(error instanceof Error ? error.message : String(error), true);
    return undefined;
  }
}
