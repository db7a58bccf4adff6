// Adds jobs, 100 at once, and waits for them, 1,000 at a time: bullmq_call.js URL QUEUE
// Prints "ready" when connected. For each line with a number, adds so many jobs, and prints "done" when all have ended.
'use strict';

const readline = require('node:readline');
const { Queue, QueueEvents } = require('../../tests/node/node_modules/bullmq-6.7.0');

const CHUNK = 100;
const IN_FLIGHT = 1_000;
const [url, name] = process.argv.slice(2);
const { hostname: host, port } = new URL(url);
const connection = { host, port: Number(port) };

async function call(queue, events, count) {
  let pending = 0;
  let wake = () => {};
  const atMost = async (most) => {
    while (pending > most) await new Promise((resolve) => { wake = resolve; });
  };
  for (let start = 0; start < count; start += CHUNK) {
    await atMost(IN_FLIGHT - CHUNK);
    const ids = Array.from({ length: Math.min(CHUNK, count - start) }, (_, i) => start + i);
    const jobs = await queue.addBulk(ids.map((id) => ({ name: 'call', data: { id } })));
    pending += jobs.length;
    for (const job of jobs) {
      job.waitUntilFinished(events).then(() => {
        pending -= 1;
        wake();
      });
    }
  }
  await atMost(0);
}

async function main() {
  const queue = new Queue(name, { connection });
  const events = new QueueEvents(name, { connection });
  events.setMaxListeners(0);
  queue.setMaxListeners(0);
  await Promise.all([queue.waitUntilReady(), events.waitUntilReady()]);
  console.log('ready');
  for await (const line of readline.createInterface({ input: process.stdin })) {
    await call(queue, events, Number(line));
    console.log('done');
  }
  await Promise.all([events.close(), queue.close()]);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
