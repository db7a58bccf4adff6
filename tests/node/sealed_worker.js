'use strict';

// A worker that opens payloads and keeps results with docs/node/spark-bull-payloads.js, and returns {"echo": payload}.
//
//   node sealed_worker.js <package alias> <redis url> <prefix> <queue> <file of the key "a"> <folder> <bytes>
//
// Adds a job with a small and one with a large payload to the queue `back`, prints "ready", and ends when its input does.

const fs = require('node:fs');
const { Payloads } = require('../../docs/node/spark-bull-payloads.js');

const [alias, url, prefix, name, file, folder, above] = process.argv.slice(2);
const library = require(alias);
const isBullMQ = alias.startsWith('bullmq-');
const keys = [{ id: 'a', key: fs.readFileSync(file) }];
const open = (queue) => new Payloads({ queue, prefix, keys, folder, above: Number(above) });
const processor = open(name).processor(async (job) => ({ echo: job.data }));
const { hostname, port } = new URL(url);
const connection = { host: hostname, port: Number(port), maxRetriesPerRequest: null };

function queueOf(queue) {
  return isBullMQ ? new library.Queue(queue, { connection, prefix }) : new library(queue, url, { prefix });
}

async function start() {
  const back = queueOf('back');
  for (const text of ['private', 'private '.repeat(200)]) {
    const data = await open('back').keep('data', { text, unicode: 'ä€😀' });
    await (isBullMQ ? back.add('job', data) : back.add(data));
  }
  if (isBullMQ) {
    await new library.Worker(name, processor, { connection, prefix }).waitUntilReady();
  } else {
    const queue = queueOf(name);
    queue.process(processor);
    await queue.isReady();
  }
}

start().then(() => console.log('ready'), (error) => {
  console.error(error);
  process.exit(1);
});
process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
