#!/bin/sh
# Pins the images of others, in docker-compose.yml and the Dockerfile, by the digests that their
# registries give for their tags now: `python:3.13-slim` becomes `python:3.13-slim@sha256:…`. Run it
# again to renew the digests. Where a registry is not reached it changes nothing.
set -eu
cd "$(dirname "$0")/../.."

pinned=$(mktemp -d)
trap 'rm -r "$pinned"' EXIT

# An image as it is written, up to its digest: a name, and a tag or a version.
written='s/^(    image: |ARG PYTHON_IMAGE=)([^ @]+)(@sha256:[0-9a-f]{64})?$'

for file in docker-compose.yml Dockerfile; do
    cp "$file" "$pinned/$file"
    for image in $(sed -nE "$written/\\2/p" "$file" | sort -u); do
        digest=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$image")
        echo "$digest" | grep -Eqx 'sha256:[0-9a-f]{64}' || {
            echo "$image: the registry gave no digest" >&2
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
