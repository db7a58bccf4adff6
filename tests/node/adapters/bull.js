'use strict';

const { Adapter } = require('./adapter');
const { behave } = require('../behaviours');

const { BullBench } = require('./bull_bench');

const ALL_STATES = ['wait', 'active', 'paused', 'delayed', 'completed', 'failed'];
const EVENTS = ['waiting', 'active', 'completed', 'failed', 'progress', 'stalled', 'duplicated', 'paused', 'resumed', 'drained'];

// Bull 3 and 4.
class BullAdapter extends Adapter {
  openQueue(name, opts = {}) {
    const place = this.connection.isCluster
      ? { createClient: () => this.connection.duplicate() }
      : { redis: this.connection };
    return new this.library(name, { ...place, prefix: this.prefix, ...opts });
  }

  async addOne(queue, { name, data, opts }) {
    const job = await (name === undefined || name === null ? queue.add(data, opts) : queue.add(name, data, opts));
    return job.id;
  }

  getJobs({ states = ALL_STATES, ...rest }) {
    return super.getJobs({ states, ...rest });
  }

  clean({ queue, grace = 0, state = 'completed', limit = 0 }) {
    return this.queue(queue).clean(grace, state, limit || undefined);
  }

  async startWorker(name, concurrency, opts) {
    const queue = this.openQueue(name, opts);
    const announce = (event, job, details) =>
      this.announce('worker', name, event, { jobId: job.id, name: job.name, attemptsMade: job.attemptsMade, ...details });
    queue.on('error', (error) => this.report(name, error));
    queue.on('active', (job) => announce('active', job));
    queue.on('progress', (job, progress) => announce('progress', job, { progress }));
    queue.on('stalled', (job) => announce('stalled', job));
    queue.on('completed', (job, returnvalue) => announce('completed', job, { returnvalue }));
    queue.on('failed', (job, error) => announce('failed', job, { failedReason: error && error.message }));
    queue.on('drained', () => this.announce('worker', name, 'drained'));
    queue.process('*', concurrency, (job) => behave(this.view(job)));
    await queue.isReady();
    return queue;
  }

  async openBench(name) {
    const bench = new BullBench(this, name);
    await bench.queue.isReady();
    return bench;
  }

  closeWorker(queue, force) {
    return queue.close(force);
  }

  async startListener(name) {
    const queue = this.openQueue(name);
    queue.on('error', (error) => this.report(name, error));
    for (const event of EVENTS) {
      const registered = new Promise((resolve) => queue.once(`registered:global:${event}`, resolve));
      queue.on(`global:${event}`, (jobId, detail) => this.announce('queue', name, event, { jobId, detail }));
      await registered;
    }
    return queue;
  }

  view(job) {
    return {
      data: job.data,
      attemptsMade: job.attemptsMade,
      progress: (value) => job.progress(value),
      log: (row) => job.log(row),
      discard: () => { job.discard(); throw new Error('discarded'); },
    };
  }
}

module.exports = BullAdapter;
