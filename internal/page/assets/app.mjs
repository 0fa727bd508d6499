// The page's script: it asks without leaving the page, fills a list, and keeps the picture of the budget true. Without it
// the page works by forms and links. What it decides is in core.mjs; how an answer looks is the server's: this script shows
// parts of pages as they come, and never makes up a word about a vehicle.

import { MOST, clock, complete, count, csv, extract, newList, next, again, pause, resume, sent, settle, table, tidy, tsv, worthAgain } from "./core.mjs";

const $ = (id) => document.getElementById(id);
const part = (root, name) => root.querySelector(`[data-n="${name}"]`);
const piece = (id) => $(id).content.firstElementChild.cloneNode(true);
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const [form, vin, year, go, goWords, out] = ['lookup', 'vin', 'year', 'go', 'go-words', 'out'].map($);

// The only markup that is taken is this service's own.
const policy = globalThis.trustedTypes?.createPolicy('vingate', { createHTML: (s) => s }) ?? { createHTML: (s) => s };
const markup = (html) => [...new DOMParser().parseFromString(policy.createHTML(html), 'text/html').body.childNodes];

// say speaks to a screen reader, once per thing that happened.
function say(text) {
  $('say').textContent = '';
  setTimeout(() => ($('say').textContent = text), 60);
}

function badge(name, fallback) {
  const states = $('t-states').content;
  const found = states.querySelector(`[data-state="${CSS.escape(name)}"]`) ?? states.querySelector(`[data-state="${CSS.escape(name.split(':')[0])}"]`) ?? states.querySelector('[data-state="INTERNAL"]');
  const b = found.firstElementChild.cloneNode(true);
  if (fallback && found.dataset.state === 'INTERNAL' && name !== 'INTERNAL') b.lastElementChild.textContent = fallback;
  return b;
}

/* One VIN. */

let typing; // the timer of a pause while typing
let asking; // the lookup under way, to be dropped when another one begins
let asked = ''; // what the answer on the page is for
let free = 0; // when the next lookup may be sent
let ticking;

const question = () => {
  const q = new URLSearchParams({ vin: vin.value.trim() });
  if (year.value.trim()) q.set('modelYear', year.value.trim());
  return q.toString();
};

function ruler() {
  const n = [...tidy(vin.value)].length;
  [...$('ruler').children].forEach((mark, i) => mark.classList.toggle('on', i < n));
  $('ruler').classList.toggle('over', n > 17);
}

function typed() {
  ruler();
  clearTimeout(typing);
  if (!list && complete(vin.value) && question() !== asked && (!year.value.trim() || /^\s*\d{4}\s*$/.test(year.value))) typing = setTimeout(() => lookup(false), 700);
}

// lookup asks for what is in the form, unless a refusal said to wait. Beside a list it is answered in the sheet.
function lookup(pressed, push = true) {
  clearTimeout(typing);
  if (!vin.value.trim()) return;
  if (Date.now() < free) return say(`It can be tried again in ${clock((free - Date.now()) / 1000)}.`);
  if (!list) return ask((asked = question()), pressed, push);
  openSheet(question());
}

// ask shows what the service says to a question. Who pressed a button is taken to the answer; who is typing is told of it.
async function ask(q, pressed, push) {
  const where = list ? $('sheet-body') : out;
  asking?.abort();
  const mine = (asking = new AbortController());
  const card = piece('t-waiting');
  where.replaceChildren(card);
  if (where === out) document.title = card.querySelector('.badge').textContent + ' – vingate';
  hold(0);
  say(card.querySelector('.badge').textContent);
  budget.busy();
  const began = Date.now();
  const timer = setInterval(() => (card.querySelector('[data-elapsed]').textContent = clock((Date.now() - began) / 1000)), 1000);
  let nodes;
  try {
    const res = await fetch('/?' + q + '&part=answer', { headers: { Accept: 'text/html' }, signal: mine.signal });
    if (!res.headers.get('Content-Type')?.startsWith('text/html')) throw new Error('not a page');
    nodes = markup(await res.text());
  } catch {
    nodes = [piece('t-lost')];
    nodes[0].querySelector('#again').href = '/?' + q;
  } finally {
    clearInterval(timer);
  }
  if (mine.signal.aborted) return;
  where.replaceChildren(...nodes);
  const settled = where.firstElementChild;
  hold(Number(settled.dataset.retry ?? 0));
  const head = settled.querySelector('h2');
  const state = settled.querySelector('.badge').textContent;
  if (where === out) {
    if (push && location.search !== '?' + q) history.pushState(null, '', '/?' + q);
    document.title = ('settled' in settled.dataset ? head.textContent : state) + ' – vingate';
  }
  invalid(/^(VIN|MODEL_YEAR)_INVALID$/.test(settled.dataset.refused ?? ''));
  if (pressed) head.focus();
  else say(`${state}. ${head.textContent}`);
  budget.busy();
}

