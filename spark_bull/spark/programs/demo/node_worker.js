// A BullMQ worker that processes jobs of the demo: node_worker.js REDIS_URL QUEUE AIRPORTS_JSON BULLMQ_FOLDER
'use strict';

const fs = require('node:fs');

const [url, queue, file, bullmq] = process.argv.slice(2);
const { Worker } = require(bullmq);
const airports = JSON.parse(fs.readFileSync(file, 'utf8'));
const radians = (degrees) => (degrees * Math.PI) / 180;

// The haversine formula, on a sphere of 6371 km.
function distance([lat1, lon1], [lat2, lon2]) {
  const h = Math.sin(radians(lat2 - lat1) / 2) ** 2
    + Math.cos(radians(lat1)) * Math.cos(radians(lat2)) * Math.sin(radians(lon2 - lon1) / 2) ** 2;
  return 2 * 6371 * Math.asin(Math.sqrt(h));
}

async function score({ data }) {
  const [from, to] = [airports[data.origin], airports[data.dest]];
  const km = from && to ? distance(from, to) : null;
  return { km, score: km === null || data.dep_delay == null ? null : Math.tanh(data.dep_delay / 60) * Math.log1p(km) };
}

const { hostname, port } = new URL(url);
const worker = new Worker(queue, score, { connection: { host: hostname, port: Number(port) }, concurrency: 50, name: 'node' });
worker.on('error', (error) => console.error(error.message));
process.stdin.resume().on('end', () => worker.close(true).finally(() => process.exit(0)));
