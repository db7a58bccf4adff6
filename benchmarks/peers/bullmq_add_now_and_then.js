// Adds single jobs at random moments: bullmq_add_now_and_then.js URL QUEUE JOBS SHORTEST_MS LONGEST_MS
// Prints "ready" when connected, starts when it reads a line, prints "done" when all jobs are added. The payload's `at` is
// the time of add(), ms of the monotonic clock, which all processes share. The gaps are the same in every run.
'use strict';

const { setTimeout: sleep } = require('node:timers/promises');
const { queueAt, runPeer } = require('./ready.js');

const [url, name, ...numbers] = process.argv.slice(2);
const [jobs, shortest, longest] = numbers.map(Number);

// A linear congruential generator, with the multiplier and increment of Numerical Recipes; 0 <= value < 1.
function* random(seed) {
  for (let state = seed; ; ) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    yield state / 2 ** 32;
  }
}

async function add(queue) {
  const gaps = random(7);
  for (let i = 0; i < jobs; i += 1) {
    await sleep(shortest + gaps.next().value * (longest - shortest));
    await queue.add('ping', { at: Number(process.hrtime.bigint()) / 1e6 });
  }
}

runPeer(() => queueAt(url, name), add);
