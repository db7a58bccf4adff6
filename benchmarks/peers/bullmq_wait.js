// Adds jobs and waits for them: bullmq_wait.js URL QUEUE
// Prints "ready" when connected. For each line with a number, adds so many jobs at once, waits for all of them, and prints
// a list of latencies, JSON: ms from the return value, a time of the monotonic clock that all processes share, to here.
'use strict';

const { runWaitingPeer } = require('./ready.js');

const [url, name] = process.argv.slice(2);

async function waited(job, events) {
  const started = await job.waitUntilFinished(events);
  return Number(process.hrtime.bigint()) / 1e6 - started;
}

runWaitingPeer(url, name, async (queue, events, count) => {
  const jobs = await queue.addBulk(Array.from({ length: count }, () => ({ name: 'wait', data: {} })));
  return JSON.stringify(await Promise.all(jobs.map((job) => waited(job, events))));
});
