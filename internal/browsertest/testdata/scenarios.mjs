// What people do on the page, and what they are to see.
import { check, input, look, open, run, same, sleep, until } from './driver.mjs';

const accord = '1HGCM82633A004352';
const values = Object.fromEntries([...'0123456789'].map((c, i) => [c, i]).concat([...'ABCDEFGH'].map((c, i) => [c, i + 1]), [...'JKLMN'].map((c, i) => [c, i + 1]), [['P', 7], ['R', 9]], [...'STUVWXYZ'].map((c, i) => [c, i + 2])));
// accords are different VINs of one car with machine-made serials and true check digits.
const accords = (n, from) => Array.from({ length: n }, (_, i) => {
  const v = '1HGCM82603A' + (from + i);
  const sum = [...v].reduce((s, c, at) => s + values[c] * [8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2][at], 0) % 11;
  return v.slice(0, 8) + (sum === 10 ? 'X' : sum) + v.slice(9);
});
const [slow, ...plain] = accords(20, 200000);

// drain takes what calls the shared budget has ready: by lists, of which ten VINs are a call, so that it is quick about it.
let serial = 300000;
const fresh = (n) => accords(n, (serial += n) - n);
async function drain(p) {
  await until('the budget is dry', async () => {
    for (const n of [50, 20, 10]) await p.api('/v1/vins', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ vins: fresh(n) }) });
    return (await p.api('/v1/vins/' + fresh(1)[0])).code === 'RATE_LIMITED';
  });
}

