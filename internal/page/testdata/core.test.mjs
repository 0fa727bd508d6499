// Tests of what the page's script decides, by node's own runner. A Go test runs them.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { MOST, PIECE, again, clock, complete, count, csv, extract, newList, next, pause, resume, sent, settle, table, tidy, tsv, worthAgain } from '../assets/core.mjs';

const accord = '1HGCM82633A004352';
const truck = '1FTMW1T88MFA00001';
const rowsOf = (text) => extract(text).rows.map((r) => (r.year ? `${r.vin}/${r.year}` : r.vin));
const vins = (n) => Array.from({ length: n }, (_, i) => '1HGCM82603A' + String(100000 + i));

test('complete: only 17 characters that can stand in a VIN are sent without being told to', () => {
  for (const yes of [accord, accord.toLowerCase(), ' 1HGCM-82633-A004352 ', '１ＨＧＣＭ８２６３３Ａ００４３５２', '11111111111111111']) assert.equal(complete(yes), true, yes);
  for (const no of ['', accord.slice(1), accord + '1', accord.replace('1', 'I'), accord.replace('0', 'O'), 'QQQQQQQQQQQQQQQQQ', '5UXWX7C5*BA123456', 'ABCDEFGHJKLMNPRST', '🚗'.repeat(17), accord + '.']) {
    assert.equal(complete(no), false, no);
  }
});

test('tidy undoes what copying does, and nothing that would make another VIN of it', () => {
  for (const text of ['1hgcm82633a004352', '1HGCM 82633 A004352', '1HGCM–82633—A004352', '\uFEFF1HGCM82633A004352\u200B', "'1HGCM82633A004352'", '“1HGCM82633A004352”', '1HGCM82633A004352\u00A0', '\u202A1HGCM82633A004352\u202C']) {
    assert.equal(tidy(text), accord, JSON.stringify(text));
  }
  assert.equal(tidy('1HGCM82633A00435O'), '1HGCM82633A00435O', 'an O is never made a zero');
});

test('extract: the VINs of whatever was pasted, in order', async (t) => {
  const cases = {
    'one on a line': [`${accord}\n${truck}`, [accord, truck]],
    'any end of line': [`${accord}\r\n${truck}\r${accord}\u2028${truck}`, [accord, truck, accord, truck]],
    'empty lines': [`\n\n${accord}\n \t \n${truck}\n\n`, [accord, truck]],
    'small letters': [accord.toLowerCase(), [accord]],
    'dashes and blanks in a VIN': ['1HGCM-82633-A004352\n1FTMW 1T88M FA00001', [accord, truck]],
    'typographic dashes': ['1HGCM–82633–A004352', [accord]],
    'full width': ['１ＨＧＣＭ８２６３３Ａ００４３５２', [accord]],
    'a byte order mark': [`\uFEFF${accord}\n${truck}`, [accord, truck]],
    'the columns of a spreadsheet': [`7\t${accord}\tred\t12000\n8\t${truck}\tblue\t9000`, [accord, truck]],
    'a year in the column behind': [`${accord}\t2003\n${truck}\t2021`, [`${accord}/2003`, `${truck}/2021`]],
    'a year behind a blank': [`${accord} 2003`, [`${accord}/2003`]],
    'years behind blanks, several on a line': [`${accord} 2003 ${truck} 2021, ${accord} ${truck}\t2021`, [`${accord}/2003`, `${truck}/2021`, accord, `${truck}/2021`]],
    'words behind the year': [`${accord} 2003 red`, [`${accord}/2003`]],
    'a number that is no model year behind': [`${accord},1979\n${truck},12000\n${accord},2103`, [accord, truck, accord]],
    'a year in front is not behind': [`2003,${accord},red`, [accord]],
    'CSV': [`"${accord}","2003","red, dark"\n"${truck}",,""`, [`${accord}/2003`, truck]],
    'CSV with semicolons': [`${accord};2003;red`, [`${accord}/2003`]],
    'a separator in quotes is none': [`"Smith; John",${accord}`, [accord]],
    'several on a line': [`${accord} ${truck}\n${accord}, ${truck}`, [accord, truck, accord, truck]],
    'in a sentence': [`Please look at ${accord}, it is red.`, [accord]],
    'one that is mistyped beside one that is not': [`${accord} 1HGCM82633A00435O`, [accord, '1HGCM82633A00435O']],
    'the same twice is two rows': [`${accord}\n${accord}`, [accord, accord]],
    'a partial VIN': ['5UXWX7C5*BA\t2011', ['5UXWX7C5*BA/2011']],
    'nearly a VIN goes to the server, which says what is wrong': [`${accord.slice(1)}\n${accord}X\n1HGCM82633A00435O`, [accord.slice(1), accord + 'X', '1HGCM82633A00435O']],
    'nothing like one': ['VIN\nDear all,\n555-0100\n2003\nhello world', []],
  };
  for (const [name, [text, want]] of Object.entries(cases)) await t.test(name, () => assert.deepEqual(rowsOf(text), want));
});

