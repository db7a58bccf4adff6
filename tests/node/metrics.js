'use strict';

// The telemetry object of bullmq-otel with a meter of the SDK of OpenTelemetry, and what that exports.

const { metrics } = require('@opentelemetry/api');
const { DataPointType, MeterProvider, MetricReader } = require('@opentelemetry/sdk-metrics');
const { BullMQOtel } = require('bullmq-otel');

const KINDS = {
  [DataPointType.SUM]: 'sum', [DataPointType.HISTOGRAM]: 'histogram', [DataPointType.GAUGE]: 'gauge',
};

class PulledReader extends MetricReader {
  async onForceFlush() {}

  async onShutdown() {}
}

const valueOf = (value) => (
  typeof value === 'object' ? { count: value.count, bounds: value.buckets.boundaries } : value
);

const exportOf = ({ descriptor, dataPointType, dataPoints }) => ({
  name: descriptor.name,
  unit: descriptor.unit,
  description: descriptor.description,
  kind: KINDS[dataPointType],
  points: dataPoints.map(({ attributes, value }) => ({ attributes, value: valueOf(value) })),
});

function metered() {
  const reader = new PulledReader();
  metrics.disable();
  metrics.setGlobalMeterProvider(new MeterProvider({ readers: [reader] }));
  const telemetry = new BullMQOtel({ enableMetrics: true });
  const exported = async () => {
    const { resourceMetrics } = await reader.collect();
    return resourceMetrics.scopeMetrics.flatMap((scope) => scope.metrics.map(exportOf));
  };
  return { telemetry, exported };
}

module.exports = { metered };
