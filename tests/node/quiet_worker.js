'use strict';

// A worker whose jobs do nothing, without events: for more jobs than peer.js can report.
//
//   node quiet_worker.js <package alias> <redis url> <prefix> <queue> <concurrency>
//
// Prints "ready" when it is connected, and ends when its input does.

const [alias, url, prefix, name, concurrency] = process.argv.slice(2);
const library = require(alias);
const processor = async () => null;

async function start() {
  if (alias.startsWith('bullmq-')) {
    const { hostname, port } = new URL(url);
    const connection = { host: hostname, port: Number(port), maxRetriesPerRequest: null };
    await new library.Worker(name, processor, { connection, prefix, concurrency: Number(concurrency) }).waitUntilReady();
    return;
  }
  const queue = new library(name, url, { prefix });
  queue.process('*', Number(concurrency), processor);
  await queue.isReady();
}

start().then(() => console.log('ready'), (error) => {
  console.error(error);
  process.exit(1);
});
process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
