// Mends and retries all failed jobs: bullmq_repair.js URL QUEUE PAGE
// Prints "ready" when connected, starts when it reads a line, prints "done" at the end.
'use strict';

const { queueAt, runPeer } = require('./ready.js');

const [url, name, page] = process.argv.slice(2);

async function repair(job) {
  await job.updateData({ ...job.data, note: 'mended' });
  await job.retry('failed', { resetAttemptsMade: true, resetAttemptsStarted: true });
}

async function repairAll(queue) {
  for (;;) {
    const jobs = await queue.getFailed(0, Number(page) - 1);
    if (jobs.length === 0) break;
    await Promise.all(jobs.map(repair));
  }
}

runPeer(() => queueAt(url, name), repairAll);
