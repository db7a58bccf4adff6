'use strict';

const { Adapter } = require('./adapter');
const { behave } = require('../behaviours');
const { telemetryOf } = require('../telemetry');

const { BullMQBench } = require('./bullmq_bench');

const EVENTS = [
  'added', 'waiting', 'active', 'completed', 'failed', 'delayed', 'progress', 'stalled', 'duplicated', 'deduplicated',
  'drained', 'paused', 'resumed', 'removed', 'cleaned', 'retries-exhausted', 'waiting-children',
];

const idsOf = ({ job, children = [] }) => ({ id: job.id, children: children.map(idsOf) });

// BullMQ 5 and 6.
class BullMQAdapter extends Adapter {
  get options() {
    const connection = this.connection.isCluster
      ? this.connection
      : { ...this.connection, maxRetriesPerRequest: null };
    return { connection, prefix: this.prefix, telemetry: this.telemetry };
  }

  // Queues and workers that are opened from now on have a telemetry object; each of its spans is an event.
  trace() {
    this.telemetry = telemetryOf((span) => this.emit({ event: 'span', ...span }));
  }

  // Queues and workers that are opened from now on record metrics; `exported` returns them.
  measure() {
    const { telemetry, exported } = require('../metrics').metered();
    Object.assign(this, { telemetry, exported });
  }

  openQueue(name) {
    return new this.library.Queue(name, this.options);
  }

  async addOne(queue, { name, data, opts }) {
    return (await queue.add(name, data, opts)).id;
  }

  async flow({ flow }) {
    this.producer ??= new this.library.FlowProducer(this.options);
    return idsOf(await this.producer.add(flow));
  }

  async flows({ flows }) {
    this.producer ??= new this.library.FlowProducer(this.options);
    return (await this.producer.addBulk(flows)).map(idsOf);
  }

  // The tree as [queue, id, state, children]; null for a job that was removed.
  async getFlow({ queue, jobId, depth = 10, maxChildren = 1_000 }) {
    this.producer ??= new this.library.FlowProducer(this.options);
    const treeOf = async (node) => node && [
      node.job.queueName, node.job.id, await node.job.getState(),
      await Promise.all((node.children ?? []).map(treeOf)),
    ];
    const found = await this.producer.getFlow({ queueName: queue, id: jobId, depth, maxChildren });
    return (await treeOf(found)) ?? null;
  }

  async close() {
    await Promise.allSettled([super.close(), this.producer?.close()]);
  }

  clean({ queue, grace = 0, state = 'completed', limit = 0 }) {
    return this.queue(queue).clean(grace, limit, state);
  }

  async empty({ queue, delayed = false }) {
    await this.queue(queue).drain(delayed);
  }

  async startWorker(name, concurrency, opts) {
    const processor = (job, token) => behave(this.view(job, token));
    const worker = new this.library.Worker(name, processor, { ...this.options, concurrency, ...opts });
    const announce = (event, job, details) =>
      this.announce('worker', name, event, {
        jobId: job && job.id, name: job && job.name, attemptsMade: job && job.attemptsMade, ...details,
      });
    worker.on('error', (error) => this.report(name, error));
    worker.on('active', (job) => announce('active', job));
    worker.on('progress', (job, progress) => announce('progress', job, { progress }));
    worker.on('stalled', (jobId) => announce('stalled', { id: jobId }));
    worker.on('completed', (job, returnvalue) => announce('completed', job, { returnvalue }));
    worker.on('failed', (job, error) => announce('failed', job, { failedReason: error && error.message }));
    worker.on('drained', () => this.announce('worker', name, 'drained'));
    await worker.waitUntilReady();
    return worker;
  }

  async openBench(name) {
    const bench = new BullMQBench(this, name);
    await bench.worker.waitUntilReady();
    return bench;
  }

  closeWorker(worker, force) {
    return worker.close(force);
  }

  async startListener(name) {
    const listener = new this.library.QueueEvents(name, this.options);
    listener.on('error', (error) => this.report(name, error));
    const wanted = new Set([...EVENTS, ...(this.listeners.get(name).events ?? [])]);
    for (const event of wanted) listener.on(event, (details) => this.announce('queue', name, event, details));
    await listener.waitUntilReady();
    return listener;
  }

  async waitForEnd({ queue, jobId }) {
    return (await this.job(queue, jobId)).waitUntilFinished(this.listeners.get(queue).listener);
  }

  async publish({ queue, event }) {
    const producer = new this.library.QueueEventsProducer(queue, this.options);
    await producer.publishEvent(event);
    await producer.close();
  }

  view(job, token) {
    return {
      data: job.data,
      attemptsMade: job.attemptsMade,
      progress: (value) => job.updateProgress(value),
      log: (row) => job.log(row),
      discard: () => { throw new this.library.UnrecoverableError('discarded'); },
      childrenValues: () => job.getChildrenValues(),
      childrenFailures: () => job.getIgnoredChildrenFailures(),
      removeUnprocessedChildren: () => job.removeUnprocessedChildren(),
      addChild: async (name) => {
        if (Object.keys(await job.getChildrenValues()).length) return;
        const parent = { id: job.id, queue: job.queueQualifiedName };
        await this.queue(name).add('child', { $behaviour: 'return:7' }, { parent, jobId: `child-of-${job.id}` });
      },
      attemptsStarted: job.attemptsStarted,
      delay: async (ms) => {
        await job.moveToDelayed(Date.now() + ms, token);
        throw new this.library.DelayedError();
      },
      limit: async (ms) => {
        await this.queue(job.queueName).rateLimit(ms);
        throw new this.library.RateLimitError();
      },
      giveBack: async () => {
        await job.moveToWait(token);
        throw new this.library.WaitingError();
      },
      waitForChildren: async () => {
        if (await job.moveToWaitingChildren(token)) throw new this.library.WaitingChildrenError();
      },
    };
  }
}

module.exports = BullMQAdapter;
