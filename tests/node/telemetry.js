'use strict';

// A telemetry object for BullMQ: the part of bullmq-otel and the SDK of OpenTelemetry that tests need. `ended` gets
// each span when it ends.

const { AsyncLocalStorage } = require('async_hooks');
const { randomBytes } = require('crypto');

const KINDS = ['INTERNAL', 'SERVER', 'CLIENT', 'PRODUCER', 'CONSUMER'];

const hex = (bytes) => randomBytes(bytes).toString('hex');

class Span {
  constructor(name, kind, parent, ended) {
    this.fields = {
      name,
      kind: KINDS[kind],
      traceId: parent ? parent.traceId : hex(16),
      spanId: hex(8),
      parentSpanId: parent ? parent.spanId : null,
      attributes: {},
      events: [],
    };
    this.ended = ended;
  }

  setSpanOnContext(context) {
    return { ...context, span: this.fields };
  }

  setAttribute(key, value) {
    this.setAttributes({ [key]: value });
  }

  setAttributes(attributes) {
    Object.assign(this.fields.attributes, attributes);
  }

  addEvent(name) {
    this.fields.events.push(name);
  }

  recordException() {}

  end() {
    this.ended(this.fields);
  }
}

function telemetryOf(ended) {
  const current = new AsyncLocalStorage();
  const contextManager = {
    with: (context, run) => current.run(context, run),
    active: () => current.getStore() || {},
    getMetadata: ({ span }) => JSON.stringify({ traceparent: `00-${span.traceId}-${span.spanId}-01` }),
    fromMetadata(context, metadata) {
      const [, traceId, spanId] = JSON.parse(metadata).traceparent.split('-');
      return { ...context, span: { traceId, spanId } };
    },
  };
  const tracer = {
    startSpan: (name, { kind }, context) =>
      new Span(name, kind, (context || contextManager.active()).span, ended),
  };
  return { tracer, contextManager };
}

module.exports = { telemetryOf };
