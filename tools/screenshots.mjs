// Pictures of clew view: node screenshots.mjs ADDRESS FOLDER. Started by screenshots.sh.
import { chromium } from 'playwright-core';

const [, , address, folder] = process.argv;
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });

async function open(scheme) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, colorScheme: scheme });
  const page = await context.newPage();
  await page.goto(address);
  await page.waitForSelector('.row.current, .row.caller');
  await page.waitForSelector('#values .value');
  return page;
}

/** @param {any} page @param {string} name */
async function picture(page, name) {
  await page.waitForFunction(() => !document.querySelector('.job'));
  await page.waitForTimeout(500);
  await page.screenshot({ path: `${folder}/view-${name}.png` });
}

let page = await open('light');
await page.click('#coverage');
await page.locator('#tabs [data-tab=why]').click();
await page.waitForSelector('.why li');
await picture(page, 'why');
await page.locator('.row.current .name', { hasText: /^client$/ }).click();
await page.waitForSelector('#menu button');
await page.getByRole('menuitem', { name: 'History: all its changes' }).click();
await page.waitForSelector('tr.moment');
await picture(page, 'history');
page = await open('dark');
await page.locator('#tabs [data-tab=order]').click();
await page.waitForSelector('.order .event');
await picture(page, 'order');
await browser.close();
