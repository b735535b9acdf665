#!/bin/sh
# Creates the secrets for docker-compose.yml as files in secrets/. The script copies each secret
# that .env contains, for example the secrets of your providers. All other passwords and keys are
# random. Afterwards you may remove the secrets from .env. You can run the script again, because it
# replaces an existing file only if .env contains a different value. The script never prints a
# secret.
set -eu
cd "$(dirname "$0")/../.."

# Other users of this machine can't open the folder. All users can read the files in the folder,
# because each container reads its files as a different user.
umask 077
mkdir -p secrets

# given NAME: prints the value of a variable in .env without quotes.
given() {
    [ ! -e .env ] || sed -n "s/^$1=//p" .env | tail -n 1 | sed -e 's/^"\(.*\)"$/\1/' -e "s/^'\(.*\)'\$/\1/"
}

# keep FILE VALUE: writes a secret to a file, unless the file already contains the secret.
keep() {
    [ -e "secrets/$1" ] && [ "$(cat "secrets/$1")" = "$2" ] && return
    printf '%s' "$2" > "secrets/$1.new"
    chmod 444 "secrets/$1.new"
    mv -f "secrets/$1.new" "secrets/$1"
    echo "secrets/$1"
}

# secret FILE VARIABLE [DEFAULT]: keeps the value in .env, the value in the existing file, or
# DEFAULT, in this order.
secret() {
    value=$(given "$2")
    [ -n "$value" ] || value=$(cat "secrets/$1" 2>/dev/null || true)
    keep "$1" "${value:-${3:-}}"
}

password() { openssl rand -hex 24; }
key() { echo "k1:$(openssl rand -base64 32 | tr '+/' '-_')"; }

secret postgres_password POSTGRES_PASSWORD "$(password)"
secret migration_database_url PRESSROOM_MIGRATION_DATABASE_URL \
    "postgresql://pressroom:$(cat secrets/postgres_password)@postgres:5432/pressroom"
app_password=$(given POSTGRES_APP_PASSWORD)
secret database_url PRESSROOM_DATABASE_URL \
    "postgresql://pressroom_app:${app_password:-$(password)}@postgres:5432/pressroom"
secret redis_password REDIS_PASSWORD "$(password)"
secret redis_url PRESSROOM_REDIS_URL "redis://pressroom:$(cat secrets/redis_password)@redis:6379/0"
secret s3_admin_secret_key MINIO_ROOT_PASSWORD "$(password)"
secret s3_secret_key PRESSROOM_S3_SECRET_KEY "$(password)"
secret secret_keys PRESSROOM_SECRET_KEYS "$(key)"
secret encryption_keys PRESSROOM_ENCRYPTION_KEYS "$(key)"
secret flower_password PRESSROOM_FLOWER_PASSWORD "$(password)"
secret metrics_token PRESSROOM_METRICS_TOKEN "$(password)"
secret grafana_password GRAFANA_PASSWORD "$(password)"

# Secrets from your providers, which are optional.
for name in read_database_url broker_url cache_url stripe_secret_key stripe_webhook_secret \
    unsplash_access_key turnstile_secret hcaptcha_secret recaptcha_secret mail_url \
    llm_api_key backup_url backup_keys backup_database_url; do
    secret "$name" "PRESSROOM_$(echo "$name" | tr '[:lower:]' '[:upper:]')"
done