function invalid(wrong) {
  wrong ? vin.setAttribute('aria-invalid', 'true') : vin.removeAttribute('aria-invalid');
  vin.setAttribute('aria-describedby', wrong ? 'vin-hint wrong' : 'vin-hint');
}

// hold keeps lookups back for some seconds, and shows how many.
function hold(seconds) {
  clearInterval(ticking);
  free = Date.now() + seconds * 1000;
  const tick = () => {
    const left = (free - Date.now()) / 1000;
    const held = left > 0;
    for (const b of [go, $('again')]) {
      if (!b) continue;
      b.toggleAttribute('data-held', held);
      held ? b.setAttribute('aria-disabled', 'true') : b.removeAttribute('aria-disabled');
    }
    goWords.textContent = held ? 'Wait' : 'Decode';
    const words = document.querySelector('[data-countdown]');
    if (words) held ? (words.textContent = clock(left)) : (words.parentElement.textContent = 'It can be tried again now. It is not repeated by itself.');
    if (held) return;
    clearInterval(ticking);
    if (seconds) say('The lookup can be tried again now.');
  };
  tick();
  if (seconds) ticking = setInterval(tick, 250);
}

form.addEventListener('submit', (e) => {
  e.preventDefault();
  lookup(true);
});
vin.addEventListener('input', typed);
year.addEventListener('input', typed);
vin.addEventListener('paste', (e) => {
  const { rows, other } = extract(e.clipboardData?.getData('text') ?? '');
  if (rows.length < 2) return;
  e.preventDefault();
  startList(rows, other);
});

document.addEventListener('click', (e) => {
  const copy = e.target.closest('[data-copy]');
  if (copy) return void clip($(copy.dataset.copy).textContent, copy);
  const link = e.target.closest('a[data-vin], a#again');
  if (!link || e.ctrlKey || e.metaKey || e.shiftKey || e.button) return;
  e.preventDefault();
  const q = new URLSearchParams(link.search);
  if (link.closest('#list-card')) return openSheet(q.toString());
  vin.value = q.get('vin') ?? vin.value;
  year.value = q.get('modelYear') ?? '';
  ruler();
  lookup(true);
});

addEventListener('popstate', () => {
  if (list) return;
  const q = new URLSearchParams(location.search);
  vin.value = q.get('vin') ?? '';
  year.value = q.get('modelYear') ?? '';
  ruler();
  asked = '';
  if (vin.value) return lookup(false, false);
  asking?.abort();
  out.replaceChildren();
});

async function clip(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  } catch {
    button.textContent = 'Not copied';
  }
  say(button.textContent);
  setTimeout(() => (button.textContent = before), 2000);
}

/* A list. */

let list; // the list on the page
let card, lines; // its card and rows

function startList(rows, other) {
  if (list?.running) {
    $('many').open = true;
    $('vins').value = rows.map((r) => r.vin + (r.year ? ',' + r.year : '')).join('\n');
    return complain('Another list is being decoded. Stop it first, or wait for its end.');
  }
  asking?.abort();
  clearTimeout(typing);
  const rest = rows.slice(MOST);
  list = newList(rows.slice(0, MOST));
  list.remark = [
    rest.length && `A list has up to ${MOST} VINs: the other ${rest.length} are in the field above.`,
    other && `${other} ${other === 1 ? 'line' : 'lines'} without a VIN left out.`,
  ].filter(Boolean).join(' ');
  $('vins').value = rest.map((r) => r.vin + (r.year ? ',' + r.year : '')).join('\n');
  $('many').open = rest.length > 0;
  vin.value = year.value = asked = '';
  ruler();
  card = piece('t-batch');
  card.id = 'list-card';
  const body = card.querySelector('tbody');
  lines = list.rows.map((row) => {
    const line = piece('t-row');
    line.firstElementChild.textContent = row.no;
    line.querySelector('code').textContent = row.vin;
    body.append(line);
    return line;
  });
  list.rows.forEach(drawRow);
  out.replaceChildren(card);
  hold(0);
  invalid(false);
  history.replaceState(null, '', '/');
  card.addEventListener('click', (e) => tools[e.target.closest('[data-do]')?.dataset.do]?.(e.target));
  card.querySelector('h2').focus();
  say(`${list.rows.length} VINs. ${list.remark}`);
  run(list);
}

