# Two images from one file:
#
#   docker build --target api    -t lethe-api .
#   docker build --target worker -t lethe-worker .
#
# Everything is installed from constraints.txt. tests/packaging runs the install and start
# steps of this file, as they stand here, in a clean virtual environment.
ARG PYTHON=python:3.11-slim

# The environment of the API. It has no pip of its own: the builder's installs into it.
FROM ${PYTHON} AS build-api
WORKDIR /src
RUN python -m venv --without-pip /opt/lethe
COPY pyproject.toml constraints.txt constraints-gpu.txt README.md LICENSE ./
COPY lethe lethe
COPY app app
COPY migrations migrations
COPY models models
COPY workers workers
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m pip --python /opt/lethe/bin/python install -c constraints.txt '.[image]'

# The same, with what the methods compute with. EXTRA=families: what every family needs. Where
# torch comes from and for which processor, compose.yaml says.
FROM build-api AS build-worker
ARG EXTRA=worker
ARG CONSTRAINTS=constraints.txt
ARG TORCH_INDEX=
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m pip --python /opt/lethe/bin/python install -c ${CONSTRAINTS:-constraints.txt} \
    ${TORCH_INDEX:+--extra-index-url} ${TORCH_INDEX:-} ".[${EXTRA:-worker}]"

# No compiler and no source tree in what runs, and nobody who could write to the code.
FROM ${PYTHON} AS runtime
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin lethe \
    && install --directory --owner=lethe --group=lethe --mode=0700 /var/lib/lethe
ENV PATH=/opt/lethe/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    LETHE_ENVIRONMENT=production \
    LETHE_DATA_DIR=/var/lib/lethe
WORKDIR /var/lib/lethe
VOLUME /var/lib/lethe
USER lethe

FROM runtime AS api
COPY --from=build-api /opt/lethe /opt/lethe
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/healthz', timeout=3)"]
CMD ["lethe", "serve", "--host", "0.0.0.0", "--port", "8000"]

FROM runtime AS worker
COPY --from=build-worker /opt/lethe /opt/lethe
COPY docker/worker_health.py /opt/lethe/worker_health.py
HEALTHCHECK --interval=60s --timeout=20s --start-period=60s --retries=3 \
    CMD ["python", "/opt/lethe/worker_health.py"]
CMD ["lethe", "worker"]
