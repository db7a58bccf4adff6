// Adds single jobs at a constant rate: bullmq_add_steadily.js URL QUEUE JOBS_PER_S JOBS
// Prints "ready" when connected, starts when it reads a line, prints "done" when all jobs are added. The payload's `at` is
// the time of add(), ms of the monotonic clock, which all processes share. After a delay, it adds the late jobs at once.
'use strict';

const { once } = require('node:events');
const { setTimeout: sleep } = require('node:timers/promises');
const { Queue } = require('../../tests/node/node_modules/bullmq-6.7.0');

const TICK_MS = 1;
const [url, name, ...numbers] = process.argv.slice(2);
const [rate, jobs] = numbers.map(Number);
const { hostname: host, port } = new URL(url);

const nowMs = () => Number(process.hrtime.bigint()) / 1e6;

async function main() {
  const queue = new Queue(name, { connection: { host, port: Number(port) } });
  await queue.waitUntilReady();
  console.log('ready');
  await once(process.stdin, 'data');
  const began = nowMs();
  const calls = [];
  while (calls.length < jobs) {
    const due = Math.min(jobs, Math.floor(((nowMs() - began) * rate) / 1000));
    while (calls.length < due) calls.push(queue.add('ping', { at: nowMs() }));
    await sleep(TICK_MS);
  }
  await Promise.all(calls);
  console.log('done');
  await queue.close();
  process.stdin.destroy();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
