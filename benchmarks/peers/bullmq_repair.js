// Mends and retries all failed jobs: bullmq_repair.js URL QUEUE PAGE
// Prints "ready" when connected, starts when it reads a line, prints "done" at the end.
'use strict';

const { once } = require('node:events');
const { Queue } = require('../../tests/node/node_modules/bullmq-6.7.0');

const [url, name, page] = process.argv.slice(2);
const { hostname: host, port } = new URL(url);

async function repair(job) {
  await job.updateData({ ...job.data, note: 'mended' });
  await job.retry('failed', { resetAttemptsMade: true, resetAttemptsStarted: true });
}

async function main() {
  const queue = new Queue(name, { connection: { host, port: Number(port) } });
  await queue.waitUntilReady();
  console.log('ready');
  await once(process.stdin, 'data');
  for (;;) {
    const jobs = await queue.getFailed(0, Number(page) - 1);
    if (jobs.length === 0) break;
    await Promise.all(jobs.map(repair));
  }
  console.log('done');
  await queue.close();
  process.stdin.destroy();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
