// A BullMQ worker that processes jobs of the demo: demo_worker.js REDIS_URL QUEUE AIRPORTS_JSON
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const { Worker } = require(path.join(__dirname, '..', 'tests', 'node', 'node_modules', 'bullmq-6.7.0'));

const [url, queue, file] = process.argv.slice(2);
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
