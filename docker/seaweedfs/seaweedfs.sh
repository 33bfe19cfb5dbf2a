#!/bin/sh
# In the folder $1 lie a certificate, its key, and the security.toml that makes SeaweedFS ask for it on every
# gRPC port. Without, anyone who reaches the gateway's gRPC port could give himself a key.
set -eu
umask 077
cd "$1"

if [ ! -s certificate.key ] || [ ! -s certificate.pem ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc -days 3650 \
        -subj /CN=ghosted-s3 -keyout certificate.key -out certificate.pem
fi

{
    printf '[grpc]\nca = "certificate.pem"\n'
    for role in master volume filer s3 client; do
        printf '\n[grpc.%s]\ncert = "certificate.pem"\nkey = "certificate.key"\n' "$role"
    done
} > security.toml.new
mv security.toml.new security.toml
