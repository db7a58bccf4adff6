// Adds single jobs at random moments: bullmq_add_now_and_then.js URL QUEUE JOBS SHORTEST_MS LONGEST_MS
// Prints "ready" when connected, starts when it reads a line, prints "done" when all jobs are added. The payload's `at` is
// the time of add(), ms of the monotonic clock, which all processes share. The gaps are the same in every run.
'use strict';

const { once } = require('node:events');
const { setTimeout: sleep } = require('node:timers/promises');
const { Queue } = require('../../tests/node/node_modules/bullmq-6.7.0');

const [url, name, ...numbers] = process.argv.slice(2);
const [jobs, shortest, longest] = numbers.map(Number);
const { hostname: host, port } = new URL(url);

// A linear congruential generator, with the multiplier and increment of Numerical Recipes; 0 <= value < 1.
function* random(seed) {
  for (let state = seed; ; ) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    yield state / 2 ** 32;
  }
}

async function main() {
  const queue = new Queue(name, { connection: { host, port: Number(port) } });
  await queue.waitUntilReady();
  console.log('ready');
  await once(process.stdin, 'data');
  const gaps = random(7);
  for (let i = 0; i < jobs; i += 1) {
    await sleep(shortest + gaps.next().value * (longest - shortest));
    await queue.add('ping', { at: Number(process.hrtime.bigint()) / 1e6 });
  }
  console.log('done');
  await queue.close();
  process.stdin.destroy();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
