// Adds jobs with BullMQ's addBulk: bullmq_add_bulk.js PORT QUEUE JOBS CHUNK IDS
// With IDS > 0, the jobs have that many deduplication ids, in turns.
// Prints "ready" when connected and warmed up, starts when it reads a line, prints "done" when all jobs are added.
'use strict';

const { once } = require('node:events');
const { Queue } = require('../../tests/node/node_modules/bullmq-6.7.0');

const WARM_UP_JOBS = 10000;
const [port, name, jobs, chunk, ids] = process.argv.slice(2).map((text, i) => (i === 1 ? text : Number(text)));

// The same payload as the Spark side has: about 200 bytes of JSON.
const payload = (id) => ({ id, carrier: 'UA', origin: 'EWR', note: 'x'.repeat(120), delay: id % 60, ratio: id / 7 });

const opts = (id) => (ids ? { deduplication: { id: `${id % ids}` } } : undefined);

async function fill(queue, total) {
  for (let first = 0; first < total; first += chunk) {
    const count = Math.min(chunk, total - first);
    const numbers = Array.from({ length: count }, (_, i) => first + i);
    await queue.addBulk(numbers.map((id) => ({ name: 'flight', data: payload(id), opts: opts(id) })));
  }
}

async function main() {
  const connection = { host: '127.0.0.1', port };
  const warmUp = new Queue(`warm-up-${process.pid}`, { connection });
  await fill(warmUp, WARM_UP_JOBS);
  await warmUp.obliterate({ force: true });
  await warmUp.close();
  const queue = new Queue(name, { connection });
  await queue.waitUntilReady();
  console.log('ready');
  await once(process.stdin, 'data');
  await fill(queue, jobs);
  console.log('done');
  await queue.close();
  process.stdin.destroy();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
