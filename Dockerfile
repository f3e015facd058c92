# loadtest and its simulated servers; docker-compose.yml builds it.
FROM python:3.13-slim-bookworm
ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY loadtest loadtest
COPY servers servers
COPY scenarios scenarios
COPY docker-compose.yml compose.draft.yml compose.eagle3.yml compose.isolated.yml compose.mtp.yml compose.ngram.yml compose.onegpu.yml compose.tp4.yml .env ./
RUN pip install . && rm -rf build
RUN useradd --create-home --uid 1000 loadtest && install -d -o loadtest reports
USER loadtest
ENTRYPOINT ["loadtest"]
CMD ["--help"]
