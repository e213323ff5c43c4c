// The page in Chromium: node browser.mjs DEMO HOSTILE LONG, the addresses of three servers. Run by browser.rs.
import assert from 'node:assert/strict';
import { chromium } from 'playwright-core';

const [, , demo, hostile, long] = process.argv;
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
const wrong = [];

/** A window of its own, as of another browser. */
async function open(url, more = '') {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  const page = await context.newPage();
  page.setDefaultTimeout(60000);
  page.on('dialog', dialog => { wrong.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on('pageerror', error => wrong.push(`an error: ${error}`));
  page.on('console', message => { if (message.type() === 'error') wrong.push(`on the console: ${message.text()}`); });
  await page.goto(url + more);
  await page.waitForFunction(() => /^\d/.test(document.getElementById('position').value));
  return page;
}

const position = page => page.inputValue('#position');
const stack = page => page.locator('#stack .entry b').allTextContents();
/** Waits until it stands elsewhere. */
const moved = (page, from) => page.waitForFunction(from => document.getElementById('position').value !== from, from);

// The demo: at the crash, with both threads; from the value to the free.
let page = await open(demo);
assert.ok(!page.url().includes('token'), 'the token is still in the address');
await page.waitForSelector('.row.current');
assert.match(await page.textContent('.row.current code'), /job->client->cancelled\+\+/);
assert.ok(await page.locator('#threads .entry').count() >= 2, 'both threads');
const crash = await position(page);
await page.locator('.row.current .name', { hasText: /^client$/ }).click();
await page.getByRole('menuitem', { name: 'Who wrote this?' }).click();
await moved(page, crash);
await page.waitForFunction(() => document.getElementById('stack').textContent.includes('free_job'));
assert.match(await page.textContent('.row.current code, .row.caller code'), /memset\(job/);
const freed = await position(page);
await page.goBack();
await moved(page, freed);
assert.equal(await position(page), crash);

// Keys, both ways.
await page.keyboard.press('Shift+F10');
await moved(page, crash);
const before = await position(page);
await page.keyboard.press('F10');
await moved(page, before);

// A line of output leads to the write.
await page.locator('#tabs [data-tab=output]').click();
await page.locator('tr.moment', { hasText: 'from anna' }).first().click();
await page.waitForFunction(() => document.getElementById('stack').textContent.includes('write'));

// What went into files is beside it.
await page.locator('#tabs [data-tab=output]').click();
await page.getByRole('button', { name: 'files and services' }).click();
await page.waitForSelector('[aria-pressed=true]');
await page.locator('#panel .filter').waitFor();
await page.getByRole('button', { name: 'this process' }).click();
await page.waitForSelector('tr.moment');

// The address is the view: another browser sees the same, and neither moves the other.
const there = await position(page);
const second = await open(demo, page.url().slice(page.url().indexOf('#')));
assert.equal(await position(second), there);
await second.keyboard.press('Shift+Home');
await moved(second, there);
assert.equal(await position(page), there);

// Why, with links.
await page.locator('#tabs [data-tab=why]').click();
await page.locator('.why li.cause .link').first().click();
await page.waitForFunction(() => document.getElementById('stack').textContent.includes('free_job'));
// The order of events, the slice in the source, counts, all times of a line with values.
await page.locator('#tabs [data-tab=order]').click();
await page.waitForSelector('.order .event');
await page.locator('.order .event').nth(5).click({ modifiers: ['Shift'] });
await page.getByText(/\d+ marked: the least that must happen before it/).waitFor();
await page.waitForSelector('.order .event.dim');
await page.locator('#tabs [data-tab=slice]').click();
await page.waitForSelector('tr.moment');
await page.waitForSelector('.row.member');
await page.click('#coverage');
await page.waitForFunction(() => [...document.querySelectorAll('.count')].some(one => /^\d+$/.test(one.textContent)));
await page.locator('#tabs [data-tab=line]').click();
await page.fill('[aria-label="Line or function"]', 'jobs.c:109');
await page.fill('[aria-label=Print]', 'id');
await page.keyboard.press('Enter');
await page.waitForSelector('tr.moment');
const printed = await page.locator('tr.moment td:nth-child(3)').allTextContents();
assert.deepEqual(printed, printed.map((_, n) => String(n)), 'the jobs are submitted one after the other');
// A note that both browsers have.
await page.locator('#tabs [data-tab=notes]').click();
await page.getByRole('button', { name: /keep this place/ }).click();
await second.locator('#tabs [data-tab=notes]').click();
await second.waitForSelector('.note:not(.passed)');
// Exported, it is a page of its own without scripts.
const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'export as a page' }).click()]);
const chunks = [];
for await (const chunk of await download.createReadStream()) chunks.push(chunk);
const report = Buffer.concat(chunks).toString();
assert.ok(report.includes('Notes') && /submit|free_job/.test(report) && !report.includes('<script'), report.slice(0, 400));

// Strings of a hostile recording stay strings, wherever they are shown.
page = await open(hostile);
for (const tab of ['output', 'search', 'why', 'alerts', 'code', 'order', 'notes', 'heap', 'diagnose']) {
  await page.locator(`#tabs [data-tab=${tab}]`).click();
  await page.waitForTimeout(300);
}
await page.locator('#tabs [data-tab=output]').click();
await page.waitForSelector('tr.moment');
assert.match(await page.textContent('tr.moment'), /<img src=x onerror=alert\(1\)>/);
await page.locator('tr.moment').first().click();
await page.waitForFunction(() => document.getElementById('stack').textContent.includes('main'));
await page.locator('#stack .entry', { hasText: 'main' }).last().click();
await page.waitForSelector('.row.caller');
await page.locator('#tabs [data-tab=notes]').click();
await page.getByRole('button', { name: /keep this place/ }).click();
await page.waitForSelector('.note');
assert.equal(await page.evaluate(() => document.querySelectorAll('img, iframe, script:not([src]), b b, [onerror]').length), 0);

// A million events: every frame of a pan and zoom is drawn at once.
page = await open(long);
const measured = await page.evaluate(async () => {
  const { frames } = await import('/lanes.js');
  const overview = document.getElementById('lanes');
  const times = [];
  let last = performance.now();
  const begun = frames.length;
  const box = overview.getBoundingClientRect();
  for (let n = 0; n < 180; n++) {
    const turn = n < 60 ? { deltaY: -30 } : n < 120 ? { deltaX: n % 40 < 20 ? 60 : -60, deltaY: 0 } : { deltaY: 30 };
    overview.dispatchEvent(new WheelEvent('wheel', { ...turn, clientX: box.left + 700, clientY: box.top + 40, bubbles: true, cancelable: true }));
    await new Promise(requestAnimationFrame);
    times.push(performance.now() - last);
    last = performance.now();
  }
  const sorted = (all, part) => [...all].sort((a, b) => a - b)[Math.floor(all.length * part)];
  const drawn = frames.slice(begun);
  return { frames: drawn.length, draw: sorted(drawn, 0.5), draw95: sorted(drawn, 0.95), interval: sorted(times, 0.5), interval95: sorted(times, 0.95) };
});
console.log('1 M events, ms:', JSON.stringify(measured));
assert.ok(measured.frames >= 150, 'each step of the wheel is drawn');

assert.deepEqual(wrong, []);
await browser.close();