test('extract says how many lines were left out', () => {
  assert.equal(extract(`VIN,Year\n${accord},2003\n\nbest regards\n`).other, 2);
  assert.equal(extract('').other, 0);
});

test('extract: what a spreadsheet made of a VIN of digits is reported as it is, never repaired', () => {
  assert.deepEqual(rowsOf('1.23E+16'), ['1.23E+16']);
  assert.deepEqual(rowsOf('1,23E+16'), ['1,23E+16'], 'a decimal comma');
  assert.deepEqual(rowsOf(`${accord}\t1.23457E+16\n1,23457E+16;red`), [accord, '1.23457E+16', '1,23457E+16']);
  assert.deepEqual(rowsOf('2E3\n5E1'), [], 'a short number is no VIN');
});

test('extract: more than a list holds is not cut here', () => {
  assert.equal(MOST, 50);
  assert.equal(rowsOf(vins(51).join('\n')).length, 51);
});

test('extract takes any text, and makes no row of nothing', () => {
  let seed = 7;
  const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
  const pieces = [accord, truck, ' ', '\t', ',', ';', '"', '\n', '\r\n', '2003', '1.2E+16', 'é', '🚗', '\u0000', '=1+1', 'VIN', '-', '*'];
  for (let i = 0; i < 3000; i++) {
    const text = Array.from({ length: random(12) }, () => pieces[random(pieces.length)]).join('');
    for (const r of extract(text).rows) {
      assert.ok(r.vin.trim(), JSON.stringify(text));
      assert.ok(r.year === 0 || (r.year >= 1980 && r.year < 2100), JSON.stringify(text));
    }
  }
});

/* The list. */

const ok = (row) => ({ status: 200, answer: { vin: row.vin, outcome: 'clean', codes: [0], messages: ['fine'], remarks: [], fields: { Make: 'HONDA' }, modelYear: 2003, make: 'HONDA', model: 'Accord', provenance: { source: 'nhtsa', fetchedAt: '2026-01-01T00:00:00Z' } } });
const no = (code, retryAfterSeconds, more) => ({ status: 429, problem: { code, title: code, detail: code + '.', ...(retryAfterSeconds ? { retryAfterSeconds } : {}), ...more } });
const list = (n) => newList(vins(n).map((vin) => ({ vin, year: 0 })));
const ask = (l, now) => {
  const { send } = next(l, now);
  assert.ok(send, `something is to be sent at ${now}`);
  sent(send);
  return send;
};
const states = (l) => l.rows.map((r) => r.state);

