// Adds jobs of the demo with BullMQ's addBulk: node_add.js REDIS_URL QUEUE FOLDER BULLMQ_FOLDER
// FOLDER has files with a JSON object per line: name, data, jobId, delay. Prints the number of jobs, and the seconds that
// addBulk took for them, without the time to read the files.
'use strict';

const fs = require('node:fs');
const path = require('node:path');

const CHUNK = 1000;
const [url, name, folder, bullmq] = process.argv.slice(2);
const { Queue } = require(bullmq);

function jobsOf(file) {
  const lines = fs.readFileSync(path.join(folder, file), 'utf8').split('\n').filter(Boolean);
  return lines.map((line) => {
    const { name: jobName, data, jobId, delay } = JSON.parse(line);
    return { name: jobName, data, opts: delay ? { jobId, delay, attempts: 3 } : { jobId, attempts: 3 } };
  });
}

async function main() {
  const jobs = fs.readdirSync(folder).filter((file) => file.startsWith('part-')).sort().flatMap(jobsOf);
  const { hostname, port } = new URL(url);
  const queue = new Queue(name, { connection: { host: hostname, port: Number(port) } });
  await queue.waitUntilReady();
  const started = performance.now();
  for (let first = 0; first < jobs.length; first += CHUNK) await queue.addBulk(jobs.slice(first, first + CHUNK));
  console.log(JSON.stringify({ jobs: jobs.length, seconds: (performance.now() - started) / 1000 }));
  await queue.close();
}

main();
