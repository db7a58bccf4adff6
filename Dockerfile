# What runs beside Spark and Node: spark-bull promote, serve, metrics, work --local. See docs/platforms/containers.md.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
ARG EXTRAS=web,encrypt,offload,otel
# pip reads them: where packages come from, if not from PyPI.
ARG PIP_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_NO_INDEX
COPY setup.cfg pyproject.toml constraints.txt README.md LICENSE /source/
COPY spark_bull /source/spark_bull
COPY pyspark_bull /source/pyspark_bull
# spark_bull/notebooks is a link to it.
COPY notebooks /source/notebooks
RUN python3 -m venv /opt/spark-bull && \
    /opt/spark-bull/bin/pip install --no-cache-dir --constraint /source/constraints.txt "/source[${EXTRAS}]"

FROM ${BASE}
COPY --from=build /opt/spark-bull /opt/spark-bull
# Unbuffered: what a processor prints is in the log at once.
ENV PATH=/opt/spark-bull/bin:${PATH} PYTHONUNBUFFERED=1
# Modules of processors are found here.
WORKDIR /jobs
# A number, by which Kubernetes sees that this is not root.
USER 10001:10001
# No shell in between: the command is PID 1 and gets SIGTERM. No HEALTHCHECK: only some commands listen.
ENTRYPOINT ["spark-bull"]
CMD ["help"]
