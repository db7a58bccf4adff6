// Adds jobs with BullMQ's addBulk and prints how long that took: bullmq_add_bulk.js PORT QUEUE JOBS CHUNK
'use strict';

const { Queue } = require('../../tests/node/node_modules/bullmq-6.7.0');

const [port, name, jobs, chunk] = process.argv.slice(2).map((text, i) => (i === 1 ? text : Number(text)));

// The same payload as the Spark side has: about 200 bytes of JSON.
const payload = (id) => ({ id, carrier: 'UA', origin: 'EWR', note: 'x'.repeat(120), delay: id % 60, ratio: id / 7 });

async function main() {
  const queue = new Queue(name, { connection: { host: '127.0.0.1', port } });
  await queue.waitUntilReady();
  const started = process.hrtime.bigint();
  for (let first = 0; first < jobs; first += chunk) {
    const count = Math.min(chunk, jobs - first);
    await queue.addBulk(Array.from({ length: count }, (_, i) => ({ name: 'flight', data: payload(first + i) })));
  }
  const seconds = Number(process.hrtime.bigint() - started) / 1e9;
  console.log(JSON.stringify({ seconds }));
  await queue.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
