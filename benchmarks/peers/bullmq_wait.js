// Adds jobs and waits for them: bullmq_wait.js URL QUEUE
// Prints "ready" when connected. For each line with a number, adds so many jobs at once, waits for all of them, and prints
// a list of latencies, JSON: ms from the return value, a time of the monotonic clock that all processes share, to here.
'use strict';

const readline = require('node:readline');
const { Queue, QueueEvents } = require('../../tests/node/node_modules/bullmq-6.7.0');

const [url, name] = process.argv.slice(2);
const { hostname: host, port } = new URL(url);
const connection = { host, port: Number(port) };

async function waited(job, events) {
  const started = await job.waitUntilFinished(events);
  return Number(process.hrtime.bigint()) / 1e6 - started;
}

async function main() {
  const queue = new Queue(name, { connection });
  const events = new QueueEvents(name, { connection });
  events.setMaxListeners(0);
  queue.setMaxListeners(0);
  await Promise.all([queue.waitUntilReady(), events.waitUntilReady()]);
  console.log('ready');
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const jobs = await queue.addBulk(Array.from({ length: Number(line) }, () => ({ name: 'wait', data: {} })));
    console.log(JSON.stringify(await Promise.all(jobs.map((job) => waited(job, events)))));
  }
  await Promise.all([events.close(), queue.close()]);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
