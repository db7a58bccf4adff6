// Adds single jobs at a constant rate: bullmq_add_steadily.js URL QUEUE JOBS_PER_S JOBS
// Prints "ready" when connected, starts when it reads a line, prints "done" when all jobs are added. The payload's `at` is
// the time of add(), ms of the monotonic clock, which all processes share. After a delay, it adds the late jobs at once.
'use strict';

const { setTimeout: sleep } = require('node:timers/promises');
const { queueAt, runPeer } = require('./ready.js');

const TICK_MS = 1;
const [url, name, ...numbers] = process.argv.slice(2);
const [rate, jobs] = numbers.map(Number);

const nowMs = () => Number(process.hrtime.bigint()) / 1e6;

async function add(queue) {
  const began = nowMs();
  const calls = [];
  while (calls.length < jobs) {
    const due = Math.min(jobs, Math.floor(((nowMs() - began) * rate) / 1000));
    while (calls.length < due) calls.push(queue.add('ping', { at: nowMs() }));
    await sleep(TICK_MS);
  }
  await Promise.all(calls);
}

runPeer(() => queueAt(url, name), add);