test('a list goes in pieces of ten, in order, each row once', () => {
  const l = list(25);
  const sizes = [], order = [];
  for (let now = 0; next(l, now).send; now++) {
    const rows = ask(l, now);
    sizes.push(rows.length);
    order.push(...rows.map((r) => r.no));
    settle(l, rows, { results: rows.map(ok) }, now);
  }
  assert.equal(PIECE, 10);
  assert.deepEqual(sizes, [10, 10, 5]);
  assert.deepEqual(order, l.rows.map((_, i) => i + 1));
  assert.deepEqual(next(l, 99), {});
  assert.deepEqual(count(l), { all: 25, settled: 25, clean: 25, warned: 0, partial: 0, unknown: 0, refused: 0, waiting: 0 });
});

test('what was sent is not sent again while it is asked', () => {
  const l = list(12);
  const first = ask(l, 0);
  assert.deepEqual(next(l, 0).send.map((r) => r.no), [11, 12]);
  assert.ok(first.every((r) => r.state === 'asking'));
});

test('only refused rows are sent again, and not before the server said', () => {
  const l = list(12);
  const rows = ask(l, 1000);
  settle(l, rows, { results: rows.map((r, i) => (i < 7 ? ok(r) : no('RATE_LIMITED', 4, { scope: 'upstream-budget' }))) }, 1500);
  assert.equal(l.until, 5500);
  assert.equal(l.why.code, 'RATE_LIMITED');
  assert.deepEqual(next(l, 1500), { wait: 5500 }, 'the rows that were never asked wait as well');
  assert.deepEqual(next(l, 5499), { wait: 5500 });
  assert.deepEqual(ask(l, 5500).map((r) => r.no), [8, 9, 10, 11, 12]);
  for (const r of l.rows.slice(0, 7)) assert.equal(r.state, 'done');
  for (const r of l.rows.slice(7)) assert.equal(r.answer, null, 'a refused row has nothing about a vehicle');
});

test('of several times the latest counts', () => {
  const l = list(3);
  const rows = ask(l, 0);
  settle(l, rows, { results: [no('RATE_LIMITED', 2), no('DECODE_QUEUE_FULL', 9), no('RATE_LIMITED', 3)] }, 0);
  assert.equal(l.until, 9000);
  assert.equal(l.why.code, 'DECODE_QUEUE_FULL');
});

test('a call that is refused as a whole refuses each of its rows', () => {
  const l = list(11);
  const rows = ask(l, 0);
  settle(l, rows, { problem: no('UPSTREAM_THROTTLED', 30).problem }, 100);
  assert.deepEqual(next(l, 100), { wait: 30100 });
  assert.equal(count(l).waiting, 11);
  assert.equal(ask(l, 30100).length, 10);
});

test('a limit is waited out as often as it takes', () => {
  const l = list(1);
  for (let i = 0; i < 20; i++) {
    const now = i * 10000;
    const rows = ask(l, now);
    settle(l, rows, { results: [no('RATE_LIMITED', 10)] }, now);
    assert.deepEqual(states(l), ['waiting']);
  }
});

test('what is wrong with a VIN is said once, and holds nobody up', () => {
  const l = list(12);
  const rows = ask(l, 0);
  settle(l, rows, { results: rows.map((r, i) => (i === 3 ? no('VIN_INVALID') : ok(r))) }, 0);
  assert.equal(l.rows[3].state, 'refused');
  assert.equal(worthAgain(l.rows[3]), false);
  assert.deepEqual(ask(l, 0).map((r) => r.no), [11, 12]);
});

