// One instance of a Node limiter, driven by lines of JSON; package main of the folder above has the other end and says what they mean.
'use strict';

const settings = JSON.parse(process.argv[2]);

// The limiters read the time from Date. It is put off before any of them is loaded; what is reported is the machine's own time.
if (settings.skewMs) {
  const Real = Date;
  global.Date = class extends Real {
    constructor(...args) {
      if (args.length) super(...args);
      else super(Real.now() + settings.skewMs);
    }
    static now() {
      return Real.now() + settings.skewMs;
    }
  };
}
const micros = () => Math.round((performance.timeOrigin + performance.now()) * 1000);

const say = (line) => process.stdout.write(JSON.stringify(line) + '\n');
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const redisAddress = () => {
  const [host, port] = settings.store.split(':');
  return { host, port: Number(port) };
};

// A limiter's ask(run) calls run() once it admits, and resolves when the slot is given back; it throws {retry} (milliseconds, -1 where it does
// not say) to refuse, and anything else when it is broken.
const limiters = {
  // A fixed window in DynamoDB; a rate only. Once the window is used up, refusals come from memory, as its documentation advises.
  'rate-limiter-flexible, DynamoDB': () => {
    const { DynamoDB } = require('@aws-sdk/client-dynamodb');
    const { RateLimiterDynamo } = require('rate-limiter-flexible');
    const storeClient = new DynamoDB({ endpoint: settings.store, region: 'us-east-1', credentials: { accessKeyId: 'local', secretAccessKey: 'local' } });
    const rate = new RateLimiterDynamo({
      storeClient, tableName: settings.table, tableCreated: true, ttlSet: true, keyPrefix: settings.name,
      points: settings.rate, duration: 1, inMemoryBlockOnConsumed: settings.rate,
    });
    return async (run) => {
      await rate.consume('budget').catch(flexible);
      await run();
    };
  },

  // A fixed window and a semaphore. The semaphore comes first: a point that is taken for a call without a slot would be lost.
  'rate-limiter-flexible + redis-semaphore': () => {
    const Redis = require('ioredis');
    const { RateLimiterRedis } = require('rate-limiter-flexible');
    const { Semaphore } = require('redis-semaphore');
    const storeClient = new Redis({ ...redisAddress(), enableOfflineQueue: false });
    storeClient.on('error', () => {}); // each call gets its own
    const rate = new RateLimiterRedis({
      storeClient, keyPrefix: settings.name, points: settings.rate, duration: 1, inMemoryBlockOnConsumed: settings.rate, rejectIfRedisNotReady: true,
    });
    const ready = new Promise((resolve) => storeClient.once('ready', resolve));
    return Object.assign(async (run) => {
      const slot = new Semaphore(storeClient, settings.name, settings.slots, {
        lockTimeout: settings.leaseMs, acquireAttemptsLimit: 1, retryInterval: 1, onLockLost: () => {},
      });
      if (!(await slot.tryAcquire())) throw { retry: -1 };
      try {
        await rate.consume('budget').catch(flexible);
        await run();
      } finally {
        await slot.release();
      }
    }, { ready });
  },

  // Rate by minTime and slots by maxConcurrent, with an expiration for each job as its documentation strongly recommends. Its queue is in
  // this process; highWater 0 is none.
  bottleneck: () => {
    const Bottleneck = require('bottleneck');
    const limiter = new Bottleneck({
      id: settings.name, datastore: 'ioredis', clearDatastore: false, clientOptions: redisAddress(),
      maxConcurrent: settings.slots, minTime: 1000 / settings.rate, highWater: settings.queue, strategy: Bottleneck.strategy.OVERFLOW,
    });
    limiter.on('error', () => {});
    return Object.assign((run) => limiter.schedule({ expiration: settings.leaseMs }, run).catch((err) => {
      throw err instanceof Bottleneck.BottleneckError && /dropped/.test(err.message) ? { retry: -1 } : err;
    }), { ready: limiter.ready() });
  },
};

// flexible tells a refusal of rate-limiter-flexible from a fault.
function flexible(err) {
  throw err instanceof Error ? err : { retry: err.msBeforeNext };
}

async function one(ask, { id, holdMs }) {
  const asked = micros();
  let admitted = false;
  try {
    await ask(async () => {
      admitted = true;
      say({ id, is: 'admitted', asked, at: micros() });
      await pause(holdMs);
      say({ id, is: 'over', at: micros() });
    });
  } catch (err) {
    if (admitted) return; // the call was made; giving back failed
    if (err.retry !== undefined) say({ id, is: 'refused', asked, at: micros(), retryMs: Math.ceil(err.retry) });
    else say({ id, is: 'failed', asked, at: micros(), error: String(err.message || err) });
  }
}

(async () => {
  const ask = limiters[settings.peer]();
  await ask.ready;
  say({ is: 'ready' });
  let rest = '';
  process.stdin.on('data', (data) => {
    const lines = (rest + data).split('\n');
    rest = lines.pop();
    for (const line of lines) one(ask, JSON.parse(line));
  });
  process.stdin.on('end', () => process.exit(0));
})();