const roomy = {
  async 'first paint from one response, and nothing moves'() {
    const p = await open('roomy');
    await look(p, 'empty');
    await until('the budget was looked at', () => p.asked('/v1/capacity').length > 0);
    await sleep(100);
    const own = p.seen.requests.map((r) => r.path.replace(/-[0-9a-f]{16}/, ''));
    same(own.filter((path) => path !== '/v1/capacity').sort(), ['/', '/assets/app.mjs', '/assets/core.mjs', '/assets/icon.svg'], 'what the page asks for');
    check(/<style>/.test(p.html) && !/ style="| on[a-z]+="/.test(p.html), 'the page has no inline style or script but its one style');
    // A number that changes in its place is less.
    check(p.seen.shift.reduce((sum, s) => sum + parseFloat(s), 0) < 0.001, 'the layout shifts', p.seen.shift);
    await p.close();
  },

  async 'one VIN: nothing is sent before it is whole and a pause, and while it waits it says so'() {
    const p = await open('roomy');
    const go = await p.held(/part=answer/);
    await p.page.locator('#vin').pressSequentially(slow.slice(0, 16));
    await sleep(900);
    same(p.asked().length, 0, 'lookups sent for 16 characters');
    await p.page.locator('#vin').press(slow[16]);
    await p.page.locator('.waiting').waitFor();
    check(p.seen.pause[0] > 500, 'it waits for a pause in typing', p.seen.pause);
    check((await p.text('#out .badge')) === 'Waiting for a free place' && (await p.text('#out h2')) === 'Nothing is known yet', 'it says that it waits', await p.text('#out'));
    await look(p, 'waiting');
    await p.noWord();
    go();
    await p.settled('clean');
    same(await p.text('#out h2'), '2003 HONDA Accord', 'the headline');
    check(/ of 154 reported/.test(await p.text('.fields-top')), 'how much is reported', await p.text('.fields-top'));
    check(/^NHTSA’s answer, just now/.test(await p.text('#out footer')) && /blank/.test(await p.text('#out footer')), 'the source and the caution', await p.text('#out footer'));
    check(p.page.url() === `${p.edge}/?vin=${slow}` && (await p.page.title()) === '2003 HONDA Accord – vingate', 'address and title', p.page.url() + ' ' + (await p.page.title()));
    same(p.asked().length, 1, 'lookups');
    same((await p.stats()).vins[slow], 1, 'calls to NHTSA for it');
    for (const d of await p.page.locator('#out details').all()) await d.locator('summary').click();
    check(JSON.parse(await p.page.locator('#raw').textContent()).Make === 'HONDA', 'the raw JSON is NHTSA’s');
    check(JSON.parse(await p.copied('[data-copy="raw"]')).Make === 'HONDA', 'it is copied');
    await look(p, 'clean-unfolded');

    // The answer is stored, another question is another wait, and the way back works.
    await p.decode(accord, '2003');
    await until('the next answer', async () => (await p.text('#out')).includes(accord.slice(11)) || p.asked().length === 2 && p.page.url().includes('2003'));
    await p.settled('clean');
    check(await p.page.evaluate(() => document.activeElement?.id === 'answer-head'), 'who pressed Enter is taken to the answer');
    await look(p, 'clean', { image: 'clean' });
    await p.page.goBack();
    await until('the first answer is back, from here', async () => (await p.text('#out footer')).includes('stored here'));
    same((await p.stats()).vins[slow], 1, 'calls to NHTSA for it');
    await p.close();
  },

  async 'with warnings, partial and not in NHTSA’s data are told apart in words'() {
    const p = await open('roomy');
    for (const [vin, outcome, badge, headline] of [
      ['1HGCM82643A004352', 'warned', 'With warnings', '2003 HONDA Accord'],
      ['5UXWX7C5*BA', 'partial', 'Partial', '2011 BMW X3'],
      ['ZZZCM82633A004352', 'unknown', 'Not in NHTSA’s data', null],
    ]) {
      await p.decode(vin);
      await p.settled(outcome);
      same(await p.text('#out .badge'), badge, `the badge of ${vin}`);
      if (headline) check((await p.text('#out h2')).startsWith(headline), `the headline of ${vin}`, await p.text('#out h2'));
      await look(p, outcome, outcome === 'partial' ? { image: 'partial-dark-320', small: true } : {});
    }
    await p.close();
  },

  async 'what cannot be a VIN is marked, said, and costs nothing; what was probably meant is a link'() {
    const p = await open('roomy', { refusals: [400] });
    await p.decode('1HGCM82633AO04352');
    await p.settled('VIN_INVALID');
    await p.noWord();
    same(Object.keys((await p.stats()).vins).filter((v) => v.includes('AO04352')), [], 'calls to NHTSA');
    const field = await p.page.locator('#vin').evaluate((e) => [e.getAttribute('aria-invalid'), e.getAttribute('aria-describedby')]);
    same(field, ['true', 'vin-hint wrong'], 'the field is said to be wrong, and why');
    check(/Position 12, O/.test(await p.text('.marks')), 'the position is named', await p.text('.marks'));
    same(await p.page.locator('.cell.wrong').count(), 1, 'marked positions');
    await look(p, 'not-a-vin', { image: 'not-a-vin' });
    await p.page.click('#out .instead a');
    await p.settled('clean');
    same(await p.page.inputValue('#vin'), accord, 'the field has what was chosen');
    check(!(await p.page.getAttribute('#vin', 'aria-invalid')), 'and is not wrong any more');
    await p.close();
  },

  async 'without script the form, the answer, the refusal and the links work'() {
    const p = await open('roomy', { javaScriptEnabled: false, refusals: [400], viewport: { width: 320, height: 640 } });
    const fits = async (state) => check((await p.page.evaluate(() => document.documentElement.scrollWidth)) <= 320, `${state} sticks out of 320 px`);
    await fits('the empty page');
    await p.page.fill('#vin', '1HGCM82633AO04352');
    await Promise.all([p.page.waitForURL(/vin=/), p.page.press('#vin', 'Enter')]);
    check((await p.page.locator('[data-refused="VIN_INVALID"]').count()) === 1, 'the refusal is on the page');
    same(await p.page.inputValue('#vin'), '1HGCM82633AO04352', 'what was typed stands in the field');
    await p.noWord();
    await fits('a refusal');
    await p.page.click('#out .instead a');
    await p.page.locator('[data-settled="clean"]').waitFor();
    same(await p.text('#out h2'), '2003 HONDA Accord', 'the headline');
    check((await p.text('#budget')).includes('calls ready'), 'the budget is on the page');
    await fits('an answer');
    await p.page.screenshot({ path: `${input.Pictures}/no-script-320.png` });
    same([p.asked().length, p.asked('/v1/').length], [0, 0], 'requests of a script');
    await p.close();
  },

  async 'with the keyboard alone: skip link, lookup, details, list, stop'() {
    const p = await open('roomy');
    const focused = () => p.page.evaluate(() => {
      const e = document.activeElement, s = getComputedStyle(e);
      return { id: e.id, does: e.dataset.do ?? '', tag: e.tagName, ringed: (s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2) || s.boxShadow !== 'none' };
    });
    const tabTo = async (what, ok) => {
      for (let i = 0; i < 40; i++) {
        await p.page.keyboard.press('Tab');
        const f = await focused();
        check(f.ringed, 'the focus is not to be seen', f);
        if (ok(f)) return;
      }
      throw new Error(`the keyboard does not reach ${what}`);
    };
    await p.page.keyboard.press('Tab');
    check((await p.text(':focus')) === 'Skip to the field', 'the first stop is the skip link');
    await p.page.keyboard.press('Enter');
    await p.page.keyboard.press('Tab');
    if ((await focused()).id !== 'vin') await p.page.keyboard.press('Shift+Tab');
    same((await focused()).id, 'vin', 'it leads to the field');
    await p.page.keyboard.type(accord.toLowerCase());
    await p.page.keyboard.press('Enter');
    await p.settled('clean');
    await until('the focus is on the answer', async () => (await focused()).id === 'answer-head');
    await tabTo('a folded part', (f) => f.tag === 'SUMMARY');
    await p.page.keyboard.press('Enter');
    check(await p.page.evaluate(() => document.activeElement.parentElement.open), 'Enter unfolds it');

    // A list, stopped and taken up again.
    const go = await p.held('**/v1/vins');
    await p.page.focus('#year');
    await tabTo('the list', (f) => f.tag === 'SUMMARY');
    await p.page.keyboard.press('Enter');
    await tabTo('the text', (f) => f.id === 'vins');
    await p.page.keyboard.type(accords(12, 210000).join('\n'), { delay: 0 });
    await p.page.keyboard.press('Tab');
    await p.page.keyboard.press('Enter');
    await until('the focus is on the list', async () => (await focused()).id === 'batch-head');
    await tabTo('Stop', (f) => f.does === 'stop');
    await p.page.keyboard.press('Enter');
    same((await focused()).does, 'go', 'the focus goes from Stop to Go on');
    go();
    await until('the piece under way has settled', async () => (await p.text('[data-n="sum"]')).startsWith('10 of 12'));
    await sleep(300);
    same(p.asked('/v1/vins').length, 1, 'pieces sent');
    await p.page.keyboard.press('Enter');
    await until('all is settled', async () => (await p.text('[data-n="sum"]')).startsWith('12 of 12'));
    // A row's details, and back.
    await p.page.locator('#list-card tbody a').first().focus();
    await p.page.keyboard.press('Enter');
    await p.page.locator('#sheet [data-settled]').waitFor();
    await look(p, 'sheet');
    await p.page.keyboard.press('Escape');
    check(!(await p.page.locator('#sheet').isVisible()), 'Escape closes the sheet');
    check(await p.page.evaluate(() => document.activeElement.closest('#list-card') !== null), 'and the focus is where it was');
    await p.close();
  },
};

