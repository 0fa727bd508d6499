// Drives Chromium and watches every page while scenarios use it: what it asks for, what it complains of, and that no word about
// a vehicle stands on it before an answer came.
import { readFileSync, mkdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

export const input = JSON.parse(readFileSync(0, 'utf8'));
const modules = createRequire(input.Modules);
const { chromium } = modules('playwright-core');
const axe = readFileSync(modules.resolve('axe-core/axe.min.js'), 'utf8');
mkdirSync(input.Pictures, { recursive: true });

export const desktop = { width: 1100, height: 820 };
const phone = { width: 320, height: 640 };

// Words of the vehicles that are asked about here. Not one may be on a page before an answer about it came.
const words = /\b(honda|accord|coupe|ex-v6|ford|f-150|f-series|pickup|bmw|xdrive\w*|sport utility|passenger car|passenger vehicle|truck)\b/i;

export function check(ok, says, more = '') {
  if (!ok) throw new Error(`${says}${more === '' ? '' : ': ' + (typeof more === 'string' ? more : JSON.stringify(more))}`);
}
export function same(got, want, says) {
  check(JSON.stringify(got) === JSON.stringify(want), says, `got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
}
export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
export async function until(says, ok, within = 15000) {
  for (const end = Date.now() + within; ; await sleep(25)) {
    const value = await ok();
    if (value) return value;
    check(Date.now() < end, `not within ${within} ms: ${says}`);
  }
}

// All pages have one clipboard, as on anybody's desk: who needs it takes his turn.
let turn = Promise.resolve();
export function withClipboard(act) {
  const mine = turn.then(act);
  turn = mine.catch(() => {});
  return mine;
}

const browser = await chromium.launch({ executablePath: input.Chromium, args: ['--disable-dev-shm-usage', '--font-render-hinting=none'] });
export const done = () => browser.close();

// watch runs in every document before anything else of it.
const watch = (source) => {
  const words = new RegExp(source, 'i');
  let answered = false; // whether an answer to what was asked last has come
  let typed = 0; // when a key was last pressed
  addEventListener('input', () => (typed = performance.now()), true);
  const tell = (kind, text) => globalThis.tellTest(kind, String(text));
  const ours = globalThis.fetch;
  globalThis.fetch = async (...args) => {
    const lookup = String(args[0]).includes('part=answer');
    if (lookup) {
      answered = false;
      tell('pause', performance.now() - typed);
    }
    const res = await ours(...args);
    if (!res.ok) return res;
    if (lookup) answered = true;
    if (String(args[0]).endsWith('/v1/vins')) answered ||= (await res.clone().json()).results.some((r) => r.status === 200);
    return res;
  };
  const early = new Set();
  new MutationObserver(() => {
    const root = document.documentElement;
    if (!root) return;
    // A whole page with an answer on it is the answer.
    if (!answered && !root.querySelector('[data-settled]')) {
      // Rows that were answered may stay while something else is asked.
      const rest = root.cloneNode(true);
      for (const row of rest.querySelectorAll('tr[data-state="done"]')) row.remove();
      const found = new RegExp(`.{0,60}${words.source}.{0,60}`, 'i').exec(rest.outerHTML)?.[0];
      if (found && !early.has(found)) {
        early.add(found);
        tell('early', `a word about a vehicle stood on the page before an answer came: ${found}`);
      }
    }
    for (const row of root.querySelectorAll('tr[data-state]:not([data-state="done"])')) {
      const vehicle = row.querySelector('.what').textContent;
      if (vehicle) tell('early', `a row in state ${row.dataset.state} shows "${vehicle}"`);
    }
  }).observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
  document.addEventListener('securitypolicyviolation', (e) => tell('policy', `${e.violatedDirective} ${e.blockedURI} ${e.sample}`));
  new PerformanceObserver((list) => {
    for (const e of list.getEntries()) {
      const who = e.sources.map(({ node }) => node?.outerHTML ?? node?.textContent ?? '').map((s) => s.slice(0, 80)).join(', ');
      if (!e.hadRecentInput) tell('shift', `${e.value} ${who}`);
    }
  }).observe({ type: 'layout-shift', buffered: true });
};

// open gives a page of a stack, watched. `refusals` are the statuses that lookups may have here.
export async function open(stack, { refusals = [], unreachable = false, before, ...options } = {}) {
  const { Edge, StandIn } = input.Stacks[stack];
  const context = await browser.newContext({ viewport: desktop, colorScheme: 'light', ...options });
  context.setDefaultTimeout(15000);
  await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: Edge });
  const seen = { faults: [], shift: [], pause: [], requests: [] };
  await context.exposeBinding('tellTest', (_, kind, text) => (seen[kind] ? seen[kind].push(text) : seen.faults.push(`${kind}: ${text}`)));
  await context.addInitScript(watch, words.source);
  const page = await context.newPage();
  page.on('pageerror', (e) => seen.faults.push(`script: ${e.stack ?? e}`));
  page.on('console', (m) => {
    if (m.type() !== 'error' && m.type() !== 'warning') return;
    // The browser says of every refused request that it was.
    const status = Number(/status of (\d+)/.exec(m.text())?.[1]);
    if (refusals.includes(status) || (unreachable && /net::ERR_/.test(m.text()))) return;
    seen.faults.push(`console: ${m.text()} ${m.location().url}`);
  });
  page.on('request', (r) => seen.requests.push({ method: r.method(), path: r.url().slice(Edge.length), body: r.postData() }));
  page.on('response', async (r) => {
    if (r.status() < 400) return;
    const text = await r.text().catch(() => '');
    if (words.test(text)) seen.faults.push(`a ${r.status()} names a vehicle: ${text.match(words)[0]}`);
    if (!refusals.includes(r.status())) seen.faults.push(`${r.status()} ${r.url()}`);
  });
  const standIn = async (what, method = 'GET', body) => (await fetch(`${StandIn}/_standin/${what}`, { method, body: body && JSON.stringify(body) })).json();
  const p = {
    page, context, seen, edge: Edge,
    asked: (part = 'part=answer') => seen.requests.filter((r) => r.path.includes(part)),
    stats: () => standIn('stats'),
    faults: (...rules) => standIn('faults', 'POST', { rules }),
    api: async (path, options) => (await fetch(Edge + path, options)).json(),
    text: (selector) => page.locator(selector).first().innerText(),
    async decode(vin, year = '') {
      await page.fill('#vin', vin);
      await page.fill('#year', year);
      await page.press('#vin', 'Enter');
    },
    // held keeps what the page asks for back, until it is let go.
    async held(what) {
      let go;
      const gone = new Promise((done) => (go = done));
      await page.route(what, async (route) => {
        await gone;
        await route.continue();
      });
      return go;
    },
    // paste pastes a text into the field, after what else is to be done right before.
    paste: (text, before) => withClipboard(async () => {
      await page.evaluate((t) => navigator.clipboard.writeText(t), text);
      await before?.();
      await page.focus('#vin');
      await page.keyboard.press('ControlOrMeta+V');
      await page.locator('#list-card').waitFor();
    }),
    // copied is what a click on a button puts onto the clipboard.
    copied: (button) => withClipboard(async () => {
      await page.evaluate(() => navigator.clipboard.writeText(''));
      await page.click(button);
      return until('the clipboard has something', () => page.evaluate(() => navigator.clipboard.readText()));
    }),
    outcome: async () => {
      const o = page.locator('#out [data-settled], #out [data-refused]');
      await o.waitFor();
      return o.evaluate((e) => e.dataset.settled ?? e.dataset.refused);
    },
    // settled waits for the outcome of a lookup, or the code of its refusal.
    settled: (what) => page.locator(`#out [data-settled="${what}"], #out [data-refused="${what}"]`).waitFor(),
    async noWord() {
      const found = (await page.content()).match(words);
      check(!found, 'a word about a vehicle is on the page', found?.[0]);
    },
    async close() {
      await page.unrouteAll({ behavior: 'wait' });
      await context.close();
      check(seen.faults.length === 0, seen.faults.join('\n'));
    },
  };
  await before?.(page);
  p.html = await (await page.goto(Edge)).text();
  return p;
}

// axeFaults runs axe-core in the page as it stands.
async function axeFaults(page, only) {
  if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(axe);
  return page.evaluate(async (only) => {
    const { violations } = await globalThis.axe.run(document, { runOnly: only, resultTypes: ['violations'], preload: false });
    return violations.flatMap((v) => v.nodes.map((n) => `${v.id}: ${n.target.join(' ')}: ${n.failureSummary.replaceAll('\n', ' ')}`));
  }, only);
}
const whole = { type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'] };
// What of it depends on colours and on width.
const looks = { type: 'rule', values: ['color-contrast', 'link-in-text-block', 'target-size', 'scrollable-region-focusable'] };

// tooWide names what sticks out of the window.
const tooWide = (page) => page.evaluate(() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return '';
  return [...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > width + 0.5).map((e) => `${e.tagName}.${e.className} ${Math.round(e.getBoundingClientRect().right)}`).slice(0, 5).join(', ');
});

// look is a close look at a state: accessibility in light and dark, the narrowest window, pictures. `image` keeps a picture for
// the documents, where those are made: a desktop's, or with `small` a phone's.
export async function look(p, name, { image, small } = {}) {
  const faults = [];
  const add = (where, list) => faults.push(...list.map((f) => `${name}, ${where}: ${f}`));
  const media = (colorScheme) => p.page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
  const picture = async (suffix, forDocs) => {
    await p.page.screenshot({ path: join(input.Pictures, `${name}${suffix}.png`), fullPage: true });
    if (!forDocs || !input.Images) return;
    // From the top to the end of what was answered; on a phone only that.
    const clip = await p.page.evaluate((small) => {
      const card = document.querySelector('#out').getBoundingClientRect(), top = small ? card.top + scrollY - 16 : 0;
      return { x: 0, y: top, width: innerWidth, height: Math.min(card.bottom + scrollY + 24 - top, small ? 1000 : 1150) };
    }, small);
    await p.page.screenshot({ path: join(input.Images, `${image}.png`), fullPage: true, clip });
  };
  await media('light');
  add('light', await axeFaults(p.page, whole));
  const wide = await tooWide(p.page);
  if (wide) add('desktop', [`sticks out: ${wide}`]);
  await picture('', image && !small);
  await media('dark');
  await p.page.setViewportSize(phone);
  const narrow = await tooWide(p.page);
  if (narrow) add('320 px', [`sticks out: ${narrow}`]);
  add('320 px, dark', await axeFaults(p.page, looks));
  await picture('-dark-320', image && small);
  await p.page.setViewportSize(desktop);
  await media('light');
  check(faults.length === 0, faults.join('\n'));
}

// run goes through chains of scenarios, the chains at the same time, and says how each went.
export async function run(chains) {
  const print = (line) => process.stdout.write(JSON.stringify(line) + '\n');
  print({ Scenarios: Object.values(chains).flatMap((scenarios) => Object.keys(scenarios)) });
  await Promise.all(Object.values(chains).map(async (scenarios) => {
    for (const [name, scenario] of Object.entries(scenarios)) {
      const began = Date.now();
      let error = '';
      try {
        await scenario();
      } catch (e) {
        error = e.stack ?? String(e);
      }
      print({ Name: name, Error: error, Millis: Date.now() - began });
    }
  }));
  await done();
}