test('trouble with one VIN holds back that one, three times, and not the list', () => {
  const l = list(12);
  let now = 0;
  let rows = ask(l, now);
  settle(l, rows, { results: rows.map((r, i) => (i === 0 ? no('UPSTREAM_TIMEOUT', 60) : ok(r))) }, now);
  rows = ask(l, now);
  assert.deepEqual(rows.map((r) => r.no), [11, 12]);
  settle(l, rows, { results: rows.map(ok) }, now);
  assert.deepEqual(next(l, now), { wait: 60000 });
  for (now = 60000; next(l, now).send; now += 60000) {
    rows = ask(l, now);
    assert.deepEqual(rows.map((r) => r.no), [1]);
    settle(l, rows, { results: [no('UPSTREAM_TIMEOUT', 60)] }, now);
  }
  assert.equal(l.rows[0].tries, 3);
  assert.equal(l.rows[0].state, 'refused');
  assert.deepEqual(next(l, now), {});
  assert.equal(worthAgain(l.rows[0]), true);
  again(l);
  assert.deepEqual(states(l).filter((s) => s === 'waiting').length, 1, 'a person may put it back in line');
});

test('without a reply it backs off: 5, 10, 20, 40, 60, 60 seconds, and begins anew after one', () => {
  const l = list(1);
  const waits = [];
  let now = 0;
  for (let i = 0; i < 6; i++) {
    const rows = ask(l, now);
    settle(l, rows, { lost: true }, now);
    assert.equal(l.why, null, 'it is not called a limit of the server');
    waits.push((next(l, now).wait - now) / 1000);
    now = next(l, now).wait;
  }
  assert.deepEqual(waits, [5, 10, 20, 40, 60, 60]);
  settle(l, ask(l, now), { results: [no('RATE_LIMITED', 1)] }, now);
  now += 1000;
  settle(l, ask(l, now), { lost: true }, now);
  assert.equal(next(l, now).wait - now, 5000);
});

test('an answer too few is no answer, and is asked for again', () => {
  const l = list(3);
  const rows = ask(l, 0);
  settle(l, rows, { results: [ok(rows[0])] }, 0);
  assert.deepEqual(states(l), ['done', 'waiting', 'waiting']);
  assert.equal(l.rows[1].answer, null);
});

test('a 200 without an answer is not taken for one', () => {
  const l = list(1);
  settle(l, ask(l, 0), { results: [{ status: 200 }] }, 0);
  assert.notEqual(l.rows[0].state, 'done');
});

test('stopped, nothing is sent; going on, what is left is, and no sooner than allowed', () => {
  const l = list(12);
  const rows = ask(l, 0);
  settle(l, rows, { results: rows.map((r, i) => (i ? ok(r) : no('RATE_LIMITED', 5))) }, 0);
  l.stopped = true;
  assert.deepEqual(next(l, 0), {});
  assert.deepEqual(next(l, 1e9), {});
  resume(l);
  assert.deepEqual(next(l, 4999), { wait: 5000 });
  assert.deepEqual(ask(l, 5000).map((r) => r.no), [1, 11, 12]);
});

test('a reply that comes after the stop counts', () => {
  const l = list(2);
  const rows = ask(l, 0);
  l.stopped = true;
  settle(l, rows, { results: rows.map(ok) }, 0);
  assert.deepEqual(states(l), ['done', 'done']);
});

test('fifty VINs at a dry budget: no row is lost, none is asked for again that was answered, none too early', () => {
  const l = list(50);
  const answered = new Map();
  let tokens = 3, allowed = 0;
  for (let now = 0, guard = 0; ; guard++) {
    assert.ok(guard < 1000);
    const todo = next(l, now);
    if (todo.wait) {
      assert.ok(todo.wait > now);
      now = todo.wait;
      tokens = Math.min(3, tokens + 3);
      continue;
    }
    if (!todo.send) break;
    assert.ok(now >= allowed, 'sent before Retry-After was over');
    sent(todo.send);
    const results = todo.send.map((row) => {
      assert.equal(answered.has(row.no), false, `${row.no} again`);
      if (!tokens) return no('RATE_LIMITED', 2);
      tokens--;
      answered.set(row.no, true);
      return ok(row);
    });
    if (results.some((r) => r.problem)) allowed = now + 2000;
    settle(l, todo.send, { results }, now);
  }
  assert.equal(answered.size, 50);
  assert.equal(count(l).clean, 50);
});

