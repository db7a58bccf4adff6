// Adds jobs with BullMQ's addBulk: bullmq_add_bulk.js PORT QUEUE JOBS CHUNK KIND NUMBER
// KIND is `plain`, `once` (NUMBER: of deduplication ids, which the jobs have in turns), or `wide` (NUMBER: of this process).
// Prints "ready" when connected and warmed up, starts when it reads a line, prints "done" when all jobs are added.
'use strict';

const { queueAt, runPeer } = require('./ready.js');

const WARM_UP_JOBS = 10000;
const DAY_MS = 86400000;
const [port, name, jobs, chunk, kind, number] = process.argv.slice(2).map((text) => (/^\d+$/.test(text) ? Number(text) : text));

// The same payload as the Spark side has: about 200 bytes of JSON.
const payload = (id) => ({ id, carrier: 'UA', origin: 'EWR', note: 'x'.repeat(120), delay: id % 60, ratio: id / 7 });

// The same as the Spark side has, too: a flight of 19 fields, about 400 bytes of JSON.
const flight = (id) => ({
  year: 2013,
  month: (id % 12) + 1,
  day: (id % 28) + 1,
  dep_time: id % 2400,
  sched_dep_time: id % 2359,
  dep_delay: id % 60,
  arr_time: (id * 3) % 2400,
  sched_arr_time: (id * 3) % 2359,
  arr_delay: id % 70,
  carrier: 'UA',
  flight: id % 6000,
  tailnum: `N${id % 4000}`,
  origin: 'EWR',
  dest: 'IAH',
  air_time: id % 400,
  distance: id % 2500,
  hour: id % 24,
  minute: id % 60,
  time_hour: '2013-01-01T10:00:00Z',
});

const kinds = {
  plain: (id) => ({ name: 'flight', data: payload(id) }),
  once: (id) => ({ name: 'flight', data: payload(id), opts: { deduplication: { id: `${id % number}` } } }),
  wide: (id) => {
    const opts = { jobId: `UA-${number}-${id}`, attempts: 3 };
    return { name: 'UA', data: flight(id), opts: id % 10 ? opts : { ...opts, delay: DAY_MS } };
  },
};

async function fill(queue, total) {
  for (let first = 0; first < total; first += chunk) {
    const count = Math.min(chunk, total - first);
    const numbers = Array.from({ length: count }, (_, i) => first + i);
    await queue.addBulk(numbers.map(kinds[kind]));
  }
}

async function open() {
  const url = `redis://127.0.0.1:${port}`;
  const warmUp = queueAt(url, `warm-up-${process.pid}`);
  await fill(warmUp, WARM_UP_JOBS);
  await warmUp.obliterate({ force: true });
  await warmUp.close();
  return queueAt(url, name);
}

runPeer(open, (queue) => fill(queue, jobs));
