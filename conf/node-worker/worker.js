// A worker of the queue `mail`. SIGTERM lets it finish its job.
const { Worker } = require('bullmq');

const connection = { url: process.env.SPARK_BULL_URL };
const send = async (job) => ({ sent: job.data.to });

const worker = new Worker('mail', send, { connection });
worker.on('completed', (job) => console.log('sent', job.id));
worker.on('failed', (job, error) => console.error('failed', job?.id, error.message));
worker.on('error', (error) => console.error(error.message));
process.once('SIGTERM', () => worker.close());
