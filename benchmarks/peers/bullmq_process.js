'use strict';

// A BullMQ worker that does nothing with its jobs:
//
//   node bullmq_process.js <redis url> <queue> <concurrency>
//
// Writes {"ready": true} once it is connected, and ends when its standard input does.

const path = require('path');

const library = path.join(__dirname, '..', '..', 'tests', 'node', 'node_modules', 'bullmq-6.7.0');
const { Worker } = require(library);

const [, , url, queue, concurrency] = process.argv;
const { hostname, port } = new URL(url);

const worker = new Worker(queue, async () => null, {
  connection: { host: hostname, port: Number(port) },
  concurrency: Number(concurrency),
});

worker.waitUntilReady().then(() => process.stdout.write('{"ready": true}\n'));
process.stdin.resume();
process.stdin.on('end', () => worker.close(true).finally(() => process.exit(0)));