// run sends the list piece by piece, until nothing waits any more or somebody stops it.
async function run(mine) {
  if (mine.running) return;
  mine.running = true;
  for (;;) {
    const todo = next(mine, Date.now());
    if (!todo.send && !todo.wait) break;
    if (todo.wait) {
      if (!mine.paused) {
        mine.paused = true;
        say(banner(mine));
      }
      draw(mine);
      await wait(Math.min(todo.wait - Date.now(), 250));
      continue;
    }
    if (mine.paused) {
      mine.paused = false;
      say('Going on.');
    }
    sent(todo.send);
    todo.send.forEach(drawRow);
    draw(mine);
    budget.busy();
    const reply = await call(todo.send);
    settle(mine, todo.send, reply, Date.now());
    todo.send.forEach(drawRow);
    draw(mine);
  }
  mine.running = mine.paused = false;
  mine.rows.forEach(drawRow);
  draw(mine);
  document.title = 'vingate';
  say(banner(mine));
}

async function call(rows) {
  try {
    const res = await fetch('/v1/vins', {
      method: 'POST', headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ vins: rows.map((r) => (r.year ? { vin: r.vin, modelYear: r.year } : r.vin)) }),
    });
    const body = await res.json();
    if (res.ok && Array.isArray(body.results)) return { results: body.results };
    return body.code ? { problem: body } : { lost: true };
  } catch {
    return { lost: true };
  }
}

const stateOf = (row) => {
  if (row.state === 'done') return row.answer.outcome;
  const p = row.problem;
  if (row.state === 'asking') return 'asking';
  if (p) return p.scope ? `${p.code}:${p.scope}` : p.code;
  return list?.stopped ? 'stopped' : 'waiting';
};
const wordsOf = (row) => badge(stateOf(row), row.problem?.title).textContent;

function drawRow(row) {
  const line = lines[row.no - 1];
  part(line, 'badge').replaceChildren(badge(stateOf(row), row.problem?.title));
  line.dataset.state = row.state;
  const a = row.answer;
  part(line, 'head').textContent = a?.summary ?? '';
  part(line, 'kind').textContent = [a?.fields.Trim, a?.fields.BodyClass].filter((s) => s && s !== 'Not Applicable').join(' · ');
  part(line, 'note').textContent = a ? a.remarks.join(' ')
    : row.state === 'refused' ? row.problem.detail
    : row.state === 'waiting' && row.problem ? (list.stopped ? 'Not decoded. Stopped.' : 'Not decoded yet. Is asked again.') : '';
  const code = line.querySelector('code');
  if (a && !line.querySelector('a')) {
    const link = document.createElement('a');
    const q = new URLSearchParams({ vin: a.vin });
    if (row.year) q.set('modelYear', row.year);
    link.href = '/?' + q;
    link.rel = 'nofollow';
    Object.assign(link.dataset, { vin: a.vin, year: row.year || '' });
    code.replaceWith(link);
    link.append(code);
  }
}

function banner(mine) {
  const n = count(mine);
  if (mine.stopped) return `Stopped. ${n.waiting} not asked.`;
  if (!n.waiting) {
    const parts = [[n.clean, 'clean'], [n.warned, 'with warnings'], [n.partial, 'partial'], [n.unknown, 'not in NHTSA’s data'], [n.refused, 'not decoded']];
    return `Done: ${parts.filter(([k]) => k).map(([k, w]) => `${k} ${w}`).join(', ')}.`;
  }
  if (!mine.paused) return 'Asking NHTSA, ten at a time.';
  const left = clock(((next(mine, Date.now()).wait ?? Date.now()) - Date.now()) / 1000);
  if (!mine.why) return `No answer for some. Goes on by itself in ${left}.`;
  return `${badge(mine.why.scope ? `${mine.why.code}:${mine.why.scope}` : mine.why.code, mine.why.title).textContent}. Goes on by itself in ${left}.`;
}

function draw(mine) {
  const n = count(mine);
  const bar = card.querySelector('progress');
  Object.assign(bar, { max: n.all, value: n.settled });
  part(card, 'all').textContent = n.all + (n.all === 1 ? ' VIN' : ' VINs');
  part(card, 'sum').textContent = `${n.settled} of ${n.all} settled. ${mine.remark}`;
  const state = mine.stopped ? 'stopped' : mine.paused ? 'paused' : n.waiting ? 'asking' : 'done';
  card.dataset.state = state;
  part(card, 'banner').textContent = banner(mine);
  const tool = (name) => card.querySelector(`[data-do="${name}"]`);
  tool('stop').hidden = state === 'stopped' || state === 'done';
  tool('go').hidden = !(state === 'stopped' || (state === 'done' && mine.rows.some(worthAgain)));
  tool('close').hidden = state !== 'stopped' && state !== 'done';
  tool('go').textContent = state === 'done' ? 'Try the rest again' : 'Go on';
  if (state !== 'done') document.title = `${n.settled} of ${n.all} – vingate`;
}

