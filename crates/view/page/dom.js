// Elements out of data. Text is only ever set as text: nothing that a recording says becomes markup.

/**
 * @param {string} tag
 * @param {Record<string, any>} [props]
 * @param {...any} children
 * @returns {any}
 */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'class') element.className = value;
    else if (name === 'style') Object.assign(element.style, value);
    else if (name === 'value') /** @type {any} */ (element).value = value;
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  put(element, ...children);
  return element;
}

/** @param {Node} element @param {...any} children */
export function put(element, ...children) {
  for (const child of children.flat(9)) {
    if (child === undefined || child === null || child === false) continue;
    element.appendChild(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

/** @param {Element} element @param {...any} children */
export function set(element, ...children) {
  element.replaceChildren();
  put(element, ...children);
  return element;
}

/** @param {string} id @returns {any} */
export const $ = id => document.getElementById(id);

/** @param {string} path */
export const base = path => String(path ?? '').split('/').pop();

/** `main at jobs.c:12`, with what is known. @param {any} location */
export function where(location) {
  if (!location) return '';
  const name = location.function ?? '??';
  if (location.file && location.line) return `${name}  ${base(location.file)}:${location.line}`;
  if (location.module) return `${name}  ${base(location.module)}`;
  return `${name}  ${location.address ?? ''}`;
}

/** @param {string} text @param {number} most */
export const short = (text, most = 200) => text.length > most ? text.slice(0, most) + ' …' : text;

const PART = /^(\d+)(?:\+(\d+))?(?:\+(\d+))?$/;

/** Which of two positions of a stream comes first. @param {string} a @param {string} b */
export function compare(a, b) {
  const [x, y] = [PART.exec(a), PART.exec(b)];
  if (!x || !y) return 0;
  for (let n = 1; n < 4; n++) {
    const difference = Number(x[n] ?? 0) - Number(y[n] ?? 0);
    if (difference) return difference;
  }
  return 0;
}

let tipTimer = 0;

/** Shows something at a place until the pointer leaves. @param {number} x @param {number} y @param {...any} content */
export function tip(x, y, ...content) {
  const element = $('tip');
  clearTimeout(tipTimer);
  set(element, ...content);
  element.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = element;
  element.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - width - 8))}px`;
  element.style.top = `${y + 18 + height > innerHeight ? Math.max(4, y - height - 10) : y + 18}px`;
}

export function untip() {
  $('tip').hidden = true;
}

/**
 * A menu at a place; escape or a click elsewhere closes it.
 * @param {number} x @param {number} y @param {any[]} heading @param {[string, () => void, string?][]} entries
 */
export function menu(x, y, heading, entries) {
  const element = $('menu');
  const before = document.activeElement;
  const close = () => {
    element.hidden = true;
    removeEventListener('pointerdown', outside, true);
    if (before instanceof HTMLElement) before.focus({ preventScroll: true });
  };
  /** @param {Event} event */
  const outside = event => {
    if (!element.contains(/** @type {Node} */ (event.target))) close();
  };
  const buttons = entries.map(([text, run, hint]) =>
    h('button', { role: 'menuitem', title: hint, onclick: () => { close(); run(); } }, text));
  set(element, heading.length ? h('div', { class: 'heading' }, heading) : null, buttons);
  element.hidden = false;
  element.style.left = `${Math.max(4, Math.min(x, innerWidth - element.offsetWidth - 8))}px`;
  element.style.top = `${Math.max(4, Math.min(y, innerHeight - element.offsetHeight - 8))}px`;
  element.onkeydown = /** @param {KeyboardEvent} event */ event => {
    const at = buttons.indexOf(document.activeElement);
    if (event.key === 'Escape') close();
    else if (event.key === 'ArrowDown') buttons[(at + 1) % buttons.length].focus();
    else if (event.key === 'ArrowUp') buttons[(at + buttons.length - 1) % buttons.length].focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  buttons[0]?.focus();
  addEventListener('pointerdown', outside, true);
}
