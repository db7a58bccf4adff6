// Adds jobs, 100 at once, and waits for them, 1,000 at a time: bullmq_call.js URL QUEUE [KEPT]
// KEPT: how many jobs that have completed are kept; default: all.
// Prints "ready" when connected. For each line with a number, adds that number of jobs, and prints "done" when all have ended.
'use strict';

const { runWaitingPeer } = require('./ready.js');

const CHUNK = 100;
const IN_FLIGHT = 1_000;
const [url, name, kept] = process.argv.slice(2);
const opts = kept ? { removeOnComplete: { count: Number(kept) } } : {};

async function call(queue, events, count) {
  let pending = 0;
  let wake = () => {};
  const atMost = async (most) => {
    while (pending > most) await new Promise((resolve) => { wake = resolve; });
  };
  for (let start = 0; start < count; start += CHUNK) {
    await atMost(IN_FLIGHT - CHUNK);
    const ids = Array.from({ length: Math.min(CHUNK, count - start) }, (_, i) => start + i);
    const jobs = await queue.addBulk(ids.map((id) => ({ name: 'call', data: { id }, opts })));
    pending += jobs.length;
    for (const job of jobs) {
      job.waitUntilFinished(events).then(() => {
        pending -= 1;
        wake();
      });
    }
  }
  await atMost(0);
  return 'done';
}

runWaitingPeer(url, name, call);