// The same, at the same time.
const fuller = {
  async 'a list of all kinds: a state for each row, details, copy, CSV, and what is over fifty stays'() {
    const p = await open('roomy', { acceptDownloads: true });
    await p.paste(`VIN\tYear\n${accord}\t2003\n5UXWX7C5*BA\t2011\n1HGCM82633AO04352\nZZZCM82633A004352\n1HGCM82643A004352\n1.23E+16\n${accord}`);
    await until('all is settled', async () => (await p.page.locator('#list-card').getAttribute('data-state')) === 'done');
    const rows = await p.page.locator('#list-card tbody tr').all();
    const badges = await Promise.all(rows.map((r) => r.locator('.badge').innerText()));
    same(badges, ['Clean', 'Partial', 'Not a VIN', 'Not in NHTSA’s data', 'With warnings', 'Not a VIN', 'Clean'], 'the states');
    check((await p.text('[data-n="banner"]')).startsWith('Done: 2 clean, 1 with warnings, 1 partial, 1 not in NHTSA’s data, 2 not decoded'), 'the sum', await p.text('[data-n="banner"]'));
    check((await p.text('[data-n="sum"]')).includes('1 line without a VIN left out'), 'what was left out', await p.text('[data-n="sum"]'));
    same((await p.page.locator('[data-state="refused"] .what').allInnerTexts()).map((s) => s.trim()), ['', ''], 'what refused rows show of a vehicle');
    await look(p, 'list-done');
    const copied = await p.copied('[data-do="copy"]');
    check(copied.startsWith('VIN\tModelYearGiven\t') && copied.split('\n').length === 8, 'what is copied', copied.slice(0, 200));
    const [download] = await Promise.all([p.page.waitForEvent('download'), p.page.click('[data-do="csv"]')]);
    same(download.suggestedFilename(), 'vins.csv', 'the name of the file');
    let file = '';
    for await (const chunk of await download.createReadStream()) file += chunk;
    check(file.startsWith('\uFEFF"VIN",') && file.split('\r\n').length === 9 && file.includes(`"${accord}","2003","Clean"`), 'the file', file.slice(0, 200));
    await p.page.click('[data-do="close"]');
    check(await p.page.evaluate(() => document.activeElement.id === 'vin'), 'closing leads back to the field');
    const many = accords(52, 220000);
    await p.paste(many.join('\n'));
    await until('all is settled', async () => (await p.page.locator('#list-card').getAttribute('data-state')) === 'done');
    same(await p.page.locator('#list-card tbody tr').count(), 50, 'rows');
    same(await p.page.inputValue('#vins'), many.slice(50).join('\n'), 'what is over fifty');
    const { vins } = await p.stats();
    same(many.map((v) => vins[v] ?? 0), many.map((_, i) => (i < 50 ? 1 : 0)), 'how often NHTSA was asked for each');
    await p.close();
  },

  async 'the budget is not looked at while the tab is hidden'() {
    const p = await open('roomy', { before: (page) => page.clock.install() });
    const polls = () => p.asked('/v1/capacity').length;
    const ahead = async (ms) => {
      await p.page.clock.runFor(ms);
      await sleep(150);
    };
    const hide = (hidden) => p.page.evaluate((h) => {
      Object.defineProperty(document, 'hidden', { configurable: true, get: () => h });
      Object.defineProperty(document, 'visibilityState', { configurable: true, get: () => (h ? 'hidden' : 'visible') });
      document.dispatchEvent(new Event('visibilitychange'));
    }, hidden);
    await ahead(2500);
    await until('it is looked at while the tab is shown', () => polls() > 0);
    await hide(true);
    await sleep(300);
    const before = polls();
    for (let i = 0; i < 5; i++) await ahead(60000);
    same(polls(), before, 'looks while hidden');
    await hide(false);
    await ahead(10);
    await until('it is looked at as soon as it is shown again', () => polls() > before);
    const shown = polls();
    for (let i = 0; i < 20; i++) await ahead(30000);
    check(polls() - shown <= 20, 'gently: at most twenty looks in ten quiet minutes', polls() - shown);
    await p.close();
  },

  async 'nothing moves for who asked for that'() {
    const moving = async (reducedMotion, vin) => {
      const p = await open('roomy', { reducedMotion });
      const go = await p.held(/part=answer/);
      await p.decode(vin);
      await p.page.locator('.waiting').waitFor();
      const n = await p.page.evaluate(() => document.getAnimations().length);
      go();
      await p.settled('clean');
      await p.close();
      return n;
    };
    check((await moving('no-preference', plain[0])) > 0, 'it moves for others: this shows something');
    same(await moving('reduce', plain[1]), 0, 'animations');
  },

  async 'no answer from vingate is said as such'() {
    const p = await open('roomy', { unreachable: true });
    await p.page.route(/part=answer/, (route) => route.abort());
    await p.decode(plain[2]);
    await p.settled('LOST');
    check(/NHTSA may or may not have been asked/.test(await p.text('#out')), 'it says what is known', await p.text('#out'));
    await p.noWord();
    await look(p, 'lost');
    await p.close();
  },
};

