#!/bin/sh
# Pins the base image in the Dockerfile and the third-party images in docker-compose.yml to the
# current digests of their tags: `python:3.13-slim` becomes `python:3.13-slim@sha256:…`. To update
# the digests, run the script again. If a registry is unreachable, the script changes no file.
set -eu
cd "$(dirname "$0")/../.."

pinned=$(mktemp -d)
trap 'rm -r "$pinned"' EXIT

# Matches a line with an image: the name with a tag or a version, and optionally a digest.
written='s/^(    image: |ARG PYTHON_IMAGE=)([^ @]+)(@sha256:[0-9a-f]{64})?$'

for file in docker-compose.yml Dockerfile; do
    cp "$file" "$pinned/$file"
    for image in $(sed -nE "$written/\\2/p" "$file" | sort -u); do
        digest=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$image")
        echo "$digest" | grep -Eqx 'sha256:[0-9a-f]{64}' || {
            echo "$image: the registry returned no digest" >&2
            exit 1
        }
        sed -E "s|^(    image: \|ARG PYTHON_IMAGE=)$image(@sha256:[0-9a-f]{64})?\$|\\1$image@$digest|" \
            "$pinned/$file" > "$pinned/new"
        cat "$pinned/new" > "$pinned/$file"
        echo "$image@$digest"
    done
done
for file in docker-compose.yml Dockerfile; do
    cat "$pinned/$file" > "$file"
done
