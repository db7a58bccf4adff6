"""`spark-bull metrics`: the metrics of queues in the text format of Prometheus, once or over HTTP."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentTypeError, Namespace
from math import inf
from typing import Final

from spark_bull.core.errors import OptionError
from spark_bull.core.options.table import ReadOptions
from spark_bull.core.queue.monitor.find import is_glob
from spark_bull.ops.cli.arguments import (
    OF_LISTEN,
    argument,
    duration,
    host_and_port,
    number_or_zero,
    positive_milliseconds,
    positive_seconds,
    repeated,
)
from spark_bull.ops.cli.command import Output, command, existing_handle, options_of, queues_of, until_interrupted
from spark_bull.ops.prometheus.collect import TARGET_WAIT_S, Export, Scraped, collect
from spark_bull.ops.prometheus.families import as_text
from spark_bull.ops.prometheus.server import MetricsServer

#: Names that samples have themselves.
_OWN_LABELS: Final = frozenset({"queue", "state", "name", "percentile"})
#: For how long a scrape retries, ms: Prometheus gives up after 10 s, and scrapes again.
_RETRY_MS: Final = 2_000
_CALL_TIMEOUT_MS: Final = 5_000
#: For how long a scrape reads queues, s.
_SCRAPE_S: Final = 7.0


def _metrics(args: Namespace) -> Output:
    labels = dict(args.label)
    if args.listen is None:
        for queue in queues_of(args, [one for one in args.queues if not is_glob(one)]):
            existing_handle(args, queue)
        samples = collect(_export(args, options_of(args), inf))
        if args.json:
            return [
                {"metric": one.family.name, "labels": {**one.labels, **labels}, "value": one.value} for one in samples
            ]
        return as_text(samples, labels)
    host, port = args.listen
    _serve(host, port, _export(args, _hasty(args), _SCRAPE_S), labels)
    return None


def _export(args: Namespace, options: ReadOptions, limit_s: float) -> Export:
    queues = tuple(args.queues or ["*"])
    return Export(options, queues, args.sample, args.window, args.names, limit_s, args.target_wait)


def _hasty(args: Namespace) -> ReadOptions:
    """The connection arguments, with which a call does not outlast a scrape."""
    return options_of(args, retryMs=_RETRY_MS, callTimeoutMs=_CALL_TIMEOUT_MS)


def _serve(host: str, port: int, export: Export, labels: dict[str, str]) -> None:
    """Serves the metrics until SIGINT or SIGTERM."""
    scraped = Scraped()
    try:
        server = MetricsServer(host, port, lambda: as_text(collect(export, scraped), labels))
    except OSError as error:
        raise OptionError(f"expected a free address to listen on, got: {host}:{port} ({error.strerror})") from None
    with until_interrupted(), server:
        print(f"listening on {server.url}; Ctrl-C ends it", file=sys.stderr, flush=True)
        server.serve_forever()


def _label(text: str) -> tuple[str, str]:
    """Parses name=value for argparse."""
    name, separator, value = text.partition("=")
    if not separator or not re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name) or name.startswith("__"):
        raise ArgumentTypeError(f"expected name=value, such as environment=production, got: {text!r}")
    if name in _OWN_LABELS:
        raise ArgumentTypeError(f"expected another name than {', '.join(sorted(_OWN_LABELS))}, got: {text!r}")
    return name, value


COMMANDS: Final = (
    command(
        "metrics",
        "print or serve metrics for Prometheus",
        "metrics 'mail*' --listen :9090",
        _metrics,
        argument("queues", metavar="queue", nargs="*", help="names or globs of queues (default: all)"),
        argument(
            "--listen",
            type=host_and_port,
            metavar="HOST:PORT",
            help="serve them at http://HOST:PORT/metrics until Ctrl-C; without HOST on all addresses",
        ),
        *OF_LISTEN,
        repeated(
            "--label",
            "NAME=VALUE",
            "label of all metrics, as a global variable of exportPrometheusMetrics; may be repeated",
            type=_label,
        ),
        duration(
            "--window",
            "period, up to now, of the times and rates of jobs (default: 5m)",
            type=positive_milliseconds,
            default=300_000,
        ),
        duration(
            "--target-wait",
            "time within which waiting jobs are to start, for the number of wanted slots (default: 30s)",
            type=positive_seconds,
            default=TARGET_WAIT_S,
        ),
        argument(
            "--sample",
            type=number_or_zero,
            default=1_000,
            help="maximum number of jobs read of each state for times, ages and jobs by name (default: 1000); 0: none",
        ),
        argument(
            "--names",
            type=number_or_zero,
            default=20,
            help="number of job names, the most frequent ones, that have metrics of their own (default: 20)",
        ),
        of_queue=False,
    ),
)