const tools = {
  stop() {
    list.stopped = true;
    list.paused = false;
    list.rows.forEach(drawRow);
    draw(list);
    say(banner(list));
    card.querySelector('[data-do="go"]').focus();
  },
  go() {
    if (!list.stopped) again(list);
    resume(list);
    list.rows.forEach(drawRow);
    run(list);
    card.querySelector('[data-do="stop"]').focus();
  },
  close() {
    list = undefined;
    out.replaceChildren();
    vin.focus();
  },
  copy: (button) => clip(tsv(table(list, wordsOf)), button),
  csv() {
    const link = document.createElement('a');
    link.href = URL.createObjectURL(new Blob([csv(table(list, wordsOf))], { type: 'text/csv' }));
    link.download = 'vins.csv';
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    say('Downloaded as vins.csv.');
  },
};

function complain(text) {
  $('vins-wrong').hidden = !text;
  $('vins-wrong').textContent = text;
  if (text) say(text);
}

$('list').addEventListener('submit', (e) => {
  e.preventDefault();
  const { rows, other } = extract($('vins').value);
  complain(rows.length ? '' : 'There is no VIN in this text. A VIN has 17 characters.');
  if (rows.length) startList(rows, other);
});

// A list that is under way is not left by a slip.
addEventListener('beforeunload', (e) => list?.running && e.preventDefault());

// openSheet shows the details of a row, whose answer is stored by now, or of a lookup beside the list.
function openSheet(q) {
  if (!$('sheet').open) $('sheet').showModal();
  ask(q, false, false);
}
$('sheet-close').addEventListener('click', () => $('sheet').close());
$('sheet').addEventListener('close', () => {
  asking?.abort();
  $('sheet-body').replaceChildren();
});

/* The budget. */

const budget = {
  el: $('budget'), idle: 0, timer: 0, until: 0, ticking: 0,
  busy() {
    this.idle = 0;
    this.later(400);
  },
  later(ms) {
    clearTimeout(this.timer);
    if (!document.hidden) this.timer = setTimeout(() => this.look(), ms);
  },
  async look() {
    try {
      const res = await fetch('/v1/capacity');
      if (!res.ok) throw new Error(res.status);
      this.draw(await res.json());
    } catch {
      this.unknown();
    }
    if (!list?.running && !document.querySelector('.waiting')) this.idle++;
    // A hold's end is looked at when it comes, however seldom else.
    const held = this.until - Date.now();
    this.later(held > 0 ? Math.min(pause(this.idle), held + 500) : pause(this.idle));
  },
  // hold counts down between two looks, for a time that stands still is not true.
  hold(seconds) {
    clearInterval(this.ticking);
    this.until = seconds ? Date.now() + seconds * 1000 : 0;
    const tick = () => {
      const left = (this.until - Date.now()) / 1000;
      for (const words of this.el.querySelectorAll('[data-n="hold"]')) words.textContent = left > 0 ? clock(left) : 'a moment';
      if (left <= 0) clearInterval(this.ticking);
    };
    tick();
    if (seconds) this.ticking = setInterval(tick, 250);
  },
  state(name) {
    for (const s of this.el.querySelectorAll('[data-state]')) s.hidden = s.dataset.state !== name;
    this.el.classList.toggle('held', name !== 'open' && name !== 'unknown');
    this.el.classList.toggle('unknown', name === 'unknown');
  },
  draw(c) {
    for (const name of ['tokens', 'mostTokens', 'inFlight', 'limit', 'queued', 'ratePerSecond']) part(this.el, name).textContent = c[name];
    part(this.el, 'readAt').textContent = '';
    this.hold(c.hold?.seconds ?? 0);
    this.state(c.hold?.reason ?? 'open');
    const level = this.el.querySelector('.level');
    const length = Number(level.getAttribute('pathLength'));
    level.style.strokeDasharray = `${Math.min(1, c.tokens / c.mostTokens) * length} ${length}`;
    [...$('pips').children].forEach((pip, i) => (pip.className = i < c.inFlight ? 'on' : i >= c.limit ? 'off' : ''));
  },
  unknown() {
    this.hold(0);
    for (const name of ['tokens', 'inFlight', 'queued']) part(this.el, name).textContent = '–';
    this.el.querySelector('.level').style.strokeDasharray = `0 ${this.el.querySelector('.level').getAttribute('pathLength')}`;
    this.state('unknown');
  },
};
document.addEventListener('visibilitychange', () => {
  budget.idle = 0;
  budget.later(0);
});

asked = $('answer-head') ? question() : '';
ruler();
hold(Number(out.querySelector('[data-retry]')?.dataset.retry ?? 0));
budget.later(pause(0));