const dry = {
  async 'waiting for a free place that does not come'() {
    const p = await open('dry', { refusals: [429] });
    await p.faults({ kind: 'slow-body', vin: plain[3], over: '4s' });
    const other = p.api('/v1/vins/' + plain[3]);
    await until('the only place is taken', async () => (await p.stats()).current === 1);
    await p.decode(plain[4]);
    await p.settled('DECODE_WAIT_TIMEOUT');
    await p.noWord();
    await look(p, 'no-place');
    await other;
    await p.faults();
    await p.close();
  },

  async 'fifty VINs at a dry bucket: pause, countdown, resume, every row settled, and NHTSA’s count agrees'() {
    const p = await open('dry', { refusals: [429] });
    const vins = accords(50, 240000);
    await p.page.evaluate(() => {
      globalThis.banners = new Set();
      new MutationObserver(() => {
        const b = document.querySelector('#list-card [data-n="banner"]')?.textContent;
        if (b) globalThis.banners.add(b);
      }).observe(document.body, { subtree: true, childList: true, characterData: true });
    });
    let before;
    await p.paste(vins.join('\r\n') + '\r\n', async () => {
      await drain(p);
      before = (await p.stats()).calls;
    });
    const card = p.page.locator('#list-card');
    await until('it pauses', async () => (await card.getAttribute('data-state')) === 'paused');
    same(await p.page.locator('tr[data-state="done"]').count() < 50, true, 'it pauses before the end');
    await until('it goes on by itself to the end', async () => (await card.getAttribute('data-state')) === 'done', 30000);
    const banners = await p.page.evaluate(() => [...globalThis.banners]);
    check(banners.some((b) => /^Over budget\. Goes on by itself in \d+ seconds?\.$/.test(b)), 'the pause has a countdown', banners);
    same(await card.locator('progress').evaluate((e) => [e.value, e.max]), [50, 50], 'the progress bar');
    same(await p.page.locator('tr[data-state="done"]').count(), 50, 'rows decoded');
    same(await p.page.locator('#list-card tbody code').allInnerTexts(), vins, 'the rows, in order');
    check((await p.text('[data-n="banner"]')).startsWith('Done: 50 clean'), 'the sum', await p.text('[data-n="banner"]'));
    const stats = await p.stats();
    same(vins.map((v) => stats.vins[v]), vins.map(() => 1), 'how often NHTSA was asked for each');
    same(stats.calls - before, 5, 'calls to NHTSA');
    const sentRows = p.asked('/v1/vins').map((r) => JSON.parse(r.body).vins.length);
    check(sentRows.every((n) => n <= 10) && sentRows.length > 5, 'pieces of ten, and refused ones again', sentRows);
    await p.close();
  },

  async 'vingate’s own bookkeeping is down: NHTSA is not asked, and not blamed'() {
    const p = await open('dry', { refusals: [503] });
    await until('the budget alone would allow a call', async () => (await p.api('/v1/capacity')).tokens > 0);
    check((await fetch(`${input.Control}/?stack=dry`)).ok, 'the bookkeeping goes down');
    const { calls } = await p.stats();
    await p.decode(plain[6]);
    await p.settled('COORDINATION_UNAVAILABLE');
    await p.noWord();
    await until('the budget is said not to be known', () => p.page.locator('#budget [data-state="unknown"]').isVisible());
    await look(p, 'bookkeeping-down');
    same((await p.stats()).calls, calls, 'calls to NHTSA');
    await p.close();
  },
};

