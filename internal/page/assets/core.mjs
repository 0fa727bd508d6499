// What the page's script decides, apart from the page: what a pasted text holds, when a list goes on, what is exported.
// Nothing here knows a document, a clock or a network.

export const MOST = 50; // VINs in a list
export const PIECE = 10; // of them in one call
const MOST_TRIES = 3; // of a VIN whose answer fails for another reason than a limit

// tidy undoes what copying does to a VIN, for comparing and counting. The server does it again, and thoroughly.
export const tidy = (text) =>
  text.normalize('NFKC').replace(/[\p{Cf}\p{Zs}\s"'`\u2018-\u201F\-\u2010-\u2015\u2212]/gu, '').toUpperCase();

// complete says whether a text is 17 characters that can stand in a VIN: only then is anything sent without being told to.
export const complete = (text) => /^(?=.*\d)[0-9A-HJ-NPR-Z]{17}$/.test(tidy(text));

const year = (text) => (/^(19[89]|20[0-9])[0-9]$/.test(text) ? Number(text) : 0);

// damaged recognises what a spreadsheet makes of a VIN of digits: 1.23E+16.
const damaged = (text) => /^\d([.,]\d+)?E\+?\d{1,3}$/i.test(text) && /[.,+]/.test(text);

// close says whether a word was probably meant as a VIN: the server then says what is wrong with it.
const close = (word) => {
  const v = tidy(word);
  return damaged(word) || (/^[0-9A-Z*]{11,20}$/.test(v) && /\d/.test(v) && (/[A-Z*]/.test(v) || v.length === 17));
};

// extract finds the VINs of a pasted text, in order, each with the model year that stands right behind it on its line, if
// any. A line without anything like a VIN is counted, not sent: headings, prose. The same VIN twice is two rows.
export function extract(text) {
  const rows = [];
  let other = 0;
  for (const line of text.split(/\r\n|[\r\n\u2028\u2029]/)) {
    if (!line.trim()) continue;
    const found = vinsOf(line);
    if (found.length) rows.push(...found);
    else other++;
  }
  return { rows, other };
}

// cells splits a line where spreadsheets do, but for what stands in quotes.
function cellsOf(line) {
  const cells = [''];
  let quoted = false;
  for (const c of line) {
    if (c === '"') quoted = !quoted;
    else if (!quoted && '\t,;|'.includes(c)) cells.push('');
    else cells[cells.length - 1] += c;
  }
  return cells.map((c) => c.trim());
}

function vinsOf(line) {
  const cells = cellsOf(line);
  const rows = [];
  for (let i = 0; i < cells.length; i++) {
    const cell = cells[i], behind = cells[i + 1] ?? '';
    if (!cell) continue;
    // A cell is one VIN, perhaps with blanks or dashes in it, or words of which some are.
    const words = cell.split(/\s+/);
    const whole = words.some(complete);
    if (complete(cell)) rows.push({ vin: tidy(cell), year: year(behind) });
    else if (whole) {
      words.forEach((w, at) => {
        if (complete(w) || close(w)) rows.push({ vin: complete(w) ? tidy(w) : w, year: year(words[at + 1] ?? behind) });
      });
    }
    else if (damaged(cell + ',' + behind)) rows.push({ vin: cell + ',' + cells[++i], year: 0 }); // the comma was a decimal one
    else if (words.length === 1 && close(cell)) rows.push({ vin: cell, year: year(behind) });
  }
  return rows;
}

// A list is { rows, until, why, stopped }: what became of each VIN, and until when nothing is sent, in milliseconds.
// A row's state is waiting, asking, done (answer) or refused (problem, and nothing more to try).
export const newList = (rows) => ({
  rows: rows.map((r, i) => ({ ...r, no: i + 1, state: 'waiting', after: 0, tries: 0, answer: null, problem: null })),
  until: 0, why: null, lost: 0, stopped: false,
});

// next says what is to be done now: { send: rows }, { wait: until } or, with neither, nothing any more.
export function next(list, now) {
  const left = list.rows.filter((r) => r.state === 'waiting');
  if (!left.length || list.stopped) return {};
  if (now < list.until) return { wait: list.until };
  const due = left.filter((r) => r.after <= now).slice(0, PIECE);
  if (due.length) return { send: due };
  return { wait: Math.min(...left.map((r) => r.after)) };
}

export function sent(rows) {
  for (const r of rows) r.state = 'asking';
}

// limits are refusals that end by waiting: they say nothing about the VIN, and are waited for as long as the server says.
const limits = new Set(['RATE_LIMITED', 'BULKHEAD_TIMEOUT', 'DECODE_QUEUE_FULL', 'DECODE_WAIT_TIMEOUT', 'VIN_REPEATED',
  'UPSTREAM_THROTTLED', 'UPSTREAM_UNAVAILABLE', 'COORDINATION_UNAVAILABLE']);

// settle takes the reply to a call that was sent for these rows. It is { results } of a 200, { problem } of a call that was
// refused as a whole, or { lost: true } where no reply came that can be read. Only what was refused and may yet succeed
// waits to be sent again, and never before the time the server gave.
export function settle(list, rows, reply, now) {
  if (!reply.lost) list.lost = 0;
  rows.forEach((row, i) => {
    const result = reply.results?.[i];
    if (result?.status === 200 && result.answer) {
      Object.assign(row, { state: 'done', answer: result.answer, problem: null });
      return;
    }
    refuse(list, row, reply.problem ?? result?.problem ?? { code: 'LOST', title: 'No answer', detail: 'No answer came for this VIN.', retryAfterSeconds: reply.lost ? 0 : 5 }, reply.lost, now);
  });
  if (reply.lost) {
    // Nobody said when: five seconds, doubling up to a minute.
    list.until = now + Math.min(5 * 2 ** list.lost++, 60) * 1000;
    list.why = null;
  }
}

function refuse(list, row, problem, lost, now) {
  row.problem = problem;
  row.tries++;
  const seconds = problem.retryAfterSeconds || 0;
  const limit = limits.has(problem.code) && seconds > 0;
  if (limit && now + seconds * 1000 > list.until) {
    list.until = now + seconds * 1000;
    list.why = problem;
  }
  const again = lost || limit || (seconds > 0 && row.tries < MOST_TRIES);
  row.state = again ? 'waiting' : 'refused';
  row.after = again ? now + seconds * 1000 : 0;
}

// resume lets a stopped list go on; again puts the rows that were given up back in line, those that can ever succeed.
export const resume = (list) => Object.assign(list, { stopped: false });
export function again(list) {
  for (const r of list.rows) if (worthAgain(r)) Object.assign(r, { state: 'waiting', tries: 0 });
}
export const worthAgain = (row) => row.state === 'refused' && (row.problem?.retryAfterSeconds > 0 || row.problem?.code === 'INTERNAL');

// count says how a list stands, in numbers.
export function count(list) {
  const n = { all: list.rows.length, settled: 0, clean: 0, warned: 0, partial: 0, unknown: 0, refused: 0, waiting: 0 };
  for (const r of list.rows) {
    if (r.state === 'done') n[r.answer.outcome]++;
    else if (r.state === 'refused') n.refused++;
    else n.waiting++;
    if (r.state === 'done' || r.state === 'refused') n.settled++;
  }
  return n;
}

// table is a list as lines of cells: what was asked, what became of it, and every field NHTSA reported for any row.
// A row without a decode has no cell about a vehicle.
export function table(list, words) {
  const fields = [...new Set(list.rows.flatMap((r) => Object.keys(r.answer?.fields ?? {})))].sort();
  const head = ['VIN', 'ModelYearGiven', 'State', 'Code', 'Remark', 'Year', 'Make', 'Model', 'Source', 'FetchedAt', ...fields.map((f) => 'NHTSA.' + f)];
  return [head, ...list.rows.map((r) => {
    const a = r.answer;
    const remark = a ? a.remarks.join(' ') : r.problem?.detail ?? '';
    return [r.vin, r.year || '', words(r), a ? a.codes.join(',') : r.problem?.code ?? '', remark, a?.modelYear ?? '', a?.make ?? '', a?.model ?? '',
      a?.provenance.source ?? '', a?.provenance.fetchedAt ?? '', ...fields.map((f) => a?.fields[f] ?? '')].map(String);
  })];
}

// harmless keeps a spreadsheet from taking a cell for a formula: what begins like one gets an apostrophe in front.
const harmless = (cell) => (/^[\s\p{Cf}]*[=+\-@\uFF1D\uFF0B\uFF0D\uFF20]|^[\t\r\n]/u.test(cell) ? "'" + cell : cell);

// csv is RFC 4180 with a byte order mark, without which Excel takes UTF-8 for something else.
export const csv = (lines) =>
  '\uFEFF' + lines.map((cells) => cells.map((c) => '"' + harmless(c).replaceAll('"', '""') + '"').join(',')).join('\r\n') + '\r\n';

// tsv is for the clipboard: a spreadsheet puts it into cells.
export const tsv = (lines) => lines.map((cells) => cells.map((c) => harmless(c.replace(/[\t\r\n]+/g, ' '))).join('\t')).join('\n');

// clock says how long it takes, for a person who watches it count down.
export function clock(seconds) {
  const s = Math.max(0, Math.ceil(seconds));
  if (s < 60) return s === 1 ? '1 second' : s + ' seconds';
  if (s < 3600) return Math.floor(s / 60) + ' min ' + String(s % 60).padStart(2, '0') + ' s';
  return Math.floor(s / 3600) + ' h ' + String(Math.floor((s % 3600) / 60)).padStart(2, '0') + ' min';
}

// pause is how long the budget is not looked at again, in milliseconds: often while something is going on here, then ever
// more seldom, up to a minute. Trouble counts as nothing going on.
export const pause = (idle) => Math.min(2000 * 1.5 ** Math.max(0, idle), 60000);