/* What is taken away. */

const words = (row) => ({ done: 'Clean', refused: 'Not a VIN', waiting: 'Not asked' })[row.state];
const mixed = () => {
  const l = newList([{ vin: accord, year: 2003 }, { vin: '1HGCM82633A00435O', year: 0 }, { vin: truck, year: 0 }]);
  const rows = ask(l, 0);
  const answer = ok(rows[0]).answer;
  Object.assign(answer, { codes: [0, 14], messages: ['fine', 'some characters not explained'], remarks: ['NHTSA cannot explain position 4.'], fields: { Make: 'HONDA', Trim: 'EX' } });
  settle(l, rows.slice(0, 2), { results: [{ status: 200, answer }, no('VIN_INVALID')] }, 0);
  rows[2].state = 'waiting';
  return l;
};

test('the exported table has what was asked, what became of it, and nothing about a vehicle that was not decoded', () => {
  const [head, decoded, refused, waiting] = table(mixed(), words);
  assert.deepEqual(head, ['VIN', 'ModelYearGiven', 'State', 'Code', 'Remark', 'Year', 'Make', 'Model', 'Source', 'FetchedAt', 'NHTSA.Make', 'NHTSA.Trim']);
  assert.deepEqual(decoded, [accord, '2003', 'Clean', '0,14', 'NHTSA cannot explain position 4.', '2003', 'HONDA', 'Accord', 'nhtsa', '2026-01-01T00:00:00Z', 'HONDA', 'EX']);
  assert.deepEqual(refused, ['1HGCM82633A00435O', '', 'Not a VIN', 'VIN_INVALID', 'VIN_INVALID.', '', '', '', '', '', '', '']);
  assert.deepEqual(waiting, [truck, '', 'Not asked', '', '', '', '', '', '', '', '', '']);
});

test('CSV is RFC 4180 with a byte order mark', () => {
  assert.equal(csv([['a', 'b "c"'], ['d\ne', 'é,']]), '\uFEFF"a","b ""c"""\r\n"d\ne","é,"\r\n');
});

test('no cell is taken for a formula', () => {
  for (const cell of ['=1+1', '+1', '-1', '@SUM(A1)', ' =1', '\t=1', '\u200B=1', '＝1', '＋1', '－1', '＠1', '\rx', '\nx', '=HYPERLINK("http://example.com")']) {
    const line = csv([[cell]]).slice(1, -2);
    assert.equal(line, `"'${cell.replaceAll('"', '""')}"`, JSON.stringify(cell));
    assert.ok(!/^\s*[=+\-@]/.test(tsv([[cell]])), JSON.stringify(cell));
  }
  assert.equal(csv([['a=b', '1-2', accord]]), `\uFEFF"a=b","1-2","${accord}"\r\n`);
});

test('TSV has no tab or line end within a cell', () => {
  assert.equal(tsv([['a\tb', 'c\r\nd'], ['e', '']]), 'a b\tc d\ne\t');
});

/* Time. */

test('a countdown is read as a person says it, and never as less than there is', () => {
  for (const [seconds, says] of [[-3, '0 seconds'], [0, '0 seconds'], [0.2, '1 second'], [1, '1 second'], [1.1, '2 seconds'], [59, '59 seconds'], [59.5, '1 min 00 s'], [61, '1 min 01 s'], [3599, '59 min 59 s'], [3600, '1 h 00 min'], [7261, '2 h 01 min']]) {
    assert.equal(clock(seconds), says);
  }
});

test('the budget is looked at ever more seldom while nothing goes on, up to a minute', () => {
  let last = 0;
  for (let idle = 0; idle < 30; idle++) {
    assert.ok(pause(idle) >= last && pause(idle) <= 60000);
    last = pause(idle);
  }
  assert.equal(pause(0), 2000);
  assert.equal(last, 60000);
});