const trouble = {
  async 'NHTSA cannot be reached'() {
    const p = await open('trouble', { refusals: [502, 503] });
    await p.faults({ kind: 'reset' });
    await p.decode(plain[0]);
    await p.settled('UPSTREAM_UNAVAILABLE');
    await p.noWord();
    await p.faults();
    await look(p, 'unreachable');
    await p.close();
  },

  async 'NHTSA is throttling: nobody asks until it said, and then it works'() {
    const p = await open('trouble', { refusals: [503] });
    await p.faults({ kind: 'http-429', retryAfter: '8s' });
    await p.decode(plain[1]);
    await p.settled('UPSTREAM_THROTTLED');
    await p.noWord();
    const asked = p.asked().length;
    same(await p.text('#out .badge'), 'NHTSA is throttling', 'the badge');
    await until('the picture of the budget says it too', async () => p.page.locator('#budget [data-state="throttled"]').isVisible());
    await look(p, 'throttled', { image: 'nhtsa-is-throttling' });
    // Between two looks at the budget its pause counts down by itself: here no look comes back any more.
    await p.page.route('**/v1/capacity', () => {});
    const left = async () => Number((await p.text('#budget [data-state="throttled"] [data-n="hold"]')).match(/^(\d+) s/)?.[1] ?? 0);
    const first = await left();
    await until('the pause in the picture counts down', async () => (await left()) <= first - 2);
    await p.page.unroute('**/v1/capacity');
    await p.faults();
    await until('the countdown ends', async () => !(await p.page.getAttribute('#go', 'aria-disabled')));
    same(p.asked().length, asked, 'lookups without anybody');
    await p.page.click('#go');
    await p.settled('clean');
    await p.close();
  },

  async 'over budget: the button comes alive after the countdown, and nothing is repeated by itself; a list pauses and can be stopped'() {
    const p = await open('trouble', { refusals: [429], before: (page) => page.clock.install() });
    const vin = plain[3];
    await drain(p);
    await p.decode(vin);
    await p.settled('RATE_LIMITED');
    await p.noWord();
    same(await p.text('#out .badge'), 'Over budget', 'the badge');
    check(/^(\d+ min )?\d+ (s|seconds)$/.test(await p.text('[data-countdown]')), 'the time', await p.text('[data-countdown]'));
    same([await p.page.getAttribute('#go', 'aria-disabled'), await p.text('#go-words')], ['true', 'Wait'], 'the button waits');
    const asked = p.asked().length;
    await p.page.press('#vin', 'Enter');
    same(p.asked().length, asked, 'lookups while it is too early');
    await look(p, 'over-budget', { image: 'over-budget' });
    const seconds = Number(await p.page.getAttribute('#out [data-retry]', 'data-retry'));
    await p.page.clock.fastForward(seconds * 1000);
    await until('the countdown ends', async () => !(await p.page.getAttribute('#go', 'aria-disabled')));
    check(/It can be tried again now/.test(await p.text('#out .again')), 'it says so', await p.text('#out .again'));
    await p.page.clock.fastForward(120000);
    same(p.asked().length, asked, 'lookups without anybody, in two minutes');
    // Time went faster on the page than at the service, which says no again.
    await p.page.click('#again');
    await until('it is asked again', () => p.asked().length === asked + 1);
    await p.settled('RATE_LIMITED');
    same((await p.stats()).vins[vin], undefined, 'calls to NHTSA for it');
    await p.paste(accords(12, 260000).join('\n'));
    const card = p.page.locator('#list-card');
    await until('it pauses', async () => (await card.getAttribute('data-state')) === 'paused');
    check(/^Over budget\. Goes on by itself in [\d a-z]+\.$/.test(await p.text('[data-n="banner"]')), 'it says why and how long', await p.text('[data-n="banner"]'));
    await p.noWord();
    await look(p, 'list-paused', { image: 'list-paused' });
    const sent = p.asked('/v1/vins').length;
    await p.page.click('[data-do="stop"]');
    check((await p.text('[data-n="banner"]')).startsWith('Stopped. 12 not asked'), 'it is stopped', await p.text('[data-n="banner"]'));
    await look(p, 'list-stopped');
    await p.page.click('[data-do="go"]');
    await until('it pauses again', async () => (await card.getAttribute('data-state')) === 'paused');
    same(p.asked('/v1/vins').length, sent, 'pieces sent before it is time, stopped or not');
    await p.page.click('[data-do="stop"]');
    await p.close();
  },
};

await run({ roomy, fuller, dry, trouble });
