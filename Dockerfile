# The live campaign in a container: docker build -t voxpop . (docs/how-to/serve-for-a-team.md)
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml CMakeLists.txt README.md LICENSE ./
COPY src src
RUN python -m venv /voxpop && /voxpop/bin/pip install --no-cache-dir '.[serve,postgres]'

FROM python:3.12-slim
COPY --from=build /voxpop /voxpop
# Nothing here needs rights; the database is the only thing that is written.
RUN useradd --system --uid 1000 --create-home voxpop && mkdir /data && chown voxpop /data
USER voxpop
VOLUME /data
WORKDIR /data
EXPOSE 8000
ENV PATH=/voxpop/bin:$PATH
HEALTHCHECK --interval=30s --timeout=5s CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
ENTRYPOINT ["voxpop", "serve", "run", "--host", "0.0.0.0", "--port", "8000"]
CMD ["/data/campaign.db", "--public-url", "http://127.0.0.1:8000"]
